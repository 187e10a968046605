"""The networks of Figure 4 as a sweep: it may be stopped at any moment, and several calls add up."""

from collections.abc import Sequence
from functools import lru_cache, partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from experiments.information.network import (
    METHODS,
    NetworkSettings,
    fresh_model,
    read_images,
    steps_per_epoch,
    train_and_measure,
)
from experiments.sweep.data import OnDevice, SweepData
from experiments.sweep.runner import FILE, HERE, Workers, read_file, run_jobs
from experiments.sweep.settings import Job, SweepSetting
from ringfence import checks
from ringfence.training.engine.batches import RunPlan
from ringfence.training.engine.engine import PrivacyEngine

if TYPE_CHECKING:
    from pandas import DataFrame

ROUNDS = 16
WIDE = NetworkSettings()
_PUBLIC = ("examples", "batch_size", "parameters", "delta")  # of the sweep's identity: what epsilon is about
# Of a trained network. ``round`` is the place in the search; rows of other seeds have the round of their
# setting. A learning rate is still to be divided by the clip. eta is about the network's input, in which
# pixels from black to white are 4 apart: ``spectral`` is the definition and ``trace`` the mean over pixels,
# both from above; ``estimate`` is the paper's estimate of the trace. etas are missing where the network
# learned too little to be measured; they come from private data and must not be published.
COLUMNS = [
    *("method", "round", "seed", "epochs", "clip", "noise_multiplier", "bound", "learning_rate"),
    *("validation_accuracy", "test_accuracy", "spectral_max", "spectral_median", "trace_max", "trace_median"),
    *("estimate_max", "estimate_median", "epsilon_data_independent", "delta"),
    *("training_seconds", "measuring_seconds", "ringfence", "torch", "device", "error"),
]


def measure_networks(data: SweepData, jobs: Sequence[Job], settings: NetworkSettings) -> list[dict[str, Any]]:
    """Trains and measures every job, and returns their rows."""
    # eta needs all digits; training is in bfloat16 anyway, and searches for the fastest convolutions
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    device = torch.cuda.get_device_name() if data.train[0].is_cuda else "cpu"
    return [{"device": device, **train_and_measure(data, settings, job)} for job in jobs]


def run_networks(
    images: Path,
    out: Path,
    settings: NetworkSettings = WIDE,
    *,
    rounds: int = ROUNDS,
    workers: Workers = HERE,
) -> Path:
    """Trains and measures what is not finished yet, and returns the path of the rows, ``out``/sweep.db.

    First every method gets its setting of each of the ``rounds``, then those on the frontiers get further
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
    work = OnDevice(partial(measure_networks, settings=settings), data, workers.device)
    known = settings.rounds(rounds, each)
    notes = {
        setting.key: {"round": number, "epochs": setting.steps // each}
        for number, those in enumerate(known)
        for setting in those
    }
    first, *others = settings.seeds
    once = [[(setting, first)] for setting in chain(*known)]
    run_jobs(work, once, out, identity, workers, notes, "networks")
    rows = [row for row in read_file(out)[1] if row["seed"] == first and row["round"] < rounds]
    again = [[(setting, seed)] for setting in on_frontiers(rows) for seed in others]
    run_jobs(work, again, out, identity, workers, notes, "networks, further seeds")
    return out / FILE


def on_frontiers(rows: Sequence[dict[str, Any]]) -> list[SweepSetting]:
    """The settings on the frontier of each method, by largest eta: the most accurate first, taking turns."""
    turns = []
    for name in METHODS:
        # an eta of 0 means that the clip makes all gradients constant
        own = [row for row in rows if row["setting"].label == name and row.get("spectral_max")]
        best = frontier(*([row[key] for row in own] for key in ("spectral_max", "validation_accuracy")))
        turns.append([own[i]["setting"] for i in reversed(best)])
    return [setting for turn in zip_longest(*turns) for setting in turn if setting is not None]


def frontier(eta: Sequence[float], accuracy: Sequence[float]) -> list[int]:
    """Which settings no other one beats in both: by rising eta, each with a higher accuracy."""
    best, found = -np.inf, []
    for i in np.lexsort((-np.asarray(accuracy), np.asarray(eta))).tolist():
        if accuracy[i] > best:
            best = accuracy[i]
            found.append(i)
    return found


def complete(rows: "DataFrame") -> "DataFrame":
    """The rows of the rounds in which every method has its run, so that every one had as many settings."""
    return rows[rows.groupby("round").method.transform("nunique") == len(METHODS)]


def network_row(setting: SweepSetting, **measured: Any) -> dict[str, Any]:
    """One row: the settings, and what was measured."""
    given = {name: getattr(setting, name) for name in ("clip", "noise_multiplier", "bound", "learning_rate")}
    return {"method": setting.label, **given, **measured}


def write_rows(folder: Path) -> Path:
    """Writes the finished rows of a folder as CSV, by round, method and seed, with their epsilons."""
    from pandas import DataFrame

    from experiments.drawing import write_csv

    about, found = read_file(folder)
    if not found:
        raise ValueError(f"{folder} has no finished run yet")
    public = {name: about[name] for name in _PUBLIC}
    rows = []
    for row in sorted(found, key=lambda row: row["round"]):  # they come by method and seed
        epsilon = _epsilon(row["setting"], **public) if row.get("test_accuracy") is not None else None
        rows.append(network_row(**row, epsilon_data_independent=epsilon, delta=about["delta"]))
    return write_csv(DataFrame(rows, columns=COLUMNS), folder / "network_information.csv")


@lru_cache(maxsize=4096)
def _epsilon(setting: SweepSetting, examples: int, batch_size: int, parameters: int, delta: float) -> float:
    """Data-independent epsilon of all steps of a setting, rounded up."""
    loader: DataLoader[Any] = DataLoader(range(examples), batch_size=batch_size)  # type: ignore[arg-type]
    plan = RunPlan.of(PrivacyEngine(setting.law, setting.gradient_clip), loader, rounding=2.0**-24)
    return plan.cost(parameters, setting.steps).guarantee(delta).epsilon
