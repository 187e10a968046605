"""From sums and sizes to noisy means, with their standard errors and intervals.

Values are measured from the middle of their limits, in units of half the distance between the limits: they
lie between -1 and 1.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ringfence.accounting.claim.guarantee import REPLACED
from ringfence.accounting.ledger import Ledger
from ringfence.accounting.per_instance import PerInstanceAccountant
from ringfence.accounting.sensitivity import Sensitivity
from ringfence.decisions.account import ReleaseAccount, released, table_account, within
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.mechanisms.rectified import RectifiedGaussian
from ringfence.noise import Noise

# Of the budget 1 / sigma^2, the share of the sums; the sizes have the rest. A mean u has a variance like
# 1 / share + u^2 / (1 - share), least at the share 1 / (1 + |u|). This share is the best one at |u| = 1/2;
# the variance is an eighth more than the least at |u| = 1 and a half more at u = 0.
SUM_SHARE = 2 / 3


@dataclass(frozen=True)
class MeanPlan:
    """How means are released. ``multiplier`` is the noise for a move of length 1, as ``noise_multiplier``.

    Groups with fewer people than ``threshold`` are hidden. An interval reaches ``deviations`` standard
    deviations to either side. One person is in at most ``at_most`` groups.
    """

    multiplier: float
    threshold: int
    at_most: int
    deviations: float
    epsilon: float | None
    delta: float
    noise: Noise | None
    ledger: Ledger | None = None

    @property
    def sum_sigma(self) -> float:
        """The noise of a sum where sizes are private."""
        return self.multiplier * math.sqrt(self.at_most / SUM_SHARE)

    @property
    def size_sigma(self) -> float:
        """The noise of a size where sizes are private."""
        return size_sigma(self.multiplier, self.at_most)

    @property
    def replaced_sigma(self) -> float:
        """The noise of a sum where sizes are public: a person who is replaced moves a sum by 2."""
        return 2 * self.multiplier * math.sqrt(self.at_most)


@dataclass(frozen=True)
class NoisyMeans:
    """Released means with their standard errors and the ends of their intervals; NaN where one is hidden."""

    mean: Tensor
    error: Tensor
    low: Tensor
    high: Tensor
    people: list[int | None]


def size_sigma(multiplier: float, at_most: int) -> float:
    """The noise of a size where sizes are private.

    >>> round(size_sigma(1.0, 1), 4)
    1.7321
    """
    return multiplier * math.sqrt(at_most / (1 - SUM_SHARE))


def with_private_sizes(sizes: Tensor, sums: Tensor, plan: MeanPlan) -> tuple[ReleaseAccount, NoisyMeans]:
    """Releases the number of people and the sum of their values; a group that is hidden hides both.

    Guarantee: one person, added or removed, moves ``at_most`` sizes by 1 and as many sums by at most 1. The
    two releases cost what one release with the plan's multiplier costs for a move of length 1.
    """
    size_law = RectifiedGaussian(plan.size_sigma, (float(plan.threshold), math.inf))
    sum_law = Gaussian(plan.sum_sigma)
    accountant = PerInstanceAccountant(size_law, Sensitivity(each=1.0, at_most=plan.at_most))
    accountant.step(sizes)
    accountant.step(sums, mechanism=sum_law)
    account = ReleaseAccount.of(replace(accountant.cost(), numbers=2 * sizes.numel()), plan.delta)
    within(plan.epsilon, account, plan.ledger, "release_means")
    size = released(size_law, sizes, plan.noise, "sizes")
    total = released(sum_law, sums, plan.noise, "sums")
    size = torch.where(size <= plan.threshold, math.nan, size)
    mean = (total / size).clamp(-1, 1)
    error = torch.sqrt(plan.sum_sigma**2 + mean**2 * plan.size_sigma**2) / size
    low, high = fieller(total, size, plan)
    shown = [None if math.isnan(value) else round(value) for value in size.tolist()]
    return account, NoisyMeans(mean, error, low, high, shown)


def fieller(total: Tensor, size: Tensor, plan: MeanPlan) -> tuple[Tensor, Tensor]:
    """The ratios t in [-1, 1] with |total - t size| <= deviations sqrt(sum_sigma^2 + t^2 size_sigma^2).

    Fieller (1954): where t is the true ratio, total - t size is normal with mean 0 and that variance, so the
    true ratio is among them with the probability of that many deviations. Where the size is lost in its
    noise, all ratios are. NaN where the size is.

    >>> plan = MeanPlan(5.0, 0, 1, 1.96, None, 1e-6, None)
    >>> low, high = fieller(torch.tensor(50.0), torch.tensor(100.0), plan)
    >>> round(float(low), 3), round(float(high), 3)
    (0.365, 0.665)
    """
    square = size**2 - (plan.deviations * plan.size_sigma) ** 2
    inside = plan.sum_sigma**2 * square + plan.size_sigma**2 * total**2
    spread = plan.deviations * torch.sqrt(inside.clamp(min=0))
    ends = []
    for sign, widest in ((-1, -1.0), (1, 1.0)):
        end = torch.where(square > 0, ((total * size + sign * spread) / square).clamp(-1, 1), widest)
        ends.append(torch.where(torch.isnan(size), math.nan, end))
    return ends[0], ends[1]


def with_public_sizes(sizes: Tensor, sums: Tensor, plan: MeanPlan) -> tuple[ReleaseAccount, NoisyMeans]:
    """Releases the sums alone, clamped to what they can be: a sum of n values lies between -n and n.

    Guarantee: the values of one person, replaced by any others, move ``at_most`` sums by at most 2. Clamping
    brings no released mean farther from the true one, so the interval of the noise covers as often as it
    says.
    """
    shown = sizes >= max(plan.threshold, 1)
    if not bool(shown.any()):
        raise ValueError(f"sizes must have a group of at least {max(plan.threshold, 1)} people, got none")
    size, totals = sizes[shown], sums[shown]
    law = RectifiedGaussian(plan.replaced_sigma, (-size, size))
    account = table_account(law, totals, 2.0, plan.at_most, plan.delta, REPLACED)
    within(plan.epsilon, account, plan.ledger, "release_means")
    mean = released(law, totals, plan.noise, "means") / size
    error = plan.replaced_sigma / size
    low, high = (mean - plan.deviations * error).clamp(-1, 1), (mean + plan.deviations * error).clamp(-1, 1)
    blank = torch.full(sizes.shape, math.nan, dtype=torch.float64)
    mean, error, low, high = (blank.masked_scatter(shown, values) for values in (mean, error, low, high))
    return account, NoisyMeans(mean, error, low, high, [round(value) for value in sizes.tolist()])
