"""The same batches on a local Ray cluster of two workers, one of which is killed in the middle."""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from experiments.sweep import ray as sweep_ray
from experiments.sweep import run
from experiments.sweep.measured import Measured, failed
from experiments.sweep.ray import ray_results
from experiments.sweep.run import read_rows, run_sweep
from experiments.sweep.settings import Job
from tests.experiments.sweep.sweeps import DATA, GRID, comparable

JOBS = GRID.jobs("paper")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    ray = pytest.importorskip("ray", reason="ray is not installed")
    os.environ["OMP_NUM_THREADS"] = "1"  # for the workers, which inherit it
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100 * 2**20)
    yield ray
    ray.shutdown()


@pytest.mark.usefixtures("cluster")
def test_the_rows_are_those_of_one_machine_though_a_worker_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed when it has trained a batch and nobody knows of it yet."""
    run_sweep(GRID, DATA, tmp_path / "local", batch_size=9)
    marker, on_device = tmp_path / "killed", run._OnDevice

    # made in here, so that it travels whole: workers cannot import tests
    def once_killed(*arguments: Any) -> Any:
        work = on_device(*arguments)

        def measured(jobs: Sequence[Job]) -> list[Measured]:
            results = work(jobs)
            if not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return results

        return measured

    monkeypatch.setattr(run, "_OnDevice", once_killed)
    run_sweep(GRID, DATA, tmp_path / "ray", engine="ray", batch_size=9)
    assert marker.exists()
    local, ray = (comparable(read_rows(tmp_path / engine)) for engine in ("local", "ray"))
    assert ray == local
    assert len(ray) == len(JOBS)
    assert all(row.error is None for row in ray)


def test_a_job_that_kills_its_workers_is_a_row_with_the_error(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second of two jobs, which are numbers here: workers that die soon need not import torch."""

    def work(numbers: Sequence[int]) -> list[int]:
        if 1 in numbers:
            os.kill(os.getpid(), signal.SIGKILL)
        return list(numbers)

    monkeypatch.setattr(sweep_ray, "_RETRIES", 0)
    cluster.cloudpickle.register_pickle_by_value(sweep_ray)
    batches = ray_results(work, [[0, 1]], lambda number, error: failed(JOBS[number], error))
    finished, lost = sorted((one for batch in batches for one in batch), key=lambda one: one != 0)
    cluster.cloudpickle.unregister_pickle_by_value(sweep_ray)
    assert finished == 0
    assert (lost.setting, lost.seed) == JOBS[1]
    assert lost.error.startswith("WorkerCrashedError")


def test_without_ray_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ModuleNotFoundError, match=r"ray needs ray: pip install 'ringfence\[cluster\]'"):
        run_sweep(GRID, DATA, tmp_path, engine="ray")
