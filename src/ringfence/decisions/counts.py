"""A table of counts: how many people are in each cell, with small counts suppressed."""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from statistics import NormalDist
from typing import Any

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.ledger import Ledger
from ringfence.decisions.account import (
    ReleaseAccount,
    checked_arguments,
    noise_multiplier,
    released,
    table_account,
    within,
)
from ringfence.decisions.bars import bar_chart
from ringfence.decisions.frames import is_array
from ringfence.decisions.result import DecisionRelease
from ringfence.decisions.statement import Statement, attack, one_person, people_bounded, rehearsal, target
from ringfence.decisions.tables.domains import Domain
from ringfence.decisions.tables.true_counts import LARGEST, TrueCounts, array_counts, table_counts
from ringfence.mechanisms.base import Mechanism
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.mechanisms.rectified import RectifiedGaussian
from ringfence.noise import Noise
from ringfence.numerics.rounding import rounded_up

_FINEST = 2.0**-20  # of sigma: the step of a secure release


def release_counts(
    data: Any,
    by: str | int | Sequence[str | int] | None = None,
    *,
    epsilon: float | None = None,
    delta: float = 1e-6,
    sigma: float | None = None,
    suppress_below: int | None = None,
    domain: Domain | None = None,
    bins: Mapping[Any, Iterable[float]] | None = None,
    person: str | int | None = None,
    at_most: int = 1,
    counts: str | int | None = None,
    noise: Noise | None = None,
    ledger: Ledger | None = None,
) -> DecisionRelease:
    """How many people are in each cell of a table, with noise; counts below ``suppress_below`` are not shown.

    ``data`` is a frame (pandas, polars, pyarrow), the names of CSV or parquet files, or an array or tensor:
    with ``by`` its rows are people and ``by`` are numbers of columns; without, it holds the counts. ``by``
    are the columns whose combinations are the cells. Their values must be public: ``domain`` lists them,
    ``bins`` gives edges for a column of numbers. ``counts`` names a column of counts that were aggregated
    already.

    Each row is one person, unless ``person`` names the column that says whose it is: then a person counts
    once in each of at most ``at_most`` cells. Give ``epsilon`` and ``delta``, which hold for every dataset,
    and the noise is found, or give ``sigma``, the standard deviation of the noise of each count. Released are
    whole numbers. Every call is a release of its own, to be paid for; ``ledger`` is charged for it
    beforehand. ``noise`` is for rehearsals and tests: whoever knows its seed knows the counts.

    Guarantee: (epsilon, delta)-differential privacy for every dataset and any one person added or removed,
    provided that what is given here was not chosen by looking at the data. The law is the Gaussian's, or the
    rectified Gaussian's with support from the threshold on, rounded to whole numbers by a secure release.
    An error releases nothing, but it may say something about the data to whoever reads it.

    >>> import ringfence as rf
    >>> from pandas import DataFrame
    >>> people = DataFrame({"region": ["north"] * 90 + ["south"] * 3, "smoker": [True, False, False] * 31})
    >>> regions = {"region": ["north", "south", "west"]}
    >>> table = rf.release_counts(people, by=["region", "smoker"], domain=regions, suppress_below=20,
    ...                           epsilon=1.0, delta=1e-6)
    >>> list(table.values.columns), len(table.values)
    (['region', 'smoker', 'count', 'suppressed'], 6)
    >>> table.rows()[-1]  # nobody is there: shown with a chance below 1e-5
    ('west', 'yes', '<20', 'yes')
    """
    epsilon, delta = checked_arguments(epsilon, delta, noise)
    multiplier = noise_multiplier(epsilon, delta, sigma)
    threshold = None if suppress_below is None else _checked_threshold(suppress_below)
    if by is None and is_array(data):
        if person is not None or counts is not None or domain or bins:
            raise ValueError("by must name columns where person, counts, domain or bins is given, got None")
        table = array_counts(data, at_most)
    else:
        names = [by] if isinstance(by, str | int) else [*checks.listed("by", () if by is None else by)]
        table = table_counts(data, names, domain, bins, person, at_most, counts)
    noisy = multiplier * math.sqrt(table.at_most) if sigma is None else multiplier
    step = max(1.0, 2.0 ** math.ceil(math.log2(noisy * _FINEST)))
    law: Mechanism = Gaussian(noisy)
    if threshold is not None:
        law = RectifiedGaussian(noisy, (threshold - step, math.inf))
    account = table_account(law, table.theta, 1.0, table.at_most, delta)
    within(epsilon, account, ledger, "release_counts")
    drawn = released(law, table.theta, noise, "counts", step)
    hidden = torch.zeros_like(drawn, dtype=torch.bool) if threshold is None else drawn < threshold
    error = math.sqrt(noisy**2 + step**2 / 12)  # of the noise and of rounding
    places = list(zip(drawn.tolist(), hidden.tolist(), strict=True))
    columns = {**table.columns, "count": [None if off else round(value) for value, off in places]}
    if threshold is not None:
        columns["suppressed"] = hidden.tolist()
    return DecisionRelease(
        title="Counts",
        columns=columns,
        error_columns={**table.columns, "standard_error": [None if off else error for _, off in places]},
        hidden="" if threshold is None else f"<{threshold}",
        numbers=("count",),
        like=table.like,
        account=account,
        statement=_statement(
            account, table, epsilon, noisy, threshold, hidden, noise is not None and noise.seeded
        ),
        drawn=partial(_chart, table.labels, error, threshold),
        settings=(
            ("noise", f"Gaussian, standard deviation {noisy:.6g}, rounded to multiples of {step:g}"),
            ("threshold", "none" if threshold is None else str(threshold)),
            ("cells", f"{table.theta.numel():,}"),
            ("cells of one person", f"at most {table.at_most}"),
        ),
    )


