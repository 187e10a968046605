"""Trains settings together: accuracies and divergence sums, with torch alone.

The sums become epsilons afterwards, by dp-accounting, perhaps on another machine: see ``epsilons``.
"""

import time
from collections.abc import Sequence

import numpy as np

from experiments.sweep.data import SweepData
from experiments.sweep.measured import Measured, Sums, failed
from experiments.sweep.settings import Job, SweepSetting, digest
from ringfence.training.clipping import Clamp, Norm
from ringfence.training.linear.grid import accuracies, train_linear_grid
from ringfence.training.linear.information import information_losses
from ringfence.training.linear.regression import LinearSettings


def linear_settings(setting: SweepSetting, seed: int) -> LinearSettings:
    """What is trained for a setting. Its noise depends on setting and seed alone, not on other settings.

    >>> setting = SweepSetting("gaussian", 0.1, 10.0, learning_rate=1.0, steps=5)
    >>> linear_settings(setting, 0).mechanism
    Gaussian(sigma=1.0)
    """
    clip = {"clamp": Clamp, "norm": Norm}[setting.clip_kind](setting.clip)
    noise = int(digest([setting.key, seed])[:15], 16)
    return LinearSettings(setting.law, clip, setting.learning_rate, setting.steps, noise)


def measure(data: SweepData, jobs: Sequence[Job], fisher: bool = False) -> list[Measured]:
    """Trains and tests every job, in the order given. A job that raises an error has it as its result.

    A batch that fails is tried again by halves, so that the other jobs in it are still measured.

    Guarantee: each job has the guarantee of ``train_linear_grid``. All jobs read the same data: if all
    of them are published their costs add up, and choosing one by its accuracy is not accounted for.

    >>> import torch
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
            raise  # the device is lost, whatever the setting is: the sweep must not go on
        if len(jobs) == 1:
            return [failed(jobs[0], error)]
    half = len(jobs) // 2
    return measure(data, jobs[:half], fisher) + measure(data, jobs[half:], fisher)


def _measured(data: SweepData, jobs: Sequence[Job], fisher: bool) -> list[Measured]:
    start = time.perf_counter()
    training = [linear_settings(setting, seed) for setting, seed in jobs]
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
    training = linear_settings(*job)
    features, labels = data.train
    run = training.train(features, labels, data.classes, public_size=len(features))
    losses = information_losses(
        training.mechanism, run.trajectory, features, labels, training.clip, data.attributes
    )
    eta = losses.cpu().numpy()
    return float(eta.max()), float(np.quantile(eta, 0.5, method="higher"))
