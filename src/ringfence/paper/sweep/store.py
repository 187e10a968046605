"""Keeps the finished rows of a sweep in one SQLite file, which holds nothing of unfinished jobs."""

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ringfence.paper.sweep.epsilons import Epsilons, epsilons
from ringfence.paper.sweep.measured import Measured, Sums
from ringfence.paper.sweep.settings import SweepSetting, digest

FILE = "sweep.sqlite"
_EPSILONS = tuple(field.name for field in fields(Epsilons))
_NUMBERS = ("validation_accuracy", "test_accuracy", *_EPSILONS, "eta_max", "eta_median", "seconds")
_TEXTS = ("ringfence", "torch", "error", "sums")
_SCHEMA = f"""
    CREATE TABLE IF NOT EXISTS sweep (name TEXT PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS rows (
        setting TEXT NOT NULL, seed INTEGER NOT NULL, settings TEXT NOT NULL,
        {", ".join(f"{name} REAL" for name in _NUMBERS)}, {", ".join(f"{name} TEXT" for name in _TEXTS)},
        PRIMARY KEY (setting, seed));
"""
_SYSTEM = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_BUSY", "SQLITE_PERM")
_COLUMNS = ("setting", "seed", "settings", *_NUMBERS, *_TEXTS)
_VERSION = 1  # version 1 has a checksum per row; version 0 had none, and its rows are taken as they are


@dataclass(frozen=True)
class SweepRow:
    """One finished job. The numbers are None where it ended with an ``error``.

    ``epsilon_pdp``, ``epsilon_ex_post`` and the etas are computed from the private data and must not be
    published. ``validation_accuracy`` is None where nothing was kept back to choose by.
    """

    data: str
    mechanism: str
    setting: SweepSetting
    seed: int
    delta: float
    validation_accuracy: float | None = None
    test_accuracy: float | None = None
    epsilon_pdp: float | None = None
    epsilon_ex_post: float | None = None
    epsilon_data_independent: float | None = None
    gaussian_epsilon_pdp: float | None = None
    gaussian_epsilon_ex_post: float | None = None
    gaussian_epsilon_data_independent: float | None = None
    eta_max: float | None = None
    eta_median: float | None = None
    seconds: float = 0.0
    ringfence: str = ""
    torch: str = ""
    error: str | None = None
    classes: int | None = None  # None in sweeps of earlier versions, which did not write it down


