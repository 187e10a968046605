"""Batches of a sweep on a Ray cluster: workers train, and only the driver writes."""

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any, TypeVar

from experiments.sweep.settings import Job

Result = TypeVar("Result")
_RETRIES = 2  # how often a batch whose worker died is tried again before it is cut in two


def ray_results(
    work: Callable[[Sequence[Job]], list[Result]],
    batches: Sequence[Sequence[Job]],
    failed: Callable[[Job, Exception], Result],
    address: str | None = None,
    gpus: float = 0.0,
) -> Iterator[list[Result]]:
    """Yields the result of ``work(batch)`` for every batch, in the order in which they come in.

    ``address`` is that of a running cluster; None uses the one this process is connected to, or starts
    a local one and stops it at the end. A batch whose worker dies is tried again, then by halves; the
    result of a single job that kills its workers is what ``failed`` makes of the error. ``gpus`` is what one
    batch takes of a GPU: with 0.25, four workers share one.
    """
    try:
        ray = import_module("ray")
    except ModuleNotFoundError:
        raise ModuleNotFoundError("engine ray needs ray: pip install 'ringfence[cluster]'") from None
    mine = not ray.is_initialized()
    if mine:
        ray.init(address=address, log_to_driver=False, include_dashboard=None if address else False)
    try:
        yield from _results(ray, work, batches, failed, gpus)
    finally:
        if mine:
            ray.shutdown()


def _results(
    ray: Any, work: Any, batches: Sequence[Sequence[Job]], failed: Any, gpus: float
) -> Iterator[list[Any]]:
    task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=_RETRIES)(_call)
    kept = ray.put(work)  # sent once, together with the data
    errors = ray.exceptions
    lost = (errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError, errors.ObjectLostError)
    running = {task.remote(kept, list(batch)): list(batch) for batch in batches}
    while running:
        [ready], _ = ray.wait(list(running))
        jobs = running.pop(ready)
        try:
            yield ray.get(ready)
        except lost as error:
            if len(jobs) == 1:
                yield [failed(jobs[0], error)]
            else:
                half = len(jobs) // 2
                running |= {task.remote(kept, part): part for part in (jobs[:half], jobs[half:])}


def _call(work: Any, jobs: list[Job]) -> Any:
    return work(jobs)
