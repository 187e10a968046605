"""Counts: how many people are in each cell of a table, with small counts suppressed."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.ledger import Ledger
from ringfence.accounting.per_instance import PerInstanceAccountant
from ringfence.accounting.privacy_loss import PrivacyLoss
from ringfence.accounting.profile import privacy_profile, single_epsilons
from ringfence.accounting.sensitivity import Sensitivity
from ringfence.mechanisms.base import Mechanism
from ringfence.noise import Noise
from ringfence.numerics.rounding import rounded_up
from ringfence.releases.budget import Budget, NoiseKind, TableNoise, count_noise, errors_of_sum
from ringfence.releases.cells import (
    Domain,
    Missing,
    cells_of_a_person,
    check_rows,
    counts_in,
    open_cells,
    people_in,
)
from ringfence.releases.reader import LARGEST_COUNT, Columns, as_numpy, is_array
from ringfence.releases.release import Measured, Release, ReleaseAccount, Source, bar_chart, bars

_COLUMNS = ("count", "suppressed", "standard_error", "low", "high")
TOTAL = "total"  # in place of a value, in the rows of margins


def release_counts(
    data: Any,
    by: str | int | Sequence[str | int] | None = None,
    *,
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
    counts: str | int | None = None,
    margins: bool = False,
    coverage: float = 0.95,
    seed: int | Noise | None = None,
    ledger: Ledger | None = None,
    what: str | None = None,
) -> Release:
    """Releases how many people are in each cell of a table, with noise; counts below ``suppress_below`` are
    not shown.

    ``data`` is a frame (pandas, polars, pyarrow), a table (Ibis, DuckDB, Spark), the names of
    CSV or parquet files, or an array or tensor:
    with ``by`` its rows are people and ``by`` are numbers of columns; without, it holds the counts. ``by``
    are the columns whose combinations are the cells. Their values must be public: ``domain`` lists them,
    ``bins`` gives edges for a column of numbers; a list alone is about the only column of ``by``. Rows
    without a value there are refused, unless the domain has None; ``missing="drop"`` leaves them out,
    "category" counts them in cells of their own. ``counts`` names a column of counts that were aggregated
    already.

    Each row is one person, unless ``person`` names the column that says whose it is: then a person counts
    once in each of at most ``at_most`` cells. Give ``epsilon`` and ``delta``, which hold for every dataset,
    and the noise is found, or give ``sigma``, the standard deviation of the noise of each count. ``noise`` is
    "gaussian", "laplace", with which delta may be 0, or "auto": the one with the smaller standard error for
    epsilon, delta and ``at_most``, and Gaussian with ``sigma``, or with a ``ledger`` at a delta, whose budget
    counts Gaussians. Released are whole numbers. Every call is a release of its own, to be paid for;
    ``ledger`` is charged for it beforehand, in an entry called ``what``. ``seed`` is for tests: everybody who
    knows it knows the counts. Weighted counts are sums of weights (``release_sums``).

    Counts come with intervals that allow for the noise. With ``margins`` all noisy counts are then changed to
    the nearest whole numbers from 0 on that have the same sum, and totals are added that agree with them:
    rows that have "total" in place of a value. Such a total counts the cells that are not shown as well,
    whose noise is therefore drawn without regard to the threshold.

    Guarantee: (epsilon, delta)-differential privacy for every dataset and any one person added or removed,
    provided that what is given here was not chosen by looking at the data. The law is the Gaussian's, rounded
    to whole numbers by a secure release, or ``Laplace``; with a threshold, its support begins there. An error
    releases nothing, but its message may contain values of the data. The chance that a count is shown with
    an interval that misses the true one is at most 1 - ``coverage``.

    >>> import ringfence as rf
    >>> from pandas import DataFrame
    >>> people = DataFrame({"region": ["north"] * 90 + ["south"] * 3, "smoker": [True, False, False] * 31})
    >>> regions = {"region": ["north", "south", "west"]}
    >>> table = rf.release_counts(people, by=["region", "smoker"], domain=regions, suppress_below=20,
    ...                           epsilon=1.0, delta=1e-6)
    >>> list(table.values.columns), len(table.values)
    (['region', 'smoker', 'count', 'suppressed'], 6)
    >>> table.rows()[-1]  # nobody is there: shown with a chance below 1e-8
    ('west', 'yes', '<20', 'yes')
    """
    checks.flag("margins", margins)
    coverage = checks.probability("coverage", coverage)
    budget = Budget.checked(epsilon, delta, sigma, seed, ledger, what, noise)
    threshold = suppress_below
    if threshold is not None:
        threshold = checks.count("suppress_below", threshold, at_least=0, at_most=int(LARGEST_COUNT))
    if by is None and is_array(data):
        if person is not None or counts is not None or domain or bins:
            raise ValueError("by must name columns where person, counts, domain or bins is given, got None")
        if margins:
            raise ValueError("margins must be False where data holds counts without names, got True")
        theta, source, most = array_counts(data, at_most)
    else:
        if person is not None and counts is not None:
            raise ValueError(f"person must not be given where counts are aggregated already, got {person!r}")
        opened = open_cells(
            *(data, by, domain, bins, _COLUMNS, missing, person, at_most), aggregated=counts is not None
        )
        with opened as (rows, groups, source, most):
            own = people_in(rows, groups, person, most) if counts is None else counts_in(rows, groups, counts)
            if counts is None and person is None:
                check_rows(rows, groups, own)
        theta = own.double()
    used = count_noise(budget, most)
    edge = None if margins else threshold
    promised = used.loss(theta, most)
    measure = partial(measure_counts, promised, budget.delta, used.law(edge), theta, most, edge)
    account = budget.charge(ReleaseAccount(promised, budget.delta, measure), "release_counts")
    noisy = [round(count) for count in used.draw(budget, theta, "counts", edge).tolist()]
    agreed, cells, members = noisy, source.keys, [[cell] for cell in range(len(noisy))]
    if margins:
        keys, members = with_totals(cells)
        agreed, source = non_negative(noisy), replace(source, keys=keys)
    shown = shown_counts(used, agreed, noisy, members, threshold, coverage)
    released = {"count": shown.pop("count")}
    whiskers = (None, None) if margins else (shown["low"], shown["high"])
    lines = [bars("count", released["count"][: len(noisy)], *whiskers)]
    method = f"{used.name} noise with a standard deviation of {used.deviation:.3g} was added to every count"
    exact, reading = ", whatever the data.", "Counts are not changed after the noise: some may be negative."
    if threshold is not None:
        released["suppressed"] = [count is None for count in released["count"]]
        hidden = [threshold if gone else None for gone in released["suppressed"][: len(noisy)]]
        if any(hidden):
            lines.append(bars(f"below {threshold}, not shown", hidden, gray=True))
        method += f", and noisy counts below {threshold} are not shown"
        exact = _selection(threshold, used)
        reading = "A count that is not shown may be larger than the threshold: the noise decides, too."
    caption = f"Whiskers are the intervals of coverage {coverage:.3g}."
    if margins:
        method += (
            "; afterwards all counts were changed to the nearest whole numbers from 0 on with the same sum, "
            "and totals were added up from them"
        )
        reading = "Margins: standard errors and intervals are those before counts were made to agree."
        caption = "These counts were made non-negative after the noise was added."
    return source.release(
        account,
        budget,
        bar_chart("Counts", caption, "count", lines, cells),
        released,
        shown,  # errors and intervals
        used,
        hidden="" if threshold is None else f"<{threshold}",
        units="cells",
        method=method,
        public="Cells (every combination of the declared values, also where nobody is in it), noise and "
        "threshold",
        coverage=coverage,
        promises=(f"Standard errors are those of the noise on whole numbers{exact}",),
        leaves_out=(reading,),
    )


def shown_counts(
    used: TableNoise,
    counts: Sequence[int],
    noisy: Sequence[int],
    members: Sequence[Sequence[int]],
    threshold: int | None,
    coverage: float,
) -> dict[str, list[Any]]:
    """Counts added up over the ``members`` of each row, their errors, and the intervals of ``noisy`` ones.

    All are None where a count is below the threshold.

    >>> from ringfence.releases.budget import LaplaceNoise
    >>> shown_counts(LaplaceNoise(1.0), [12, 1], [12, 1], [[0], [1]], 5, 0.95)["low"]
    [9.0, None]
    """
    rows: list[tuple[float | None, ...]] = []
    for cells in members:
        count, total = (sum(numbers[cell] for cell in cells) for numbers in (counts, noisy))
        error, far = errors_of_sum(used, coverage, len(cells))
        hidden = threshold is not None and count < threshold
        rows.append((None,) * 4 if hidden else (count, error, total - far, total + far))
    names = ("count", "standard_error", "low", "high")
    return {name: [*own] for name, own in zip(names, zip(*rows, strict=True), strict=True)}


def array_counts(data: Any, at_most: int) -> tuple[Tensor, Source, int]:
    """The counts that an array, a tensor or lists of any shape hold, or a Series.

    >>> array_counts(np.array([[3, 0], [1, 2]]), at_most=1)[1].keys
    {'dimension 0': ['0', '0', '1', '1'], 'dimension 1': ['0', '1', '0', '1']}
    """
    array = as_numpy(data)
    if array.dtype.kind not in "iuf":
        raise ValueError(f"counts must be numbers, got {array.dtype}")
    theta = torch.from_numpy(array.astype("float64")).reshape(-1)
    if not theta.numel():
        raise ValueError("counts must have at least one cell, got none")
    checks.require("counts", "must not be NaN", theta, ~torch.isnan(theta))
    whole = (theta >= 0) & (theta == theta.round()) & (theta < LARGEST_COUNT)
    checks.require("counts", "must be whole numbers from 0 on", theta, whole)
    most = cells_of_a_person(at_most, None, theta.numel(), aggregated=True)
    indices = np.indices(array.shape).reshape(array.ndim, -1)
    columns = {f"dimension {number}": [str(at) for at in own] for number, own in enumerate(indices)}
    like = partial(_array_like, array.shape, isinstance(data, Tensor))
    return theta, Source(columns, like, "aggregated", most), most


def _array_like(shape: tuple[int, ...], tensor: bool, columns: Columns) -> Any:
    """The numbers in the shape that came in, NaN where one is hidden: a tensor or an array."""
    numbers = columns["count" if "count" in columns else "standard_error"]
    values = [math.nan if value is None else value for value in numbers]
    result = torch.tensor(values, dtype=torch.float64).reshape(shape)
    return result if tensor else result.numpy()


def non_negative(noisy: Sequence[int]) -> list[int]:
    """The whole numbers from 0 on that are nearest to these and have the same sum, or 0 where it is negative.

    All numbers are lowered alike and those below 0 set to 0, until the sum is right: the projection onto a
    simplex. What is left over by rounding goes to the first ones. Numbers above 0 alone stay as they are.

    >>> non_negative([5, -3, 4, 0]), non_negative([-1, -2])
    ([4, 0, 2, 0], [0, 0])
    """
    total, above, many = sum(noisy), 0, 0
    if total <= 0:
        return [0] * len(noisy)
    for number in sorted(noisy, reverse=True):
        if number * (many + 1) <= above + number - total:
            break
        above, many = above + number, many + 1
    lower = -((total - above) // many)
    kept = [max(0, number - lower) for number in noisy]
    left = total - sum(kept)
    for place, number in enumerate(noisy):
        if left and number >= lower:
            kept[place], left = kept[place] + 1, left - 1
    return kept


def with_totals(keys: Columns) -> tuple[dict[str, list[Any]], list[list[int]]]:
    """The rows of a table of cells and of all its totals, and the numbers of the cells that each adds up.

    >>> rows, cells = with_totals({"sex": ["f", "m"], "town": ["x", "x"]})
    >>> rows["sex"], rows["town"], cells
    (['f', 'm', 'f', 'm', 'total', 'total'], ['x', 'x', 'total', 'total', 'x', 'total'], [[0], [1], ...])
    """
    for name, values in keys.items():
        if TOTAL in values:
            raise ValueError(
                f"column {name!r} must not have the value {TOTAL!r}, which margins have: rename it"
            )
    members: dict[tuple[Any, ...], list[int]] = {}
    for kept in itertools.product((True, False), repeat=len(keys)):
        for place, cell in enumerate(zip(*keys.values(), strict=True)):
            row = tuple(value if keep else TOTAL for value, keep in zip(cell, kept, strict=True))
            members.setdefault(row, []).append(place)
    return {name: [row[at] for row in members] for at, name in enumerate(keys)}, list(members.values())


def measure_counts(
    promised: PrivacyLoss, delta: float, law: Mechanism, theta: Tensor, at_most: int, threshold: int | None
) -> Measured:
    """The cost of one release of ``theta`` to the people in its cells, ``at_most`` of which one person moves.

    ``details`` has theta and, where there is a threshold, the epsilon of each cell alone for the people in
    it: the support ends there, from which those in small cells gain. Without one, and at delta = 0, a release
    costs everybody the same.

    >>> from ringfence.mechanisms.rectified import RectifiedGaussian
    >>> from ringfence.releases.budget import gaussian_loss
    >>> law = RectifiedGaussian(4.0, (30.0, math.inf))
    >>> found = measure_counts(gaussian_loss(1 / 4), 1e-6, law, torch.tensor([0.0, 80.0]).double(), 1, 31)
    >>> [round(epsilon, 3) for epsilon in found.details["cell_epsilons"]], found.proofs[0][1]
    ([0.0, 1.061], 'the worst cell, exactly')
    """
    sensitivity = Sensitivity(each=1.0, at_most=at_most)
    accountant = PerInstanceAccountant(law, sensitivity)
    accountant.step(theta)
    cost = promised.realised(accountant.privacy_loss())
    details = {"cell_values": theta.tolist()}
    if threshold is None or delta == 0:
        return Measured(cost, (), details)
    values, where = torch.unique(theta, return_inverse=True)
    alone = single_epsilons(law, values, 1.0, delta)[where]
    if at_most == 1:  # every person is in one of the cells
        proof = (float(alone.max()), "the worst cell, exactly")
    else:
        proof = privacy_profile(law, theta, sensitivity).best(delta)
    small = theta < threshold
    sentences: tuple[str, ...] = ()
    if bool(small.any()):
        least, most = rounded_up(float(alone[small].min())), rounded_up(float(alone[small].max()))
        sentences = (
            f"{int(small.sum())} of {len(theta)} counts are below the threshold, with "
            f"{int(theta[small].sum())} people in them. The cost of the release to these people"
            f"{' (of one cell alone)' if at_most > 1 else ''} is an epsilon between {least} and {most}, "
            f"where {rounded_up(promised.epsilon(delta))} holds for everybody.",
        )
    return Measured(cost, (proof,), {**details, "cell_epsilons": alone.tolist()}, sentences)


def _selection(threshold: int, noise: TableNoise) -> str:
    """The effect of suppression on the counts that are shown, from public numbers."""
    said = []
    for count in (threshold, max(0, threshold - math.ceil(2 * noise.deviation))):
        chance, above = noise.shown(count, threshold)
        said.append(
            f"a true {count} is shown with a chance of {100 * chance:.2g} %, then {above:.2g} too large"
        )
    return f", before suppression, which shows what noise made large: {', '.join(said)} on average."
