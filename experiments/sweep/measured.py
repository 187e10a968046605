"""What came out of one job of a sweep, before its divergence sums become epsilons."""

from dataclasses import dataclass

from experiments.sweep.settings import Job, SweepSetting


@dataclass(frozen=True)
class Sums:
    """What an account adds up over a run: all that its epsilons are computed from."""

    orders: tuple[float, ...]
    worst: tuple[float, ...]  # for each order, the larger of the two directions' sums
    gaussian_zcdp: float
    bounded_zcdp: float


@dataclass(frozen=True)
class Measured:
    """One job that is done, or the error it ended with. ``seconds`` is its share of the batch's time.

    >>> Measured(SweepSetting("sign", 0.1, 10.0, learning_rate=1.0, steps=5), seed=0).error is None
    True
    """

    setting: SweepSetting
    seed: int
    validation_accuracy: float | None = None
    test_accuracy: float | None = None
    sums: Sums | None = None
    eta_max: float | None = None
    eta_median: float | None = None
    seconds: float = 0.0
    error: str | None = None


def failed(job: Job, error: Exception) -> Measured:
    """The result of a job that ended with an error.

    >>> setting = SweepSetting("sign", 0.1, 10.0, learning_rate=1.0, steps=5)
    >>> failed((setting, 0), ValueError("no")).error
    'ValueError: no'
    """
    return Measured(*job, error=f"{type(error).__name__}: {error}")
