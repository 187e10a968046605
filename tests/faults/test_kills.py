"""A few kills of each job (make faults does a hundred), and a harness that sees what it is there to see."""

from pathlib import Path
from typing import Any

from experiments.sweep.runner import FILE
from ringfence.files.shared_table import SharedTable
from tests.faults.jobs import JOBS, Sweep, Training, _spent
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
    assert _spent(tmp_path) == spent  # to the bit
    assert not (tmp_path / "first.ckpt.journal").exists()


def test_rows_that_go_or_come_twice_are_seen(tmp_path: Path) -> None:
    told, job = done(Sweep(), tmp_path), Sweep()
    assert told[-1] == 12
    assert job.broken(tmp_path, told) == []
    assert job.broken(tmp_path, [13]) == ["13 rows were done, 12 are there"]
    job.rows = dict.fromkeys(job.rows)
    assert job.broken(tmp_path, []) == ["12 finished rows are gone or were made again"]
    records: list[dict[str, Any]] = []
    SharedTable(tmp_path / FILE, None, records.append)
    (tmp_path / FILE).unlink()
    (tmp_path / f"{FILE}.lock").unlink()
    for record in records[1:]:
        record["rows"] = [row for row in record["rows"] if row["seed"] != 0]
    SharedTable(tmp_path / FILE, records, lambda _: None)
    assert job.broken(tmp_path, []) == ["4 finished rows are gone or were made again"]
