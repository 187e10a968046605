"""The same batches on a local Ray cluster of two workers, one of which is killed in the middle."""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ringfence.paper.sweep import ray as sweep_ray
from ringfence.paper.sweep.batch import measure
from ringfence.paper.sweep.data import sweep_data
from ringfence.paper.sweep.epsilons import epsilons
from ringfence.paper.sweep.measured import Measured, failed
from ringfence.paper.sweep.ray import ray_results
from ringfence.paper.sweep.run import read_rows, run_sweep
from ringfence.paper.sweep.settings import Job
from ringfence.paper.sweep.store import SweepStore
from tests.paper.sweep.sweeps import DATA, GRID, comparable

JOBS = GRID.jobs("paper")
BATCHES = [JOBS[start : start + 9] for start in range(0, len(JOBS), 9)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    ray = pytest.importorskip("ray", reason="ray is not installed")
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=100 * 2**20,
        runtime_env={"env_vars": {"OMP_NUM_THREADS": "1"}},
    )
    yield ray
    ray.shutdown()


def killer(marker: Path, victim: int | None) -> Any:
    """Work whose process is killed: once, or whenever it gets to the victim's seed and setting."""
    data = sweep_data(DATA, GRID, "paper")
    bad = None if victim is None else JOBS[victim]

    # made in here, so that it travels whole: workers cannot import tests
    def work(jobs: Sequence[Job]) -> list[Measured]:
        first = measure(data, jobs[:2])
        if bad in jobs or (bad is None and not marker.exists()):
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return first + measure(data, jobs[2:]) if jobs[2:] else first

    return work


@pytest.mark.usefixtures("cluster")
def test_the_rows_are_those_of_one_machine(tmp_path: Path) -> None:
    for engine in ("local", "ray"):
        run_sweep(GRID, DATA, tmp_path / engine, engine=engine, batch_size=9)
    local, ray = (comparable(read_rows(tmp_path / engine)) for engine in ("local", "ray"))
    assert ray == local
    assert len(ray) == len(JOBS)


@pytest.mark.usefixtures("cluster")
def test_a_worker_killed_in_the_middle_costs_nothing_but_time(tmp_path: Path) -> None:
    store = SweepStore(tmp_path, {"name": "toy", "delta": "1e-05"})
    stored = 0
    for results in ray_results(killer(tmp_path / "killed", None), BATCHES, failed):
        store.add([(one, epsilons(one.sums, 2, 1e-5)) for one in results if one.sums], ("", ""))
        stored += len(results)
    assert (tmp_path / "killed").exists()
    rows = read_rows(tmp_path)
    assert stored == len(rows) == len(JOBS)
    assert {(row.setting, row.seed) for row in rows} == set(JOBS)
    assert all(row.error is None for row in rows)


@pytest.mark.usefixtures("cluster")
def test_a_job_that_kills_its_workers_is_a_row_with_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep_ray, "_RETRIES", 0)
    results = [
        one for batch in ray_results(killer(tmp_path / "killed", 1), [JOBS[:2]], failed) for one in batch
    ]
    assert {(one.setting, one.seed): one.error is None for one in results} == {JOBS[0]: True, JOBS[1]: False}
    [error] = [one.error for one in results if one.error]
    assert error.startswith("WorkerCrashedError")


def test_without_ray_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ModuleNotFoundError, match=r"ray needs ray: pip install 'ringfence\[cluster\]'"):
        run_sweep(GRID, DATA, tmp_path, engine="ray")
