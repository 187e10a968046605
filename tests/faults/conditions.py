"""Bad days for files, real ones where the system allows it without privileges."""

import os
import random
import resource
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

NOBODY = 65534


@contextmanager
def no_room_beyond(size: int) -> Iterator[None]:
    """No file may grow beyond ``size`` bytes: the system refuses the write, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))  # Python ignores the signal that comes with it
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def another_user() -> Iterator[None]:
    """Where root runs the tests: without root's permission to write everywhere."""
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """The folder and all in it can be read, and nothing can be written."""
    root = os.geteuid() == 0
    for path in (folder, *folder.rglob("*")):
        if root:
            os.chown(path, NOBODY, -1)
        path.chmod(0o500 if path.is_dir() else 0o400)
    try:
        with another_user() if root else nullcontext():
            yield
    finally:
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o700 if path.is_dir() else 0o600)


@contextmanager
def folder_for_anyone() -> Iterator[Path]:
    """An empty folder that another user can get to, which pytest's own are not."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def put(file: Path, data: bytes) -> None:
    """The file with these bytes. Over an old file ext4 would write them to the disk at once: milliseconds."""
    file.unlink(missing_ok=True)
    file.write_bytes(data)


def tried(use: Callable[..., Any], *arguments: Any) -> tuple[Any, str]:
    """What it gives, or else the one line that it says about why not."""
    try:
        return use(*arguments), ""
    except (ValueError, OSError) as error:
        why = str(error)
    assert why.splitlines() == [why]
    return None, why


def flipped(data: bytes, bit: int) -> bytes:
    """The same with one bit the other way round."""
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def some(seed: str, below: int, count: int) -> list[int]:
    """``count`` different numbers from 0 to ``below``, or all of them where there are no more."""
    return random.Random(seed).sample(range(below), min(count, below))
