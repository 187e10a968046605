"""The networks of Figure 4 as a sweep: it may be stopped at any moment, and several calls add up."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from experiments.drawing import write_csv
from experiments.information.network import (
    METHODS,
    NetworkSettings,
    fresh_model,
    read_images,
    steps_per_epoch,
    train_and_measure,
)
from experiments.information.probe import frontier
from experiments.progress import Progress
from experiments.sweep.data import OnDevice, SweepData
from experiments.sweep.runner import HERE, RowFile, Workers, error_row, read_file, run_jobs
from experiments.sweep.settings import Job, SweepSetting
from ringfence import checks
from ringfence.training.engine.batches import RunPlan

ROWS = "network_information.csv"
ROUNDS = 16
_GIVEN = ("clip", "noise_multiplier", "bound", "learning_rate")
_PUBLIC = ("examples", "batch_size", "parameters", "delta")  # of the sweep's identity: what epsilon is about
WIDE = NetworkSettings()
_OWN = (ValueError, ArithmeticError)  # errors of a job; others are about the machine, whatever the setting is


@dataclass(frozen=True)
class NetworkRow:
    """One trained network. What could not be computed is None, and ``error`` says why.

    etas are also None where the network learned too little to be measured. They come from private data and
    must not be published.

    ``round`` is the place in the search; rows of other seeds have the round of their setting. A learning rate
    is still to be divided by the clip. eta is about the network's input, in which pixels from black to white
    are 4 apart: ``spectral`` is the definition and ``trace`` the mean over pixels, both from above;
    ``estimate`` is the paper's estimate of the trace.
    """

    method: str
    round: int
    seed: int
    epochs: int
    clip: float
    noise_multiplier: float
    bound: float | None
    learning_rate: float
    validation_accuracy: float | None = None
    test_accuracy: float | None = None
    spectral_max: float | None = None
    spectral_median: float | None = None
    trace_max: float | None = None
    trace_median: float | None = None
    estimate_max: float | None = None
    estimate_median: float | None = None
    epsilon_data_independent: float | None = None
    delta: float | None = None
    training_seconds: float | None = None
    measuring_seconds: float | None = None
    ringfence: str = ""
    torch: str = ""
    device: str = ""
    error: str | None = None


def measure_networks(data: SweepData, jobs: Sequence[Job], settings: NetworkSettings) -> list[dict[str, Any]]:
    """Trains and measures every job: its row, or its error."""
    # eta needs all digits; training is in bfloat16 anyway, and searches for the fastest convolutions
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    device = torch.cuda.get_device_name() if data.train[0].is_cuda else "cpu"
    rows = []
    for job in jobs:
        try:
            row = train_and_measure(data, settings, job)
        except _OWN as error:
            row = error_row(error)
        rows.append({"device": device, **row})
    return rows


def run_networks(
    images: Path,
    out: Path,
    settings: NetworkSettings = WIDE,
    *,
    rounds: int = ROUNDS,
    workers: Workers = HERE,
    progress: Progress | None = None,
) -> Path:
    """Trains and measures what is not finished yet, and returns the path of the rows, ``out``/sweep.journal.

    First every method gets its setting of each of so many ``rounds``, then those on the frontiers get further
    seeds. The same call goes on where another ended, also with more rounds.

    Guarantee: that of ``train_and_measure``. The rows hold numbers that depend on private data.
    """
    checks.count("rounds", rounds, at_least=1)
    data = read_images(images, settings.search)
    each = steps_per_epoch(data, settings)
    identity = {
        "name": "networks of figure 4",
        "settings (SHA-256)": settings.identity(),
        "images (SHA-256)": data.fingerprint,
        "examples": len(data.train[1]),
        "batch_size": settings.batch_size,
        "parameters": sum(p.numel() for p in fresh_model(settings.model, data, 0).parameters()),
        "delta": settings.delta,
    }
    file = RowFile(out, identity)
    work = OnDevice(partial(measure_networks, settings=settings), data, workers.device)
    known = settings.rounds(rounds, each)
    notes = {
        setting.key: {"round": number, "epochs": setting.steps // each}
        for number, those in enumerate(known)
        for setting in those
    }

    def run(jobs: list[Job], part: str) -> bool:
        tell = None if progress is None else lambda share: progress(part, share)
        run_jobs(work, [[job] for job in jobs], file, workers, tell, notes)
        return {(setting.key, seed) for setting, seed in jobs} <= file.done()

    first, *others = settings.seeds
    if run([(setting, first) for setting in chain(*known)], "networks") and others:
        rows = complete(read_network_rows(out, with_epsilons=False))
        best = frontiers([row for row in rows if row.seed == first and row.round < rounds])
        again = [known[row.round][METHODS.index(row.method)] for row in best]
        run([(setting, seed) for setting in again for seed in others], "networks, further seeds")
    return file.path


def frontiers(rows: Sequence[NetworkRow]) -> list[NetworkRow]:
    """The rows on the frontier of each method, by largest eta: the most accurate first, taking turns."""
    own = [
        # an eta of 0 says that the clip flattens everything
        reversed(
            frontier(
                [row for row in rows if row.method == name and row.spectral_max], lambda row: row.spectral_max
            )
        )
        for name in METHODS
    ]
    return [row for turn in zip_longest(*own) for row in turn if row is not None]


def complete(rows: Iterable[NetworkRow]) -> list[NetworkRow]:
    """The rows of the rounds in which every method has its run, so that every one had as many settings."""
    kept = list(rows)
    had = Counter(number for number, _ in {(row.round, row.method) for row in kept})
    return [row for row in kept if had[row.round] == len(METHODS)]


def read_network_rows(folder: Path, *, with_epsilons: bool = True) -> list[NetworkRow]:
    """Reads every finished row, by round, method and seed. Epsilons need dp-accounting, and are made here."""
    about, found = read_file(folder)
    public = {name: about[name] for name in _PUBLIC}
    rows = []
    for values in found:
        setting = values.pop("setting")
        epsilon = (
            _epsilon(setting, **public) if with_epsilons and values.get("test_accuracy") is not None else None
        )
        rows.append(
            NetworkRow(
                setting.label,
                **values,
                **{name: getattr(setting, name) for name in _GIVEN},
                epsilon_data_independent=epsilon,
                delta=about["delta"],
            )
        )
    return sorted(rows, key=lambda row: (row.round, METHODS.index(row.method), row.seed))


@lru_cache(maxsize=4096)
def _epsilon(setting: SweepSetting, examples: int, batch_size: int, parameters: int, delta: float) -> float:
    """What holds for every dataset after the steps of a setting, from above."""
    loader: DataLoader[Any] = DataLoader(range(examples), batch_size=batch_size)  # type: ignore[arg-type]
    plan = RunPlan.of(loader, setting.law, setting.gradient_clip, sampling="poisson", rounding=2.0**-24)
    return plan.cost(parameters, setting.steps).guarantee(delta).epsilon


def write_rows(folder: Path) -> Path:
    """Writes the finished rows of a folder as CSV; without dp-accounting their epsilons are left out."""
    try:
        rows = read_network_rows(folder)
    except ModuleNotFoundError:
        rows = read_network_rows(folder, with_epsilons=False)
    if not rows:
        raise ValueError(f"{folder} has no finished run yet")
    return write_csv(rows, folder / ROWS)
