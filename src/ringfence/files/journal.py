"""What is about to be released, written down first: a file of records that only grows."""

import hashlib
import io
import json
import os
import sys
from pathlib import Path
from typing import Any, Self

from ringfence.files.checkpoint import exact_json, replace_file, write_fully

if sys.platform != "win32":
    import fcntl

Record = dict[str, Any]

_VERSION = 1


class Journal:
    """Open for appending, by one process at a time; the first line says which ``run`` it belongs to.

    A line is the first 16 hex digits of SHA-256 of what follows, the length of the record, and the
    record as JSON. The lock is on PATH.lock, which stays, because ``start`` replaces the journal, and
    holds how many records were announced.

    Guarantee: once ``append`` returns the record survives a crash. A last line that a crash cut
    short is left out when reading: its ``append`` never returned, so nothing was released on it.
    A journal with fewer records than were announced is refused, as long as PATH.lock is beside it.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name, "run.journal")
    >>> with Journal.start(path, {"run": "a1"}) as journal:
    ...     journal.append({"step": 0})
    >>> with Journal(path) as journal:
    ...     journal.append({"step": 1})
    >>> Journal.read(path)
    ({'run': 'a1'}, [{'step': 0}, {'step': 1}])
    >>> folder.cleanup()
    """

    def __init__(self, path: str | os.PathLike[str], *, _first: bytes = b"") -> None:
        self.path = Path(path)
        self._file: int | None = None
        if not _first:
            self.path.stat()  # no lock file for a journal that is not there
        self._lock: int | None = locked(self.path)
        try:
            if _first:
                self._replace(_first)
            self._open()
        except BaseException:
            self.close()
            raise

    @classmethod
    def start(cls, path: str | os.PathLike[str], header: Record) -> Self:
        """A new journal in the place of any old one; a crash leaves the old or the new."""
        return cls(path, _first=_first_line(header))

    def restart(self, header: Record) -> None:
        """As ``start``, without letting go of the lock."""
        line = _first_line(header)
        self._require_open()
        self._close_file()
        try:
            self._replace(line)
        finally:
            self._open()  # whichever is there: never a file that has been replaced

    def append(self, record: Record) -> None:
        """Returns when the record is on disk. After an OSError the journal is closed: open it again."""
        line = _line("record", record)
        file = self._require_open()
        try:
            write_fully(file, line)
            os.fsync(file)
            self._announce(self._announced + 1)
        except BaseException:
            self.close()  # part of a line may be there, and nothing may follow it
            raise

    @staticmethod
    def read(path: str | os.PathLike[str]) -> tuple[Record, list[Record]]:
        """The header and the records; a ValueError where anything but the last line is damaged."""
        header, records, _ = _complete(Path(path))
        return header, records

    def close(self) -> None:
        self._close_file()
        if self._lock is not None:
            if sys.platform != "win32":
                fcntl.flock(self._lock, fcntl.LOCK_UN)  # forked processes may hold copies of it
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> None:
        self.header, records, whole = _complete(self.path)
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | getattr(os, "O_BINARY", 0))
        try:
            os.ftruncate(file, whole)  # nothing may follow a torn line
            os.fsync(file)
            self._announce(len(records))
        except BaseException:
            os.close(file)
            raise
        self._file = file

    def _replace(self, first: bytes) -> None:
        """Down to 0 before the records go, up after they came: at no moment is the number too large."""
        self._announce(0)
        os.fsync(self._require_lock())
        replace_file(self.path, first)

    def _announce(self, number: int) -> None:
        self._announced = number
        lock = self._require_lock()
        os.lseek(lock, 0, os.SEEK_SET)
        write_fully(lock, b"%20d\n" % number)

    def _require_lock(self) -> int:
        if self._lock is None:
            raise ValueError(f"{self.path} is closed")
        return self._lock

    def _require_open(self) -> int:
        if self._file is None:
            raise ValueError(f"{self.path} is closed")
        return self._file

    def _close_file(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def locked(path: Path) -> int:
    """The open file PATH.lock, which no other process can lock as long as it is open.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     lock = locked(Path(folder, "run"))
    ...     locked(Path(folder, "run"))
    Traceback (most recent call last):
    BlockingIOError: ... is in use by another process or engine
    >>> os.close(lock)
    """
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    if sys.platform != "win32":
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException as error:
            os.close(lock)
            if isinstance(error, BlockingIOError):
                raise BlockingIOError(f"{path} is in use by another process or engine") from None
            raise
    return lock


def _complete(path: Path) -> tuple[Record, list[Record], int]:
    """As ``_parsed``; a ValueError where records are gone that were announced."""
    while True:
        announced = _announced(path)
        header, records, whole = _parsed(path)
        if len(records) >= announced:
            return header, records, whole
        if announced == _announced(path):  # else somebody replaced the journal in between
            raise ValueError(
                f"{path} is cut short: {len(records)} of {announced} records are left, by {path.name}.lock"
            )


def _announced(path: Path) -> int:
    try:
        return int(Path(f"{path}.lock").read_bytes())
    except (FileNotFoundError, ValueError):
        return 0


def _first_line(header: Record) -> bytes:
    if not isinstance(header, dict) or not isinstance(header.get("run"), str):
        raise ValueError(f"header must be a dict with a string 'run', got {header!r}")
    return _line("header", {"format": "ringfence journal", "version": _VERSION, "header": header})


def _line(name: str, record: Record) -> bytes:
    if not isinstance(record, dict):
        raise TypeError(f"{name} must be a dict, got {type(record).__name__}")
    text = exact_json(name, record)
    framed = f"{len(text)} {text}".encode()
    return _checksum(framed) + b" " + framed + b"\n"


def _checksum(framed: bytes) -> bytes:
    return hashlib.sha256(framed).hexdigest()[:16].encode()


def _too_long(length: bytes, text: bytes) -> bool:
    """Longer than it says: a line whose newline was damaged, perhaps with another one behind it."""
    return length.isdigit() and len(text) > int(length)


def _parsed(path: Path) -> tuple[Record, list[Record], int]:
    """The header, the records, and how many bytes of the file they take."""
    records: list[Record] = []
    whole = 0
    lines = io.BytesIO(path.read_bytes()).readlines()  # ends lines at \n alone
    for number, line in enumerate(lines, 1):
        checksum, _, framed = line.removesuffix(b"\n").partition(b" ")
        length, _, text = framed.partition(b" ")
        if line.endswith(b"\n") and checksum == _checksum(framed):
            records.append(json.loads(text))
            whole += len(line)
        elif number == 1:
            raise ValueError(f"{path} is not a ringfence journal, or its first line is damaged")
        elif number < len(lines) or _too_long(length, text) or (line.endswith(b"\n") and line.count(0) < 2):
            # a crash leaves the beginning of a line, or blocks of zeros in it; this one was whole once
            raise ValueError(f"{path} is damaged in line {number}")
    first = records[0] if records else {}
    if first.get("format") != "ringfence journal":
        raise ValueError(f"{path} is not a ringfence journal")
    if first["version"] > _VERSION:
        raise ValueError(f"{path} was written by a newer ringfence: version {first['version']}")
    return first["header"], records[1:], whole
