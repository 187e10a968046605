"""Figure 4 at full size as a sweep: it may be stopped at any moment, and several visits add up."""

import multiprocessing
import time
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import torch

from experiments.information.full_size.place import OutOfTimeError, Place, Visit
from experiments.information.full_size.rows import NetworkRow, stored
from experiments.information.full_size.settings import METHODS, FullSizeSettings
from experiments.information.full_size.training import steps_per_epoch
from experiments.sweep.job_file import FILE
from experiments.sweep.settings import Job
from ringfence import checks
from ringfence.progress import Progress

_LEASE = 300.0  # seconds after which the job of a worker that says nothing is given to another
_LOOK = 2.0  # seconds between two looks at what workers have finished


def run_full_size(
    images: Path,
    out: Path,
    settings: FullSizeSettings,
    *,
    rounds: int,
    device: str = "cpu",
    workers: int = 1,
    minutes: float | None = None,
    engine: str = "local",
    address: str | None = None,
    earlier: Sequence[NetworkRow] = (),
    progress: Progress | None = None,
) -> Path:
    """Trains and measures what is not finished yet, and returns the path of the rows, ``out``/sweep.sqlite.

    First every method gets its setting of each of so many ``rounds``, then those on the frontiers get further
    seeds. The same call goes on where another ended, also with more rounds. ``workers`` processes share the
    GPUs of this machine, or each GPU of a Ray cluster; each claims the next job. After ``minutes`` all of
    them stop, and what they had not finished is left to the next call. Rows of ``earlier`` visits, such as
    those of a CSV file, count as finished; that they are about the same images is taken for granted.

    Guarantee: that of ``train_and_measure``. The rows hold numbers that depend on private data.
    """
    checks.one_of("engine", engine, ("local", "ray"))
    checks.one_of("device", device, ("cpu", "cuda"))
    if engine == "local" and address is not None:
        raise ValueError(f"address is for engine ray, got {address!r}")
    if engine == "local" and device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device cuda is not available on this machine")
    checks.count("rounds", rounds, at_least=1)
    checks.count("workers", workers, at_least=1)
    ends = float("inf") if minutes is None else time.time() + 60 * float(checks.positive("minutes", minutes))
    visit = Visit(images, out, settings, rounds, device, ends, tuple(earlier))
    if engine == "ray":
        _on_cluster(visit, workers, address, progress)
    elif workers == 1:
        work(visit, 0, progress)
    else:
        _in_processes(visit, workers, progress)
    return out / FILE


def work(visit: Visit, number: int, progress: Progress | None = None) -> None:
    """Worker ``number``: claims job after job until none is left that fits into the time."""
    device = "cpu"
    if visit.device == "cuda":
        device = f"cuda:{number % torch.cuda.device_count()}"
        torch.cuda.set_device(device)  # where kernels of our own run
        torch.set_num_threads(1)  # threads of several workers wait for each other
    place, fastest = Place.of(visit, device), 0.0  # seconds per step of the fastest job so far, 0 before any
    while True:
        jobs = place.jobs()
        if progress is not None:
            progress("networks", min(1.0, len(place.file.done()) / max(1, len(jobs))))
        begun = renewed = time.time()
        fitting = [job for job in jobs if begun + fastest * job[0].steps <= visit.ends]
        job = place.file.claim(fitting, _LEASE)
        if job is None:
            return

        def pause(job: Job = job) -> None:
            nonlocal renewed
            now = time.time()
            if now > visit.ends:
                raise OutOfTimeError
            if now > renewed + _LEASE / 5:
                place.file.renew(job, _LEASE)
                renewed = now

        try:
            place.file.add([place.row(job, pause)])
            took = (time.time() - begun) / job[0].steps
            fastest = min(fastest or took, took)
        except OutOfTimeError:
            return
        finally:
            place.file.give_back(job)


def _in_processes(visit: Visit, workers: int, progress: Progress | None) -> None:
    file = Place.of(visit, "cpu").file  # what is refused is refused here, once
    processes = [
        multiprocessing.get_context("spawn").Process(target=work, args=(visit, number))
        for number in range(workers)
    ]
    for process in processes:
        process.start()
    running = {process.sentinel for process in processes}
    while running:
        running -= set(wait(running, timeout=_LOOK))
        if progress is not None:
            progress("networks", min(1.0, len(file.done()) / (visit.rounds * len(METHODS))))
    for process in processes:
        process.join()
    bad = [process.exitcode for process in processes if process.exitcode]
    if bad:
        raise RuntimeError(f"{len(bad)} of {workers} workers failed, see above; finished rows are kept")


class _OnCluster:
    """Calls ``Place.row`` on a machine of a cluster. The images travel on the CPU and are moved once."""

    def __init__(self, place: Place) -> None:
        self._place, self._moved = place, False

    def __call__(self, jobs: Sequence[Job]) -> list[dict[str, Any]]:
        if not self._moved:
            torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
            self._place = replace(self._place, data=self._place.data.to(self._place.visit.device))
            self._moved = True
        return [self._place.row(job) for job in jobs]


def _on_cluster(visit: Visit, workers: int, address: str | None, progress: Progress | None) -> None:
    from experiments.sweep.ray import ray_results

    place = Place.of(visit, "cpu")
    each = steps_per_epoch(place.data, visit.settings)

    def failed(job: Job, error: Exception) -> dict[str, Any]:
        about = {"error": f"{type(error).__name__}: {error}"}
        return stored(job, place.round_of(job), job[0].steps // each, about)

    for _ in ("the rounds", "further seeds"):
        done = place.file.done()
        left = [[job] for job in place.jobs() if (job[0].key, job[1]) not in done]
        gpus = 1 / workers if visit.device == "cuda" else 0.0
        for rows in ray_results(_OnCluster(place), left, failed, address, gpus):
            place.file.add(rows)
            if progress is not None:
                progress("networks", len(place.file.done()) / len(place.jobs()))
            if time.time() > visit.ends:
                return
