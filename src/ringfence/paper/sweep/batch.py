"""Settings trained together: accuracy and divergence sums, with torch alone.

Sums become epsilons afterwards, by dp-accounting, perhaps on another machine: ``sweep_epsilons``.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ringfence.paper.sweep.data import SweepData
from ringfence.paper.sweep.settings import Job, SweepSetting
from ringfence.training.linear.grid import accuracies, train_linear_grid
from ringfence.training.linear.information import information_losses


@dataclass(frozen=True)
class Sums:
    """What an account adds up: everything that epsilons are made of."""

    orders: tuple[float, ...]
    worst: tuple[float, ...]
    gaussian_zcdp: float
    bounded_zcdp: float


@dataclass(frozen=True)
class Measured:
    """One job done, or the error it ended with. ``seconds`` is its share of the batch's time."""

    setting: SweepSetting
    seed: int
    validation_accuracy: float | None = None
    test_accuracy: float | None = None
    sums: Sums | None = None
    eta_max: float | None = None
    eta_median: float | None = None
    seconds: float = 0.0
    error: str | None = None


def measure(data: SweepData, jobs: Sequence[Job], fisher: bool = False) -> list[Measured]:
    """Trains and tests every job, in the order given. An error is the result of the job that has it.

    A batch that fails is tried again by halves, so that the others do not suffer.

    Guarantee: as ``train_linear_grid``, job by job. Every job reads the same data: the costs of all
    jobs add up if all are published, and choosing one by its accuracy is not accounted for.

    >>> import torch
    >>> from ringfence.paper.sweep.settings import SweepSetting
    >>> both = torch.tensor([[1.0], [-1.0]] * 50), torch.tensor([1, 0] * 50)
    >>> data = SweepData(2, torch.ones(1), both, None, both, "")
    >>> [job] = measure(data, [(SweepSetting("gaussian", 1.0, 1.0, learning_rate=1.0, steps=3), 0)])
    >>> job.test_accuracy, round(job.sums.gaussian_zcdp, 6)
    (1.0, 3.0)
    """
    try:
        return _measured(data, jobs, fisher)
    except Exception as error:
        if "CUDA error" in str(error):
            raise  # the device is lost, whatever the setting: the sweep must not go on
        if len(jobs) == 1:
            return [failed(jobs[0], error)]
    half = len(jobs) // 2
    return measure(data, jobs[:half], fisher) + measure(data, jobs[half:], fisher)


def failed(job: Job, error: Exception) -> Measured:
    """The row of a job that ended with an error."""
    return Measured(*job, error=f"{type(error).__name__}: {error}")


def _measured(data: SweepData, jobs: Sequence[Job], fisher: bool) -> list[Measured]:
    start = time.perf_counter()
    training = [setting.training(seed) for setting, seed in jobs]
    features, labels = data.train
    runs = train_linear_grid(features, labels, data.classes, training, public_size=len(features))
    tested = accuracies(runs, *data.test).tolist()
    chosen = [None] * len(runs) if data.validation is None else accuracies(runs, *data.validation).tolist()
    losses = [_information_loss(data, job) if fisher else (None, None) for job in jobs]
    seconds = (time.perf_counter() - start) / sum(setting.steps for setting, _ in jobs)
    return [
        Measured(
            setting,
            seed,
            validation_accuracy=chosen[i],
            test_accuracy=tested[i],
            sums=Sums(
                tuple(runs[i].account.orders.tolist()),
                tuple(runs[i].account.worst.tolist()),
                runs[i].account.gaussian_zcdp,
                runs[i].account.bounded_zcdp,
            ),
            eta_max=losses[i][0],
            eta_median=losses[i][1],
            seconds=seconds * setting.steps,
        )
        for i, (setting, seed) in enumerate(jobs)
    ]


def _information_loss(data: SweepData, job: Job) -> tuple[float, float]:
    """The largest and the median eta of the training examples."""
    training = job[0].training(job[1])
    features, labels = data.train
    run = training.train(features, labels, data.classes, public_size=len(features))
    losses = information_losses(
        training.mechanism, run.trajectory, features, labels, training.clip, data.attributes
    )
    eta = losses.cpu().numpy()
    return float(eta.max()), float(np.quantile(eta, 0.5, method="higher"))
