"""The journal of a sweep on a full disk, read-only, or damaged."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.sweep.probes import read_rows, run_sweep
from experiments.sweep.runner import FILE
from tests.experiments.sweep.sweeps import DATA, GRID, comparable
from tests.faults.conditions import flipped, folder_for_anyone, no_room_beyond, put, read_only, some

SMALL = replace(GRID, clip=(0.1,), learning_rate=(1.0,), seeds=(0, 1))
TOTAL = len(SMALL.jobs("paper"))


def run(out: Path) -> None:
    run_sweep(SMALL, DATA, out, batch_size=1)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("swept")
    run(out)
    return out


@pytest.fixture
def copy(swept: Path, tmp_path: Path) -> Path:
    shutil.copy(swept / FILE, tmp_path)
    return tmp_path


def test_a_full_disk_is_an_error_and_the_sweep_goes_on_when_there_is_room(
    tmp_path: Path, swept: Path
) -> None:
    with no_room_beyond(2_500), pytest.raises(OSError, match="File too large"):
        run(tmp_path)
    done = read_rows(tmp_path)
    assert 0 < len(done) < TOTAL
    run(tmp_path)
    rows = read_rows(tmp_path)
    assert comparable(rows) == comparable(read_rows(swept))
    assert set(map(repr, done)) <= set(map(repr, rows))  # the first ones were not made again


def test_a_read_only_folder_can_be_read_and_not_written(swept: Path) -> None:
    with folder_for_anyone() as folder:
        shutil.copy(swept / FILE, folder)
        with read_only(folder):
            assert len(read_rows(folder)) == TOTAL
            with pytest.raises(PermissionError, match=r"sweep\.journal\.lock"):
                run(folder)


def test_a_flipped_bit_is_noticed(copy: Path) -> None:
    data = (copy / FILE).read_bytes()
    for bit in some("sweep", 8 * len(data), 500):
        put(copy / FILE, flipped(data, bit))
        with pytest.raises(ValueError, match=r"sweep\.journal (is damaged|is not a ringfence journal)"):
            read_rows(copy)


def test_a_truncated_file_is_noticed_beside_its_lock(swept: Path, copy: Path) -> None:
    shutil.copy(swept / f"{FILE}.lock", copy)
    data = (copy / FILE).read_bytes()
    for length in some("cut", len(data), 40):
        put(copy / FILE, data[:length])
        for use in (read_rows, run):
            with pytest.raises(ValueError, match=r"sweep\.journal (is cut short|is not a ringfence journal)"):
                use(copy)
