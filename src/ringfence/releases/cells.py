"""Public cells, and who counts in them: contribution bounding per person.

Cells are every combination of categories that were declared, whether or not anybody is in it. One person
counts in at most so many of them, once in each, chosen by that person's rows alone. PipelineDP and SmartNoise
bound contributions in this way before they add noise.
"""

import itertools
import math
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ringfence import checks
from ringfence.releases.reader import Rows, public_values

MOST_CELLS = 10_000_000
UNITS = 1 << 20  # a value between -1 and 1 is counted in units of 1 / UNITS, so that sums are exact
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
    listed = public_values(f"domain of column {name!r}", values, rows.source.text)
    if not listed:
        raise ValueError(f"domain of column {name!r} must hold at least one value, got none")
    enum = rows.types[name].startswith("ENUM")
    key = f"CAST({column} AS VARCHAR)" if rows.source.text or enum else column
    found = {own: number for number, own in enumerate(listed)}
    return Axis(name, tuple(listed.values()), key, found, column)


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
    places, (everyone,) = _survey(rows, cells, person, ["count(*)"])
    if person is None:
        return cells.fill(places, everyone)
    return _bounded(rows, cells, _of_people(rows, cells, person, places, ""), at_most, [])[0]


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
    middle, half = lower / 2 + upper / 2, upper / 2 - lower / 2
    scaled = f"round(({value} - {middle!r}::DOUBLE) / {half!r}::DOUBLE * {UNITS})"
    units = f"CAST(least(greatest({scaled}, -{UNITS}), {UNITS}) AS BIGINT)"
    asked = ["count(*)", f"count(*) - count({value})", f"sum({units})"]
    places, (people, missing, sums) = _survey(rows, cells, person, asked)
    if any(missing):
        column = rows.column("of", of)
        bad = rows.ask(f"SELECT {column} FROM rows WHERE ({value}) IS NULL LIMIT 1")[0][0]
        what = "a missing value" if bad is None else f"the value {bad!r}"
        raise ValueError(
            f"column {str(of)!r} has {what}, where a number is needed: fill it or leave the row out"
        )
    if person is None:
        return cells.fill(places, people), cells.fill(places, sums)
    own = (
        "SELECT cell, person, CAST(round(sum(units) / count(*)) AS BIGINT) AS units "
        f"FROM ({_of_people(rows, cells, person, places, f', {units} AS units')}) GROUP BY ALL"
    )
    sizes, totals = _bounded(rows, cells, own, at_most, ["units"])
    return sizes, totals


def counts_in(rows: Rows, cells: Cells, counts: Any) -> Tensor:
    """Reads counts that were aggregated already: one row per cell and number; rows of one cell are added.

    >>> import numpy as np
    >>> from ringfence.releases.reader import open_rows
    >>> with open_rows(np.array([[0, 5], [2, 7]])) as rows:
    ...     counts_in(rows, public_cells(rows, [0], domain={0: [0, 1, 2]}), 1).tolist()
    [5, 0, 7]
    """
    column, number = rows.column("counts", counts), rows.numbers("counts", counts)
    whole = f"({number} >= 0 AND {number} = floor({number}) AND {number} <= 1e15)"
    bad = rows.ask(f"SELECT {column} FROM rows WHERE {whole} IS NOT TRUE LIMIT 1")
    if bad:
        raise ValueError(f"column {str(counts)!r} must hold counts (0, 1, 2, ...), got {bad[0][0]!r}")
    places, (sums,) = _survey(rows, cells, None, [f"sum(CAST({number} AS BIGINT))"])
    return cells.fill(places, sums)


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


def _survey(
    rows: Rows, cells: Cells, person: Any | None, numbers: Sequence[str]
) -> tuple[list[int], list[list[Any]]]:
    """For each cell that occurs, its place and its numbers, of all rows before contributions are bounded.

    Where more cells occur than are public, at least one of them is not public, and one more row than there
    are cells is enough to find it: a column of free text is never held as a whole. The table stays in
    the database as ``survey``.
    """
    missing = "0"
    if person is not None:
        who = rows.column("person", person)
        floats = rows.types[str(person)] in ("FLOAT", "DOUBLE")
        missing = f"count(*) FILTER (WHERE {who} IS NULL{f' OR isnan({who})' if floats else ''})"
    asked = ", ".join((*numbers, missing, "count(*)"))
    rows.ask(
        f"CREATE OR REPLACE TEMP TABLE survey AS SELECT {cells.keys}{asked} FROM rows GROUP BY ALL "
        f"LIMIT {cells.count + 1}"
    )
    grouped = rows.ask("SELECT * FROM survey ORDER BY rowid")
    if not sum(row[-1] for row in grouped):
        raise ValueError("the table must have at least one row, got none")
    places = cells.places(rows, grouped)
    if any(row[-2] for row in grouped):
        raise ValueError(f"column {str(person)!r} must name the person of every row, got a missing value")
    columns = [list(column) for column in zip(*grouped, strict=True)]
    return places, columns[len(cells.axes) : -2]


def _of_people(rows: Rows, cells: Cells, person: Any, places: list[int], more: str) -> str:
    """A query for the cell and the person of every row, after a survey: the cell by its public number.

    Which number a cell has must not depend on who else is there, because people's cells are chosen by it.
    """
    own = f"SELECT {cells.keys}{rows.column('person', person)} AS person{more} FROM rows"
    if not cells.axes:
        return f"SELECT *, 0 AS cell FROM ({own})"
    import pyarrow

    numbers = pyarrow.table({"row": list(range(len(places))), "number": places})
    rows.connection.register("numbers", numbers)
    keys = [f"k{place}" for place in range(len(cells.axes))]
    rows.ask(
        f"CREATE OR REPLACE TEMP TABLE places AS SELECT {', '.join(keys)}, number AS cell "
        "FROM survey JOIN numbers ON survey.rowid = numbers.row"
    )
    same = " AND ".join(f"own.{key} IS NOT DISTINCT FROM places.{key}" for key in keys)
    return f"SELECT own.* EXCLUDE ({', '.join(keys)}), cell FROM ({own}) AS own JOIN places ON {same}"


def _bounded(rows: Rows, cells: Cells, people: str, at_most: int, sums: Sequence[str]) -> list[Tensor]:
    """Of a query for cells and persons: how many people count in each cell, and sums over them.

    For a single cell one aggregation does it, and a person may then have several rows in a cell.
    """
    number = f"hash(cell, person, {secrets.randbits(62)})"
    if at_most == 1:
        first = ", ".join(f"arg_min({name}, {number}) AS {name}" for name in ("cell", *sums))
        kept = f"SELECT {first} FROM ({people}) GROUP BY person"
    else:
        place = f"row_number() OVER (PARTITION BY person ORDER BY {number}, cell)"
        distinct = f"SELECT DISTINCT * FROM ({people})"
        kept = f"SELECT * FROM (SELECT *, {place} AS place FROM ({distinct})) WHERE place <= {at_most}"
    asked = ", ".join(("count(*)", *(f"sum({name})" for name in sums)))
    grouped = rows.ask(f"SELECT cell, {asked} FROM ({kept}) GROUP BY cell")
    places, *columns = ([row[number] for row in grouped] for number in range(len(sums) + 2))
    return [cells.fill(places, column) for column in columns]
