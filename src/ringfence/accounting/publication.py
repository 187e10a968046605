"""Numbers of an account that may be published: noise is added to them, and the release is paid for.

What is released is the share that a Rényi sum has of the largest that it can be, at one order that is fixed
without the data. One record changes the share by little, so that little noise hides the record. A margin for
the noise makes the published number an upper bound, and the cost of publishing is added to the claim.
"""

import math
from dataclasses import dataclass

import torch

from ringfence.accounting.guarantee import ADDED_OR_REMOVED
from ringfence.accounting.privacy_loss import PrivacyLoss
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.mechanisms.secure import SecureRelease
from ringfence.numerics.rounding import rounded_up

# The public grid reaches at least 2^40 deviations from 0, so that a share of 1 lies on it.
_LEAST_DEVIATION = 2.0**-40
_HALF_STEP = 2.0**-11  # of a deviation: the grid rounds down by at most this much


@dataclass(frozen=True)
class PublishableEpsilon:
    """Upper bounds of per-instance numbers that are themselves released privately.

    ``epsilon`` is ordinary differential privacy of the releases and of the published number together.
    ``per_instance_epsilon`` and ``ex_post_epsilon`` are those of ``Guarantee.per_instance`` with the cost of
    publishing included. The probability that they are too small is at most ``failure_probability``, over the
    noise added here.

    >>> PublishableEpsilon(1.2, 0.7, 0.9, 40.0, 1e-5, 1e-3, 1e-4).statement[:79]
    'The releases and this number together satisfy (1.2, 1e-05)-differential privacy'
    """

    epsilon: float
    per_instance_epsilon: float
    ex_post_epsilon: float
    order: float
    delta: float
    failure_probability: float
    publishing_zcdp: float

    @property
    def statement(self) -> str:
        """In plain English: what is promised, with which probability, and that it may be published."""
        return (
            f"The releases and this number together satisfy ({rounded_up(self.epsilon)}, "
            f"{self.delta:.3g})-differential privacy for every dataset. Except with probability "
            f"{self.failure_probability:.3g} over the noise in this number, the ex-post privacy loss about "
            f"each single record of this dataset is at most {rounded_up(self.ex_post_epsilon)} except with "
            f"probability {self.delta:.3g} over the run, and where no release depends on the results of "
            f"earlier ones, the releases are ({rounded_up(self.per_instance_epsilon)}, {self.delta:.3g})-"
            "indistinguishable from those of any neighbour of this dataset. These numbers were released with "
            "noise and may be published."
        )


def published(
    loss: PrivacyLoss, delta: float, failure_probability: float, publishing_zcdp: float
) -> PublishableEpsilon:
    """The numbers of this loss, whose sums at its one order were published, and of publishing together."""
    publishing = PrivacyLoss.of_zcdp(
        publishing_zcdp, publishing_zcdp, orders=loss.orders, steps=0, change=loss.change or ADDED_OR_REMOVED
    )
    claim = (loss + publishing).guarantee(delta)
    return PublishableEpsilon(
        epsilon=claim.epsilon,
        per_instance_epsilon=claim.per_instance.epsilon,
        ex_post_epsilon=claim.per_instance.ex_post_epsilon,
        order=loss.orders[0],
        delta=delta,
        failure_probability=failure_probability,
        publishing_zcdp=publishing_zcdp,
    )


def noise_for(change: float, zcdp: float) -> SecureRelease:
    """Gaussian noise under which a change of this size costs zcdp: change^2 / (2 deviation^2).

    >>> round(float(noise_for(0.1, 0.02).law.sigma), 9)
    0.5
    """
    return SecureRelease(Gaussian(max(_LEAST_DEVIATION, change / math.sqrt(2 * zcdp))))


def upper_bound(noise: SecureRelease, value: float, failure_probability: float) -> float:
    """The value with noise and a margin, below the value with probability at most ``failure_probability``.

    >>> 0.0 < upper_bound(noise_for(0.001, 0.02), 0.5, 1e-9) < 1.0
    True
    """
    chance = failure_probability - noise.delta(1, 0.0)
    if chance <= 0:
        raise ValueError(f"failure_probability must be above 2^-199, got {failure_probability!r}")
    quantile = -float(torch.special.ndtri(torch.tensor(chance, dtype=torch.float64)))
    margin = float(noise.law.sigma) * (quantile + _HALF_STEP)
    return float(noise.draw(value)) + margin
