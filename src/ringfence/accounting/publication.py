"""A per-instance epsilon that may be published: noise is added to it, and the release is paid for.

What is released is the share that the Rényi sum of theta has of the largest sum of any theta, at one order
that is fixed without the data. One record changes the share by little (``steepness``), so that little noise
hides the record. A margin for the noise makes the published number an upper bound, and the cost of publishing
is added to the claim.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.conversion import best_zcdp_order
from ringfence.accounting.divergence_sums import both_directions
from ringfence.accounting.guarantee import ADDED_OR_REMOVED
from ringfence.accounting.privacy_loss import PrivacyLoss, RenyiSums
from ringfence.accounting.sensitivity import Sensitivity, ceilings
from ringfence.accounting.steepness import largest_share
from ringfence.mechanisms.base import Mechanism, checked_mechanism
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.mechanisms.secure import SecureRelease
from ringfence.numerics.rounding import ROUNDING, UNDERFLOW, rounded_up

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


def publishable_epsilon(
    mechanism: Mechanism,
    thetas: Tensor | Sequence[Tensor],
    sensitivity: float | Sensitivity,
    *,
    delta: float,
    publishing_zcdp: float,
    failure_probability: float,
    order: float | None = None,
) -> PublishableEpsilon:
    """The per-instance epsilon of releases of ``thetas`` (one tensor, or one per step), safe to publish.

    The order alpha is fixed without looking at the data. What is released is the share

        sum of D_alpha over coordinates and steps / largest sum that any theta can have,

    plus Gaussian noise, where D is the worst over both signs and directions. When a record comes or goes
    every coordinate of every step moves by at most ``sensitivity``, and the share by at most
    ``largest_share``. Where a ``Sensitivity`` says that a record moves ``at_most`` m coordinates, the sum is
    that of the m largest D of each step: m of the terms change, and the sum by no more than they do. Noise
    for such a change costs ``publishing_zcdp``. A margin that the noise exceeds
    with probability ``failure_probability`` makes the result an upper bound. The noise is fresh, exact and
    on a public grid (``Mechanism.release``): there is no seed, and a second call is a second release that
    has to be paid for.

    Guarantee: publishing is ``publishing_zcdp``-zCDP whatever theta (proved in docs/guarantees.md).
    The parameters of the mechanism and the sensitivity must be single numbers, and a ``norm`` that bounds
    moves beyond ``each`` and ``at_most`` is refused: how fast its sum changes with theta is not known.

    >>> from ringfence.mechanisms.rectified import RectifiedGaussian
    >>> law, thetas = RectifiedGaussian(1.0, bound=1.0), [torch.full((10_240,), 2.5)] * 10
    >>> number = publishable_epsilon(law, thetas, 1e-3, delta=1e-5, publishing_zcdp=1e-4,
    ...     failure_probability=1e-3)
    >>> 0.6 < number.per_instance_epsilon < 1.1, round(number.epsilon, 2)
    (True, 1.22)
    """
    delta = checks.probability("delta", delta)
    failure_probability = checks.probability("failure_probability", failure_probability)
    publishing_zcdp = checks.number("publishing_zcdp", publishing_zcdp, checks.positive)
    given = list(thetas) if isinstance(thetas, list | tuple) else [thetas]
    if not given:
        raise ValueError("thetas must hold at least one step, got none")
    steps = [checks.finite("thetas", theta).double() for theta in given]
    size = Sensitivity.of(sensitivity)
    move = size.farthest.double()
    if move.numel() != 1 or any(
        value.numel() != 1 for value in checked_mechanism(mechanism).parameters().values()
    ):
        raise ValueError("mechanism and sensitivity must be single numbers to publish from them")
    sizes = [size.binding(theta.shape) for theta in steps]
    if any(own.norm is not None for own in sizes):
        raise ValueError(
            f"sensitivity must not be bounded by norm to publish from it, got {size!r}: give each, and "
            "at_most where few coordinates move, or publish claim.epsilon, which holds for a norm"
        )

    both = [ceilings(mechanism, theta, own) for theta, own in zip(steps, sizes, strict=True)]
    gaussian, bounded = (sum(ends[i] for ends in both) for i in (0, 1))
    alpha = best_zcdp_order(bounded, delta) if order is None else checks.number("order", order, checks.order)
    largest = alpha * bounded
    count = sum(theta.numel() for theta in steps)
    realised, order_alone = 0.0, torch.tensor([alpha], dtype=torch.float64)
    for theta, own in zip(steps, sizes, strict=True):
        worst = both_directions(mechanism, theta, move, order_alone).amax(dim=(0, 1))
        realised += float((worst if own.at_most is None else worst.reshape(-1).topk(own.at_most)[0]).sum())
    share, change = 0.0, 0.0
    if largest > 0:
        share = min(1.0, (realised * (1 + ROUNDING) + count * UNDERFLOW) / largest)
        # with the record and without it the share may be computed a little off
        computed = 2 * (ROUNDING + count * UNDERFLOW / largest)
        change = min(1.0, largest_share(mechanism, float(move), alpha) + computed)
    bound = upper_bound(noise_for(change, publishing_zcdp), share, failure_probability)
    sums = (alpha * bounded * min(1.0, max(0.0, bound)),)
    loss = PrivacyLoss.of_zcdp(gaussian, bounded, own=RenyiSums((alpha,), sums, sums), steps=len(steps))
    return published(loss, alpha, delta, failure_probability, publishing_zcdp)


def published(
    loss: PrivacyLoss, order: float, delta: float, failure_probability: float, publishing_zcdp: float
) -> PublishableEpsilon:
    """The numbers of this loss, whose sums at one order were published, and of publishing together."""
    publishing = PrivacyLoss.of_zcdp(
        publishing_zcdp, publishing_zcdp, steps=0, change=loss.change or ADDED_OR_REMOVED
    )
    claim = (loss + publishing).guarantee(delta)
    return PublishableEpsilon(
        epsilon=claim.epsilon,
        per_instance_epsilon=claim.per_instance.epsilon,
        ex_post_epsilon=claim.per_instance.ex_post_epsilon,
        order=order,
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
    quantile = -float(torch.special.ndtri(torch.tensor(failure_probability, dtype=torch.float64)))
    margin = float(noise.law.sigma) * (quantile + _HALF_STEP)
    return float(noise.draw(value)) + margin
