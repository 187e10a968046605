"""Means of a column by group, clamped to public limits, each with an interval that allows for the noise.

Inside, values are measured from the middle of their limits, in units of half the distance between the limits:
they lie between -1 and 1.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import NormalDist
from typing import Any

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.guarantee import REPLACED
from ringfence.accounting.ledger import Ledger
from ringfence.accounting.per_instance import PerInstanceAccountant
from ringfence.accounting.sensitivity import Sensitivity
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.mechanisms.rectified import RectifiedGaussian
from ringfence.noise import Noise
from ringfence.releases.account import Budget, ReleaseAccount, table_account
from ringfence.releases.contributions import UNITS, checked_at_most, sums_in
from ringfence.releases.domains import Cells, Domain, public_cells
from ringfence.releases.reader import make_table, open_rows
from ringfence.releases.release import Bars, Release, Series, build_statement

# Of the budget 1 / sigma^2, the share of the sums; the sizes have the rest. A mean u has a variance like
# 1 / share + u^2 / (1 - share), least at the share 1 / (1 + |u|). This share is the best one at |u| = 1/2;
# the variance is an eighth more than the least at |u| = 1 and a half more at u = 0.
_SUM_SHARE = 2 / 3
_COLUMNS = ("mean", "low", "high", "people", "suppressed", "standard_error")
_CLEAR = 4.0  # deviations of the noise of a size: without a threshold, groups smaller than that are hidden
_ROUNDED = 2.0**-10  # deviations that the public grids of sums and sizes may take from an interval


def release_means(
    data: Any,
    of: str | int,
    by: str | int | Sequence[str | int] | None = None,
    *,
    lower: float,
    upper: float,
    epsilon: float | None = None,
    delta: float = 1e-6,
    sigma: float | None = None,
    suppress_below: int | None = None,
    sizes: Mapping[Any, int] | Sequence[int] | None = None,
    domain: Domain | None = None,
    bins: Mapping[Any, Iterable[float]] | None = None,
    person: str | int | None = None,
    at_most: int = 1,
    coverage: float = 0.95,
    seed: int | Noise | None = None,
    ledger: Ledger | None = None,
) -> Release:
    """Releases the mean of column ``of`` in every group of ``by``, with noise and an interval.

    Values are clamped to the public limits ``lower`` and ``upper``. ``data``, ``by``, ``domain``, ``bins``,
    ``person``, ``at_most``, ``epsilon``, ``delta`` and ``seed`` are those of ``release_counts``; a person
    with several rows in a group counts once, with the mean of them. ``sigma`` in place of ``epsilon`` is the
    noise as a multiple of what one person moves altogether.

    How many people are in a group is private too: the sum of the values gets two thirds of the budget, the
    number of people one third. Groups with a noisy number, rounded, below ``suppress_below`` or below 1 are
    not shown; left out, it is 4 standard deviations of that noise. Where the numbers are public, give them as
    ``sizes`` (a number per group, by its value or in the order of the groups): all of the budget goes to the
    sums, the means stay within the limits, and what is protected is the values of a person, not who takes
    part. A person who is replaced moves a sum twice as far as one who is added, so the noise of a sum is 2
    instead of 1.22 times the multiplier: without ``sizes`` means are mostly more accurate.

    The interval (Fieller 1954) is about the mean of the clamped values of the people who counted. ``ledger``
    is charged beforehand.

    Guarantee: (epsilon, delta)-differential privacy for every dataset and any one person added or removed
    (with ``sizes``: the values of any one person replaced), under the conditions of ``release_counts``. The
    chance over the noise that a group is shown with an interval that misses its mean is at most 1 -
    ``coverage``.

    >>> import ringfence as rf
    >>> from pandas import DataFrame
    >>> people = DataFrame({"region": ["north", "south"] * 2000, "income": [30_000.0, 50_000.0] * 2000})
    >>> means = rf.release_means(people, of="income", by="region", domain={"region": ["north", "south"]},
    ...                          lower=0, upper=100_000, epsilon=1.0, delta=1e-6)
    >>> list(means.values.columns)
    ['region', 'mean', 'low', 'high', 'people', 'suppressed']
    >>> bool((means.values["mean"] - [30_000, 50_000]).abs().max() < 3_000)
    True
    """
    budget = Budget.checked(epsilon, delta, sigma, seed, ledger)
    limits = checks.number("lower", lower), checks.number("upper", upper)
    if not limits[0] < limits[1]:
        raise ValueError(f"lower must be below upper, got {lower!r} and {upper!r}")
    threshold = None if suppress_below is None else checks.count("suppress_below", suppress_below, at_least=0)
    coverage = checks.probability("coverage", coverage)
    deviations = NormalDist().inv_cdf((1 + coverage) / 2) + _ROUNDED
    with open_rows(data) as rows:
        cells = public_cells(rows, by, domain, bins, _COLUMNS)
        size = checked_at_most(at_most, person, cells.count)
        people, sums = sums_in(rows, cells, of, limits, person, size)
    plan = MeanPlan.of(budget.multiplier, threshold, size, deviations, public_sizes=sizes is not None)
    if sizes is not None:
        _check_sizes(sizes, cells, people)
    account, means = (with_private_sizes if sizes is None else with_public_sizes)(
        people.double(), sums.double() / UNITS, plan, budget
    )
    middle, half = limits[0] / 2 + limits[1] / 2, limits[1] / 2 - limits[0] / 2

    def scaled(values: Tensor, stretch: float = 0.0) -> list[float | None]:
        moved = (middle + half * (values + stretch)).clamp(*limits).tolist()
        return [None if math.isnan(value) else value for value in moved]

    columns = {
        **cells.columns,
        "mean": scaled(means.mean),
        "low": scaled(means.low, -1 / UNITS),
        "high": scaled(means.high, 1 / UNITS),
        "people": means.people,
        "suppressed": means.mean.isnan().tolist(),
    }
    errors = [None if math.isnan(error) else half * error for error in means.error.tolist()]
    several = () if person is None else ("Several rows of a person in a group count as their mean.",)
    known = ("How many people are in each group is published as it is, without noise: it is known already.",)
    y_label = f"mean of {of}"
    return Release(
        title=f"Means of {of}",
        columns=columns,
        error_columns={**cells.columns, "standard_error": errors},
        hidden="suppressed",
        like=partial(make_table, rows.source.kind),
        account=account,
        statement=build_statement(
            account,
            budget,
            released="means",
            data="data",
            rows_are="rows" if person is None else "persons",
            unit="group",
            at_most=size,
            method=f"values of {of} were clamped to {limits[0]:g} to {limits[1]:g}, random noise was added"
            f"{_hidden(plan)}; the intervals allow for the noise, with a coverage of {coverage:.3g}",
            public="Groups, limits, noise and threshold",
            promises=(
                *several,
                "The chance over the noise that a group is shown with an interval that misses the mean of "
                f"its clamped values is at most {1 - coverage:.2g}. Intervals and standard errors are "
                "computed from what is released and from the noise alone.",
            ),
            leaves_out=(
                *(() if sizes is None else known),
                "Values beyond the limits count as the limits. Sampling, non-response and errors in the data "
                "are not part of the intervals.",
            ),
        ),
        bars=Bars(
            caption=f"Whiskers are the intervals of coverage {coverage:.3g}.",
            y_label=y_label,
            series=[Series(y_label, columns["mean"], columns["low"], columns["high"])],
        ),
        settings=(
            ("limits", f"{limits[0]:g} to {limits[1]:g}"),
            ("noise of a sum", f"Gaussian, {half * plan.sum_sigma:.6g}"),
            ("noise of a size", f"Gaussian, {plan.size_sigma:.6g}" if sizes is None else "sizes are public"),
            ("threshold", f"{plan.threshold} people"),
            ("groups of one person", f"at most {size}"),
        ),
    )


@dataclass(frozen=True)
class MeanPlan:
    """The noise of sums and of sizes; groups whose rounded noisy size is below ``threshold`` are hidden.

    An interval reaches ``deviations`` standard deviations to either side. One person is in at most
    ``at_most`` groups.
    """

    sum_sigma: float
    size_sigma: float  # 0 where sizes are public
    threshold: int
    at_most: int
    deviations: float

    @classmethod
    def of(
        cls, multiplier: float, threshold: int | None, at_most: int, deviations: float, *, public_sizes: bool
    ) -> "MeanPlan":
        """The plan that costs what one release of a move of length 1 costs with noise of ``multiplier``.

        Where sizes are public, a person who is replaced moves a sum by 2.

        >>> plan = MeanPlan.of(1.0, None, 1, 1.96, public_sizes=False)
        >>> round(plan.sum_sigma, 4), round(plan.size_sigma, 4), plan.threshold
        (1.2247, 1.7321, 7)
        """
        if public_sizes:
            least = 1 if threshold is None else max(threshold, 1)
            return cls(2 * multiplier * math.sqrt(at_most), 0.0, least, at_most, deviations)
        size_sigma = multiplier * math.sqrt(at_most / (1 - _SUM_SHARE))
        least = math.ceil(_CLEAR * size_sigma) if threshold is None else max(threshold, 1)
        return cls(multiplier * math.sqrt(at_most / _SUM_SHARE), size_sigma, least, at_most, deviations)


@dataclass(frozen=True)
class NoisyMeans:
    """Released means with their standard errors and the ends of their intervals; NaN where one is hidden."""

    mean: Tensor
    error: Tensor
    low: Tensor
    high: Tensor
    people: list[int | None]


def with_private_sizes(
    sizes: Tensor, sums: Tensor, plan: MeanPlan, budget: Budget
) -> tuple[ReleaseAccount, NoisyMeans]:
    """Releases the number of people and the sum of their values; a group that is hidden hides both.

    Guarantee: one person, added or removed, moves ``at_most`` sizes by 1 and as many sums by at most 1. The
    two releases cost what one release with the budget's multiplier costs for a move of length 1.
    """
    least = plan.threshold - 0.5  # what is above rounds to the threshold or more
    size_law = RectifiedGaussian(plan.size_sigma, (least, math.inf))
    sum_law = Gaussian(plan.sum_sigma)
    accountant = PerInstanceAccountant(size_law, Sensitivity(each=1.0, at_most=plan.at_most))
    accountant.step(sizes)
    accountant.step(sums, mechanism=sum_law)
    account = ReleaseAccount.of(replace(accountant.privacy_loss(), numbers=2 * sizes.numel()), budget.delta)
    budget.charge(account, "release_means")
    size = budget.release(size_law, sizes, "sizes")
    total = budget.release(sum_law, sums, "sums")
    size = torch.where(size <= least, math.nan, size)
    mean = (total / size).clamp(-1, 1)
    error = torch.sqrt(plan.sum_sigma**2 + mean**2 * plan.size_sigma**2) / size
    low, high = fieller(total, size, plan.sum_sigma, plan.size_sigma, plan.deviations)
    shown = [None if math.isnan(value) else round(value) for value in size.tolist()]
    return account, NoisyMeans(mean, error, low, high, shown)


def fieller(
    total: Tensor, size: Tensor, sum_sigma: float, size_sigma: float, deviations: float
) -> tuple[Tensor, Tensor]:
    """The ratios t in [-1, 1] with |total - t size| <= deviations sqrt(sum_sigma^2 + t^2 size_sigma^2).

    Fieller (1954): where t is the true ratio, total - t size is normal with mean 0 and that variance, so the
    true ratio is among them with the probability of that many deviations. Where the size is lost in its
    noise, all ratios are. NaN where the size is.

    >>> low, high = fieller(torch.tensor(50.0), torch.tensor(100.0), 6.12, 8.66, 1.96)
    >>> round(float(low), 3), round(float(high), 3)
    (0.365, 0.665)
    """
    square = size**2 - (deviations * size_sigma) ** 2
    inside = sum_sigma**2 * square + size_sigma**2 * total**2
    spread = deviations * torch.sqrt(inside.clamp(min=0))
    ends = []
    for sign in (-1.0, 1.0):
        end = torch.where(square > 0, ((total * size + sign * spread) / square).clamp(-1, 1), sign)
        ends.append(torch.where(torch.isnan(size), math.nan, end))
    return ends[0], ends[1]


def with_public_sizes(
    sizes: Tensor, sums: Tensor, plan: MeanPlan, budget: Budget
) -> tuple[ReleaseAccount, NoisyMeans]:
    """Releases the sums alone, clamped to what they can be: a sum of n values lies between -n and n.

    Guarantee: the values of one person, replaced by any others, move ``at_most`` sums by at most 2. Clamping
    brings no released mean farther from the true one, so the interval of the noise covers as often as it
    says.
    """
    shown = sizes >= plan.threshold
    if not bool(shown.any()):
        raise ValueError(f"sizes must have a group of at least {plan.threshold} people, got none")
    size, totals = sizes[shown], sums[shown]
    law = RectifiedGaussian(plan.sum_sigma, (-size, size))
    account = table_account(law, totals, 2.0, plan.at_most, budget.delta, REPLACED)
    budget.charge(account, "release_means")
    mean = budget.release(law, totals, "means") / size
    error = plan.sum_sigma / size
    low, high = (mean - plan.deviations * error).clamp(-1, 1), (mean + plan.deviations * error).clamp(-1, 1)
    blank = torch.full(sizes.shape, math.nan, dtype=torch.float64)
    mean, error, low, high = (blank.masked_scatter(shown, values) for values in (mean, error, low, high))
    return account, NoisyMeans(mean, error, low, high, [round(value) for value in sizes.tolist()])


def _hidden(plan: MeanPlan) -> str:
    """Which groups are not shown, as a part of the public sentence."""
    if not plan.size_sigma:
        small = f", and groups of fewer than {plan.threshold} people are not shown"
        return small if plan.threshold > 1 else ""
    alone = NormalDist(1.0, plan.size_sigma).cdf(2.5 - plan.threshold)  # the chance to be shown
    percent = math.ceil(1e5 * alone) / 1e3
    return (
        f", and groups with a noisy size below {plan.threshold} are not shown (the noise decides: one "
        f"person alone is a group that is shown with a chance of at most {percent:g} %)"
    )


def _check_sizes(sizes: Any, cells: Cells, people: Tensor) -> None:
    """Refuses public sizes other than those of the data."""
    keys = list(zip(*cells.columns.values(), strict=True)) if cells.axes else [()]
    if isinstance(sizes, Mapping):
        given = {key if isinstance(key, tuple) else (key,): value for key, value in sizes.items()}
        unknown = [key for key in given if key not in set(keys)]
        if unknown:
            raise ValueError(f"sizes has the group {unknown[0]!r}, which the domain lacks")
        listed = [given.get(key, 0) for key in keys]
    else:
        listed = [*checks.listed("sizes", sizes)]
        if len(listed) != len(keys):
            raise ValueError(f"sizes must have {len(keys)} numbers, one per group, got {len(listed)}")
    for key, value, found in zip(keys, listed, people.tolist(), strict=True):
        if checks.count(f"sizes of group {key!r}", value, at_least=0) != found:
            raise ValueError(f"sizes says {value} people in group {key!r}, and the data has {found}")
