"""Means of a column by group, clamped to public limits, each with an interval that allows for the noise.

Inside, values are measured from the middle of their limits, in units of half the distance between the limits:
they lie between -1 and 1.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from statistics import NormalDist
from typing import Any, ClassVar

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.ledger import Ledger
from ringfence.accounting.per_instance import PerInstanceAccountant
from ringfence.accounting.privacy_loss import PrivacyLoss
from ringfence.accounting.sensitivity import Sensitivity
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.mechanisms.laplace import Laplace
from ringfence.mechanisms.rectified import RectifiedGaussian
from ringfence.noise import Noise
from ringfence.numerics.exact_normal import search
from ringfence.releases.account import Budget, Measured, ReleaseAccount, gaussian_loss
from ringfence.releases.cells import UNITS, Domain, Missing, checked_at_most, public_cells, sums_in
from ringfence.releases.reader import make_table, open_rows
from ringfence.releases.release import Bars, Release, Series, build_statement
from ringfence.releases.table_noise import NOISES, LaplaceNoise, NoiseKind, is_better, laplace_scale

# Of the budget 1 / sigma^2, the share of the sums; the sizes have the rest. A mean u has a variance like
# 1 / share + u^2 / (1 - share), least at the share 1 / (1 + |u|). This share is the best one at |u| = 1/2;
# the variance is an eighth more than the least at |u| = 1 and a half more at u = 0.
_SUM_SHARE = 2 / 3
_COLUMNS = ("mean", "low", "high", "people", "suppressed", "standard_error")
# Without a threshold, an empty group is shown with at most the chance of 4 deviations of Gaussian noise.
_CLEAR = 4.0
_RATIOS = 64  # of two scales, at which a quantile is taken
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
    noise: NoiseKind = "auto",
    suppress_below: int | None = None,
    domain: Domain | None = None,
    bins: Domain | None = None,
    missing: Missing = "refuse",
    person: str | int | None = None,
    at_most: int = 1,
    coverage: float = 0.95,
    seed: int | Noise | None = None,
    ledger: Ledger | None = None,
    what: str | None = None,
) -> Release:
    """Releases the mean of column ``of`` in every group of ``by``, with noise and an interval.

    Values are clamped to the public limits ``lower`` and ``upper``. ``data``, ``by``, ``domain``, ``bins``,
    ``missing``, ``person``, ``at_most``, ``epsilon``, ``delta``, ``noise`` and ``seed`` are those of
    ``release_counts``; ``missing="drop"`` leaves out rows without a value of ``of``, too. A person with
    several rows in a group counts once, with the mean of them. ``sigma`` in place of ``epsilon``
    is the noise as a multiple of what one person moves altogether.

    How many people are in a group is private too. With Gaussian noise the sum of the values gets two thirds
    of the budget, the number of people one third. With Laplace noise a person with the value v, between -1
    and 1, counts (1 + v) / 2 in one number and (1 - v) / 2 in another, so that both together cost what one of
    them may; their sum is the number of people, and their difference the sum of the values. Groups with a
    noisy number of people, rounded, below ``suppress_below`` or below 1 are not shown; left out, it is so
    large that an empty group is shown with a chance of about 3e-5.

    The interval (Fieller 1954) is about the mean of the clamped values of the people who counted. ``ledger``
    is charged beforehand, in an entry called ``what``.

    Guarantee: (epsilon, delta)-differential privacy for every dataset and any one person added or removed,
    under the conditions of ``release_counts``. One person moves ``at_most`` sizes by 1 and as many sums by at
    most 1, or as many pairs of numbers by 1 altogether. The chance over the noise that a group is shown with
    an interval that misses its mean is at most 1 - ``coverage``.

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
    checks.one_of("noise", noise, NOISES)
    budget = Budget.checked(epsilon, delta, sigma, seed, ledger, what, pure=noise != "gaussian")
    limits = checks.number("lower", lower), checks.number("upper", upper)
    if not limits[0] < limits[1]:
        raise ValueError(f"lower must be below upper, got {lower!r} and {upper!r}")
    threshold = None if suppress_below is None else checks.count("suppress_below", suppress_below, at_least=0)
    coverage = checks.probability("coverage", coverage)
    with open_rows(data) as rows:
        groups = public_cells(rows, by, domain, bins, _COLUMNS, missing)
        most = checked_at_most(at_most, person, groups.count)
        people, units = sums_in(rows, groups, of, limits, person, most)
    used = mean_noise(budget, noise, most)
    threshold = used.clear if threshold is None else max(threshold, 1)
    promised = used.loss(people, most)
    measure = partial(used.measure, promised, people, most, threshold)
    account = ReleaseAccount(promised, budget.delta, measure)
    budget.charge(account, "release_means")
    size, total = used.draw(budget, people, units, threshold)
    size = torch.where(size <= threshold - 0.5, math.nan, size)  # a group that is hidden hides its sum, too
    mean = (total / size).clamp(-1, 1)
    error = torch.sqrt(used.total**2 + mean**2 * used.size**2) / size
    low, high = fieller(total, size, used.total, used.size, used.deviations(coverage) + _ROUNDED)
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
    alone = used.exceeded(threshold - 1.5)  # the chance that one person alone is shown
    return Release(
        title=f"Means of {of}",
        keys=groups.columns,
        released=released,
        standard_errors=_none_for_nan(half * error),
        hidden="suppressed",
        like=partial(make_table, rows.kind),
        account=account,
        private=tuple(rows.told),
        statement=build_statement(
            account,
            budget,
            released="means",
            data="data",
            rows_are="rows" if person is None else "persons",
            unit="group",
            at_most=most,
            method=f"values of {of} were clamped to {limits[0]:g} to {limits[1]:g}, {used.name} noise "
            f"was added, and groups with a noisy size below {threshold} are not shown (the noise decides: "
            "one person alone is a group that is shown with a chance of at most "
            f"{math.ceil(1e5 * alone) / 1e3:g} %); the intervals allow for the noise, with a coverage of "
            f"{coverage:.3g}",
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
            ("noise of a sum", f"{used.name}, {half * used.total:.6g}"),
            ("noise of a size", f"{used.name}, {used.size:.6g}"),
            ("threshold", f"{threshold} people"),
            ("groups of one person", f"at most {most}"),
        ),
    )


