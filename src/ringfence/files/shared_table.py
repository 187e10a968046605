"""Records in a SQLite file that threads and processes share: each transaction sees all earlier ones."""

import hashlib
import json
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from ringfence.files.atomic import OWNER_ALONE
from ringfence.files.checkpoint import exact_json

Record = dict[str, Any]

_PATIENCE = 60.0  # seconds to wait for another process
_MADE = "CREATE TABLE records (number INTEGER PRIMARY KEY, content TEXT NOT NULL, hash TEXT NOT NULL)"
_READ = "SELECT number, content, hash FROM records WHERE number >= ? ORDER BY number"
_WRITE = "INSERT INTO records VALUES (?, ?, ?)"

# One transaction of this process at a time, and none while it forks, because a child inherits no lock of
# SQLite's, or closes the file elsewhere, because that ends the lock.
_ALONE = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_ALONE.acquire, after_in_parent=_ALONE.release, after_in_child=_ALONE.release)


class SharedTable:
    """A table that only grows, in a file or, where ``path`` is None, in the memory of one process.

    ``begin`` are the records of a new table, the first of them random. ``take`` is called with every record,
    whoever wrote it, once and in order. PATH.lock holds number and hash of the last row. Between transactions
    no file is open, so that a symbolic link, a second object and a forked child have it in common.

    Guarantee: transactions happen one after the other, in all threads and processes that use the file. When
    one has ended, its records are on the disk; one that fails or is killed has written nothing. A row has the
    SHA-256 of the row before and of itself: rows that were changed, taken from another table or taken away
    are refused, as long as PATH.lock is beside the file.

    >>> taken = []
    >>> table = SharedTable(None, [{"number": 0}], taken.append)
    >>> with table.transaction() as append:
    ...     append({"number": len(taken)})
    >>> taken
    [{'number': 0}, {'number': 1}]
    """

    def __init__(
        self, path: str | os.PathLike[str] | None, begin: list[Record], take: Callable[[Record], None]
    ) -> None:
        self._begin, self._take, self._process = begin, take, os.getpid()
        self._number, self._hash = 0, ""  # of the last row that was taken
        self._path = None if path is None else Path(os.path.realpath(path))
        if self._path is None:
            self._memory = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
            weakref.finalize(self, self._memory.close)
        else:
            with _ALONE:
                os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, OWNER_ALONE))

    @contextmanager
    def transaction(self) -> Iterator[Callable[[Record], None]]:
        """Takes what is new and yields a function that appends a record, which is taken at the end."""
        with _ALONE:
            connection, records = self._connected(), list[Record]()
            try:
                connection.execute("PRAGMA synchronous = EXTRA")  # which a power cut does not take back
                connection.execute("BEGIN IMMEDIATE")
                if not self._number and not connection.execute("SELECT * FROM sqlite_master").fetchone():
                    connection.execute(_MADE)
                    connection.executemany(_WRITE, self._rows(self._begin))
                self._read(connection)
                yield records.append
                connection.executemany(_WRITE, rows := self._rows(records))
                connection.execute("COMMIT")
                self._take_rows(rows)
            except sqlite3.Error as error:
                kind = OSError if isinstance(error, sqlite3.OperationalError) else ValueError
                raise kind(f"{self._path} cannot be read or written: {error}") from None
            finally:
                if connection.in_transaction:
                    connection.rollback()
                if self._path is not None:
                    connection.close()
            if self._path is not None:
                with open(f"{self._path}.lock", "w", opener=partial(os.open, mode=OWNER_ALONE)) as note:
                    note.write(f"{self._number} {self._hash}")

    def _connected(self) -> sqlite3.Connection:
        if self._path is None:
            if os.getpid() != self._process:
                raise ValueError("a ledger in memory belongs to one process: give it a path to share it")
            return self._memory
        uri = f"{self._path.as_uri()}?mode=rw"  # which makes no file where one is gone
        try:
            return sqlite3.connect(uri, uri=True, timeout=_PATIENCE, isolation_level=None)
        except sqlite3.Error as error:
            raise OSError(f"{self._path} cannot be opened: {error}") from None

    def _read(self, connection: sqlite3.Connection) -> None:
        """Takes the rows after the last one that was taken, which must still be there."""
        rows = connection.execute(_READ, (self._number,)).fetchall()
        if self._number and (not rows or rows.pop(0)[2] != self._hash):
            raise ValueError(f"{self._path} was replaced or cut short since it was opened: put it back")
        if not self._number and self._path is not None:
            self._refuse_loss({number: found for number, _, found in rows})
        self._take_rows(rows)

    def _rows(self, records: list[Record]) -> list[tuple[int, str, str]]:
        rows, last = [], self._hash
        for number, record in enumerate(records, self._number + 1):
            last = _hash(last, content := exact_json("record", record))
            rows.append((number, content, last))
        return rows

    def _take_rows(self, rows: list[tuple[int, str, str]]) -> None:
        for number, content, found in rows:
            if number != self._number + 1 or found != _hash(self._hash, content):
                raise ValueError(f"{self._path} is damaged, or row {number} was not written by it")
            self._take(json.loads(content))
            self._number, self._hash = number, found

    def _refuse_loss(self, hashes: dict[int, str]) -> None:
        """Refuses a file that lacks the row of PATH.lock; version 0.6 noted a number alone, one less."""
        try:
            first, *known = Path(f"{self._path}.lock").read_text().split()
            number = int(first) + (not known)
        except (FileNotFoundError, ValueError):  # nothing was noted
            return
        if number not in hashes or known not in ([], [hashes[number]]):
            raise ValueError(
                f"{self._path} was removed, or replaced by an older or another one: its .lock knows of "
                f"{number} rows. Put it back, or remove that file too to forget what was spent"
            )


def first_bytes(path: Path) -> bytes:
    """The beginning of a file that may be a table in use."""
    with _ALONE, path.open("rb") as file:
        return file.read(6)


def _hash(before: str, content: str) -> str:
    return hashlib.sha256(f"{before} {content}".encode()).hexdigest()
