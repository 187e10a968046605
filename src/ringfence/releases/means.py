"""Means and sums of columns by group, and shares of answers, with intervals that allow for the noise.

Means and sums are of values clamped to public limits. Inside, these are measured from the middle of their
limits, in units of half the distance between them (for a sum, from 0 in units of the larger limit): they lie
between -1 and 1.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from statistics import NormalDist
from typing import Any, ClassVar

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.ledger import Ledger
from ringfence.accounting.privacy_loss import PrivacyLoss
from ringfence.noise import Noise
from ringfence.releases.budget import (
    Budget,
    GaussianNoise,
    LaplaceNoise,
    NoiseKind,
    TableNoise,
    count_noise,
    gaussian_loss,
    is_better,
    laplace_scale,
)
from ringfence.releases.cells import (
    UNITS,
    Cells,
    Clamped,
    Domain,
    Missing,
    Opened,
    open_cells,
    people_in,
    public_cells,
    sums_in,
)
from ringfence.releases.reader import Columns, Rows
from ringfence.releases.release import Measured, Release, ReleaseAccount, Source, interval_chart, several_rows
from ringfence.report.chart import Chart

_COLUMNS = ("low", "high", "standard_error", "column")
# Without a threshold, an empty group is shown with at most the chance of 4 deviations of Gaussian noise.
CLEAR = 4.0
_COUNTED = 1 << 10  # units in which answers are counted
_OF_SHARES = ("question", "answer", "share", "low", "high", "people", "suppressed", "standard_error")
Limits = float | Sequence[float]


def release_means(
    data: Any,
    of: str | int | Sequence[str | int],
    by: str | int | Sequence[str | int] | None = None,
    *,
    lower: Limits,
    upper: Limits,
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

    Values are clamped to the public limits ``lower`` and ``upper``. ``of`` may be several columns, which
    share the budget; then each limit is one number for all of them, or one for each. ``data``, ``by``,
    ``domain``, ``bins``, ``missing``, ``person``, ``at_most``, ``epsilon``, ``delta``, ``noise`` and ``seed``
    are those of ``release_counts``; ``missing="drop"`` leaves out rows without a value of ``of``, too. A
    person with several rows in a group counts once, with the mean of them. ``sigma`` in place of ``epsilon``
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
    under the conditions of ``release_counts``. One person moves ``at_most`` sizes by 1 and as many sums of
    each column by at most 1, or as many pairs of numbers by 1 altogether. The chance over the noise that a
    group is shown with an interval that misses its mean is at most 1 - ``coverage``.

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
    budget = Budget.checked(epsilon, delta, sigma, seed, ledger, what, noise)
    columns = clamped_columns(of, lower, upper, centred=True)
    threshold = None if suppress_below is None else checks.count("suppress_below", suppress_below, at_least=0)
    coverage = checks.probability("coverage", coverage)
    taken = ("mean", "people", "suppressed", *_COLUMNS)
    read = read_sums(open_cells(data, by, domain, bins, taken, missing, person, at_most), columns, person)
    used = mean_noise(budget, read.most, len(columns))
    threshold = clear_size(used) if threshold is None else max(threshold, 1)
    promised = used.loss(read.people, read.most, len(columns))
    account = budget.charge(ReleaseAccount(promised, budget.delta), "release_means")
    size, total = used.draw(budget, read.people, read.units)
    size = torch.where(size <= threshold - 0.5, math.nan, size)  # a group that is hidden hides its sum, too
    size = size.repeat_interleave(len(total) // len(size))
    mean = (total / size).clamp(-1, 1)
    error = torch.sqrt(used.total**2 + mean**2 * used.size**2) / size
    low, high = fieller(total, size, used.total, used.size, used.deviations(coverage))
    released: dict[str, list[Any]] = {
        "mean": read.scaled(mean),
        "low": read.scaled(low, -1 / UNITS),
        "high": read.scaled(high, 1 / UNITS),
        "people": [None if value is None else round(value) for value in none_for_nan(size)],
        "suppressed": size.isnan().tolist(),
    }
    alone = used.exceeded(threshold - 1.5)  # the chance that one person alone is shown
    return read.source.release(
        account,
        budget,
        read.chart("mean", released, coverage),
        released,
        {"standard_error": none_for_nan(read.units_of_rows[3] * error)},
        used,
        method=f"{read.clamping}, {used.name} noise "
        f"was added, and groups with a noisy size below {threshold} are not shown (the noise decides: "
        "one person alone is a group that is shown with a chance of at most "
        f"{math.ceil(1e5 * alone) / 1e3:g} %)",
        public="Groups, limits, noise and threshold",
        coverage=coverage,
        promises=several_rows(read.source),
        leaves_out=(_LEFT_OUT,),
    )


def release_sums(
    data: Any,
    of: str | int | Sequence[str | int],
    by: str | int | Sequence[str | int] | None = None,
    *,
    lower: Limits,
    upper: Limits,
    epsilon: float | None = None,
    delta: float = 1e-6,
    sigma: float | None = None,
    noise: NoiseKind = "auto",
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
    """Releases the sum of column ``of`` in every group of ``by``, with noise and an interval.

    All arguments are those of ``release_means``, and so is who counts: a person with several rows in a group
    counts once, with the mean of them. Values are clamped to the public limits, and the noise is in
    proportion to the larger one of them, without its sign. How many people are in a group is not released,
    so no group is hidden: that of an empty group is noise about 0, as its interval says.

    Guarantee: (epsilon, delta)-differential privacy for every dataset and any one person added or removed,
    under the conditions of ``release_counts``: one person moves ``at_most`` sums of each column, each by at
    most the larger limit. An interval covers the sum of the clamped values with the chance ``coverage``.

    >>> import ringfence as rf
    >>> from pandas import DataFrame
    >>> people = DataFrame({"region": ["north", "south"] * 2000, "hours": [10.0, 30.0] * 2000})
    >>> sums = rf.release_sums(people, of="hours", by="region", domain={"region": ["north", "south"]},
    ...                        lower=0, upper=40, epsilon=1.0)
    >>> bool((sums.values["sum"] - [20_000, 60_000]).abs().max() < 1_000)
    True
    """
    budget = Budget.checked(epsilon, delta, sigma, seed, ledger, what, noise)
    columns = clamped_columns(of, lower, upper, centred=False)
    coverage = checks.probability("coverage", coverage)
    taken = ("sum", *_COLUMNS)
    read = read_sums(open_cells(data, by, domain, bins, taken, missing, person, at_most), columns, person)
    used = count_noise(budget, read.most * len(columns), UNITS)
    promised = used.loss(read.units, read.most * len(columns))
    measured = partial(Measured, promised, (), {"units": read.units.tolist()})
    account = budget.charge(ReleaseAccount(promised, budget.delta, measured), "release_sums")
    total = used.draw(budget, read.units, "sums")
    far = used.deviations(coverage) * used.deviation + 1 / UNITS  # a step of the law, where it has steps
    released = {
        name: (read.units_of_rows[3] * (total + sign * far)).tolist()
        for name, sign in (("sum", 0), ("low", -1), ("high", 1))
    }
    return read.source.release(
        account,
        budget,
        read.chart("sum", released, coverage),
        released,
        {"standard_error": (read.units_of_rows[3] * used.deviation).tolist()},
        used,
        method=f"{read.clamping}, and {used.name} noise with a standard deviation of "
        f"{', '.join(f'{column.half * used.deviation:,.3g} ({column.of})' for column in columns)} was "
        "added to every sum",
        public="Groups, limits and noise",
        coverage=coverage,
        promises=several_rows(read.source),
        leaves_out=(
            _LEFT_OUT,
            "How many people are in a group is not released: the sum of an empty group is noise.",
        ),
    )


def release_shares(
    data: Any,
    questions: Sequence[str | int],
    by: str | int | Sequence[str | int] | None = None,
    *,
    answers: Iterable[Any] | None = None,
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
    """Releases the share of each answer among those who answered, for many ``questions`` at once.

    Each question is a column. Its public answers are those that ``domain`` lists for it, else ``answers``,
    and a column of booleans has its own; ``bins`` work too. A missing value is no answer and does not count,
    unless its answers contain None: then it is one of them. ``by``, ``person``, ``at_most``, ``epsilon``,
    ``delta``, ``sigma``, ``noise``, ``seed``, ``ledger`` and ``what`` are those of ``release_counts``: with
    ``by`` there are shares in every group, and a person counts in at most ``at_most`` cells of each question.

    Released are noisy counts of all answers. Those to one question add up to the noisy number of people who
    answered it: it is not released apart. A question that fewer than ``suppress_below`` people answered, by
    their noisy number, is not shown; left out, it is so large that a question that nobody answered is shown
    with a chance of at most about 6e-5.

    Guarantee: (epsilon, delta)-differential privacy for every dataset and any one person added or removed,
    under the conditions of ``release_counts``: one person moves ``at_most`` counts of each question by 1. The
    intervals (Fieller 1954) allow for the noise in a count and in its sum: the chance that a share is shown
    with an interval that misses it is at most 1 - ``coverage``.

    >>> import ringfence as rf
    >>> from pandas import DataFrame
    >>> answers = {"smokes": ["yes", "no", "no", "no"] * 500, "cycles": ["yes", "no", None, "no"] * 500}
    >>> people = DataFrame(answers)
    >>> shares = rf.release_shares(people, ["smokes", "cycles"], answers=["yes", "no"], epsilon=1.0)
    >>> list(shares.values.columns)
    ['question', 'answer', 'share', 'low', 'high', 'people', 'suppressed']
    >>> bool((shares.values["share"] - [1 / 4, 3 / 4, 1 / 3, 2 / 3]).abs().max() < 0.03)
    True
    """
    budget = Budget.checked(epsilon, delta, sigma, seed, ledger, what, noise)
    threshold = None if suppress_below is None else checks.count("suppress_below", suppress_below, at_least=1)
    coverage = checks.probability("coverage", coverage)
    names = [str(name) for name in checks.listed("questions", questions)]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"questions must name at least one column, and each once, got {names}")
    listed = None if answers is None else checks.listed("answers", answers)
    keys, counts = [], []
    described = (None, None) if by is None else (domain, bins)
    opened = open_cells(data, by, *described, _OF_SHARES, missing, person, at_most)
    with opened as (rows, groups, source, most):
        for name in names:
            cells = question_cells(rows, groups, name, listed, domain, bins)
            own = groups.repeated("question", [name] * len(cells.axes[-1].values))
            keys.append({**own, "answer": cells.columns[name]})
            counts.append(people_in(rows, cells, person, most).view(groups.count, -1))
    sizes = [people.shape[1] for people in counts]
    used = count_noise(budget, most * len(names), _COUNTED)
    least = threshold or clear(used, max(sizes))
    flat = torch.cat([people.flatten() for people in counts])
    promised = used.loss(flat, most * len(names))
    measured = partial(Measured, promised, (), {"counts": flat.tolist()})
    account = budget.charge(ReleaseAccount(promised, budget.delta, measured), "release_shares")
    noisy = used.draw(budget, flat * _COUNTED, "answers").split([people.numel() for people in counts])
    shares = zip(noisy, sizes, strict=True)
    released = _joined([shares_of(drawn.view(-1, size), used, least, coverage) for drawn, size in shares])
    errors, columns = {"standard_error": released.pop("standard_error")}, _joined(keys)
    return replace(source, keys=columns).release(
        account,
        budget,
        interval_chart("Shares", "share of those who answered", released, columns, coverage),
        released,
        errors,
        used,
        units="cells of every question",
        method=f"{used.name} noise with a standard deviation of {used.deviation:.3g} was added to the "
        f"number of people who gave each answer, and questions with a noisy number of answers below "
        f"{least} are not shown",
        public="Questions, answers, noise and threshold",
        coverage=coverage,
        leaves_out=("A share is one of the people in the data who answered.",),
    )


def _joined(parts: Sequence[Columns]) -> dict[str, list[Any]]:
    """Tables with the same columns below each other."""
    return {name: [value for part in parts for value in part[name]] for name in parts[0]}


_LEFT_OUT = "Means and sums are those of clamped values, each rounded to a millionth of the larger limit."


def clamped_columns(of: Any, lower: Any, upper: Any, centred: bool) -> list[Clamped]:
    """The columns ``of`` with their limits, measured from the middle of these or from 0.

    >>> [tuple(column) for column in clamped_columns(["age", "income"], 0, [120, 1e5], centred=True)]
    [('age', 0.0, 120.0, 60.0, 60.0), ('income', 0.0, 100000.0, 50000.0, 50000.0)]
    """
    names = [str(name) for name in ([of] if isinstance(of, str | int) else checks.listed("of", of))]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"of must name at least one column, and each once, got {names}")
    ends = []
    for name, given in (("lower", lower), ("upper", upper)):
        listed = checks.listed(name, given) if isinstance(given, list | tuple) else [given] * len(names)
        if len(listed) != len(names):
            raise ValueError(f"{name} must be a number, or one for each of {len(names)} columns, got {given}")
        ends.append([checks.number(name, end) for end in listed])
    columns = []
    for name, low, high in zip(names, *ends, strict=True):
        if not low < high:
            of_it = f" for column {name!r}" if len(names) > 1 else ""
            raise ValueError(f"lower must be below upper, got {low!r} and {high!r}{of_it}")
        measured = (low / 2 + high / 2, high / 2 - low / 2) if centred else (0.0, max(abs(low), abs(high)))
        columns.append(Clamped(name, low, high, *measured))
    return columns


@dataclass(frozen=True)
class Sums:
    """True sums with what is public about them: one row for each group and column, the column fastest."""

    columns: Sequence[Clamped]
    people: Tensor  # one for each group
    units: Tensor  # one for each row
    source: Source
    most: int  # groups of one person

    @property
    def names(self) -> str:
        """The names of the columns, for titles."""
        return ", ".join(column.of for column in self.columns)

    @property
    def clamping(self) -> str:
        """The first step, for a statement."""
        limits = (f"{column.lower:,.10g} to {column.upper:,.10g}" for column in self.columns)
        return f"values of {self.names} were clamped to {' and '.join(limits)}"

    def chart(self, what: str, released: Columns, coverage: float) -> Chart:
        """A panel for each column."""
        rows = dict(sorted(self.source.keys.items(), key=lambda own: own[0] != "column"))
        title, alone = f"{what.capitalize()}s of {self.names}", len(self.columns) == 1
        label = f"{what} of {self.names}" if alone else what
        return interval_chart(title, label, released, rows, coverage, one_scale=alone)

    @property
    def units_of_rows(self) -> Tensor:
        """The lower and upper limit of each row, its middle, and the number that a measured 1 stands for."""
        columns = torch.tensor([column[1:] for column in self.columns], dtype=torch.float64)
        return columns.T.repeat(1, len(self.people))

    def scaled(self, values: Tensor, stretch: float = 0.0) -> list[float | None]:
        """Values as they are outside, within their limits; None for NaN."""
        low, high, middle, half = self.units_of_rows
        return none_for_nan((middle + half * (values + stretch)).clamp(low, high))


def read_sums(opened: AbstractContextManager[Opened], columns: Sequence[Clamped], person: Any | None) -> Sums:
    """Reads the sums of columns by group."""
    with opened as (rows, groups, source, most):
        people, units = sums_in(rows, groups, columns, person, most)
    several = len(columns) > 1
    keys = groups.repeated("column", [column.of for column in columns]) if several else groups.columns
    return Sums(columns, people, units.flatten(), replace(source, keys=keys), most)


@dataclass(frozen=True)
class GaussianMeans:
    """Gaussian noise of sums and of sizes, each with its standard deviation."""

    total: float
    size: float

    name: ClassVar[str] = "Gaussian"
    deviations = staticmethod(GaussianNoise.deviations)

    def exceeded(self, least: float) -> float:
        """The chance that the noise of a size is at least this."""
        return NormalDist(0.0, self.size).cdf(-least)

    def loss(self, people: Tensor, at_most: int, columns: int = 1) -> PrivacyLoss:
        """The loss for every dataset."""
        mu = math.sqrt(at_most) * math.hypot(math.sqrt(columns) / self.total, 1 / self.size)
        return gaussian_loss(mu, steps=2)

    def draw(self, budget: Budget, people: Tensor, units: Tensor) -> tuple[Tensor, Tensor]:
        """Noisy sizes, one for each group, and noisy sums."""
        size = GaussianNoise(self.size, UNITS).draw(budget, UNITS * people, "sizes")
        return size, GaussianNoise(self.total, UNITS).draw(budget, units, "sums")


@dataclass(frozen=True)
class LaplaceMeans:
    """Laplace noise of two numbers, in which a person with the value v counts (1 + v) / 2 and (1 - v) / 2.

    One person moves both together by 1, in units of which all are multiples, so that they cost what one
    number does. Their sum is a size and their difference a sum, with noise that is not correlated.

    >>> noise = LaplaceMeans(1.0)
    >>> noise.total, noise.size, clear_size(noise), round(noise.exceeded(12.5), 6)
    (2.0, 2.0, 13, 1.4e-05)
    """

    scale: float

    name: ClassVar[str] = "Laplace"
    deviations = staticmethod(LaplaceNoise.deviations)

    @property
    def total(self) -> float:
        """The standard deviation of a sum."""
        return 2 * self.scale

    size = total  # that of a size is the same

    def exceeded(self, least: float) -> float:
        """The chance that the noise of a size is at least this."""
        far = abs(least) / self.scale
        tail = 0.5 * (1 + far / 2) * math.exp(-far)
        return tail if least >= 0 else 1 - tail

    def loss(self, people: Tensor, at_most: int, columns: int = 1) -> PrivacyLoss:
        """The loss for every dataset."""
        return LaplaceNoise(self.scale).loss(people.repeat_interleave(columns), at_most * columns)

    def draw(self, budget: Budget, people: Tensor, units: Tensor) -> tuple[Tensor, Tensor]:
        """Noisy sizes, one for each sum, and noisy sums."""
        everybody = UNITS * people.repeat_interleave(len(units) // len(people))
        sides = (everybody + units, everybody - units)  # in units of 1 / (2 UNITS)
        noise = LaplaceNoise(self.scale, 2 * UNITS)
        above, below = (noise.draw(budget, side, f"side {at}") for at, side in enumerate(sides))
        return above + below, above - below


def clear_size(used: GaussianMeans | LaplaceMeans) -> int:
    """The threshold where none is given: so large that an empty group is hardly shown."""
    chance = NormalDist().cdf(-CLEAR)
    some = range(1, 1 << 60)
    return some[bisect_left(some, True, key=lambda threshold: used.exceeded(threshold - 0.5) <= chance)]


def mean_noise(budget: Budget, at_most: int, columns: int = 1) -> GaussianMeans | LaplaceMeans:
    """The noise of means, of which one person moves ``at_most`` of each column: the smaller one at a mean of
    1/2.

    Of the Gaussian budget 1 / sigma^2 the sums have a share, and the sizes the rest. A mean u has a variance
    like columns / share + u^2 / (1 - share); the share is the best one at |u| = 1/2. With one column the
    variance is an eighth more than the least at |u| = 1 and a half more at u = 0.

    >>> [mean_noise(Budget.checked(1.0, 1e-6, kind="auto"), cells).name for cells in (1, 4, 64)]
    ['Laplace', 'Laplace', 'Gaussian']
    """
    norm = budget.multiplier * math.sqrt(at_most)
    share = math.sqrt(columns) / (math.sqrt(columns) + 0.5)
    gaussian = GaussianMeans(norm * math.sqrt(columns / share), norm / math.sqrt(1 - share))
    if budget.kind == "gaussian":
        return gaussian
    alone = budget.multiplier * at_most * columns / math.sqrt(2)
    laplace = LaplaceMeans(alone if budget.epsilon is None else laplace_scale(budget, at_most * columns))
    errors = (math.hypot(one.total, one.size / 2) for one in (laplace, gaussian))
    return laplace if is_better(budget, laplace.scale * 2 * UNITS, *errors) else gaussian


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


def none_for_nan(values: Tensor) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values.tolist()]


def question_cells(
    rows: Rows, groups: Cells, question: str, answers: Sequence[Any] | None, domain: Any, bins: Any
) -> Cells:
    """The cells of groups and public answers to one question; rows without an answer are left out.

    >>> import numpy as np
    >>> from ringfence.releases.reader import open_rows
    >>> with open_rows(np.array([[1.0], [np.nan]])) as rows:
    ...     cells = question_cells(rows, public_cells(rows, None), "0", [0, 1], None, None)
    ...     people_in(rows, cells, None, 1).tolist()
    [0, 1]
    """
    if question in groups.columns:
        raise ValueError(f"questions must not name the column {question!r}, which by names")
    rows.column("questions", question)
    named, edges = (own if isinstance(own, Mapping) else {} for own in (domain, bins))
    if answers is not None and question not in map(str, (*named, *edges)):
        named = {question: answers}
    [axis] = public_cells(rows, question, named, edges, missing="drop").axes
    if len(axis.values) < 2:
        raise ValueError(f"column {question!r} must have at least 2 public answers, got {[*axis.values]}")
    axis = axis if axis.argument == "bins" else replace(axis, argument="answers")
    return Cells((*groups.axes, axis), groups.missing)


def clear(used: TableNoise, answers: int) -> int:
    """The threshold where none is given: so large that a question without answers is hardly shown."""
    unlikely = 1 - 2 * NormalDist().cdf(-CLEAR)
    far = used.deviations(unlikely) * used.deviation * math.sqrt(answers)
    return max(1, math.ceil(far + 0.5))


def shares_of(noisy: Tensor, used: TableNoise, least: int, coverage: float) -> dict[str, list[Any]]:
    """Shares, intervals and errors of noisy counts, (groups, answers), one after the other.

    A count less its part 1 / answers of the sum has noise that is not correlated with that of the sum, so
    that ``fieller`` tells which shares fit both: share - 1 / answers is their ratio.

    >>> from ringfence.releases.budget import GaussianNoise
    >>> found = shares_of(torch.tensor([[30.0, 70.0]]), GaussianNoise(2.0), 9, 0.95)
    >>> [[round(value, 3) for value in found[name]] for name in ("share", "low", "high", "standard_error")]
    [[0.3, 0.7], [0.269, 0.671], [0.329, 0.731], [0.015, 0.015]]
    """
    answers = noisy.shape[1]
    size = noisy.sum(dim=1, keepdim=True)
    size = torch.where(size < least - 0.5, math.nan, size).expand_as(noisy)
    even = 1 / answers
    share = (noisy / size).clamp(0, 1)
    sigma, size_sigma = used.deviation * math.sqrt(1 - even), used.deviation * math.sqrt(answers)
    ends = fieller(noisy - size * even, size, sigma, size_sigma, used.deviations(coverage))
    low, high = (none_for_nan((end + even).clamp(0, 1).flatten()) for end in ends)
    error = torch.sqrt((1 - share) ** 2 + (answers - 1) * share**2) * used.deviation / size
    people = [None if value is None else round(value) for value in none_for_nan(size.flatten())]
    return {
        "share": none_for_nan(share.flatten()),
        "low": low,
        "high": high,
        "people": people,
        "suppressed": [value is None for value in people],
        "standard_error": none_for_nan(error.flatten()),
    }
