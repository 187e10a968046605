"""Means of a column by group, clamped to public limits, each with an interval that allows for the noise.

Inside, values are measured from the middle of their limits, in units of half the distance between the limits:
they lie between -1 and 1.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from statistics import NormalDist
from typing import Any

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.ledger import Ledger
from ringfence.accounting.per_instance import PerInstanceAccountant
from ringfence.accounting.privacy_loss import PrivacyLoss
from ringfence.accounting.sensitivity import Sensitivity
from ringfence.mechanisms.base import Mechanism
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.mechanisms.rectified import RectifiedGaussian
from ringfence.noise import Noise
from ringfence.releases.account import Budget, Measured, ReleaseAccount, gaussian_loss
from ringfence.releases.cells import UNITS, Domain, checked_at_most, public_cells, sums_in
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
    not shown; left out, it is 4 standard deviations of that noise.

    The interval (Fieller 1954) is about the mean of the clamped values of the people who counted. ``ledger``
    is charged beforehand.

    Guarantee: (epsilon, delta)-differential privacy for every dataset and any one person added or removed,
    under the conditions of ``release_counts``. One person moves ``at_most`` sizes by 1 and as many sums by at
    most 1. The chance over the noise that a group is shown with an interval that misses its mean is at most
    1 - ``coverage``.

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
    with open_rows(data) as rows:
        groups = public_cells(rows, by, domain, bins, _COLUMNS)
        most = checked_at_most(at_most, person, groups.count)
        people, units = sums_in(rows, groups, of, limits, person, most)
    sizes, sums = people.double(), units.double() / UNITS
    sum_sigma = budget.multiplier * math.sqrt(most / _SUM_SHARE)
    size_sigma = budget.multiplier * math.sqrt(most / (1 - _SUM_SHARE))
    threshold = math.ceil(_CLEAR * size_sigma) if threshold is None else max(threshold, 1)
    least = threshold - 0.5  # what is above rounds to the threshold or more

    size_law, sum_law = RectifiedGaussian(size_sigma, (least, math.inf)), Gaussian(sum_sigma)
    promised = gaussian_loss(1 / budget.multiplier, steps=2, numbers=2 * sizes.numel())
    measure = partial(measure_means, promised, most, (size_law, sizes), (sum_law, sums))
    account = ReleaseAccount(promised, budget.delta, measure)
    budget.charge(account, "release_means")
    size = budget.release(size_law, sizes, "sizes")
    total = budget.release(sum_law, sums, "sums")
    size = torch.where(size <= least, math.nan, size)  # a group that is hidden hides its sum, too
    mean = (total / size).clamp(-1, 1)
    error = torch.sqrt(sum_sigma**2 + mean**2 * size_sigma**2) / size
    deviations = NormalDist().inv_cdf((1 + coverage) / 2) + _ROUNDED
    low, high = fieller(total, size, sum_sigma, size_sigma, deviations)
    middle, half = limits[0] / 2 + limits[1] / 2, limits[1] / 2 - limits[0] / 2

    def scaled(values: Tensor, stretch: float = 0.0) -> list[float | None]:
        return _none_for_nan((middle + half * (values + stretch)).clamp(*limits))

    released: dict[str, list[Any]] = {
        "mean": scaled(mean),
        "low": scaled(low, -1 / UNITS),
        "high": scaled(high, 1 / UNITS),
        "people": [None if value is None else round(value) for value in _none_for_nan(size)],
        "suppressed": size.isnan().tolist(),
    }
    several = () if person is None else ("Several rows of a person in a group count as their mean.",)
    alone = NormalDist(1.0, size_sigma).cdf(2.5 - threshold)  # the chance that one person alone is shown
    return Release(
        title=f"Means of {of}",
        keys=groups.columns,
        released=released,
        standard_errors=_none_for_nan(half * error),
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
            at_most=most,
            method=f"values of {of} were clamped to {limits[0]:g} to {limits[1]:g}, random noise was added, "
            f"and groups with a noisy size below {threshold} are not shown (the noise decides: one person "
            f"alone is a group that is shown with a chance of at most {math.ceil(1e5 * alone) / 1e3:g} %); "
            f"the intervals allow for the noise, with a coverage of {coverage:.3g}",
            public="Groups, limits, noise and threshold",
            promises=(
                *several,
                "The chance over the noise that a group is shown with an interval that misses the mean of "
                f"its clamped values is at most {1 - coverage:.2g}. Intervals and standard errors are "
                "computed from what is released and from the noise alone.",
            ),
            leaves_out=(
                "Values beyond the limits count as the limits. Sampling, non-response and errors in the data "
                "are not part of the intervals.",
            ),
        ),
        bars=Bars(
            caption=f"Whiskers are the intervals of coverage {coverage:.3g}.",
            y_label=f"mean of {of}",
            series=[Series(f"mean of {of}", released["mean"], released["low"], released["high"])],
            rows=groups.columns,
        ),
        settings=(
            ("limits", f"{limits[0]:g} to {limits[1]:g}"),
            ("noise of a sum", f"Gaussian, {half * sum_sigma:.6g}"),
            ("noise of a size", f"Gaussian, {size_sigma:.6g}"),
            ("threshold", f"{threshold} people"),
            ("groups of one person", f"at most {most}"),
        ),
    )


def measure_means(promised: PrivacyLoss, at_most: int, *releases: tuple[Mechanism, Tensor]) -> Measured:
    """The cost of sizes and sums to the people in the groups, by Rényi sums.

    >>> theta = torch.tensor([80.0]).double()
    >>> measure_means(gaussian_loss(0.5), 1, (Gaussian(2.0), theta)).cost.steps
    1
    """
    accountant = PerInstanceAccountant(releases[0][0], Sensitivity(each=1.0, at_most=at_most))
    for law, theta in releases:
        accountant.step(theta, mechanism=law)
    return Measured(promised.realised(accountant.privacy_loss()))


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


def _none_for_nan(values: Tensor) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values.tolist()]