def _checked_threshold(value: Any) -> int:
    number = checks.number("suppress_below", value, checks.not_negative)
    if number != int(number) or number > LARGEST:
        raise ValueError(f"suppress_below must be a whole number, got {value!r}")
    return int(number)


def _statement(
    account: ReleaseAccount,
    table: TrueCounts,
    epsilon: float | None,
    sigma: float,
    threshold: int | None,
    hidden: Tensor,
    seeded: bool,
) -> Statement:
    who = one_person(table.rows_are)
    suppressed = "" if threshold is None else f", and noisy counts below {threshold} are not shown"
    public = (
        f"These counts are protected by differential privacy ({target(epsilon, account)}) for each "
        f"{who}: random noise with a standard deviation of {sigma:.3g} was added to every "
        f"count{suppressed}.{rehearsal(seeded)}"
    )
    promises = (
        attack(account, who),
        people_bounded(table.rows_are, table.at_most, "cell"),
        "Cells, noise and threshold are public: every combination of the declared values is a cell, also "
        "where nobody is in it. They must not have been chosen by looking at the data.",
        "Standard errors are those of the noise and of rounding to whole numbers"
        + (", whatever the data." if threshold is None else _selection(threshold, sigma)),
    )
    leaves_out = (
        "It is about one person at a time: what a large group has in common shows in the counts.",
        "Every further release from the same data costs its own epsilon, and the epsilons add up.",
        "Sampling, non-response and errors in the data are not part of the standard errors.",
        *(
            ("A count that is not shown may be larger than the threshold: the noise decides, too.",)
            if threshold is not None
            else ("Counts are not changed after the noise: some may be negative.",)
        ),
    )
    return Statement(public, promises, leaves_out, (account.per_instance, *_gain(account, table, hidden)))


def shown(count: float, threshold: int, sigma: float) -> tuple[float, float]:
    """The chance that a true count is shown, and how much too large it then is on average.

    >>> [round(value, 2) for value in shown(15, 20, 4.24)]
    [0.14, 6.68]
    """
    least = (threshold - 0.5 - count) / sigma  # what rounds up to the threshold is shown
    chance = NormalDist().cdf(-least)
    return chance, sigma * NormalDist().pdf(least) / chance if chance else 0.0


def _selection(threshold: int, sigma: float) -> str:
    """What suppression does to the counts that are shown, from public numbers."""
    said = []
    for count in (threshold, max(0, threshold - math.ceil(2 * sigma))):
        chance, above = shown(count, threshold, sigma)
        said.append(
            f"a true {count} is shown with a chance of {100 * chance:.2g} %, then {above:.2g} too large"
        )
    return f", before suppression, which shows what noise made large: {', '.join(said)} on average."


def _gain(account: ReleaseAccount, table: TrueCounts, hidden: Tensor) -> tuple[str, ...]:
    """What the people in suppressed cells gain from the support that ends at the threshold."""
    if not bool(hidden.any()):
        return ()
    singles = torch.tensor(account.details["cell_epsilons"], dtype=torch.float64)[hidden]
    people = int(table.theta[hidden].sum())
    alone = " (of one cell alone)" if table.at_most > 1 else ""
    return (
        f"{int(hidden.sum())} of {len(hidden)} cells were suppressed, with {people} people in them. What the "
        f"release cost these people{alone} is an epsilon between {rounded_up(float(singles.min()))} and "
        f"{rounded_up(float(singles.max()))}, where {rounded_up(account.epsilon)} holds for everybody.",
    )


def _chart(
    labels: list[tuple[str, ...]], error: float, threshold: int | None, release: DecisionRelease
) -> Any:
    heights = [math.nan if value is None else float(value) for value in release.columns["count"]]
    return bar_chart(
        title=release.title,
        caption=f"Whiskers are one standard error of the noise, {error:.3g}, to either side.",
        y_label="count",
        names=list(release.columns)[: len(labels[0])],
        labels=labels,
        heights=heights,
        ends=[(height - error, height + error) for height in heights],
        hidden=None if threshold is None else (f"below {threshold}, not shown", float(threshold)),
    )
