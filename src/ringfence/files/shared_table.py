"""Records in a database that processes and machines share: each transaction sees all earlier ones."""

import hashlib
import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from ringfence.files.atomic import OWNER_ALONE
from ringfence.files.checkpoint import exact_json

Record = dict[str, Any]

_PATIENCE = 60  # seconds to wait for another process
_NAME = "ringfence_ledger"
_MADE = f"CREATE TABLE {_NAME} (number INTEGER PRIMARY KEY, content TEXT NOT NULL, hash TEXT NOT NULL)"
_READ = f"SELECT number, content, hash FROM {_NAME} WHERE number >= :number ORDER BY number"
_WRITE = f"INSERT INTO {_NAME} VALUES (:number, :content, :hash)"
_BEGIN = {  # what is committed is on the disk, and nothing is read before the lock is there
    "sqlite": ("PRAGMA synchronous = EXTRA", "BEGIN IMMEDIATE"),
    "postgresql": (
        "SET LOCAL synchronous_commit = on",
        f"SET LOCAL lock_timeout = '{_PATIENCE}s'",
        f"SET LOCAL idle_in_transaction_session_timeout = '{10 * _PATIENCE}s'",  # of a machine that is gone
        f"SELECT pg_advisory_xact_lock(hashtext('{_NAME}'))",  # for which INSERT and SELECT are enough
    ),
}

# One transaction of this process at a time, and none while it forks, because a child inherits no lock of
# SQLite's, or closes the file elsewhere, because that ends the lock.
_ALONE = threading.RLock()
os.register_at_fork(before=_ALONE.acquire, after_in_parent=_ALONE.release, after_in_child=_ALONE.release)


class SharedTable:
    """A table that only grows, in the database that ``located`` returned, or in memory where that is None.

    ``begin`` are the records of a new table, the first of them random; without them the table must be there.
    ``take`` is called with every record of every process, once and in order. Beside an SQLite file,
    PATH.lock holds number and hash of the last row. Between transactions nothing is open, so that a symbolic
    link, a second object and a forked child have the table in common.

    Guarantee: transactions happen one after the other, in all threads, processes and machines, by the lock of
    an SQLite file, or an advisory lock of PostgreSQL, under which each statement reads all that is committed.
    No two rows have one number, so that without a lock the later of two transactions would fail. When one has
    ended, its records are on the disk; one that fails or is killed has written nothing. A row has the SHA-256
    of the row before and of itself: rows that were changed, taken from another table or taken away are
    refused, the last ones as long as this object or PATH.lock knows of them.

    >>> taken = []
    >>> table = SharedTable(None, [{"number": 0}], taken.append)
    >>> with table.transaction() as append:
    ...     append({"number": len(taken)})
    >>> taken
    [{'number': 0}, {'number': 1}]
    """

    def __init__(self, place: Any, begin: list[Record] | None, take: Callable[[Record], None]) -> None:
        self._place, self._begin, self._take, self._process = place, begin, take, os.getpid()
        self._number, self._hash = 0, ""  # of the last row that was taken
        if isinstance(place, Path):
            self._place = Path(os.path.realpath(place))
            if begin is None and not self._place.exists():
                raise FileNotFoundError(f"{place} holds no ledger: give epsilon to make one")
            with _ALONE:
                made = 0 if begin is None else os.O_CREAT
                os.close(os.open(self._place, os.O_RDWR | made, OWNER_ALONE))
        self._engine = None if place is None else _engine(self._place)
        if place is None:
            self._take_rows(self._rows(begin or []))
        else:
            with self.transaction():
                pass  # takes the rows that are there

    @contextmanager
    def transaction(self) -> Iterator[Callable[[Record], None]]:
        """Takes what is new and yields a function that appends a record, which is taken at the end."""
        records: list[Record] = []
        with _ALONE:
            with self._connected() as connection:
                yield records.append
                rows = self._rows(records)
                if connection:
                    _write(connection, rows)
                    connection.commit()
                self._take_rows(rows)
            if self._number and isinstance(self._place, Path):
                with open(f"{self._place}.lock", "w", opener=partial(os.open, mode=OWNER_ALONE)) as note:
                    note.write(f"{self._number} {self._hash}")

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        """A connection that has the lock until it is committed or closed, after all rows were taken."""
        if self._engine is None:
            if os.getpid() != self._process:
                raise ValueError("a ledger in memory belongs to one process: give it a URL to share it")
            yield None
            return
        errors = _sqlalchemy().exc
        try:
            with self._engine.connect() as connection:
                for command in _BEGIN[connection.dialect.name]:
                    connection.exec_driver_sql(command)
                self._read(connection)
                yield connection
        except errors.DBAPIError as error:
            kind = OSError if isinstance(error, errors.OperationalError) else ValueError
            raise kind(f"{self._place} cannot be read or written: {error.orig}") from None

    def _read(self, connection: Any) -> None:
        """Takes the rows after the last one that is known, which must still be there."""
        sql = _sqlalchemy()
        if not self._number and not sql.inspect(connection).has_table(_NAME):
            if self._begin is None:
                raise FileNotFoundError(f"{self._place} holds no ledger: give epsilon to make one")
            connection.execute(sql.text(_MADE))
            _write(connection, self._rows(self._begin))
        rows = connection.execute(sql.text(_READ), {"number": self._number}).all()
        number, known = self._known()
        hashes = {row.number: row.hash for row in rows}
        if number and (number not in hashes or known not in ("", hashes[number])):
            raise ValueError(
                f"{self._place} was removed, cut short, or replaced by an older or another one since its row "
                f"{number} was written: put it back"
            )
        self._take_rows(rows[1:] if self._number else rows)

    def _known(self) -> tuple[int, str]:
        """Number and hash of the last row of which this object, or else PATH.lock, knows; 0 for none."""
        if self._number or not isinstance(self._place, Path):
            return self._number, self._hash
        try:
            first, *known = Path(f"{self._place}.lock").read_text().split()
            return (int(first), known[0]) if known else (int(first) + 1, "")  # of version 0.6, one less
        except (FileNotFoundError, ValueError):  # nothing was noted
            return 0, ""

    def _rows(self, records: list[Record]) -> list[tuple[int, str, str]]:
        rows, last = [], self._hash
        for number, record in enumerate(records, self._number + 1):
            last = _hash(last, content := exact_json("record", record))
            rows.append((number, content, last))
        return rows

    def _take_rows(self, rows: list[tuple[int, str, str]]) -> None:
        for number, content, found in rows:
            if number != self._number + 1 or found != _hash(self._hash, content):
                raise ValueError(f"{self._place} is damaged, or row {number} was not written by it")
            self._take(json.loads(content))
            self._number, self._hash = number, found