class SweepStore:
    """The file of one sweep. ``identity`` describes the sweep; a file of another one is refused by name.

    ``add`` writes a batch of rows in one transaction, which has reached the disk when it returns. Any
    number of processes may write; a job that the file already holds stays as it is.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     first = SweepStore(Path(folder), {"data": "a", "delta": "1e-5"})
    ...     SweepStore(Path(folder), {"data": "b", "delta": "1e-5"})
    Traceback (most recent call last):
    ValueError: ... holds a sweep with another data: 'a', not 'b'
    """

    def __init__(self, folder: Path, identity: Mapping[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / FILE
        with self._transaction() as connection:
            for statement in filter(str.strip, _SCHEMA.split(";")):
                connection.execute(statement)
            known, _ = _verified(self.path, connection)
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
                _add_checksums(connection)
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

    def add(self, results: Sequence[tuple[Measured, Epsilons | None]], versions: tuple[str, str]) -> None:
        """Writes the rows of a batch, all of them or none."""
        rows = [_values(measured, epsilon, versions) for measured, epsilon in results]
        marks = ", ".join("?" * (1 + len(_COLUMNS)))
        with self._transaction() as connection:
            connection.executemany(
                f"INSERT OR IGNORE INTO rows ({', '.join(_COLUMNS)}, checksum) VALUES ({marks})",
                [(*row, _checksum(row)) for row in rows],
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


def read_rows(folder: Path) -> list[SweepRow]:
    """Reads every finished row of a sweep, in an order that does not depend on who finished which job when.

    Rows that were made without dp-accounting get their epsilons here. Damage to the file raises a
    ValueError: SQLite checks the structure of the file, and a checksum protects every row.
    """
    path = folder / FILE
    if not path.is_file():
        raise ValueError(f"{folder} holds no sweep: there is no {FILE} in it")
    with _connection(path) as connection:
        about, found = _verified(path, connection)
    rows = [_row(about, dict(zip(_COLUMNS, values, strict=True))) for values in found]
    return sorted(rows, key=lambda row: (_order(row.setting), row.seed))


def _order(setting: SweepSetting) -> tuple[str | float, ...]:
    numbers = [value for name, value in asdict(setting).items() if name not in ("mechanism", "clip_kind")]
    return (
        setting.clip_kind,
        setting.mechanism,
        *(0.0 if value is None else float(value) for value in numbers),
    )


def _values(measured: Measured, epsilon: Epsilons | None, versions: tuple[str, str]) -> tuple[Any, ...]:
    own = {
        "setting": measured.setting.key,
        "seed": measured.seed,
        "settings": json.dumps(asdict(measured.setting)),
        "sums": None if measured.sums is None else json.dumps(asdict(measured.sums)),
        **{name: getattr(measured, name) for name in _NUMBERS if name not in _EPSILONS},
        **({} if epsilon is None else asdict(epsilon)),
        **dict(zip(("ringfence", "torch"), versions, strict=True)),
        "error": measured.error,
    }
    # The checksum is of the values as they will be read: a column of numbers holds floats.
    own |= {name: float(own[name]) for name in _NUMBERS if own.get(name) is not None}
    return tuple(own.get(name) for name in _COLUMNS)


def _row(about: Mapping[str, str], values: dict[str, Any]) -> SweepRow:
    setting = SweepSetting(**json.loads(values.pop("settings")))
    sums, delta = values.pop("sums"), float(about["delta"])
    if values["epsilon_pdp"] is None and sums is not None and values["error"] is None:
        kept = json.loads(sums)
        kept = Sums(tuple(kept.pop("orders")), tuple(kept.pop("worst")), **kept)
        values |= asdict(epsilons(kept, setting.steps, delta))
    del values["setting"]
    classes = int(about["classes"]) if "classes" in about else None
    seed = values.pop("seed")
    return SweepRow(about["name"], setting.label, setting, seed, delta, **values, classes=classes)


def _verified(path: Path, connection: sqlite3.Connection) -> tuple[dict[str, str], list[Sequence[Any]]]:
    """The identity of the sweep and its rows, by ``_COLUMNS``; a damaged file is refused."""
    problems = [text for (text,) in connection.execute("PRAGMA integrity_check(1)") if text != "ok"]
    if problems:
        raise ValueError(f"{path} is damaged: {' '.join(problems[0].split())}")
    about, checked = dict(connection.execute("SELECT name, value FROM sweep")), _checked(connection)
    if checked and about.pop("checksum", None) != _identity_checksum(about):
        raise ValueError(f"{path} is damaged in what it says of its sweep")
    column = "checksum" if checked else "NULL"
    found = connection.execute(f"SELECT {', '.join(_COLUMNS)}, {column} FROM rows").fetchall()
    for *values, checksum in found if checked else ():
        if checksum != _checksum(values):
            raise ValueError(f"{path} is damaged: the row of seed {values[1]}, {values[2]!r:.300}")
    return about, [values for *values, _ in found]


def _identity_checksum(about: Mapping[str, str]) -> str:
    return _checksum(sorted(item for item in about.items() if item[0] != "begun"))


def _checksum(values: Sequence[Any]) -> str:
    return digest([repr(value) for value in values])  # repr also works for what damage made of a text


def _checked(connection: sqlite3.Connection) -> bool:
    """Whether the file has checksums."""
    return "checksum" in {column[1] for column in connection.execute("PRAGMA table_info(rows)")}


def _add_checksums(connection: sqlite3.Connection) -> None:
    """Adds checksums to a new file, or to one that was begun before there were any."""
    about = dict(connection.execute("SELECT name, value FROM sweep"))
    connection.execute("INSERT INTO sweep VALUES ('checksum', ?)", (_identity_checksum(about),))
    connection.execute("ALTER TABLE rows ADD COLUMN checksum TEXT")
    found = connection.execute(f"SELECT rowid, {', '.join(_COLUMNS)} FROM rows").fetchall()
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
