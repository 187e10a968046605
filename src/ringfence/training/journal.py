"""What is about to be released, written down first: a file of records that only grows."""

import hashlib
import io
import json
import os
import sys
from pathlib import Path
from typing import Any, Self

from ringfence.training.checkpoint import exact_json, replace_file, write_fully

if sys.platform != "win32":
    import fcntl

Record = dict[str, Any]

_VERSION = 1


class Journal:
    """Open for appending, by one process at a time; the first line says which ``run`` it belongs to.

    A line is the first 16 hex digits of SHA-256 of what follows, the length of the record, and the
    record as JSON. The lock is on PATH.lock, which stays, because ``start`` replaces the journal.

    Guarantee: once ``append`` returns the record survives a crash. A last line that a crash cut
    short is left out when reading: its ``append`` never returned, so nothing was released on it.

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
        self._lock: int | None = _locked(self.path)
        try:
            if _first:
                replace_file(self.path, _first)
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
            replace_file(self.path, line)
        finally:
            self._open()  # whichever is there: never a file that has been replaced

    def append(self, record: Record) -> None:
        """Returns when the record is on disk. After an OSError the journal is closed: open it again."""
        line = _line("record", record)
        file = self._require_open()
        try:
            write_fully(file, line)
            os.fsync(file)
        except BaseException:
            self.close()  # part of a line may be there, and nothing may follow it
            raise

    @staticmethod
    def read(path: str | os.PathLike[str]) -> tuple[Record, list[Record]]:
        """The header and the records; a ValueError where anything but the last line is damaged."""
        header, records, _ = _parsed(Path(path))
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
        self.header, _, whole = _parsed(self.path)
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | getattr(os, "O_BINARY", 0))
        try:
            os.ftruncate(file, whole)  # nothing may follow a torn line
            os.fsync(file)
        except BaseException:
            os.close(file)
            raise
        self._file = file

    def _require_open(self) -> int:
        if self._file is None:
            raise ValueError(f"{self.path} is closed")
        return self._file

    def _close_file(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _locked(path: Path) -> int:
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
        elif number < len(lines) or (length.isdigit() and len(text) > int(length)):
            # longer than it says: two lines whose newline was damaged, and the first was released
            raise ValueError(f"{path} is damaged in line {number}")
    first = records[0] if records else {}
    if first.get("format") != "ringfence journal":
        raise ValueError(f"{path} is not a ringfence journal")
    if first["version"] > _VERSION:
        raise ValueError(f"{path} was written by a newer ringfence: version {first['version']}")
    return first["header"], records[1:], whole
