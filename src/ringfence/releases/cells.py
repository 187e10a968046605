"""Public cells, and who counts in them: contribution bounding per person.

Cells are every combination of categories that were declared, whether or not anybody is in it. One person
counts in at most so many of them, once in each, chosen by that person's rows alone. PipelineDP and SmartNoise
bound contributions in this way before they add noise.
"""

import itertools
import math
import secrets
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ringfence import checks
from ringfence.releases.reader import Rows, public_values

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow

MOST_CELLS = 10_000_000
_LARGEST = sys.float_info.max
UNITS = 1 << 20  # a value between -1 and 1 is counted in units of 1 / UNITS, so that sums are exact
Domain = Mapping[Any, Iterable[Any]]


@dataclass(frozen=True)
class Axis:
    """One column of a table: its public values, as they are printed, and how a row finds its own.

    ``key`` is the expression that a row is sorted by, ``found`` maps its value to a number. ``raw`` is the
    column as it stands in the data, for messages.
    """

    name: str
    values: tuple[Any, ...]
    key: "ir.Value"
    found: Mapping[Any, int]
    raw: "ir.Column"
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
    def keys(self) -> "dict[str, ir.Value]":
        """The keys of a row by the names that they have in queries."""
        return {f"k{place}": axis.key for place, axis in enumerate(self.axes)}

    def places(self, rows: Rows, keys: Iterable[tuple[Any, ...]]) -> list[int]:
        """The number of the cell that has these keys, one for each axis.

        A key that is no public value is an error that names the column and the value.
        """
        places = []
        for own in keys:
            cell = 0
            for axis, key in zip(self.axes, own, strict=True):
                number = axis.found.get(key)
                if number is None:
                    raise ValueError(self._outside(rows, axis, key))
                cell = cell * len(axis.values) + number
            places.append(cell)
        return places

    def fill(self, answer: "pyarrow.Table", name: str) -> Tensor:
        """Integers for all cells: those of a column of an answer at its cells, added up, and 0 elsewhere."""
        numbers = torch.tensor([int(value or 0) for value in answer[name].to_pylist()], dtype=torch.int64)
        places = torch.tensor(answer["cell"].to_pylist(), dtype=torch.int64)
        return torch.zeros(self.count, dtype=torch.int64).index_add_(0, places, numbers)

    def _outside(self, rows: Rows, axis: Axis, key: Any) -> str:
        if axis.bins:
            [key] = one_of(rows, axis.raw, axis.key == -1)
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
        values = rows.declared.get(name)
    if values is None and column.type().is_boolean() and not rows.text:
        values = (False, True)
    if values is None:
        raise ValueError(
            f"domain= must list the public values of column {name!r}: taken from the data they would give "
            "away which of them occur, and so would the categories of a Categorical (of the dtypes, polars' "
            "Enum alone declares them)"
        )
    listed = public_values(f"domain of column {name!r}", values, rows.text)
    if not listed:
        raise ValueError(f"domain of column {name!r} must hold at least one value, got none")
    key = column.cast("string") if rows.text else column
    found = {own: number for number, own in enumerate(listed)}
    return Axis(name, tuple(listed.values()), key, found, column)


def _binned(rows: Rows, name: str, edges: Iterable[Any]) -> Axis:
    ends = [checks.number(f"an edge of the bins of column {name!r}", edge, checks.real) for edge in edges]
    if len(ends) < 2 or any(a >= b for a, b in itertools.pairwise(ends)):
        raise ValueError(f"bins of column {name!r} must be two or more rising edges, got {ends}")
    import ibis

    number = rows.numbers("bins", name)
    last = len(ends) - 2

    def search(first: int, end: int) -> "ir.Value":
        """Nested questions that find the bin in as many steps as its number has digits."""
        if first == end:
            return ibis.literal(first)
        middle = (first + end + 1) // 2
        return ibis.ifelse(number < ends[middle], search(first, middle - 1), search(middle, end))

    key = ibis.ifelse((number >= ends[0]) & (number <= ends[-1]), search(0, last), -1)
    labels = tuple(_interval(a, b, place == last) for place, (a, b) in enumerate(itertools.pairwise(ends)))
    found = {place: place for place in range(len(labels))}
    return Axis(name, labels, key, found, rows.column("bins", name), bins=True)


def _interval(lower: float, upper: float, last: bool) -> str:
    if math.isinf(lower):
        return "all" if math.isinf(upper) else f"{'up to' if last else 'under'} {upper:g}"
    if math.isinf(upper):
        return f"{lower:g} and over"
    return f"{lower:g} to {'' if last else 'under '}{upper:g}"


