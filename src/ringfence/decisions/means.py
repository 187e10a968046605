"""Means of a column by group, clamped to public limits, each with an interval that knows about the noise."""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from statistics import NormalDist
from typing import Any

from torch import Tensor

from ringfence import checks
from ringfence.accounting.ledger import Ledger
from ringfence.decisions.account import ReleaseAccount, checked_arguments, noise_multiplier
from ringfence.decisions.bars import bar_chart
from ringfence.decisions.noisy_means import MeanPlan, size_sigma, with_private_sizes, with_public_sizes
from ringfence.decisions.result import DecisionRelease
from ringfence.decisions.statement import (
    RowsAre,
    Statement,
    attack,
    one_person,
    people_bounded,
    rehearsal,
    target,
)
from ringfence.decisions.tables.contributions import UNITS, checked_at_most, sums_in
from ringfence.decisions.tables.domains import Cells, Domain, public_cells
from ringfence.decisions.tables.rows import open_rows
from ringfence.noise import Noise
from ringfence.report.chart import Chart

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
    noise: Noise | None = None,
    ledger: Ledger | None = None,
) -> DecisionRelease:
    """The mean of column ``of`` in every group of ``by``, with noise and an interval.

    Values are clamped to the public limits ``lower`` and ``upper``. ``data``, ``by``, ``domain``, ``bins``,
    ``person``, ``at_most``, ``epsilon``, ``delta`` and ``noise`` are those of ``release_counts``; a person
    with several rows in a group counts once, with the mean of them. ``sigma`` in place of ``epsilon`` is the
    noise as a multiple of what one person moves altogether.

    How many people are in a group is private too: the sum of the values gets two thirds of the budget, the
    number of people one third. Groups with a noisy number below ``suppress_below`` are not shown; left
    out, it is 4 standard deviations of that noise. Where the numbers are public, give them as ``sizes`` (a
    number per group, by its value or in the order of the groups): all of the budget goes to the sums, the
    means stay within the limits, and what is protected is the values of a person, not who takes part. A
    person who is replaced moves a sum twice as far as one who is added, so the noise of a sum is 2 instead of
    1.22 times the multiplier: without ``sizes`` means are mostly more accurate.

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
    epsilon, delta = checked_arguments(epsilon, delta, noise)
    multiplier = noise_multiplier(epsilon, delta, sigma)
    limits = _checked_limits(lower, upper)
    threshold = None if suppress_below is None else checks.count("suppress_below", suppress_below, at_least=0)
    coverage = checks.probability("coverage", coverage)
    deviations = NormalDist().inv_cdf((1 + coverage) / 2) + _ROUNDED
    names = [by] if isinstance(by, str | int) else [*checks.listed("by", () if by is None else by)]
    with open_rows(data) as rows:
        cells = public_cells(rows, names, domain, bins, _COLUMNS)
        size = checked_at_most(at_most, person, cells.count)
        people, sums = sums_in(rows, cells, of, limits, person, size)
        like = rows.like
    if threshold is None:
        threshold = math.ceil(_CLEAR * size_sigma(multiplier, size)) if sizes is None else 1
    plan = MeanPlan(multiplier, threshold, size, deviations, epsilon, delta, noise, ledger)
    if sizes is None:
        account, means = with_private_sizes(people.double(), sums.double() / UNITS, plan)
    else:
        _check_sizes(sizes, cells, people)
        account, means = with_public_sizes(people.double(), sums.double() / UNITS, plan)
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
    rows_are: RowsAre = "rows" if person is None else "persons"
    return DecisionRelease(
        title=f"Means of {of}",
        columns=columns,
        error_columns={**cells.columns, "standard_error": errors},
        hidden="suppressed",
        numbers=("mean", "low", "high", "people"),
        like=like,
        account=account,
        statement=_statement(
            account,
            epsilon,
            of,
            limits,
            threshold,
            size,
            rows_are,
            coverage,
            None if sizes is not None else plan.size_sigma,
            noise is not None and noise.seeded,
        ),
        drawn=partial(_chart, cells.labels, str(of), coverage),
        settings=(
            ("limits", f"{limits[0]:g} to {limits[1]:g}"),
            (
                "noise of a sum",
                f"Gaussian, {half * (plan.sum_sigma if sizes is None else plan.replaced_sigma):.6g}",
            ),
            ("noise of a size", f"Gaussian, {plan.size_sigma:.6g}" if sizes is None else "sizes are public"),
            ("threshold", f"{threshold} people"),
            ("groups of one person", f"at most {size}"),
        ),
    )


def _checked_limits(lower: Any, upper: Any) -> tuple[float, float]:
    limits = checks.number("lower", lower), checks.number("upper", upper)
    if not limits[0] < limits[1]:
        raise ValueError(f"lower must be below upper, got {lower!r} and {upper!r}")
    return limits


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


def _statement(
    account: ReleaseAccount,
    epsilon: float | None,
    of: Any,
    limits: tuple[float, float],
    threshold: int,
    at_most: int,
    rows_are: RowsAre,
    coverage: float,
    noise_of_size: float | None,
    seeded: bool,
) -> Statement:
    public_sizes = noise_of_size is None
    hidden = f", and groups of fewer than {threshold} people are not shown" if threshold > 1 else ""
    if noise_of_size is not None:
        alone = NormalDist(1.0, noise_of_size).cdf(2.0 - threshold)  # the chance to be above it
        percent = math.ceil(1e5 * alone) / 1e3
        hidden = (
            f", and groups with a noisy size of at most {threshold} are not shown (the noise decides: one "
            f"person alone is a group that is shown with a chance of at most {percent:g} %)"
        )
    who = one_person(rows_are)
    public = (
        f"These means are protected by differential privacy ({target(epsilon, account)}) for each {who}: "
        f"values of {of} were clamped to {limits[0]:g} to {limits[1]:g}, random noise was added{hidden}; the "
        f"intervals allow for the noise, with a coverage of {coverage:.3g}.{rehearsal(seeded)}"
    )
    several = " Several rows of a person in a group count as their mean." if rows_are == "persons" else ""
    promises = (
        attack(account, who, replaced=public_sizes),
        people_bounded(rows_are, at_most, "group") + several,
        "The chance over the noise that a group is shown with an interval that misses the mean of its "
        f"clamped values is at most {1 - coverage:.2g}. Intervals and standard errors are computed from what "
        "is released and from the noise alone.",
        "Groups, limits, noise and threshold are public: they must not have been chosen by looking at the "
        "data.",
    )
    leaves_out = (
        *(
            ("How many people are in each group is published as it is, without noise: it is known already.",)
            if public_sizes
            else ()
        ),
        "It is about one person at a time: what a large group has in common shows in its mean.",
        "Every further release from the same data costs its own epsilon, and the epsilons add up.",
        "Values beyond the limits count as the limits. Sampling, non-response and errors in the data are not "
        "part of the intervals.",
    )
    return Statement(public, promises, leaves_out, (account.per_instance,))


def _chart(labels: list[tuple[str, ...]], of: str, coverage: float, release: DecisionRelease) -> Chart:
    def numbers(name: str) -> list[float]:
        return [math.nan if value is None else float(value) for value in release.columns[name]]

    return bar_chart(
        title=release.title,
        caption=f"Whiskers are the intervals of coverage {coverage:.3g}.",
        y_label=f"mean of {of}",
        names=list(release.columns)[: len(labels[0])],
        labels=labels,
        heights=numbers("mean"),
        ends=list(zip(numbers("low"), numbers("high"), strict=True)),
    )
