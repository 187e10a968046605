"""Keeps the finished jobs of a sweep in one SQLite file, whatever a sweep trains and measures."""

import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from experiments.sweep.settings import Job, digest
from ringfence.files.atomic import OWNER_ALONE

FILE = "sweep.sqlite"
_JOB = ("setting", "seed", "settings")
_KEY = "setting TEXT NOT NULL, seed INTEGER NOT NULL"
_SYSTEM = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_BUSY", "SQLITE_PERM")
_VERSION = 1  # version 1 has a checksum per row; version 0 had none, and its rows are taken as they are


class JobFile:
    """The file of one sweep. ``identity`` describes the sweep; a file of another one is refused by name.

    A row is a job (its setting's key, its seed, its setting as text) with what was measured: ``numbers`` and
    ``texts`` are the names of its columns. ``add`` writes rows in one transaction, which has reached the disk
    when it returns. Any number of processes may write; a job that the file already holds stays as it is.
    Workers that share a file ``claim`` jobs, so that no two of them train the same one. A claim ends by
    itself after some time, so that the job of a worker that was killed is not lost.

    >>> from tempfile import TemporaryDirectory
    >>> from experiments.sweep.settings import SweepSetting
    >>> jobs = [(SweepSetting("sign", 0.1, 10.0, learning_rate=1.0, steps=5), seed) for seed in (0, 1)]
    >>> with TemporaryDirectory() as folder:
    ...     file = JobFile(Path(folder), {"data": "a"}, ("accuracy",), ())
    ...     [None if job is None else job[1] for job in (file.claim(jobs, 60) for _ in range(3))]
    [0, 1, None]
    """

    def __init__(
        self, folder: Path, identity: Mapping[str, str], numbers: Sequence[str], texts: Sequence[str]
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path, self.numbers, self.columns = folder / FILE, tuple(numbers), (*_JOB, *numbers, *texts)
        self.path.touch(mode=OWNER_ALONE)
        with self._transaction() as connection:
            for statement in _schema(numbers, texts):
                connection.execute(statement)
            known, _ = _verified(self.path, connection, self.columns)
            for name, value in identity.items():
                if known.get(name, value) != value:
                    shown = " ..., not ".join if len(value) > 60 else ", not ".join
                    raise ValueError(
                        f"{self.path} holds a sweep with another {name}: "
                        f"{shown(repr(text[:60]) for text in (known[name], value))}"
                    )
            if not known:
                connection.executemany("INSERT INTO sweep VALUES (?, ?)", identity.items())
            if not _checked(connection):
                _add_checksums(connection, self.columns)
            # How often a sweep was begun here: sweeps that run at once start at different places.
            self.earlier = int(known.get("begun", "0"))
            connection.execute(
                "INSERT INTO sweep VALUES ('begun', ?) ON CONFLICT DO UPDATE SET value = excluded.value",
                (str(self.earlier + 1),),
            )

    def done(self) -> set[tuple[str, int]]:
        """The key and the seed of every finished job."""
        with _connection(self.path) as connection:
            return set(connection.execute("SELECT setting, seed FROM rows"))

    def claim(self, jobs: Sequence[Job], seconds: float) -> Job | None:
        """Returns the first job that is neither finished nor claimed, now claimed for so many seconds."""
        with self._transaction() as connection:
            connection.execute(  # here and not before: most sweeps have no claims
                f"CREATE TABLE IF NOT EXISTS claims ({_KEY}, until REAL NOT NULL, "
                "PRIMARY KEY (setting, seed))"
            )
            connection.execute("DELETE FROM claims WHERE until < ?", (time.time(),))
            taken = set(
                connection.execute("SELECT setting, seed FROM rows UNION SELECT setting, seed FROM claims")
            )
            for job in jobs:
                if (job[0].key, job[1]) not in taken:
                    _set_claim(connection, job, seconds)
                    return job
        return None

    def renew(self, job: Job, seconds: float) -> None:
        """Claims the job for so many seconds from now on."""
        with self._transaction() as connection:
            _set_claim(connection, job, seconds)

    def give_back(self, job: Job) -> None:
        """Ends the claim, finished or not."""
        with self._transaction() as connection:
            connection.execute("DELETE FROM claims WHERE setting = ? AND seed = ?", (job[0].key, job[1]))

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Writes rows, all of them or none. A column that a row does not name is NULL."""
        # The checksum is of the values as they will be read: a column of numbers holds floats.
        typed = [
            {**row, **{name: float(row[name]) for name in self.numbers if row.get(name) is not None}}
            for row in rows
        ]
        values = [tuple(row.get(name) for name in self.columns) for row in typed]
        marks = ", ".join("?" * (1 + len(self.columns)))
        with self._transaction() as connection:
            connection.executemany(
                f"INSERT OR IGNORE INTO rows ({', '.join(self.columns)}, checksum) VALUES ({marks})",
                [(*own, _checksum(own)) for own in values],
            )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with _connection(self.path) as connection:
            # Taking the lock first keeps what is read inside true until the end.
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.rollback()
                raise
            connection.commit()


def read_jobs(
    folder: Path, numbers: Sequence[str], texts: Sequence[str]
) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """The identity of the sweep in a folder, and its finished rows by the names of their columns.

    Damage to the file raises a ValueError: SQLite checks the structure of the file, and a checksum protects
    every row.
    """
    path = folder / FILE
    if not path.is_file():
        raise ValueError(f"{folder} holds no sweep: there is no {FILE} in it")
    with _connection(path) as connection:
        return _verified(path, connection, (*_JOB, *numbers, *texts))


def forget_errors(folder: Path) -> None:
    """Removes the rows that have an error, so that their jobs are done again."""
    if (folder / FILE).is_file():
        with _connection(folder / FILE) as connection:
            connection.execute("DELETE FROM rows WHERE error IS NOT NULL")


def _schema(numbers: Sequence[str], texts: Sequence[str]) -> tuple[str, ...]:
    columns = ", ".join((*(f"{name} REAL" for name in numbers), *(f"{name} TEXT" for name in texts)))
    return (
        "CREATE TABLE IF NOT EXISTS sweep (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
        f"CREATE TABLE IF NOT EXISTS rows ({_KEY}, settings TEXT NOT NULL, {columns}, "
        "PRIMARY KEY (setting, seed))",
    )


def _set_claim(connection: sqlite3.Connection, job: Job, seconds: float) -> None:
    until = time.time() + seconds
    connection.execute("INSERT OR REPLACE INTO claims VALUES (?, ?, ?)", (job[0].key, job[1], until))


def _verified(
    path: Path, connection: sqlite3.Connection, columns: Sequence[str]
) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """The identity of the sweep and its rows; a damaged file is refused."""
    problems = [text for (text,) in connection.execute("PRAGMA integrity_check(1)") if text != "ok"]
    if problems:
        raise ValueError(f"{path} is damaged: {' '.join(problems[0].split())}")
    about, checked = dict(connection.execute("SELECT name, value FROM sweep")), _checked(connection)
    if checked and about.pop("checksum", None) != _identity_checksum(about):
        raise ValueError(f"{path} is damaged in what it says of its sweep")
    column = "checksum" if checked else "NULL"
    found = connection.execute(f"SELECT {', '.join(columns)}, {column} FROM rows").fetchall()
    for *values, checksum in found if checked else ():
        if checksum != _checksum(values):
            raise ValueError(f"{path} is damaged: the row of seed {values[1]}, {values[2]!r:.300}")
    return about, [dict(zip(columns, values, strict=True)) for *values, _ in found]


def _identity_checksum(about: Mapping[str, str]) -> str:
    return _checksum(sorted(item for item in about.items() if item[0] != "begun"))


def _checksum(values: Sequence[Any]) -> str:
    return digest([repr(value) for value in values])  # repr also works for what damage made of a text


def _checked(connection: sqlite3.Connection) -> bool:
    """Whether the file has checksums."""
    return "checksum" in {column[1] for column in connection.execute("PRAGMA table_info(rows)")}


def _add_checksums(connection: sqlite3.Connection, columns: Sequence[str]) -> None:
    """Adds checksums to a new file, or to one that was begun before there were any."""
    about = dict(connection.execute("SELECT name, value FROM sweep"))
    connection.execute("INSERT INTO sweep VALUES ('checksum', ?)", (_identity_checksum(about),))
    connection.execute("ALTER TABLE rows ADD COLUMN checksum TEXT")
    found = connection.execute(f"SELECT rowid, {', '.join(columns)} FROM rows").fetchall()
    added = [(_checksum(values), rowid) for rowid, *values in found]
    connection.executemany("UPDATE rows SET checksum = ? WHERE rowid = ?", added)
    connection.execute(f"PRAGMA user_version = {_VERSION}")


@contextmanager
def _connection(path: Path) -> Iterator[sqlite3.Connection]:
    """Opens the file; the caller begins transactions, others may hold the lock. Errors name the file."""
    try:
        with closing(sqlite3.connect(path, timeout=300, isolation_level=None)) as connection:
            # With a rollback journal, which needs no shared memory, every commit waits for the disk.
            connection.execute("PRAGMA synchronous = EXTRA")
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version > _VERSION:
                raise ValueError(f"{path} was written by a newer ringfence: version {version}")
            yield connection
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        if getattr(error, "sqlite_errorname", "").startswith(_SYSTEM):
            raise OSError(f"{path}: {error}") from None
        text = " ".join(str(error).split())  # it may quote the file
        raise ValueError(f"{path} cannot be read as a sweep: {text:.200}") from None
