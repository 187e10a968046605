"""A per-instance epsilon that may be published: noise is added to it, and paid for."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.conversion import best_zcdp_order, epsilon_from_rdp, ex_post_epsilon
from ringfence.accounting.divergence_sums import NODES_PER_SIGMA, worse_sign
from ringfence.accounting.guarantee import data_independent_epsilon
from ringfence.accounting.per_instance import ceilings
from ringfence.accounting.rounding import rounded_up
from ringfence.mechanisms.base import Mechanism, checked_mechanism

_MARGIN = 1.02  # on the largest slope found between nodes


@dataclass(frozen=True)
class PublishableEpsilon:
    """Upper bounds of per-instance numbers that are themselves released privately.

    ``epsilon`` and ``epsilon_pdp`` are those of ``Guarantee`` with the cost of publishing included;
    they are too small with probability at most ``failure_probability`` over the noise added here.
    ``epsilon_data_independent`` is ordinary differential privacy of the releases and of the
    published number together.
    """

    epsilon: float
    epsilon_pdp: float
    epsilon_data_independent: float
    order: float
    delta: float
    failure_probability: float
    publishing_zcdp: float

    @property
    def statement(self) -> str:
        """In plain English."""
        return (
            f"The releases and this number together satisfy ({rounded_up(self.epsilon_data_independent)}, "
            f"{self.delta:.3g})-differential privacy for every dataset. Except with probability "
            f"{self.failure_probability:.3g} over the noise in this number, the ex-post privacy loss about "
            f"each single record of this dataset is at most {rounded_up(self.epsilon)} except with "
            f"probability {self.delta:.3g} over the run, and at a theta fixed in advance the releases are "
            f"({rounded_up(self.epsilon_pdp)}, {self.delta:.3g})-indistinguishable from those of any "
            "neighbour of this dataset. These numbers were released with noise and may be published."
        )


def publishable_epsilon(
    mechanism: Mechanism,
    thetas: Tensor | Sequence[Tensor],
    sensitivity: float,
    *,
    delta: float,
    publishing_zcdp: float,
    failure_probability: float,
    generator: torch.Generator,
    order: float | None = None,
) -> PublishableEpsilon:
    """The per-instance epsilon of releases of ``thetas`` (one, or one a step), safe to publish.

    The realised sum of divergences at one order, fixed without looking at the data, changes by at
    most (coordinates x steps) x sensitivity x (largest slope of the divergence in theta) when a
    record comes or goes. Gaussian noise for that, at a cost of ``publishing_zcdp``, and a margin
    that noise exceeds with ``failure_probability`` make it an upper bound one may release.

    Guarantee: publishing is ``publishing_zcdp``-zCDP, given that the slope, which is tabulated and
    not proved, is right within its margin of 2 % (for the truncated law it is at most
    0.296 alpha c^2 / (2 sigma^3), checked numerically). Mechanism and sensitivity are single numbers.

    >>> from ringfence.mechanisms.rectified import RectifiedGaussian
    >>> law, thetas = RectifiedGaussian(1.0, bound=1.0), [torch.full((10_240,), 2.5)] * 10
    >>> number = publishable_epsilon(law, thetas, 1e-3, delta=1e-5, publishing_zcdp=1e-4,
    ...     failure_probability=1e-3, generator=torch.Generator().manual_seed(0))
    >>> round(number.epsilon_pdp, 2), round(number.epsilon_data_independent, 2)
    (0.86, 1.22)
    """
    delta = checks.probability("delta", delta)
    failure_probability = checks.probability("failure_probability", failure_probability)
    publishing_zcdp = checks.number("publishing_zcdp", publishing_zcdp, checks.positive)
    if not isinstance(generator, torch.Generator):
        raise TypeError(f"generator must be a torch.Generator, got {generator!r}")
    given = list(thetas) if isinstance(thetas, list | tuple) else [thetas]
    if not given:
        raise ValueError("thetas must hold at least one step, got none")
    steps = [checks.finite("thetas", theta).double() for theta in given]
    move = checks.not_negative("sensitivity", sensitivity).double()
    if move.numel() != 1 or any(
        value.numel() != 1 for value in checked_mechanism(mechanism).parameters().values()
    ):
        raise ValueError("mechanism and sensitivity must be single numbers to publish from them")

    both = [ceilings(mechanism, theta, move) for theta in steps]
    gaussian, bounded = (sum(ends[i] for ends in both) for i in (0, 1))
    alpha = best_zcdp_order(bounded, delta) if order is None else checks.number("order", order, checks.order)
    realised = sum(float(_worst(mechanism, theta, move, alpha).sum()) for theta in steps)
    count = sum(theta.numel() for theta in steps)
    change = count * float(move) * _largest_slope(mechanism, move, alpha)
    deviation = change / math.sqrt(2 * publishing_zcdp)
    noise = float(torch.randn((), generator=generator, dtype=torch.float64, device=generator.device))
    quantile = -float(torch.special.ndtri(torch.tensor(failure_probability, dtype=torch.float64)))
    released = max(0.0, realised + deviation * (noise + quantile))
    total = min(released, alpha * bounded) + alpha * publishing_zcdp

    orders, sums = torch.tensor([[alpha], [total]], dtype=torch.float64)
    return PublishableEpsilon(
        epsilon=ex_post_epsilon(orders, sums, delta)[0],
        epsilon_pdp=epsilon_from_rdp(orders, sums, delta)[0],
        epsilon_data_independent=data_independent_epsilon(
            gaussian + publishing_zcdp, bounded + publishing_zcdp, delta
        ),
        order=alpha,
        delta=delta,
        failure_probability=failure_probability,
        publishing_zcdp=publishing_zcdp,
    )


def _worst(mechanism: Mechanism, theta: Tensor, move: Tensor, alpha: float) -> Tensor:
    """The largest divergence over both signs and both directions, each coordinate."""
    order = torch.tensor([alpha], dtype=torch.float64)
    both = (worse_sign(mechanism, theta, move, order, backward)[0] for backward in (False, True))
    return torch.maximum(*both)


def _largest_slope(mechanism: Mechanism, move: Tensor, alpha: float) -> float:
    """max over theta of |d/dtheta| of ``_worst``, from a table that covers where it varies."""
    sigma = float(mechanism.sigma)
    ends = [float(value) for name, value in mechanism.parameters().items() if name != "sigma"]
    reach = 16 * sigma + alpha * float(move)
    finite = [end for end in ends if math.isfinite(end)] or [0.0]
    low, high = min(finite) - reach, max(finite) + reach
    count = min(1 << 17, math.ceil((high - low) / sigma * NODES_PER_SIGMA)) + 1
    theta = torch.linspace(low, high, count, dtype=torch.float64)
    values = _worst(mechanism, theta, move, alpha)
    return _MARGIN * float(torch.diff(values).abs().max()) / ((high - low) / (count - 1))