@dataclass(frozen=True)
class GaussianMeans:
    """Gaussian noise of sums and of sizes, each with its standard deviation."""

    total: float
    size: float

    name: ClassVar[str] = "Gaussian"

    @property
    def clear(self) -> int:
        """The threshold where none is given."""
        return math.ceil(_CLEAR * self.size)

    def exceeded(self, least: float) -> float:
        """The chance that the noise of a size is at least this."""
        return NormalDist(0.0, self.size).cdf(-least)

    def deviations(self, coverage: float) -> float:
        """The standard deviations that total - t size exceeds with 1 - ``coverage``, t the true ratio."""
        return NormalDist().inv_cdf((1 + coverage) / 2)

    def loss(self, people: Tensor, at_most: int) -> PrivacyLoss:
        """The loss for every dataset."""
        mu = math.sqrt(at_most) * math.hypot(1 / self.total, 1 / self.size)
        return gaussian_loss(mu, steps=2, numbers=2 * people.numel())

    def draw(self, budget: Budget, people: Tensor, units: Tensor, threshold: int) -> tuple[Tensor, Tensor]:
        """Noisy sizes, at least the threshold less a half, and noisy sums."""
        size = budget.release(self._size_law(threshold), people.double(), "sizes")
        return size, budget.release(Gaussian(self.total), units.double() / UNITS, "sums")

    def measure(self, promised: PrivacyLoss, people: Tensor, at_most: int, threshold: int) -> Measured:
        """The cost of sizes and sums to the people in the groups, by Rényi sums; that of sums is the same
        for every dataset.

        >>> noise, people = GaussianMeans(2.0, 3.0), torch.tensor([80])
        >>> noise.measure(noise.loss(people, 1), people, 1, threshold=5).cost.steps
        2
        """
        accountant = PerInstanceAccountant(Gaussian(self.total), Sensitivity(each=1.0, at_most=at_most))
        accountant.step_worst_case(people.double())
        accountant.step(people.double(), mechanism=self._size_law(threshold))
        return Measured(promised.realised(accountant.privacy_loss()))

    def _size_law(self, threshold: int) -> RectifiedGaussian:
        return RectifiedGaussian(self.size, (threshold - 0.5, math.inf))


