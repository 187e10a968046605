"""Public cells: every combination of categories that were declared, whether or not anybody is in it."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ringfence import checks
from ringfence.releases.reader import Rows

MOST_CELLS = 10_000_000
Domain = Mapping[Any, Iterable[Any]]


@dataclass(frozen=True)
class Axis:
    """One column of a table: its public values, as they are printed, and how a row finds its own.

    ``key`` is the SQL expression that a row is sorted by, ``found`` maps its value to a number. ``raw`` is
    the expression for what stands in the data, for messages.
    """

    name: str
    values: tuple[Any, ...]
    key: str
    found: Mapping[Any, int]
    raw: str
    bins: bool = False


@dataclass(frozen=True)
class Cells:
    """All combinations of the values of some columns, the last column fastest."""

    axes: tuple[Axis, ...]

    @property
    def count(self) -> int:
        """The number of cells."""
        return math.prod(len(axis.values) for axis in self.axes)

    @cached_property
    def columns(self) -> dict[str, list[Any]]:
        """One column for each axis, one row for each cell."""
        rows = list(itertools.product(*(axis.values for axis in self.axes)))
        return {axis.name: [row[place] for row in rows] for place, axis in enumerate(self.axes)}

    @property
    def keys(self) -> str:
        """The keys of a row as a list of SQL expressions with names, with a comma after each."""
        return "".join(f"{axis.key} AS k{place}, " for place, axis in enumerate(self.axes))

    def places(self, rows: Rows, grouped: Sequence[tuple[Any, ...]]) -> list[int]:
        """The number of the cell of each grouped row, which begins with one key for each axis.

        A key that is no public value is an error that names the column and the value.
        """
        places = []
        for row in grouped:
            cell = 0
            for axis, key in zip(self.axes, row, strict=False):
                number = axis.found.get(key)
                if number is None:
                    raise ValueError(self._outside(rows, axis, key))
                cell = cell * len(axis.values) + number
            places.append(cell)
        return places

    def fill(self, places: Any, values: Sequence[Any]) -> Tensor:
        """Integers for all cells: the values at their places, added up, and 0 elsewhere."""
        numbers = torch.tensor([int(value or 0) for value in values], dtype=torch.int64)
        places = torch.tensor(places, dtype=torch.int64)
        return torch.zeros(self.count, dtype=torch.int64).index_add_(0, places, numbers)

    def _outside(self, rows: Rows, axis: Axis, key: Any) -> str:
        if axis.bins:
            key = rows.ask(f"SELECT {axis.raw} FROM rows WHERE {axis.key} = -1 LIMIT 1")[0][0]
        if key is None:
            return f"column {axis.name!r} has a missing value, which its domain lacks: add None to the domain"
        where = "bins" if axis.bins else "domain"
        return f"column {axis.name!r} has the value {key!r}, which its {where} lacks"


def public_cells(
    rows: Rows,
    by: str | int | Sequence[Any] | None,
    domain: Domain | None = None,
    bins: Domain | None = None,
    taken: Sequence[str] = (),
) -> Cells:
    """The cells of the columns ``by``, from what is public alone.

    ``domain`` lists the values of a column. ``bins`` gives edges of intervals for a column of numbers: each
    holds its lower edge and not its upper one, except the last, which holds both; an edge may be infinite. A
    column of booleans is its own domain, and so is a dtype that declares categories (``Table.declared``).
    ``taken`` are the names of the columns that will stand beside the cells.

    Guarantee: no value of a column enters the cells, so what only occurs in the data is not in them.

    >>> import numpy as np
    >>> from ringfence.releases.reader import open_rows
    >>> with open_rows(np.array([[1, 30], [0, 70]])) as rows:
    ...     cells = public_cells(rows, [0, 1], domain={0: [0, 1]}, bins={1: [0, 18, 65, math.inf]})
    >>> cells.columns["0"][:3], cells.columns["1"][:3]
    ([0, 0, 0], ['0 to under 18', '18 to under 65', '65 and over'])
    """
    given, edges = (
        {str(name): values for name, values in checks.mapping(argument, {} if own is None else own).items()}
        for argument, own in (("domain", domain), ("bins", bins))
    )
    listed = [by] if isinstance(by, str | int) else checks.listed("by", () if by is None else by)
    names = [str(name) for name in listed]
    if len(set(names)) < len(names):
        raise ValueError(f"by must name each column once, got {names}")
    for name in names:
        if name in taken:
            raise ValueError(f"by must not name a column {name!r}, which the release has too: rename it")
        rows.column("by", name)  # a misspelt column is the mistake to name, and not the domain that lacks it
    for argument, own in (("domain", given), ("bins", edges)):
        for name in own:
            if name not in names:
                named = ", ".join(map(repr, names)) or "no column"
                raise ValueError(f"{argument} names the column {name!r}, which by does not; by names {named}")
    axes = tuple(_axis(rows, name, given.get(name), edges.get(name)) for name in names)
    cells = Cells(axes)
    if cells.count > MOST_CELLS:
        raise ValueError(f"by must give at most {MOST_CELLS:,} cells, got {cells.count:,}")
    return cells


def _axis(rows: Rows, name: str, values: Iterable[Any] | None, edges: Iterable[Any] | None) -> Axis:
    column = rows.column("by", name)
    if values is not None and edges is not None:
        raise ValueError(f"column {name!r} must have a domain or bins, got both")
    if edges is not None:
        return _binned(rows, name, edges)
    if values is None:
        values = rows.source.declared.get(name)
    if values is None and rows.types[name] == "BOOLEAN" and not rows.source.text:
        values = (False, True)
    if values is None:
        raise ValueError(
            f"domain= must list the public values of column {name!r}: taken from the data they would give "
            "away which of them occur, and so would the categories of a Categorical (of the dtypes, polars' "
            "Enum alone declares them)"
        )
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise TypeError(f"domain of column {name!r} must be a list of values, got {values!r}")
    listed = tuple(value.item() if hasattr(value, "item") else value for value in values)
    if not listed:
        raise ValueError(f"domain of column {name!r} must hold at least one value, got none")
    found: dict[Any, int] = {}
    for number, value in enumerate(listed):
        key = _as_text(value) if rows.source.text else value
        if key in found or (isinstance(key, float) and math.isnan(key)):
            raise ValueError(f"domain of column {name!r} must hold each value once and no NaN, got {value!r}")
        found[key] = number
    enum = rows.types[name].startswith("ENUM")
    key = f"CAST({column} AS VARCHAR)" if rows.source.text or enum else column
    return Axis(name, listed, key, found, column)


def _binned(rows: Rows, name: str, edges: Iterable[Any]) -> Axis:
    ends = [checks.number(f"an edge of the bins of column {name!r}", edge, checks.real) for edge in edges]
    if len(ends) < 2 or any(a >= b for a, b in itertools.pairwise(ends)):
        raise ValueError(f"bins of column {name!r} must be two or more rising edges, got {ends}")
    number = rows.numbers("bins", name)
    last = len(ends) - 2

    def search(first: int, end: int) -> str:
        """Nested questions that find the bin in as many steps as its number has digits."""
        if first == end:
            return str(first)
        middle = (first + end + 1) // 2
        lower, upper = search(first, middle - 1), search(middle, end)
        return f"CASE WHEN {number} < {_sql(ends[middle])} THEN {lower} ELSE {upper} END"

    inside = f"{number} >= {_sql(ends[0])} AND {number} <= {_sql(ends[-1])}"
    key = f"CASE WHEN {inside} THEN {search(0, last)} ELSE -1 END"
    labels = tuple(_interval(a, b, place == last) for place, (a, b) in enumerate(itertools.pairwise(ends)))
    found = {place: place for place in range(len(labels))}
    return Axis(name, labels, key, found, rows.column("bins", name), bins=True)


def _interval(lower: float, upper: float, last: bool) -> str:
    if math.isinf(lower):
        return "all" if math.isinf(upper) else f"{'up to' if last else 'under'} {upper:g}"
    if math.isinf(upper):
        return f"{lower:g} and over"
    return f"{lower:g} to {'' if last else 'under '}{upper:g}"


def _sql(value: float) -> str:
    return f"'{value!r}'::DOUBLE"


def _as_text(value: Any) -> Any:
    """As DuckDB writes a value: true and false are lower case there. A missing value stays one."""
    if value is None or value == "":
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)
