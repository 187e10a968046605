"""File locks: one process at a time may use the files that a lock stands for."""

import fcntl
import os
from pathlib import Path


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
    fcntl.flock(lock, fcntl.LOCK_UN)
    os.close(lock)
