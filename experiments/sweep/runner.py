"""Runs the jobs of a sweep and keeps their rows in a table: killed at any moment, the same call goes on.

A job is a setting and a seed. What is trained and measured is a function from jobs to rows, plain
dictionaries; Figure 3 (``probes``) and the networks of Figure 4 (``information.networks``) each have one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

import experiments
import ringfence
from experiments.progress import track
from experiments.sweep.settings import Job, SweepSetting
from ringfence import checks
from ringfence.files.locks import locked, unlock
from ringfence.files.shared_table import SharedTable

FILE = "sweep.db"
Work = Callable[[Sequence[Job]], list[dict[str, Any]]]
_RETRIES = 2  # how often Ray tries a batch again whose worker died, before it is cut in two


def read_file(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The identity of the sweep in a folder, and its rows: setting, seed, and what was measured.

    Rows come in an order that does not depend on who finished which job when. Damage raises a ValueError.
    """
    path = folder / FILE
    if not path.is_file():
        raise ValueError(f"{folder} holds no sweep: there is no {FILE} in it")
    records: list[dict[str, Any]] = []
    SharedTable(path, None, records.append)
    rows = [
        {**row, "setting": SweepSetting(**row["setting"])} for record in records[1:] for row in record["rows"]
    ]
    return records[0]["identity"], sorted(rows, key=lambda row: (row["setting"].order, row["seed"]))


@dataclass(frozen=True)
class Workers:
    """Where jobs run: one batch after the other in this process (engine local), or on a Ray cluster.

    Without the ``address`` of a cluster, ray starts one on this machine. ``per_gpu`` batches share a GPU.
    """

    engine: str = "local"
    address: str | None = None
    device: str = "cpu"
    per_gpu: int = 1

    def __post_init__(self) -> None:
        if self.engine not in ("local", "ray"):
            raise ValueError(f"engine must be local or ray, got {self.engine!r}")
        if self.engine == "local" and self.address is not None:
            raise ValueError(f"address is for engine ray, got {self.address!r}")
        if self.device not in ("cpu", "cuda"):
            raise ValueError(f"device must be cpu or cuda, got {self.device!r}")
        if self.engine == "local" and self.device == "cuda" and not torch.cuda.is_available():
            raise ValueError("device cuda is not available on this machine")
        checks.count("per_gpu", self.per_gpu, at_least=1)


HERE = Workers()


def run_jobs(
    work: Work,
    batches: Sequence[Sequence[Job]],
    folder: Path,
    identity: Mapping[str, Any],
    workers: Workers,
    notes: Mapping[str, Mapping[str, Any]] | None = None,
    name: str = "sweep",
) -> None:
    """Adds the rows of ``work(batch)`` to the sweep in the folder, for what is not finished of every batch.

    All rows of a batch are on the disk, or none is. ``notes`` are further columns of rows, by the key of
    their setting. ``name`` stands at the progress bar. ``identity`` describes the sweep; the file of another
    one is refused, and one process at a time writes it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = locked(folder / "sweep")
    try:
        known: list[dict[str, Any]] = []
        table = SharedTable(folder / FILE, [{"identity": dict(identity)}], known.append)
        for key, value in identity.items():
            if (found := known[0]["identity"].get(key)) != value:
                raise ValueError(
                    f"{folder / FILE} holds a sweep with another {key}: {found!r:.60}, not {value!r:.60}"
                )
        done = {(row["setting"].key, row["seed"]) for row in read_file(folder)[1]}
        # Batches are cut from all jobs, finished or not, so that the same jobs are always trained together.
        waiting = [[job for job in batch if (job[0].key, job[1]) not in done] for batch in batches]
        waiting = [batch for batch in waiting if batch]
        if workers.engine == "ray" and waiting:
            results = _on_ray(work, waiting, workers)
        else:
            results = ((batch, attempt(work, batch)) for batch in waiting)
        about = {"ringfence": ringfence.__version__, "torch": torch.__version__}
        for jobs, rows in track(results, name, len(waiting)):
            whole = [
                {"setting": asdict(one), "seed": seed, **about, **(notes or {}).get(one.key, {}), **row}
                for (one, seed), row in zip(jobs, rows, strict=True)
            ]
            with table.transaction() as append:
                append({"rows": whole})
    finally:
        unlock(lock)


def attempt(work: Work, jobs: Sequence[Job]) -> list[dict[str, Any]]:
    """The rows of the jobs; where they fail, each half is tried, down to a single job and its error.

    Errors of the device, and of its memory with a single job, are raised: they are no fault of a setting.
    """
    try:
        return work(jobs)
    except (ValueError, ArithmeticError, RuntimeError) as error:
        alone = len(jobs) == 1
        if "CUDA error" in str(error) or (alone and "out of memory" in str(error)):
            raise
        if alone:
            return [error_row(error)]
    return [row for half in _halves(jobs) for row in attempt(work, half)]


def error_row(error: BaseException) -> dict[str, Any]:
    """The row of a job that ended with an error."""
    return {"error": f"{type(error).__name__}: {error}"}


def _halves(jobs: Sequence[Job]) -> tuple[Sequence[Job], Sequence[Job]]:
    return jobs[: len(jobs) // 2], jobs[len(jobs) // 2 :]


def _on_ray(
    work: Work, batches: Sequence[Sequence[Job]], workers: Workers
) -> Iterator[tuple[Sequence[Job], list[dict[str, Any]]]]:
    """Yields batches with their rows, in the order in which they come in.

    A batch whose worker dies is tried again, then by halves; a single job that kills its workers is a row
    with the error.
    """
    with _ray(workers.address) as ray:
        gpus = 1 / workers.per_gpu if workers.device == "cuda" else 0.0
        task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=_RETRIES)(attempt)
        names = ("WorkerCrashed", "NodeDied", "OutOfMemory", "ObjectLost")
        lost = tuple(getattr(ray.exceptions, f"{name}Error") for name in names)
        kept = ray.put(work)
        running = {task.remote(kept, jobs): jobs for jobs in batches}
        while running:
            [ready], _ = ray.wait(list(running))
            jobs = running.pop(ready)
            try:
                rows = ray.get(ready)
            except lost as error:
                if len(jobs) > 1:
                    running |= {task.remote(kept, half): half for half in _halves(jobs)}
                    continue
                rows = [error_row(error)]
            yield jobs, rows


@contextmanager
def _ray(address: str | None) -> Iterator[Any]:
    try:
        ray = import_module("ray")
    except ModuleNotFoundError:
        raise ModuleNotFoundError("engine ray needs ray: pip install 'ringfence[experiments]'") from None
    ray.cloudpickle.register_pickle_by_value(experiments)  # machines of a cluster have ringfence alone
    mine = not ray.is_initialized()
    if mine:
        ray.init(address=address, log_to_driver=False, include_dashboard=None if address else False)
    try:
        yield ray
    finally:
        ray.cloudpickle.unregister_pickle_by_value(experiments)
        if mine:
            ray.shutdown()
