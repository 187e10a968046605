"""A sweep that is killed, doubled or given another grid: every row once, and the same rows."""

import random
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.sweep.data import SweepData
from experiments.sweep.fair_search import FairSearch
from experiments.sweep.run import read_rows, run_sweep
from experiments.sweep.store import FILE
from tests.afresh import afresh
from tests.experiments.sweep.sweeps import DATA, GRID, comparable
from tests.forks import forked

TOTAL = len(GRID.jobs("paper"))


def run(out: Path, **options: Any) -> None:
    torch.set_num_threads(1)
    run_sweep(GRID, DATA, out, **{"batch_size": 2, **options})


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Any:
    out = tmp_path_factory.mktemp("sweep")
    run(out)
    return comparable(read_rows(out))


def test_every_job_is_a_row(uninterrupted: Any) -> None:
    assert [(row.mechanism, row.seed) for row in uninterrupted] == [
        *(
            (name, seed)
            for name, count in (("Gaussian", 4), ("truncated", 8))
            for _ in range(count)
            for seed in range(3)
        )
    ]
    assert all(row.error is None and row.validation_accuracy is None for row in uninterrupted)
    assert max(row.test_accuracy for row in uninterrupted) > 0.5
    for row in uninterrupted:
        assert 0 < row.epsilon_pdp <= row.gaussian_epsilon_pdp * (1 + 1e-9)
        assert row.ringfence


def test_killed_at_any_moment_it_goes_on_and_ends_the_same(tmp_path: Path, uninterrupted: Any) -> None:
    moments, found = random.Random(0), 0
    counts = []
    for _ in range(3):
        process = forked(run, tmp_path)
        limit = time.monotonic() + 60
        # some progress, then any moment
        while time.monotonic() < limit and process.is_alive():
            if (tmp_path / FILE).exists() and len(rows_now(tmp_path)) > found:
                break
            time.sleep(0.02)
        time.sleep(moments.uniform(0, 0.03))
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        found = len(rows_now(tmp_path))
        counts.append(found)
    assert 0 < counts[0] < counts[-1] < TOTAL
    kept = {(row.setting, row.seed): row.seconds for row in read_rows(tmp_path)}
    run(tmp_path)
    rows = read_rows(tmp_path)
    assert comparable(rows) == uninterrupted
    # finished rows are those that were there, to the last digit of their wall time
    again = {(row.setting, row.seed): row.seconds for row in rows}
    assert all(again[job] == seconds for job, seconds in kept.items())


def rows_now(folder: Path) -> list[Any]:
    try:
        return read_rows(folder)
    except Exception:  # not made yet
        return []


def test_two_at_once_do_the_work_of_one(tmp_path: Path, uninterrupted: Any) -> None:
    both = [forked(run, tmp_path) for _ in range(2)]
    for process in both:
        process.join(60)
    assert [process.exitcode for process in both] == [0, 0]
    assert comparable(read_rows(tmp_path)) == uninterrupted


def test_a_finished_sweep_has_nothing_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, batch_size=48)
    monkeypatch.delattr(SweepData, "to")  # nothing is even moved to the device
    run(tmp_path, batch_size=5)


def test_a_fair_search_chooses_by_examples_it_did_not_train_on(tmp_path: Path) -> None:
    run_sweep(GRID, DATA, tmp_path, search="fair")
    rows = read_rows(tmp_path)
    assert len(rows) == 2 * 4 * 3
    # 30 of 120 examples are kept back
    assert all((30 * row.validation_accuracy) % 1 == pytest.approx(0, abs=1e-9) for row in rows)  # type: ignore[operator]
    assert len({row.validation_accuracy for row in rows}) > 3


def test_errors_are_rows(tmp_path: Path) -> None:
    run_sweep(replace(GRID, clip=(0.1, 1e-60)), DATA, tmp_path)
    rows = read_rows(tmp_path)
    assert len(rows) == TOTAL
    assert {row.setting.clip for row in rows if row.error} == {1e-60}
    assert sum(row.error is not None for row in rows) == TOTAL // 2


def test_progress_counts_finished_settings(tmp_path: Path) -> None:
    seen: list[tuple[str, float]] = []
    run(tmp_path, batch_size=9, progress=lambda *told: seen.append(told))
    assert seen == [("settings", done / TOTAL) for done in (0, 9, 18, 27, 36)]
    run(tmp_path, batch_size=9, progress=lambda *told: seen.append(told))
    assert seen[-1] == ("settings", 1.0)  # a sweep that is finished says so


def test_another_grid_search_or_file_in_the_folder_is_refused(tmp_path: Path) -> None:
    run_sweep(GRID, DATA, tmp_path)
    with pytest.raises(ValueError, match=r"another grid \(SHA-256\)"):
        run_sweep(replace(GRID, steps=(3,)), DATA, tmp_path)
    with pytest.raises(ValueError, match="another search: 'paper', not 'fair'"):
        run_sweep(GRID, DATA, tmp_path, search="fair")
    with pytest.raises(ValueError, match=r"another data file \(SHA-256\)"):
        run_sweep(GRID, replace(DATA, test_labels=1 - DATA.test_labels % 2), tmp_path)  # type: ignore[operator]
    with pytest.raises(ValueError, match=r"another grid \(SHA-256\)"):
        run_sweep(replace(GRID, fisher=True), DATA, tmp_path)
    # what this search does not look at may change
    run_sweep(replace(GRID, fair=FairSearch()), DATA, tmp_path)
    assert len(read_rows(tmp_path)) == TOTAL


def test_torch_alone_trains_and_this_machine_converts(tmp_path: Path, uninterrupted: Any) -> None:
    """As on a GPU machine that has torch, numpy and safetensors, and nothing else."""
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from experiments.sweep.run import run_sweep\n"
        "from tests.experiments.sweep.sweeps import DATA, GRID\n"
        "run_sweep(GRID, DATA, Path(sys.argv[1]), batch_size=2, with_epsilons=False)\n"
    )
    nothing_else = ["sklearn", "dp_accounting", "scipy", "rich", "typer", "matplotlib"]
    ran = afresh(program, tmp_path, without=nothing_else)
    assert ran.returncode == 0, ran.stderr
    assert comparable(read_rows(tmp_path)) == uninterrupted


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "dask"}, "engine must be local or ray, got 'dask'"),
        ({"address": "auto"}, "address is for engine ray, got 'auto'"),
        ({"device": "tpu"}, "device must be cpu or cuda, got 'tpu'"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
    ],
)
def test_bad_options_are_refused_by_name(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(tmp_path, **options)
    assert not list(tmp_path.iterdir())
