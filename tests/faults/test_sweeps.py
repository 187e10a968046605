"""The file of a sweep on a full disk, read-only, damaged, or of a later version."""

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.sweep.probes import read_rows, run_sweep
from experiments.sweep.runner import FILE
from tests.experiments.sweep.sweeps import DATA, GRID, comparable
from tests.faults.conditions import flipped, folder_for_anyone, no_room_beyond, put, read_only, some, tried

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


def execute(folder: Path, *statement: Any) -> list[Any]:
    with closing(sqlite3.connect(folder / FILE, isolation_level=None)) as connection:
        return connection.execute(*statement).fetchall()


def test_a_full_disk_is_an_error_and_the_sweep_goes_on_when_there_is_room(
    tmp_path: Path, swept: Path
) -> None:
    with no_room_beyond(20_000), pytest.raises(OSError, match=r"sweep\.sqlite: (disk I/O error|.* is full)"):
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
            with pytest.raises(PermissionError, match=r"sweep\.sqlite\.lock"):
                run(folder)


def test_a_flipped_bit_is_noticed_or_changes_nothing(swept: Path, copy: Path) -> None:
    data, rows = (copy / FILE).read_bytes(), read_rows(swept)
    noticed = 0
    for bit in some("sweep", 8 * len(data), 500):
        put(copy / FILE, flipped(data, bit))
        found, why = tried(read_rows, copy)
        assert FILE in why or found == rows  # it fell where nothing is
        noticed += bool(why)
    assert noticed > 50


def test_a_flipped_bit_of_a_row_is_noticed(copy: Path) -> None:
    """SQLite checks its pages, not what is in them."""
    data = (copy / FILE).read_bytes()
    [(content,)] = execute(copy, "SELECT content FROM rows LIMIT 1")
    start = data.index(content.encode()) - 50  # over the key, which lies before, and the lengths
    for bit in range(8 * start, 8 * (start + 200), 3):
        put(copy / FILE, flipped(data, bit))
        with pytest.raises(ValueError, match=r"sweep\.sqlite (is damaged|cannot be read as a sweep)"):
            read_rows(copy)


def test_a_truncated_file_is_noticed(swept: Path, copy: Path) -> None:
    data = (copy / FILE).read_bytes()
    for length in [*some("cut", len(data), 40), *range(0, len(data), 4096)]:
        put(copy / FILE, data[:length])
        with pytest.raises(ValueError, match=r"sweep\.sqlite (is damaged|cannot be read as a sweep)"):
            read_rows(copy)
        if length:  # nothing at all is a new sweep
            with pytest.raises(ValueError, match=r"sweep\.sqlite (is damaged|cannot be read as a sweep)"):
                run(copy)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("UPDATE rows SET content = replace(content, '0', '1') WHERE seed = 1", "the row of seed 1"),
        ("UPDATE rows SET seed = 7 WHERE seed = 1", "the row of seed 7"),
        ("UPDATE rows SET checksum = 'none' WHERE seed = 1", "the row of seed 1"),
        ("UPDATE sweep SET identity = replace(identity, '1e-05', '1e-06')", "the row of seed 0"),
        ("DELETE FROM sweep", "in what it says of its sweep"),
    ],
)
def test_changed_numbers_are_noticed(copy: Path, change: str, complaint: str) -> None:
    execute(copy, change)
    with pytest.raises(ValueError, match=rf"sweep\.sqlite is damaged:? {complaint}"):
        read_rows(copy)


def test_another_version_says_so(copy: Path) -> None:
    execute(copy, "PRAGMA user_version = 3")
    for use in (read_rows, run):
        with pytest.raises(ValueError, match=r"sweep\.sqlite was written by another version: .* 3"):
            use(copy)
