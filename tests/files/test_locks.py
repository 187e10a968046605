"""A lock has one holder at a time, and ends with its process."""

import os
import signal
from pathlib import Path

import pytest

from ringfence.files.locks import locked, unlock
from tests.forks import ended


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    """Each has opened the lock for itself, as another process does."""
    path = tmp_path / "run"
    lock = locked(path)
    with pytest.raises(
        BlockingIOError, match=f"^{path} is in use by another process or engine: close that one first$"
    ):
        locked(path)
    copy = os.dup(lock)  # as a forked process has it
    unlock(lock)
    unlock(locked(path))
    os.close(copy)
    assert path.with_name("run.lock").stat().st_mode & 0o777 == 0o600
    assert not path.exists()


def holder(path: Path) -> None:
    locked(path)
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    assert ended(holder, tmp_path / "run") == -signal.SIGKILL
    unlock(locked(tmp_path / "run"))
