"""A table of counts: how many people are in each cell, with small counts suppressed."""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.account_row import account_row
from ringfence.accounting.profile.few_moves import single_epsilons
from ringfence.accounting.sensitivity import Sensitivity
from ringfence.decisions.account import ReleaseAccount, left, noise_multiplier, within
from ringfence.decisions.bars import bar_chart
from ringfence.decisions.frames import as_numpy, is_array
from ringfence.decisions.result import DecisionRelease
from ringfence.decisions.statement import Statement, attack, one_person, people_bounded, rehearsal, target
from ringfence.decisions.tables.contributions import checked_at_most, counts_in, people_in
from ringfence.decisions.tables.domains import Domain, public_cells
from ringfence.decisions.tables.rows import open_rows
from ringfence.mechanisms.base import Mechanism
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.mechanisms.rectified import RectifiedGaussian
from ringfence.mechanisms.secure.release import SecureRelease
from ringfence.noise import Noise
from ringfence.numerics.rounding import rounded_up

_LARGEST = 2.0**50  # a count; its neighbours are then whole numbers in float64
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
) -> DecisionRelease:
    """How many people are in each cell of a table, with noise; counts below ``suppress_below`` are not shown.

    ``data`` is a frame (pandas, polars, pyarrow), the names of CSV or parquet files, or an array or tensor:
    with ``by`` its rows are people and ``by`` are numbers of columns; without, it holds the counts. ``by`` are
    the columns whose combinations are the cells. Their values must be public: ``domain`` lists them,
    ``bins`` gives edges for a column of numbers. ``counts`` names a column of counts that were aggregated
    already.

    Each row is one person, unless ``person`` names the column that says whose it is: then a person counts
    once in each of at most ``at_most`` cells. Give ``epsilon`` and ``delta``, which hold for every dataset, and
    the noise is found, or give ``sigma``, the standard deviation of the noise of each count. Released are whole
    numbers. Every call is a release of its own, to be paid for. ``noise`` is for rehearsals and tests: whoever
    knows its seed knows the counts.

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
    multiplier = noise_multiplier(epsilon, delta, sigma)
    threshold = None if suppress_below is None else _checked_threshold(suppress_below)
    if by is None and is_array(data):
        if person is not None or counts is not None or domain or bins:
            raise ValueError("by must name columns where person, counts, domain or bins is given, got None")
        theta, shape = _array_counts(data), tuple(data.shape)
        size = checked_at_most(at_most, None, theta.numel(), aggregated=True)
        cell_columns: dict[str, list[Any]] = {"cell": list(range(theta.numel()))}
        labels: list[tuple[str, ...]] = [(str(cell),) for cell in range(theta.numel())]
        like = partial(_array_like, data, shape)
        rows_are = "aggregated"
    else:
        names = [by] if isinstance(by, str | int) else list(by or ())
        if person is not None and counts is not None:
            raise ValueError(f"person must not be given where counts are aggregated already, got {person!r}")
        with open_rows(data) as rows:
            cells = public_cells(rows, names, domain, bins)
            size = checked_at_most(at_most, person, cells.count, aggregated=counts is not None)
            whole = (
                counts_in(rows, cells, counts) if counts is not None else people_in(rows, cells, person, size)
            )
            theta, cell_columns, labels, like = whole.double(), cells.columns, cells.labels, rows.like
        rows_are = "aggregated" if counts is not None else "rows" if person is None else "persons"
    noisy = multiplier * math.sqrt(size) if sigma is None else sigma
    step = max(1.0, 2.0 ** math.ceil(math.log2(noisy * _FINEST)))
    law: Mechanism = Gaussian(noisy)
    if threshold is not None:
        law = RectifiedGaussian(noisy, (threshold - step, math.inf))
    account = within(epsilon, _account(law, theta, size, delta))
    released = SecureRelease(law, step).draw(theta, (noise or Noise()).at("counts"))
    hidden = torch.zeros_like(released, dtype=torch.bool) if threshold is None else released < threshold
    error = math.sqrt(noisy**2 + step**2 / 12)  # of the noise and of rounding
    shown = [
        None if off else round(value) for value, off in zip(released.tolist(), hidden.tolist(), strict=True)
    ]
    columns = {**cell_columns, "count": shown}
    if threshold is not None:
        columns["suppressed"] = hidden.tolist()
    errors = {**cell_columns, "standard_error": [None if off else error for off in hidden.tolist()]}
    return DecisionRelease(
        title="Counts",
        columns=columns,
        error_columns=errors,
        hidden="" if threshold is None else f"<{threshold}",
        numbers=("count",),
        like=like,
        account=account,
        statement=_statement(
            account, epsilon, noisy, threshold, size, rows_are, theta, hidden, noise is not None
        ),
        drawn=partial(_chart, labels, error, threshold),
        settings=(
            ("noise", f"Gaussian, standard deviation {noisy:.6g}, rounded to multiples of {step:g}"),
            ("threshold", "none" if threshold is None else str(threshold)),
            ("cells", f"{theta.numel():,}"),
            ("cells of one person", f"at most {size}"),
        ),
    )


def _checked_threshold(value: Any) -> int:
    number = checks.number("suppress_below", value, checks.not_negative)
    if number != int(number) or number > _LARGEST:
        raise ValueError(f"suppress_below must be a whole number, got {value!r}")
    return int(number)


def _array_counts(data: Any) -> Tensor:
    array = as_numpy(data)
    if array.dtype.kind not in "iuf":
        raise ValueError(f"counts must be numbers, got {array.dtype}")
    theta = torch.from_numpy(array.astype("float64")).reshape(-1)
    if not theta.numel():
        raise ValueError("counts must have at least one cell, got none")
    checks.require("counts", "must not be NaN", theta, ~torch.isnan(theta))
    whole = (theta >= 0) & (theta == theta.round()) & (theta < _LARGEST)
    return checks.require("counts", "must be whole numbers from 0 on", theta, whole)


def _array_like(data: Any, shape: tuple[int, ...], columns: Mapping[str, Sequence[Any]]) -> Any:
    """The numbers of the last column but ``suppressed``, in the shape that came in; NaN where hidden."""
    name = "count" if "count" in columns else "standard_error"
    values = [math.nan if value is None else value for value in columns[name]]
    result = torch.tensor(values, dtype=torch.float64).reshape(shape)
    return result if isinstance(data, Tensor) else result.numpy()


def _account(law: Mechanism, theta: Tensor, at_most: int, delta: float) -> ReleaseAccount:
    row = account_row(law, theta, Sensitivity(each=1.0, at_most=at_most), 1, left(delta))
    counts, where = theta.unique(return_inverse=True)
    singles = single_epsilons(law, counts, 1.0, left(delta))
    details = {"cell_epsilons": singles[where].tolist(), "cell_counts": theta.tolist()}
    return ReleaseAccount(delta, row.guarantee, row.epsilon_profile, row.proof, details)


def _statement(
    account: ReleaseAccount,
    epsilon: float | None,
    sigma: float,
    threshold: int | None,
    at_most: int,
    rows_are: str,
    theta: Tensor,
    hidden: Tensor,
    seeded: bool,
) -> Statement:
    suppressed = "" if threshold is None else f", and counts below {threshold} are not shown"
    public = (
        f"These counts are protected by differential privacy ({target(epsilon, account)}) for each "
        f"{one_person(rows_are)}: random noise with a standard deviation of {sigma:.3g} was added to every "
        f"count{suppressed}.{rehearsal(seeded)}"
    )
    promises = (
        attack(account, one_person(rows_are)),
        people_bounded(rows_are, at_most, "cell"),
        "Cells, noise and threshold are public: every combination of the declared values is a cell, also where "
        "nobody is in it. They must not have been chosen by looking at the data.",
        "Standard errors are those of the noise and of rounding to whole numbers; they depend on the noise alone.",
    )
    leaves_out = (
        "It is about one person at a time: what a large group has in common shows in the counts.",
        "Every further release from the same data costs its own epsilon, and the epsilons add up.",
        "Sampling, non-response and errors in the data are not part of the standard errors.",
        *(
            ("A count that is not shown may be larger than the threshold: the noise decides, too.",)
            if threshold is not None
            else ("Counts are not changed after the noise: some may be negative (see non_negative).",)
        ),
    )
    return Statement(
        public, promises, leaves_out, (account.per_instance, *_gain(account, theta, hidden, at_most))
    )


def _gain(account: ReleaseAccount, theta: Tensor, hidden: Tensor, at_most: int) -> tuple[str, ...]:
    """What the people in suppressed cells gain from the support that ends at the threshold."""
    if not bool(hidden.any()):
        return ()
    singles = torch.tensor(account.details["cell_epsilons"], dtype=torch.float64)[hidden]
    people = int(theta[hidden].sum())
    alone = " (of one cell alone)" if at_most > 1 else ""
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
        caption=f"{release.statement.public} Whiskers are one standard error of the noise, {error:.3g}, to either side.",
        y_label="count",
        labels=labels,
        heights=heights,
        ends=[(height - error, height + error) for height in heights],
        hidden=None if threshold is None else (f"below {threshold}, not shown", float(threshold)),
    )
