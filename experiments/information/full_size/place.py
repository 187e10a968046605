"""Where networks of Figure 4 are trained: images on a device, what is to be done, and the file of rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import torch

import ringfence
from experiments.information.full_size.images import image_data
from experiments.information.full_size.rows import (
    NetworkRow,
    complete,
    network_file,
    read_network_rows,
    restored,
    stored,
)
from experiments.information.full_size.settings import FullSizeSettings, methods
from experiments.information.full_size.training import fresh_model, steps_per_epoch, train_and_measure
from experiments.information.rows import frontier
from experiments.sweep.data import SweepData
from experiments.sweep.job_file import JobFile
from experiments.sweep.settings import Job

_OWN = (ValueError, ArithmeticError)  # errors of a job; others are about the machine, whatever the setting is


class OutOfTimeError(Exception):
    """The time that was given is over."""


@dataclass(frozen=True)
class Visit:
    """What one call of ``run_full_size`` works on, and how long. It travels to other processes."""

    images: Path
    out: Path
    settings: FullSizeSettings
    rounds: int
    device: str
    ends: float = float("inf")  # in seconds since the epoch
    earlier: tuple[NetworkRow, ...] = ()  # of other visits to the same images: they count as finished


@dataclass(frozen=True)
class Place:
    """The images on a device, and the file that rows go to."""

    visit: Visit
    data: SweepData
    file: JobFile

    @classmethod
    def of(cls, visit: Visit, device: str) -> "Place":
        """Reads the images and opens the file, which refuses rows of other images or settings."""
        settings = visit.settings
        data = image_data(visit.images, settings.search)
        identity = {
            "name": "figure 4 at full size",
            "settings (SHA-256)": settings.identity(),
            "images (SHA-256)": data.fingerprint,
            "examples": str(len(data.train[1])),
            "batch_size": str(settings.batch_size),
            "parameters": str(sum(p.numel() for p in fresh_model(settings.model, data, 0).parameters())),
            "delta": repr(settings.delta),
        }
        file = network_file(visit.out, identity)
        if visit.earlier:
            each = steps_per_epoch(data, settings)
            rounds = settings.rounds(1 + max(row.round for row in visit.earlier), each)
            file.add(restored(visit.earlier, rounds, each))
        # eta is measured in float32, which TF32 is not; training is in bfloat16 anyway
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
        return cls(visit, data.to(device), file)

    def jobs(self) -> list[Job]:
        """All that is to be done, in order: the rounds, then further seeds of what is on a frontier now."""
        settings, each = self.visit.settings, steps_per_epoch(self.data, self.visit.settings)
        rounds = settings.rounds(self.visit.rounds, each)
        rows = read_network_rows(self.visit.out, with_epsilons=False)
        first = settings.seeds[0]
        best = frontiers([row for row in complete(rows) if row.seed == first and row.round < len(rounds)])
        again = [rounds[row.round][methods().index(row.method)] for row in best]
        return [
            *((setting, first) for setting in chain(*rounds)),
            *((setting, seed) for setting in again for seed in settings.seeds[1:]),
        ]

    def row(self, job: Job, pause: Callable[[], None] = lambda: None) -> dict[str, Any]:
        """Trains and measures one job. An error that is the job's own, such as NaN, is its result."""
        each, device = steps_per_epoch(self.data, self.visit.settings), self.data.train[0].device
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
        about: dict[str, Any] = {
            "ringfence": ringfence.__version__,
            "torch": torch.__version__,
            "device": name,
        }
        try:
            about |= train_and_measure(self.data, self.visit.settings, job, pause)
        except _OWN as error:
            about["error"] = f"{type(error).__name__}: {error}"
        return stored(job, self.round_of(job), job[0].steps // each, about)

    def round_of(self, job: Job) -> int:
        """The round that the setting of a job belongs to."""
        rounds = self.visit.settings.rounds(
            self.visit.rounds, steps_per_epoch(self.data, self.visit.settings)
        )
        return next(number for number, those in enumerate(rounds) if job[0] in those)


def frontiers(rows: Sequence[NetworkRow]) -> list[NetworkRow]:
    """The rows on the frontier of each method, by largest eta: the most accurate first, taking turns."""
    own = [
        # an eta of 0 says that the clip flattens everything
        reversed(frontier([row for row in rows if row.method == name and row.spectral_max], _largest))
        for name in methods()
    ]
    return [row for turn in zip_longest(*own) for row in turn if row is not None]


def _largest(row: NetworkRow) -> float | None:
    return row.spectral_max