def people_in(rows: Rows, cells: Cells, person: Any | None, at_most: int) -> Tensor:
    """Counts the people in each cell.

    Without ``person`` every row is a person of its own. With it, a person counts once in each of at most
    ``at_most`` cells: of all the cells that the rows of the person fall in, those with the smallest hashes of
    person, cell and a fresh random number.

    Guarantee: rows of one person, whatever they are, change at most ``at_most`` of these counts, each by at
    most 1, because which cells a person counts in depends on that person's rows alone.

    >>> import numpy as np
    >>> from ringfence.releases.reader import open_rows
    >>> visits = np.array([[7, 0], [7, 0], [7, 1], [7, 2], [8, 1]])  # person, ward
    >>> with open_rows(visits) as rows:
    ...     wards = public_cells(rows, [1], domain={1: [0, 1, 2]})
    ...     people_in(rows, wards, None, 1).tolist(), people_in(rows, wards, 0, 3).tolist()
    ...     int(people_in(rows, wards, 0, 1).sum())
    ([2, 2, 1], [1, 2, 1])
    2
    """
    survey = _survey(rows, cells, person, {"people": rows.table.count()})
    if person is None:
        return cells.fill(survey, "people")
    kept = bounded(rows, _of_people(rows, cells, person, survey), cells.count, at_most)
    return cells.fill(rows.ask(kept.group_by("cell").aggregate(people=kept.count())), "people")


def sums_in(
    rows: Rows, cells: Cells, of: Any, limits: tuple[float, float], person: Any | None, at_most: int
) -> tuple[Tensor, Tensor]:
    """Counts the people in each cell, and sums their values in units of 1 / UNITS.

    A value is clamped to ``limits``, and (value - middle) / half width is rounded to a multiple of
    1 / UNITS. Where a person has several rows in a cell the mean of their values counts.

    Guarantee: as ``people_in``; and the value of one person moves the sum of a cell by at most UNITS. Sums
    are of integers, so there is no rounding that other rows could change.

    >>> import numpy as np
    >>> from ringfence.releases.reader import open_rows
    >>> with open_rows(np.array([[7, 0, 10.0], [7, 0, 30.0], [8, 0, 1e9]])) as rows:  # person, ward, euros
    ...     ward = public_cells(rows, [1], domain={1: [0]})
    ...     people, sums = sums_in(rows, ward, 2, (0.0, 100.0), person=0, at_most=1)
    >>> people.tolist(), (sums / UNITS).tolist()
    ([2], [0.39999961853027344])
    """
    lower, upper = limits
    value = rows.numbers("of", of)
    value = value.between(-_LARGEST, _LARGEST).ifelse(value, None)
    middle, half = lower / 2 + upper / 2, upper / 2 - lower / 2
    units = ((value - middle) / half * UNITS).clip(-UNITS, UNITS).round().cast("int64")
    asked = {"people": rows.table.count(), "missing": value.isnull().sum(), "units": units.sum()}
    survey = _survey(rows, cells, person, asked)
    if any(survey["missing"].to_pylist()):
        [bad] = one_of(rows, rows.column("of", of), value.isnull())
        what = "a missing value" if bad is None else f"the value {bad!r}"
        raise ValueError(
            f"column {str(of)!r} has {what}, where a number is needed: fill it or leave the row out"
        )
    if person is not None:
        own = _of_people(rows, cells, person, survey, units=units)
        mean = (own.units.sum() / own.count()).round().cast("int64")
        own = own.group_by("cell", "person").aggregate(units=mean)
        own = bounded(rows, own, cells.count, at_most)
        survey = rows.ask(own.group_by("cell").aggregate(people=own.count(), units=own.units.sum()))
    return cells.fill(survey, "people"), cells.fill(survey, "units")


def counts_in(rows: Rows, cells: Cells, counts: Any) -> Tensor:
    """Reads counts that were aggregated already: one row per cell and number; rows of one cell are added.

    >>> import numpy as np
    >>> from ringfence.releases.reader import open_rows
    >>> with open_rows(np.array([[0, 5], [2, 7]])) as rows:
    ...     counts_in(rows, public_cells(rows, [0], domain={0: [0, 1, 2]}), 1).tolist()
    [5, 0, 7]
    """
    number = rows.numbers("counts", counts)
    whole = (number >= 0) & (number == number.floor()) & (number <= 1e15)
    for bad in one_of(rows, rows.column("counts", counts), ~whole.fill_null(False)):
        raise ValueError(f"column {str(counts)!r} must hold counts (0, 1, 2, ...), got {bad!r}")
    return cells.fill(_survey(rows, cells, None, {"sum": number.cast("int64").sum()}), "sum")


def checked_at_most(at_most: int, person: Any | None, cells: int, *, aggregated: bool = False) -> int:
    """The number of cells in which one person may count, which is never more than there are.

    >>> checked_at_most(5, "id", cells=3)
    3
    >>> checked_at_most(5, None, cells=3)
    Traceback (most recent call last):
    ValueError: at_most must be 1 where no person column is given, got 5: every row is a person of its own
    """
    at_most = checks.count("at_most", at_most, at_least=1)
    if at_most > 1 and person is None and not aggregated:
        raise ValueError(
            f"at_most must be 1 where no person column is given, got {at_most}: "
            "every row is a person of its own"
        )
    return min(at_most, cells)


