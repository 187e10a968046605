"""Workers that share the file of a sweep: each job is claimed by one of them, and claims end."""

import os
from pathlib import Path

import pytest

from experiments.sweep import job_file
from experiments.sweep.job_file import JobFile, forget_errors, read_jobs
from tests.experiments.sweep.sweeps import GRID

JOBS = GRID.jobs("paper")[:3]


def opened(folder: Path) -> JobFile:
    return JobFile(folder, {"name": "toy"}, ("accuracy",), ("error",))


def test_a_job_is_claimed_once_and_a_claim_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = opened(tmp_path), opened(tmp_path)
    assert (first.claim(JOBS, 60), second.claim(JOBS, 60)) == (JOBS[0], JOBS[1])
    first.add([{"setting": JOBS[0][0].key, "seed": JOBS[0][1], "settings": "{}", "accuracy": 1}])
    first.give_back(JOBS[0])  # finished: nobody gets it again
    second.give_back(JOBS[1])  # not finished: somebody does
    assert [first.claim(JOBS, 60), first.claim(JOBS, 60), first.claim(JOBS, 60)] == [JOBS[1], JOBS[2], None]
    now = job_file.time.time()
    monkeypatch.setattr(job_file.time, "time", lambda: now + 50)
    first.renew(JOBS[2], 60)
    monkeypatch.setattr(job_file.time, "time", lambda: now + 100)
    assert [second.claim(JOBS, 60), second.claim(JOBS, 60)] == [JOBS[1], None]  # its worker is gone


def test_rows_are_read_by_their_names_and_errors_may_be_forgotten(tmp_path: Path) -> None:
    opened(tmp_path).add([{"setting": "a", "seed": 1, "settings": "{}", "accuracy": 1, "error": None}])
    forget_errors(tmp_path / "none")
    opened(tmp_path).add([{"setting": "b", "seed": 1, "settings": "{}", "error": "no"}])
    forget_errors(tmp_path)
    about, [row] = read_jobs(tmp_path, ("accuracy",), ("error",))
    assert about["name"] == "toy"
    assert row == {"setting": "a", "seed": 1, "settings": "{}", "accuracy": 1.0, "error": None}


def test_a_sweep_is_its_owners_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        assert opened(tmp_path).path.stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(old)
