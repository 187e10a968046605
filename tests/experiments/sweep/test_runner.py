"""The file of a sweep, and how it is filled."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from experiments.sweep.runner import FILE, attempt, read_file, run_jobs
from experiments.sweep.settings import Job
from tests.experiments.sweep.sweeps import GRID

ABOUT = {"name": "toy", "grid": "a" * 64}
JOBS = GRID.jobs("paper")


def named(jobs: Sequence[Job]) -> list[dict[str, Any]]:
    return [{"name": setting.mechanism, "seed twice": 2 * seed} for setting, seed in jobs]


def finish(folder: Path, jobs: Sequence[Job], rows: list[dict[str, Any]]) -> None:
    run_jobs(lambda _: rows, [jobs], folder, ABOUT)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    finish(folder, [JOBS[5], JOBS[1]], [{"a": float("inf"), "b": None}, {"error": "no"}])
    with pytest.raises(TypeError):  # a batch is written whole or not at all
        finish(folder, [JOBS[0], JOBS[2]], [{"value": 1}, {"value": object()}])
    about, rows = read_file(folder)
    assert about == ABOUT
    assert [(row["setting"], row["seed"]) for row in rows] == [JOBS[1], JOBS[5]]
    assert rows[1]["a"] == float("inf")
    assert rows[0]["error"] == "no"


def test_a_sweep_is_its_owners_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        finish(tmp_path, JOBS[:1], [{}])
        assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(old)


def test_another_sweep_and_other_files_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds no sweep: there is no sweep.db in it"):
        read_file(tmp_path)
    finish(tmp_path, JOBS[:1], [{}])
    for changed, said in (
        ({"name": "other"}, "another name: 'toy', not 'other'"),
        ({"grid": "b" * 64}, r"another grid: 'a{59}, not 'b{59}"),
    ):
        with pytest.raises(ValueError, match=f"holds a sweep with {said}"):
            run_jobs(named, [JOBS], tmp_path, {**ABOUT, **changed})
    (tmp_path / FILE).write_text("this is not a sweep, whatever its name says" * 100)
    with pytest.raises(ValueError, match=r"sweep.db cannot be read or written: file is not a database"):
        read_file(tmp_path)


def test_jobs_are_done_once_with_their_notes_and_one_call_at_a_time(tmp_path: Path) -> None:
    seen = []

    def work(jobs: Sequence[Job]) -> list[dict[str, Any]]:
        seen.append(list(jobs))
        with pytest.raises(BlockingIOError, match="in use by another process"):
            run_jobs(named, [JOBS[:2]], tmp_path, ABOUT)
        return named(jobs)

    for _ in range(2):
        run_jobs(work, [JOBS[:2], JOBS[2:4]], tmp_path, ABOUT, {JOBS[0][0].key: {"round": 7}})
    assert seen == [JOBS[:2], JOBS[2:4]]
    row = read_file(tmp_path)[1][0]
    assert (row["round"], row["name"], row["seed twice"]) == (7, "gaussian", 0)


def test_an_error_is_a_row_but_for_that_of_a_device() -> None:
    def work(jobs: Sequence[Job]) -> list[dict[str, Any]]:
        if JOBS[1] in jobs:
            raise ValueError("it does not converge")
        return named(jobs)

    rows = attempt(work, JOBS[:5])
    assert rows[1] == {"error": "ValueError: it does not converge"}
    assert [row for row in rows if "error" not in row] == named([JOBS[0], *JOBS[2:5]])

    def lost(jobs: Sequence[Job]) -> list[dict[str, Any]]:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def full(jobs: Sequence[Job]) -> list[dict[str, Any]]:
        if len(jobs) > room:
            raise RuntimeError("CUDA out of memory")
        return named(jobs)

    with pytest.raises(RuntimeError, match="CUDA error"):
        attempt(lost, JOBS[:4])
    room = 2
    assert attempt(full, JOBS[:5]) == named(JOBS[:5])
    room = 0
    with pytest.raises(RuntimeError, match="out of memory"):
        attempt(full, JOBS[:2])
