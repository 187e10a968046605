"""Journals: files of records that only grow, for what is about to be released, and their locks."""

import hashlib
import io
import json
import os
import sys
from pathlib import Path
from typing import Any, Self

from ringfence.files.atomic import replacing
from ringfence.files.checkpoint import exact_json

if sys.platform != "win32":
    import fcntl

Record = dict[str, Any]

_VERSION = 1


class Journal:
    """A journal that one process at a time has open for appending; its header names the ``run``.

    A line holds the first 16 hex digits of the SHA-256 of the rest of the line, the length of the record, and
    the record as JSON. The first line is the header. The lock is on the file PATH.lock, which stays when
    ``start`` replaces the journal; it also holds the number of records that were announced.

    Guarantee: a record survives a crash once ``append`` has returned. A last line that a crash cut short is
    left out when the journal is read: its ``append`` never returned, so nothing was released on it. A journal
    that has fewer records than were announced is refused, as long as PATH.lock is beside it.

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
            self.path.stat()  # a journal that does not exist must not leave a lock file behind
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
        """Begins a new journal in the place of an old one, if any; a crash leaves the old or the new one."""
        return cls(path, _first=_first_line(header))

    def restart(self, header: Record) -> None:
        """Begins the journal anew, as ``start`` does, without letting go of the lock."""
        line = _first_line(header)
        self._close_file()  # append opens whichever file has the name then, and never one that was replaced
        self._replace(line)

    def append(self, record: Record) -> None:
        """Returns when the record is on the disk. After an OSError it may be there or not: append again."""
        line = _line("record", record)
        self._require_lock()
        file = self._open() if self._file is None else self._file
        try:
            _write_fully(file, line)
            os.fsync(file)
            self._announce(self._announced + 1)
        except BaseException:
            self._close_file()  # what was written of a line is cut off before another one follows
            raise

    @staticmethod
    def read(path: str | os.PathLike[str]) -> tuple[Record, list[Record]]:
        """Returns the header and the records; damage anywhere but in the last line is a ValueError."""
        header, records, _ = _complete(Path(path))
        return header, records

    def close(self) -> None:
        """Lets go of the file and of its lock."""
        self._close_file()
        if self._lock is not None:
            lock, self._lock = self._lock, None  # first, since the number may soon be that of another file
            unlock(lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> int:
        self.header, records, whole = _complete(self.path)
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | getattr(os, "O_BINARY", 0))
        try:
            os.ftruncate(file, whole)  # because nothing may follow a torn line
            os.fsync(file)
            self._announce(len(records))
        except BaseException:
            os.close(file)
            raise
        self._file = file
        return file

    def _replace(self, first: bytes) -> None:
        """Replaces the records and announces 0 of them before: the announced number is never too large."""
        self._announce(0)
        os.fsync(self._require_lock())
        with replacing(self.path) as file:
            file.write(first)

    def _announce(self, number: int) -> None:
        self._announced = number
        lock = self._require_lock()
        os.lseek(lock, 0, os.SEEK_SET)
        _write_fully(lock, b"%20d\n" % number)

    def _require_lock(self) -> int:
        if self._lock is None:
            raise ValueError(f"{self.path} is closed")
        return self._lock

    def _close_file(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None  # as in ``close``
            os.close(file)


def _complete(path: Path) -> tuple[Record, list[Record], int]:
    """Reads the journal as ``_parsed`` does; a ValueError where records that were announced are gone."""
    while True:
        announced = _announced(path)
        header, records, whole = _parsed(path)
        if len(records) >= announced:
            return header, records, whole
        if announced == _announced(path):  # otherwise somebody replaced the journal in between
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
    """True where a line is longer than it says: its newline was damaged, and another line may follow."""
    return length.isdigit() and len(text) > int(length)


def _parsed(path: Path) -> tuple[Record, list[Record], int]:
    """Returns the header, the records, and the number of bytes of the file that they take."""
    records: list[Record] = []
    whole = 0
    lines = io.BytesIO(path.read_bytes()).readlines()  # which ends lines at \n alone
    for number, line in enumerate(lines, 1):
        checksum, _, framed = line.removesuffix(b"\n").partition(b" ")
        length, _, text = framed.partition(b" ")
        if line.endswith(b"\n") and checksum == _checksum(framed):
            records.append(json.loads(text))
            whole += len(line)
        elif number == 1:
            raise ValueError(f"{path} is not a ringfence journal, or its first line is damaged")
        elif number < len(lines) or _too_long(length, text) or (line.endswith(b"\n") and line.count(0) < 2):
            # a crash leaves the beginning of a line, or blocks of zeros in it, but this line was whole once
            raise ValueError(f"{path} is damaged in line {number}")
    first = records[0] if records else {}
    if first.get("format") != "ringfence journal":
        raise ValueError(f"{path} is not a ringfence journal")
    if first["version"] > _VERSION:
        raise ValueError(f"{path} was written by a newer ringfence: version {first['version']}")
    return first["header"], records[1:], whole


def _write_fully(file: int, data: bytes) -> None:
    """Writes all of the data: one ``os.write`` may take less than it is given."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def locked(path: Path) -> int:
    """Opens the file PATH.lock and locks it; while it is open, no other process can lock it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     lock = locked(Path(folder, "run"))
    ...     locked(Path(folder, "run"))
    Traceback (most recent call last):
    BlockingIOError: ... is in use by another process or engine: close that one first
    >>> unlock(lock)
    """
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    if sys.platform != "win32":
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException as error:
            os.close(lock)
            if isinstance(error, BlockingIOError):
                raise BlockingIOError(
                    f"{path} is in use by another process or engine: close that one first"
                ) from None
            raise
    return lock


def unlock(lock: int) -> None:
    """Unlocks what ``locked`` returned, also where a forked process holds a copy of it."""
    if sys.platform != "win32":
        fcntl.flock(lock, fcntl.LOCK_UN)
    os.close(lock)
