"""The rows of Figure 4 at full size: one per trained network, in the sweep's file and as CSV."""

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from experiments.information.full_size.settings import clip_of, methods
from experiments.sweep.job_file import JobFile, read_jobs
from experiments.sweep.settings import Job, SweepSetting
from ringfence.training.engine.run import RunPlan

_ACCURACIES = ("validation_accuracy", "test_accuracy")
_ETAS = tuple(f"{kind}_{which}" for kind in ("spectral", "trace", "estimate") for which in ("max", "median"))
_SECONDS = ("training_seconds", "measuring_seconds")
_NUMBERS = ("round", "epochs", *_ACCURACIES, *_ETAS, *_SECONDS)
_TEXTS = ("ringfence", "torch", "device", "error")
_GIVEN = ("clip", "noise_multiplier", "bound", "learning_rate")
_PUBLIC = ("examples", "batch_size", "parameters", "delta")  # of the sweep's identity: what epsilon is about


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


def network_file(folder: Path, identity: Mapping[str, str]) -> JobFile:
    """The file that the rows of a folder are kept in."""
    return JobFile(folder, identity, _NUMBERS, _TEXTS)


def stored(job: Job, number: int, epochs: int, measured: Mapping[str, Any]) -> dict[str, Any]:
    """A row as the file keeps it."""
    setting, seed = job
    own = {"setting": setting.key, "seed": seed, "settings": json.dumps(asdict(setting))}
    return {**own, "round": number, "epochs": epochs, **measured}


def restored(
    rows: Iterable[NetworkRow], rounds: Sequence[tuple[SweepSetting, ...]], steps_per_epoch: int
) -> list[dict[str, Any]]:
    """Rows of a CSV file as the sweep's file keeps them; ``rounds`` are the settings that they must have."""
    found = []
    for row in rows:
        setting = rounds[row.round][methods().index(row.method)]
        wanted = (*(getattr(setting, name) for name in _GIVEN), setting.steps)
        if wanted != (*(getattr(row, name) for name in _GIVEN), row.epochs * steps_per_epoch):
            raise ValueError(
                f"the row of {row.method}, round {row.round}, was trained with settings of another sweep"
            )
        measured = {name: getattr(row, name) for name in (*_ACCURACIES, *_ETAS, *_SECONDS, *_TEXTS)}
        found.append(stored((setting, row.seed), row.round, row.epochs, measured))
    return found


def read_network_rows(folder: Path, *, with_epsilons: bool = True) -> list[NetworkRow]:
    """Reads every finished row, by round, method and seed. Epsilons need dp-accounting, and are made here."""
    about, found = read_jobs(folder, _NUMBERS, _TEXTS)
    public = {name: float(about[name]) for name in _PUBLIC}
    rows = []
    for values in found:
        setting, number = SweepSetting(**json.loads(values["settings"])), int(values["round"])
        epsilon = (
            _epsilon(setting, **public) if with_epsilons and values["test_accuracy"] is not None else None
        )
        given = {name: getattr(setting, name) for name in _GIVEN}
        kept = {name: values[name] for name in (*_ACCURACIES, *_ETAS, *_SECONDS, *_TEXTS)}
        rows.append(
            NetworkRow(
                *(setting.label, number, values["seed"], int(values["epochs"])),
                **(given | kept),
                epsilon_data_independent=epsilon,
                delta=public["delta"],
            )
        )
    return sorted(rows, key=lambda row: (row.round, methods().index(row.method), row.seed))


def read_csv(path: Path) -> list[NetworkRow]:
    """Reads rows that ``write_csv`` wrote.

    >>> from tempfile import TemporaryDirectory
    >>> from experiments.csv_file import write_csv
    >>> row = NetworkRow("Gaussian", 0, 0, 10, 0.3, 3.0, None, 0.1, test_accuracy=0.7)
    >>> with TemporaryDirectory() as folder:
    ...     read_csv(write_csv([row], Path(folder) / "rows.csv")) == [row]
    True
    """
    texts, counts = {"method", "ringfence", "torch", "device"}, {"round", "seed", "epochs"}

    def value(name: str, text: str) -> Any:
        if name in texts:
            return text
        if not text:
            return None
        return text if name == "error" else int(text) if name in counts else float(text)

    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        if list(reader.fieldnames or ()) != [field.name for field in fields(NetworkRow)]:
            raise ValueError(
                f"{path} must hold rows of Figure 4 at full size, got {reader.fieldnames!r:.100}"
            )
        return [NetworkRow(**{name: value(name, text) for name, text in row.items()}) for row in reader]


def complete(rows: Iterable[NetworkRow]) -> list[NetworkRow]:
    """The rows of the rounds in which every method has its run, so that every one had as many settings."""
    kept = list(rows)
    whole = {
        row.round for row in kept if {one.method for one in kept if one.round == row.round} == set(methods())
    }
    return [row for row in kept if row.round in whole]


@lru_cache(maxsize=4096)
def _epsilon(
    setting: SweepSetting, examples: float, batch_size: float, parameters: float, delta: float
) -> float:
    """What holds for every dataset after the steps of a setting, from above."""
    loader: DataLoader[Any] = DataLoader(range(int(examples)), batch_size=int(batch_size))  # type: ignore[arg-type]
    plan = RunPlan.of(loader, clip_of(setting), None, "poisson", secure=False, rounding=2.0**-24)
    account = plan.account(setting.law)
    account.step_of_any(torch.zeros(()).expand(int(parameters)), count=setting.steps)
    return account.guarantee(delta).epsilon
