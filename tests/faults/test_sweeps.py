"""A sweep on a full disk; what its journal notices is in tests/files/test_journal.py and test_shell.py."""

from dataclasses import replace
from pathlib import Path

import pytest

from experiments.sweep.probes import read_rows, run_sweep
from tests.experiments.sweep.sweeps import DATA, GRID, comparable
from tests.faults.conditions import no_room_beyond

SMALL = replace(GRID, clip=(0.1,), learning_rate=(1.0,), seeds=(0, 1))


def test_a_full_disk_is_an_error_and_the_sweep_goes_on_when_there_is_room(tmp_path: Path) -> None:
    full, whole = tmp_path / "full", tmp_path / "whole"
    run_sweep(SMALL, DATA, whole, batch_size=1)
    with no_room_beyond(2_500), pytest.raises(OSError, match="File too large"):
        run_sweep(SMALL, DATA, full, batch_size=1)
    done = read_rows(full)
    assert 0 < len(done) < len(SMALL.jobs("paper"))
    run_sweep(SMALL, DATA, full, batch_size=1)
    rows = read_rows(full)
    assert comparable(rows, "seconds") == comparable(read_rows(whole), "seconds")
    again = comparable(rows)
    assert all(row in again for row in comparable(done))  # the first ones were not made again
