"""A lock belongs to one holder, until it is let go of or its process ends."""

import os
from pathlib import Path

import pytest

from ringfence.files.lock import locked, unlock


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "run"
    lock = locked(path)
    with pytest.raises(BlockingIOError, match=f"^{path} is in use by another process or engine$"):
        locked(path)
    copy = os.dup(lock)  # as a forked process has it
    unlock(lock)
    unlock(locked(path))
    os.close(copy)
    assert path.with_name("run.lock").stat().st_mode & 0o777 == 0o600
    assert not path.exists()