def one_of(rows: Rows, column: "ir.Value", wanted: "ir.Value") -> list[Any]:
    """The value of a column in one of the rows where ``wanted`` is true, if there are any."""
    found = rows.ask(rows.table.filter(wanted).select(value=column).limit(1))
    return list(found["value"].to_pylist())


def person_column(rows: Rows, person: Any) -> "ir.Column":
    """The column that says whose a row is, null where nobody is named."""
    who = rows.column("person", person)
    return rows.numbers("person", person) if who.type().is_floating() else who


def _survey(
    rows: Rows, cells: Cells, person: Any | None, numbers: "Mapping[str, ir.Value]"
) -> "pyarrow.Table":
    """For each cell that occurs its keys, its numbers and its place, before contributions are bounded.

    Where more cells occur than are public, at least one of them is not public, and one more row than there
    are cells is enough to find it: a column of free text is never held as a whole.
    """
    asked = {**numbers, "rows": rows.table.count()}
    if person is not None:
        who = person_column(rows, person)
        asked["nobody"] = who.isnull().sum()
        if who.type().is_floating():
            asked["rounded"] = (who.abs() >= 2.0**53).sum()
    grouped = rows.table.group_by(**cells.keys) if cells.axes else rows.table
    survey = rows.ask(grouped.aggregate(**asked).limit(cells.count + 1))
    if not sum(survey["rows"].to_pylist()):
        raise ValueError("the table must have at least one row, got none")
    keys = zip(*(survey[key].to_pylist() for key in cells.keys), strict=True) if cells.axes else [()]
    survey = survey.append_column("cell", [cells.places(rows, keys)])
    if person is not None and any(survey["nobody"].to_pylist()):
        raise ValueError(f"column {str(person)!r} must name the person of every row, got a missing value")
    if "rounded" in asked and any(survey["rounded"].to_pylist()):
        raise ValueError(
            f"column {str(person)!r} must name people by integers or text, got floating-point numbers beyond "
            "2^53, where one may stand for several people"
        )
    return survey


def _of_people(
    rows: Rows, cells: Cells, person: Any, survey: "pyarrow.Table", **more: "ir.Value"
) -> "ir.Table":
    """The cell and the person of every row, after a survey: the cell by its public number.

    Which number a cell has must not depend on who else is there, because people's cells are chosen by it.
    """
    import ibis
    import pyarrow

    keys, places = {}, {"cell": survey["cell"]}
    for name, key in cells.keys.items():
        found = survey[name]
        known = found.drop_null()
        if len(known) < len(found):  # a missing value by a column of its own: Spark takes none from memory
            keys[f"{name}_missing"] = key.isnull().cast("int64")
            places[f"{name}_missing"] = found.is_null().cast("int64")
        if len(known):
            keys[name], places[name] = key.fill_null(known[0].as_py()), found.fill_null(known[0])
    own = rows.table.select(**keys, person=person_column(rows, person), **more)
    if not cells.axes:
        return own.mutate(cell=ibis.literal(0, "int64"))
    return own.join(ibis.memtable(pyarrow.table(places)), [*keys]).select("person", "cell", *more)


def bounded(rows: Rows, own: "ir.Table", cells: int, at_most: int) -> "ir.Table":
    """The rows of ``own`` that count: at most so many cells of each person, and each of them once.

    ``own`` has persons and cells, and perhaps something of a person in a cell, which then stands there once.
    A person's cells have numbers that are hashes of person, cell and a fresh random number, and the smallest
    ones are kept.

    Guarantee: which rows of a person count depends on that person's rows alone.
    """
    import ibis
    import ibis.expr.operations as ops

    more = [name for name in own.columns if name not in ("person", "cell")]
    if at_most >= cells:
        return own if more else own.distinct()
    engine = rows.table.get_backend()
    if not engine.has_operation(ops.Hash):
        raise ValueError(
            f"at_most must be at least {cells}, as many as there are, on {engine.name}, which has no hash "
            f"function to choose among them by, got {at_most}: bring a file or a frame"
        )
    who = own.person if own.person.type().is_integer() else own.person.cast("string")
    mixed = (who.hash() ^ (own.cell + secrets.randbits(62)).hash()).hash()
    bits = 62 - cells.bit_length()
    number = (mixed & ((1 << bits) - 1)) * cells + own.cell  # equal hashes are told apart, too
    if at_most == 1:
        first = {name: own[name].argmin(number) for name in more}
        return own.group_by("person").aggregate(cell=number.min() % cells, **first)
    place = ibis.row_number().over(group_by="person", order_by="number")
    return own.mutate(number=number).distinct().mutate(place=place).filter(ibis._.place < at_most)
