"""Records in a SQLite file that threads and processes share: each transaction sees all earlier ones."""

import hashlib
import json
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ringfence.files.atomic import OWNER_ALONE
from ringfence.files.checkpoint import exact_json

Record = dict[str, Any]
Row = tuple[int, str, str]  # number, content, hash

_PATIENCE = 60.0  # seconds to wait for another process
_MADE = "CREATE TABLE records (number INTEGER PRIMARY KEY, content TEXT NOT NULL, hash TEXT NOT NULL)"
_READ = "SELECT number, content, hash FROM records WHERE number >= ? ORDER BY number"

# One transaction of this process at a time, and none while it forks, because a child inherits no lock of
# SQLite's, or closes the file elsewhere, because that ends the lock.
_ALONE = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_ALONE.acquire, after_in_parent=_ALONE.release, after_in_child=_ALONE.release)


class SharedTable:
    """A table that only grows, in a file or, where ``path`` is None, in the memory of one process.

    ``take`` is called with every record, whoever wrote it, once and in order. A row holds the SHA-256 of the
    row before and of its own content; the first one should hold something random. PATH.lock, which is written
    last, holds number and hash of the last row. Between transactions nothing is open: two objects, a symbolic
    link and a forked process have the file in common.

    Guarantee: transactions happen one after the other, in all threads and processes that use the file. When
    one has ended, its records are on the disk; one that fails or is killed has written nothing. Rows that
    were changed, taken from another table or taken away are refused, as long as PATH.lock is beside the file.

    >>> import tempfile
    >>> folder, taken = tempfile.TemporaryDirectory(), []
    >>> for number in range(2):
    ...     with SharedTable(Path(folder.name, "table"), taken.append).transaction() as append:
    ...         append({"number": number})
    >>> taken  # the second object has read what the first one wrote
    [{'number': 0}, {'number': 0}, {'number': 1}]
    >>> folder.cleanup()
    """

    def __init__(self, path: str | os.PathLike[str] | None, take: Callable[[Record], None]) -> None:
        self._take, self._process = take, os.getpid()
        self._number, self._hash = 0, ""  # of the last row that was read
        self._memory: sqlite3.Connection | None = None
        if path is None:
            self._memory = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
            weakref.finalize(self, self._memory.close)
            return
        self.path = Path(os.path.realpath(path))
        with _ALONE:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, OWNER_ALONE))

    @contextmanager
    def transaction(self) -> Iterator[Callable[[Record], None]]:
        """Takes what is new and yields a function that appends a record; the records are taken at the end."""
        with _ALONE:
            connection: sqlite3.Connection | None = None
            try:
                connection = self._connected()
                connection.execute("BEGIN IMMEDIATE")
                self._read(connection)
                records: list[Record] = []
                yield records.append
                rows = self._rows(records)
                connection.executemany("INSERT INTO records VALUES (?, ?, ?)", rows)
                connection.execute("COMMIT")
                self._take_rows(rows)
                self._announce()
            except sqlite3.Error as error:
                kind = OSError if isinstance(error, sqlite3.OperationalError) else ValueError
                raise kind(f"{self} cannot be read or written: {error}") from None
            finally:
                if connection is not None and connection.in_transaction:
                    connection.rollback()
                if connection is not None and connection is not self._memory:
                    connection.close()

    def dump(self) -> bytes:
        """Returns a table in memory as the bytes of a file."""
        assert self._memory is not None
        return self._memory.serialize()

    def __str__(self) -> str:
        return str(self.path) if self._memory is None else "the table in memory"

    def _connected(self) -> sqlite3.Connection:
        if self._memory is not None:
            if os.getpid() != self._process:
                raise ValueError("a ledger in memory belongs to one process: give it a path to share it")
            return self._memory
        uri = f"{self.path.as_uri()}?mode=rw"  # which does not make a file in the place of one that is gone
        connection = sqlite3.connect(uri, uri=True, timeout=_PATIENCE, isolation_level=None)
        connection.execute("PRAGMA synchronous = EXTRA")  # a power cut does not take a transaction back
        return connection

    def _read(self, connection: sqlite3.Connection) -> None:
        """Takes the rows after the last one that was read, which must still be there."""
        if not self._number and not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            connection.execute(_MADE)
        rows = connection.execute(_READ, (self._number,)).fetchall()
        if not self._number:
            self._refuse_loss({number: found for number, _, found in rows})
        elif not rows or rows.pop(0)[2] != self._hash:
            raise ValueError(f"{self} is not the one that was opened: somebody replaced it or took rows away")
        self._take_rows(rows)

    def _rows(self, records: list[Record]) -> list[Row]:
        rows, last = [], self._hash
        for number, record in enumerate(records, self._number + 1):
            content = exact_json("record", record)
            rows.append((number, content, last := _hash(last, content)))
        return rows

    def _take_rows(self, rows: list[Row]) -> None:
        for number, content, found in rows:
            if number != self._number + 1 or found != _hash(self._hash, content):
                raise ValueError(f"{self} is damaged, or row {number} was not written by it")
            self._take(json.loads(content))
            self._number, self._hash = number, found

    def _refuse_loss(self, hashes: dict[int, str]) -> None:
        """Refuses a file that lacks the row that PATH.lock knows; versions up to 0.6 noted no hash."""
        if self._memory is not None:
            return
        try:
            first, *known = Path(f"{self.path}.lock").read_text().split()
            number = int(first)
        except (FileNotFoundError, ValueError):  # nothing was noted
            return
        if number and (number not in hashes or known not in ([], [hashes[number]])):
            raise ValueError(
                f"{self.path} was removed, or replaced by an older or another one: {self.path.name}.lock "
                f"knows of {number} rows. Put it back, or remove that file too to forget what was spent"
            )

    def _announce(self) -> None:
        if self._memory is None:
            file = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT, OWNER_ALONE)
            try:
                os.write(file, b"%20d %s\n" % (self._number, self._hash.encode()))
            finally:
                os.close(file)


def first_bytes(path: Path) -> bytes:
    """The beginning of a file that may be a table.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with SharedTable(Path(folder, "table"), print).transaction():
    ...         pass
    ...     first_bytes(Path(folder, "table"))
    b'SQLite'
    """
    with _ALONE, path.open("rb") as file:
        return file.read(6)


def _hash(before: str, content: str) -> str:
    return hashlib.sha256(f"{before} {content}".encode()).hexdigest()