def located(url: str) -> Any:
    """The file of an SQLite URL as a ``Path``, or the URL of a server, whose ``str`` hides the password.

    >>> located("sqlite:////data/study.db"), located("postgresql://ana:secret@server/privacy")
    (PosixPath('/data/study.db'), postgresql+psycopg://ana:***@server/privacy)
    """
    sql, known = _sqlalchemy(), "url must be like sqlite:///study.db or postgresql://user@server/database"
    try:
        found = sql.make_url(url)
    except (sql.exc.ArgumentError, ValueError):  # not repeated whole: it may hold a password
        raise ValueError(f"{known}, got what begins with {url.split(':')[0]!r}") from None
    if found.drivername in ("postgresql", "postgresql+psycopg"):
        return found.set(drivername="postgresql+psycopg")
    if found.drivername != "sqlite" or found.query or found.database in (None, "", ":memory:"):
        raise ValueError(f"{known}, got {str(found)!r}; a ledger in memory has no URL")
    return Path(found.database)


def first_bytes(path: Path) -> bytes:
    """The beginning of a file that may be a table in use."""
    with _ALONE, path.open("rb") as file:
        return file.read(6)


def _engine(place: Any) -> Any:
    """Connects anew for each transaction, and to no SQLite file where one is gone."""
    sql = _sqlalchemy()
    if isinstance(place, Path):
        uri = f"{place.as_uri()}?mode=rw"
        opened = partial(sqlite3.connect, uri, uri=True, timeout=_PATIENCE, isolation_level=None)
        return sql.create_engine("sqlite://", creator=opened, poolclass=sql.NullPool)
    try:
        return sql.create_engine(place, poolclass=sql.NullPool, isolation_level="READ COMMITTED")
    except ModuleNotFoundError:
        raise ModuleNotFoundError(f"{place} needs psycopg: pip install 'ringfence[postgresql]'") from None


def _sqlalchemy() -> Any:
    """Returns SQLAlchemy, which is imported where a database is used and nowhere else."""
    try:
        import sqlalchemy
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "a ledger on disk needs SQLAlchemy: pip install 'ringfence[tables]'"
        ) from None
    return sqlalchemy


def _write(connection: Any, rows: list[tuple[int, str, str]]) -> None:
    values = [dict(zip(("number", "content", "hash"), row, strict=True)) for row in rows]
    if values:
        connection.execute(_sqlalchemy().text(_WRITE), values)


def _hash(before: str, content: str) -> str:
    return hashlib.sha256(f"{before} {content}".encode()).hexdigest()
