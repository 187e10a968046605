"""True counts, from rows of people, a column of counts or an array, and what is public about them."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ringfence import checks
from ringfence.decisions.frames import as_numpy
from ringfence.decisions.statement import RowsAre
from ringfence.decisions.tables.contributions import checked_at_most, counts_in, people_in
from ringfence.decisions.tables.domains import Domain, public_cells
from ringfence.decisions.tables.rows import open_rows

LARGEST = 2.0**50  # a count; its neighbours are then whole numbers in float64


@dataclass(frozen=True)
class TrueCounts:
    """True counts with what is public about them."""

    theta: Tensor
    columns: Mapping[str, Sequence[Any]]  # what tells the cells apart
    labels: list[tuple[str, ...]]  # the same as text
    like: Callable[[Mapping[str, Sequence[Any]]], Any]
    at_most: int
    rows_are: RowsAre


def table_counts(
    data: Any,
    by: list[str | int],
    domain: Domain | None,
    bins: Domain | None,
    person: str | int | None,
    at_most: int,
    counts: str | int | None,
) -> TrueCounts:
    """The counts of rows, or of a column of counts, in the cells of ``by``.

    >>> visits = np.array([[7, 0], [7, 0], [8, 1]])  # person, ward
    >>> table_counts(visits, [1], {1: [0, 1, 2]}, None, person=0, at_most=1, counts=None).theta.tolist()
    [1.0, 1.0, 0.0]
    """
    if person is not None and counts is not None:
        raise ValueError(f"person must not be given where counts are aggregated already, got {person!r}")
    with open_rows(data) as rows:
        cells = public_cells(rows, by, domain, bins, ("count", "suppressed", "standard_error"))
        size = checked_at_most(at_most, person, cells.count, aggregated=counts is not None)
        aggregated = None if counts is None else counts_in(rows, cells, counts)
        theta = people_in(rows, cells, person, size) if aggregated is None else aggregated
    rows_are: RowsAre = "aggregated" if counts is not None else "rows" if person is None else "persons"
    return TrueCounts(theta.double(), cells.columns, cells.labels, rows.like, size, rows_are)


def array_counts(data: Any, at_most: int) -> TrueCounts:
    """The counts that an array, a tensor or lists of any shape hold, or a Series.

    >>> array_counts(np.array([[3, 0], [1, 2]]), at_most=1).labels[2]
    ('1', '0')
    """
    array = as_numpy(data)
    if array.dtype.kind not in "iuf":
        raise ValueError(f"counts must be numbers, got {array.dtype}")
    theta = torch.from_numpy(array.astype("float64")).reshape(-1)
    if not theta.numel():
        raise ValueError("counts must have at least one cell, got none")
    checks.require("counts", "must not be NaN", theta, ~torch.isnan(theta))
    whole = (theta >= 0) & (theta == theta.round()) & (theta < LARGEST)
    checks.require("counts", "must be whole numbers from 0 on", theta, whole)
    places = [tuple(map(str, place)) for place in np.ndindex(array.shape)]
    names = [f"dimension {number}" for number in range(array.ndim)]
    columns = dict(zip(names, zip(*places, strict=True), strict=True))
    size = checked_at_most(at_most, None, theta.numel(), aggregated=True)
    like = partial(_array_like, array.shape, isinstance(data, Tensor))
    return TrueCounts(theta, columns, places, like, size, "aggregated")


def _array_like(shape: tuple[int, ...], tensor: bool, columns: Mapping[str, Sequence[Any]]) -> Any:
    """The numbers in the shape that came in, NaN where one is hidden: a tensor or an array."""
    numbers = columns["count" if "count" in columns else "standard_error"]
    values = [math.nan if value is None else value for value in numbers]
    result = torch.tensor(values, dtype=torch.float64).reshape(shape)
    return result if tensor else result.numpy()
