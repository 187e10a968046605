"""Runs a sweep, many settings of a linear probe on one data set; it may be killed at any moment."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

import ringfence
from experiments.sweep.batch import measure
from experiments.sweep.data import SweepData, sweep_data
from experiments.sweep.epsilons import Epsilons, epsilons
from experiments.sweep.measured import Measured, failed
from experiments.sweep.settings import Grid, Job, Search, digest
from experiments.sweep.store import SweepStore
from experiments.sweep.store import read_rows as read_rows
from ringfence import checks
from ringfence.numerics.blocks import one_thread
from ringfence.progress import Progress

if TYPE_CHECKING:
    from ringfence.data.features import Features

_GOLDEN = 0.6180339887  # multiples of it, modulo 1, are spread evenly over [0, 1]
_BATCH = {"cpu": 48, "cuda": 240}  # how many jobs are trained together


def run_sweep(
    grid: Grid,
    features: "Features",
    out: Path,
    engine: str = "local",
    address: str | None = None,
    device: str = "cpu",
    search: Search = "paper",
    progress: Progress | None = None,
    *,
    public: "Features | None" = None,
    batch_size: int | None = None,
    with_epsilons: bool = True,
) -> Path:
    """Runs the jobs that are not finished yet and returns the path of the rows, ``out``/sweep.sqlite.

    The same call continues where another one ended, however it ended. ``engine`` is local or ray; ray
    takes the ``address`` of a cluster, and starts a local one without it. ``public`` are features declared
    public (see ``sweep_data``). ``with_epsilons=False`` leaves the conversion to epsilons, which needs
    dp-accounting, to ``read_rows``.

    Guarantee: that of ``measure``. The rows hold numbers that depend on private data.

    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from ringfence.data.features import Features
    >>> labels = np.arange(200) % 2
    >>> values = np.eye(2, dtype=np.float32)[labels]
    >>> grid = Grid("toy", ("gaussian", "truncated"), (0.1,), (10.0,), (30.0,), (4.0,), (5,))
    >>> with TemporaryDirectory() as folder:
    ...     path = run_sweep(grid, Features(values, labels, values, labels), Path(folder))
    ...     rows = read_rows(Path(folder))
    >>> [(row.mechanism, row.seed, row.test_accuracy) for row in rows][2:4]
    [('Gaussian', 2, 1.0), ('truncated', 0, 1.0)]
    """
    if engine not in ("local", "ray"):
        raise ValueError(f"engine must be local or ray, got {engine!r}")
    if engine == "local" and address is not None:
        raise ValueError(f"address is for engine ray, got {address!r}")
    if device not in _BATCH:
        raise ValueError(f"device must be cpu or cuda, got {device!r}")
    if engine == "local" and device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device cuda is not available on this machine")
    size = checks.count("batch_size", _BATCH[device] if batch_size is None else batch_size, at_least=1)
    jobs = grid.jobs(search)
    data = sweep_data(features, grid, search, public)
    store = SweepStore(out, _identity(grid, search, data, jobs))

    # Batches are cut from all jobs, finished or not, so that the same jobs are always trained together.
    batches = [jobs[start : start + size] for start in range(0, len(jobs), size)]
    first = int(len(batches) * (store.earlier * _GOLDEN % 1))
    ordered = [*batches[first:], *batches[:first]]
    if progress is not None:
        progress("settings", len(store.done()) / len(jobs))
    work = _OnDevice(data, device, grid.fisher)
    if engine == "ray":
        from experiments.sweep.ray import ray_results

        left = list(_unfinished(ordered, store))
        results: Iterable[list[Measured]] = ray_results(
            work, left, failed, address, gpus=float(device == "cuda")
        )
    else:
        results = map(work, _unfinished(ordered, store))
    versions = (ringfence.__version__, torch.__version__)
    for measured in results:
        store.add([_converted(one, grid.delta, with_epsilons) for one in measured], versions)
        if progress is not None:
            progress("settings", len(store.done()) / len(jobs))
    return store.path


class _OnDevice:
    """Calls ``measure`` on a device; the data travel on the CPU and are moved once, when work begins."""

    def __init__(self, data: SweepData, device: str, fisher: bool) -> None:
        self._data, self._device, self._fisher = data, device, fisher
        self._moved = False

    def __call__(self, jobs: Sequence[Job]) -> list[Measured]:
        if not self._moved:
            self._data, self._moved = self._data.to(self._device), True
        with one_thread(self._data.train[0].numel()):
            return measure(self._data, jobs, self._fisher)


def _unfinished(batches: Sequence[Sequence[Job]], store: SweepStore) -> Iterator[list[Job]]:
    """Yields what is left of each batch when its turn comes: another process may have done part of it."""
    for batch in batches:
        done = store.done()
        left = [job for job in batch if (job[0].key, job[1]) not in done]
        if left:
            yield left


def _converted(measured: Measured, delta: float, wanted: bool) -> tuple[Measured, Epsilons | None]:
    if not wanted or measured.sums is None:
        return measured, None
    try:
        return measured, epsilons(measured.sums, measured.setting.steps, delta)
    except (ValueError, ArithmeticError) as error:
        return failed((measured.setting, measured.seed), error), None


def _identity(grid: Grid, search: Search, data: SweepData, jobs: Sequence[Job]) -> dict[str, str]:
    """What must not change between two runs in one folder; the error names the first value that did."""
    split = [grid.fair.validation, grid.fair.seed] if search == "fair" else None
    how = [data.classes, grid.intercept, grid.fisher, split, *(["unit rows"] if grid.unit_rows else [])]
    return {
        "name": grid.name,
        "search": search,
        "delta": repr(grid.delta),
        "classes": str(data.classes),
        "data file (SHA-256)": data.fingerprint,
        "grid (SHA-256)": digest([[(setting.key, seed) for setting, seed in jobs], how]),
    }
