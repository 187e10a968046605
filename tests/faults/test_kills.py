"""A few kills of each job (make faults does a hundred), and a harness that sees what it is there to see."""

from pathlib import Path
from typing import Any

from ringfence.files.checkpoint import read_checkpoint
from ringfence.files.journal import Journal
from tests.faults.jobs import JOBS, Sweep, Training
from tests.faults.kills import killings


def test_killed_at_random_moments(tmp_path: Path) -> None:
    outcomes = killings(2, 1, tmp_path)
    assert {name: (one.kills, one.problems) for name, one in outcomes.items()} == dict.fromkeys(JOBS, (1, []))
    assert all(one.told > 5 for one in outcomes.values())


def done(job: Any, folder: Path) -> list[Any]:
    """What the job tells when nobody kills it."""
    told: list[Any] = []
    job.work(folder, told.append)
    return told


def test_a_budget_below_what_was_released_is_seen(tmp_path: Path) -> None:
    told = done(Training(), tmp_path)
    assert Training().broken(tmp_path, told) == []
    step, model, spent = told[-1]
    assert Training().broken(tmp_path, [(step, model, [value * 1.001 for value in spent])])
    twice = Training().broken(tmp_path, [(step, model, spent), (step, model, spent)])
    assert twice == [f"step {step} was released twice, with the same noise"]
    more = Training().broken(tmp_path, [(step, str(model), spent) for model in range(step + 1)])
    assert more == [f"{step} releases are paid for on disk, {step + 1} were seen"]
    # the account on disk is the one that was told, to the bit
    account = read_checkpoint(tmp_path / "second.ckpt")[1]["account"]
    assert [account["steps"], *account["forward"], *account["backward"]] == spent
    assert Journal.read(tmp_path / "first.ckpt.journal")[1][-1] == {"continued": "second.ckpt"}


def test_rows_that_go_or_come_twice_are_seen(tmp_path: Path) -> None:
    told, job = done(Sweep(), tmp_path), Sweep()
    assert told[-1] == 12
    assert job.broken(tmp_path, told) == []
    assert job.broken(tmp_path, [13]) == ["13 rows were done, 12 are there"]
    job.rows = dict.fromkeys(job.rows)
    assert job.broken(tmp_path, []) == ["12 finished rows are gone or were made again"]
    path = tmp_path / "sweep.journal"
    header, records = Journal.read(path)
    with Journal.start(path, header) as journal:
        for record in records:
            journal.append({"rows": [row for row in record["rows"] if row["seed"] != 0]})
    assert job.broken(tmp_path, []) == ["4 finished rows are gone or were made again"]