@dataclass(frozen=True)
class LaplaceMeans:
    """Laplace noise of two numbers, in which a person with the value v counts (1 + v) / 2 and (1 - v) / 2.

    One person moves both together by 1, in units of which all are multiples, so that they cost what one
    number does. Their sum is a size and their difference a sum, with noise that is not correlated.

    >>> noise = LaplaceMeans(1.0)
    >>> noise.total, noise.size, noise.clear, round(noise.exceeded(noise.clear - 0.5), 6)
    (2.0, 2.0, 13, 1.4e-05)
    """

    scale: float

    name: ClassVar[str] = "Laplace"

    @property
    def total(self) -> float:
        """The standard deviation of a sum."""
        return 2 * self.scale

    @property
    def size(self) -> float:
        """The standard deviation of a size, which is the same."""
        return self.total

    @property
    def clear(self) -> int:
        """The threshold where none is given."""
        chance = NormalDist().cdf(-_CLEAR)
        return search(lambda threshold: self.exceeded(threshold - 0.5) <= chance, 1, 1, 1 << 60)

    def exceeded(self, least: float) -> float:
        """The chance that the noise of a size is at least this."""
        far = abs(least) / self.scale
        tail = 0.5 * (1 + far / 2) * math.exp(-far)
        return tail if least >= 0 else 1 - tail

    def deviations(self, coverage: float) -> float:
        """The standard deviations that total - t size exceeds with 1 - ``coverage``, t the true ratio."""
        return laplace_deviations(coverage)

    def loss(self, people: Tensor, at_most: int) -> PrivacyLoss:
        """The loss for every dataset."""
        return LaplaceNoise(self.scale).loss(people, at_most)

    def draw(self, budget: Budget, people: Tensor, units: Tensor, threshold: int) -> tuple[Tensor, Tensor]:
        """Noisy sizes and noisy sums."""
        law = Laplace.of_scale(self.scale * 2 * UNITS)
        sides = (UNITS * people + units, UNITS * people - units)  # in units of 1 / (2 UNITS)
        above, below = (budget.release(law, side.double(), f"side {at}") for at, side in enumerate(sides))
        return (above + below) / (2 * UNITS), (above - below) / (2 * UNITS)

    def measure(self, promised: PrivacyLoss, people: Tensor, at_most: int, threshold: int) -> Measured:
        """What the release costs in every dataset: without a threshold in the law, that is all there is."""
        return Measured(promised)


def mean_noise(budget: Budget, kind: NoiseKind, at_most: int) -> GaussianMeans | LaplaceMeans:
    """The noise of means, of which one person moves ``at_most``: the smaller one at a mean of 1/2.

    >>> [mean_noise(Budget.checked(1.0, 1e-6), "auto", cells).name for cells in (1, 4, 64)]
    ['Laplace', 'Laplace', 'Gaussian']
    """
    norm = budget.multiplier * math.sqrt(at_most)
    gaussian = GaussianMeans(norm / math.sqrt(_SUM_SHARE), norm / math.sqrt(1 - _SUM_SHARE))
    if kind == "gaussian":
        return gaussian
    alone = budget.multiplier * at_most / math.sqrt(2)
    laplace = LaplaceMeans(alone if budget.epsilon is None else laplace_scale(budget, at_most))
    errors = (math.hypot(one.total, one.size / 2) for one in (laplace, gaussian))
    return laplace if is_better(budget, kind, laplace.scale * 2 * UNITS, *errors) else gaussian


@cache
def laplace_deviations(coverage: float) -> float:
    """The number of standard deviations that a sum of two Laplace variables exceeds with 1 - ``coverage``.

    It is the largest one over all ratios of their two scales, of which many are tried, and a little more.
    With scales a > b, P(|X + Y| > x) = (a^2 e^(-x/a) - b^2 e^(-x/b)) / (a^2 - b^2).

    >>> round(laplace_deviations(0.95), 3), round(laplace_deviations(0.5), 3)
    (2.12, 0.574)
    """
    angles = torch.linspace(0, math.pi / 4, _RATIOS + 1, dtype=torch.float64)[1:-1]
    a, b = torch.cos(angles) / math.sqrt(2), torch.sin(angles) / math.sqrt(2)  # of variance 1 together
    low, high = torch.zeros_like(a), torch.full_like(a, 40.0)
    for _ in range(60):
        x = (low + high) / 2
        tail = (a * a * torch.exp(-x / a) - b * b * torch.exp(-x / b)) / (a * a - b * b)
        low, high = torch.where(tail > 1 - coverage, x, low), torch.where(tail > 1 - coverage, high, x)
    alone = -math.log1p(-coverage) / math.sqrt(2)
    return max(alone, float(high.max())) * (1 + 1e-3)


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
