"""The file of a sweep, and the workers that fill it: here, and on a Ray cluster."""

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from experiments.sweep.data import OnDevice
from experiments.sweep.probes import read_rows, run_sweep
from experiments.sweep.runner import FILE, HERE, Workers, attempt, read_file, run_jobs
from experiments.sweep.settings import Job
from tests.experiments.sweep.sweeps import DATA, GRID, comparable

ABOUT = {"name": "toy", "grid": "a" * 64}
JOBS = GRID.jobs("paper")


def named(jobs: Sequence[Job]) -> list[dict[str, Any]]:
    return [{"name": setting.mechanism, "seed twice": 2 * seed} for setting, seed in jobs]


def finish(folder: Path, jobs: Sequence[Job], rows: list[dict[str, Any]]) -> None:
    run_jobs(lambda _: rows, [jobs], folder, ABOUT, HERE)


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
            run_jobs(named, [JOBS], tmp_path, {**ABOUT, **changed}, HERE)
    (tmp_path / FILE).write_text("this is not a sweep, whatever its name says" * 100)
    with pytest.raises(ValueError, match=r"sweep.db cannot be read or written: file is not a database"):
        read_file(tmp_path)


def test_jobs_are_done_once_with_their_notes_and_one_call_at_a_time(tmp_path: Path) -> None:
    seen = []

    def work(jobs: Sequence[Job]) -> list[dict[str, Any]]:
        seen.append(list(jobs))
        with pytest.raises(BlockingIOError, match="in use by another process"):
            run_jobs(named, [JOBS[:2]], tmp_path, ABOUT, HERE)
        return named(jobs)

    for _ in range(2):
        run_jobs(work, [JOBS[:2], JOBS[2:4]], tmp_path, ABOUT, HERE, {JOBS[0][0].key: {"round": 7}})
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


class Killed(BaseException):
    """What ends a worker of ``Ray`` in the middle of a batch."""


class Ray:
    """As much of ray as a sweep uses, in this process: tasks run when their results are asked for."""

    exceptions = SimpleNamespace(
        **{f"{name}Error": OSError for name in ("WorkerCrashed", "NodeDied", "OutOfMemory", "ObjectLost")}
    )
    cloudpickle = SimpleNamespace(register_pickle_by_value=id, unregister_pickle_by_value=id)

    def __init__(self) -> None:
        self.tries = 0
        self._tasks: dict[int, partial[Any]] = {}

    def is_initialized(self) -> bool:
        return True

    def put(self, value: Any) -> Any:
        return value

    def remote(self, *, max_retries: int, **options: Any) -> Any:
        def task(function: Any) -> Any:
            def begun(*arguments: Any) -> int:
                self._tasks[len(self._tasks)] = partial(self._tried, function, arguments, max_retries)
                return len(self._tasks) - 1

            return SimpleNamespace(remote=begun)

        return task

    def wait(self, running: list[int]) -> tuple[list[int], list[int]]:
        return running[-1:], running[:-1]

    def get(self, task: int) -> Any:
        return self._tasks[task]()

    def _tried(self, function: Any, arguments: Any, retries: int) -> Any:
        for _ in range(1 + retries):
            self.tries += 1
            with suppress(Killed):
                return function(*arguments)
        raise OSError("the worker died")


def test_batches_whose_worker_dies_are_tried_again_then_by_halves_then_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", ray := Ray())
    lucky: list[Sequence[Job]] = []

    def work(jobs: Sequence[Job]) -> list[dict[str, Any]]:
        if JOBS[1] in jobs:
            raise Killed
        if JOBS[9] in jobs and not lucky:
            lucky.append(jobs)
            raise Killed
        return named(jobs)

    run_jobs(work, [JOBS[:4], JOBS[4:8], JOBS[8:12]], tmp_path, ABOUT, Workers("ray"))
    rows = {(row["setting"].key, row["seed"]): row for row in read_file(tmp_path)[1]}
    assert len(rows) == 12
    bad = rows.pop((JOBS[1][0].key, JOBS[1][1]))
    assert bad["error"] == "OSError: the worker died"
    assert all("error" not in row for row in rows.values())
    assert lucky == [JOBS[8:12]]
    # the good batch, the lucky one, the bad job's batch, half and itself three times each, and their others
    assert ray.tries == 1 + 2 + 3 * 3 + 2


@pytest.mark.skipif(
    not os.environ.get("RINGFENCE_ENGINES"), reason="make engines: a cluster takes long to start"
)
def test_the_rows_are_those_of_one_machine_though_a_worker_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a real cluster; killed when it has trained a batch and nobody knows of it yet."""
    ray = pytest.importorskip("ray", reason="ray is not installed")
    # for the workers, which inherit it; polite ones would wait for all other tests
    os.environ |= {"OMP_NUM_THREADS": "1", "RAY_worker_niceness": "0"}
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, object_store_memory=100 * 2**20)
    run_sweep(GRID, DATA, tmp_path / "local", batch_size=9)
    marker, on_device = tmp_path / "killed", OnDevice

    # made in here, so that it travels whole: workers cannot import tests
    def once_killed(*arguments: Any) -> Any:
        work = on_device(*arguments)

        def measured(jobs: Sequence[Job]) -> list[dict[str, Any]]:
            results = work(jobs)
            if not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return results

        return measured

    monkeypatch.setattr("experiments.sweep.probes.OnDevice", once_killed)
    try:
        run_sweep(GRID, DATA, tmp_path / "ray", Workers("ray"), batch_size=9)
    finally:
        ray.shutdown()
    assert marker.exists()
    local, there = (comparable(read_rows(tmp_path / engine), "seconds") for engine in ("local", "ray"))
    assert there == local
    assert len(there) == len(JOBS)
    assert all(row["error"] is None for row in there)


def test_without_ray_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ModuleNotFoundError, match=r"ray needs ray: pip install 'ringfence\[experiments\]'"):
        run_sweep(GRID, DATA, tmp_path, Workers("ray"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "dask"}, "engine must be local or ray, got 'dask'"),
        ({"address": "auto"}, "address is for engine ray, got 'auto'"),
        ({"device": "tpu"}, "device must be cpu or cuda, got 'tpu'"),
        ({"per_gpu": 0}, "per_gpu must be at least 1, got 0"),
    ],
)
def test_bad_workers_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Workers(**options)
