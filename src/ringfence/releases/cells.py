"""Public cells, and who counts in them: contribution bounding per person.

Cells are every combination of categories that were declared, whether or not anybody is in it. One person
counts in at most ``at_most`` of them, once in each, chosen by that person's rows alone. PipelineDP and
SmartNoise bound contributions in this way before they add noise.
"""

import functools
import itertools
import math
import operator
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor

from ringfence import checks
from ringfence.releases.reader import LARGEST, Rows, looks_like, make_table, open_rows, public_values
from ringfence.releases.release import RowsAre, Source

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow

MOST_CELLS = 10_000_000
UNITS = 1 << 20  # a value between -1 and 1 is counted in units of 1 / UNITS, so that sums are exact
Domain = Mapping[Any, Iterable[Any]] | Iterable[Any]  # by column, or of the only one
Missing = Literal["refuse", "drop", "category"]  # what becomes of rows without a value

_FEW_GROUPS = 1000  # whole numbers that an engine counts on the way to the bins of a column
_FEW_COLUMNS = 100  # that may be counts
_LEFT_OUT = -1  # in place of the number of a cell


@dataclass(frozen=True)
class Axis:
    """One column of a table: its public values, and how a row finds its own.

    ``key`` is the expression that a row is sorted by, and ``listed`` has what is printed for each value of
    it; a missing value has the key None. ``raw`` is the column as it stands in the data, and ``argument``
    where its values are listed, for messages. With ``drops`` rows without a value are left out. ``whole``
    are few whole numbers that tell the key, which ``key_of`` finds from them: an engine groups by them faster
    than it finds bins.
    """

    name: str
    listed: Mapping[Any, Any]
    key: "ir.Value"
    raw: "ir.Column"
    argument: str = "domain"
    drops: bool = False
    whole: "ir.Value | None" = None
    key_of: "Callable[[ir.Value], ir.Value]" = lambda whole: whole

    @property
    def values(self) -> tuple[Any, ...]:
        """The public values as they are printed."""
        return tuple(self.listed.values())

    @functools.cached_property
    def found(self) -> dict[Any, int]:
        """The numbers of the keys, -1 where rows are left out."""
        found = {key: number for number, key in enumerate(self.listed)}
        return {None: _LEFT_OUT, **found} if self.drops else found


@dataclass(frozen=True)
class Cells:
    """All combinations of the values of some columns, the last column fastest."""

    axes: tuple[Axis, ...]
    missing: Missing = "refuse"

    @property
    def count(self) -> int:
        """The number of cells."""
        return math.prod(len(axis.listed) for axis in self.axes)

    @functools.cached_property
    def columns(self) -> dict[str, list[Any]]:
        """One column for each axis, one row for each cell."""
        rows = list(itertools.product(*(axis.values for axis in self.axes)))
        return {axis.name: [row[place] for row in rows] for place, axis in enumerate(self.axes)}

    def repeated(self, name: str, values: Sequence[Any]) -> dict[str, list[Any]]:
        """The columns with one more, which has all of these values in each cell."""
        columns = {key: [value for value in own for _ in values] for key, own in self.columns.items()}
        return {**columns, name: [*values] * self.count}

    @property
    def named(self) -> dict[str, Axis]:
        """The axes by the names that they have in queries."""
        return {f"k{place}": axis for place, axis in enumerate(self.axes)}

    def places(self, rows: Rows, keys: Iterable[tuple[Any, ...]]) -> list[int]:
        """The number of the cell that has these keys, one for each axis, or -1 where rows are left out.

        A key that is no public value is an error that names the column and the value.
        """
        places = []
        for own in keys:
            cell, left_out = 0, False
            for axis, key in zip(self.axes, own, strict=True):
                number = axis.found.get(key)
                if number is None:
                    raise ValueError(self._outside(rows, axis, key))
                cell, left_out = cell * len(axis.listed) + number, left_out or number == _LEFT_OUT
            places.append(_LEFT_OUT if left_out else cell)
        return places

    def fill(self, answer: "pyarrow.Table", name: str) -> Tensor:
        """Integers for all cells: those of a column of an answer at its cells, added up, and 0 elsewhere."""
        numbers = torch.tensor([int(value or 0) for value in answer[name].to_pylist()], dtype=torch.int64)
        places = torch.tensor(answer["cell"].to_pylist(), dtype=torch.int64)
        kept = places != _LEFT_OUT
        return torch.zeros(self.count, dtype=torch.int64).index_add_(0, places[kept], numbers[kept])

    def _outside(self, rows: Rows, axis: Axis, key: Any) -> str:
        if key is None:
            return (
                f"column {axis.name!r} has a missing value: fill it, or give missing='drop' to leave such "
                "rows out or missing='category' to count them"
            )
        if axis.argument == "bins":
            [key] = one_of(rows, axis.raw, axis.key == -1)
        like, verb = looks_like(key, axis.found), "lacks" if axis.argument == "domain" else "lack"
        return f"column {axis.name!r} has the value {key!r}, which its {axis.argument} {verb}{like}"


def public_cells(
    rows: Rows,
    by: str | int | Sequence[Any] | None,
    domain: Domain | None = None,
    bins: Domain | None = None,
    taken: Sequence[str] = (),
    missing: Missing = "refuse",
) -> Cells:
    """The cells of the columns ``by``, from what is public alone.

    ``domain`` lists the values of a column, and may describe others too. ``bins`` gives edges of intervals
    for a column of numbers: each holds its lower edge and not its upper one, except the last, which holds
    both; an edge may be infinite. A column of booleans is its own domain. Rows without a value are refused,
    unless None is in the domain; ``missing="drop"`` leaves them out, and "category" adds None to every domain
    and to bins. ``taken`` are the names of the columns that will stand beside the cells.

    Guarantee: no value of a column enters the cells, so what only occurs in the data is not in them.

    >>> import numpy as np
    >>> from ringfence.releases.reader import open_rows
    >>> with open_rows(np.array([[1, 30], [0, 70]])) as rows:
    ...     cells = public_cells(rows, [0, 1], domain={0: [0, 1]}, bins={1: [0, 18, 65, math.inf]})
    >>> cells.columns["0"][:3], cells.columns["1"][:3]
    ([0, 0, 0], ['0 to under 18', '18 to under 65', '65 and over'])
    """
    checks.one_of("missing", missing, ("refuse", "drop", "category"))
    listed = [by] if isinstance(by, str | int) else checks.listed("by", () if by is None else by)
    names = [str(name) for name in listed]
    if len(set(names)) < len(names):
        raise ValueError(f"by must name each column once, got {names}")
    for name in names:
        if name in taken:
            raise ValueError(f"by must not name a column {name!r}, which the release has too: rename it")
        rows.column("by", name)  # a misspelt column is the mistake to name, and not the domain that lacks it
    given, edges = _described("domain", domain, names), _described("bins", bins, names)
    axes = tuple(_axis(rows, name, given.get(name), edges.get(name), missing) for name in names)
    cells = Cells(axes, missing)
    if cells.count > MOST_CELLS:
        raise ValueError(f"by must give at most {MOST_CELLS:,} cells, got {cells.count:,}")
    return cells


Opened = tuple[Rows, Cells, Source, int]


@contextmanager
def open_cells(
    data: Any,
    by: Any,
    domain: Domain | None,
    bins: Domain | None,
    taken: Sequence[str],
    missing: Missing,
    person: Any | None,
    at_most: int,
    *,
    aggregated: bool = False,
) -> Iterator[Opened]:
    """Opens data whose rows are sorted into public cells, in ``at_most`` of which one person counts: the last
    that is returned, and never more than there are."""
    with open_rows(data) as rows:
        cells = public_cells(rows, by, domain, bins, taken, missing)
        most = cells_of_a_person(at_most, person, cells.count, aggregated=aggregated)
        rows_are: RowsAre = "aggregated" if aggregated else "rows" if person is None else "persons"
        source = Source(cells.columns, partial(make_table, rows.kind), rows_are, most, rows.for_owner)
        yield rows, cells, source, most


def _described(argument: str, own: Domain | None, names: Sequence[str]) -> dict[str, Iterable[Any]]:
    """The values or edges that are given for columns, by name; a list is about the only column of ``by``."""
    if own is not None and not names:
        raise ValueError(f"by must name the columns that {argument} describes, got none")
    if len(names) == 1 and isinstance(own, Iterable) and not isinstance(own, Mapping | str | bytes):
        return {names[0]: own}
    return {str(name): values for name, values in checks.mapping(argument, own or {}).items()}


def _axis(
    rows: Rows, name: str, values: Iterable[Any] | None, edges: Iterable[Any] | None, missing: Missing
) -> Axis:
    column = rows.column("by", name)
    if values is not None and edges is not None:
        raise ValueError(f"column {name!r} must have a domain or bins, got both")
    if values is None and column.type().is_boolean() and not rows.text:
        values = (False, True)
    if edges is not None:
        axis = _binned(rows, name, edges)
    elif values is not None:
        axis = _listed(rows, column, f"domain of column {name!r}", name, values)
    else:
        raise ValueError(
            f"domain= must list the public values of column {name!r}: taken from the data they would give "
            "away which of them occur, and so would the categories of its dtype"
        )
    if not axis.listed:
        raise ValueError(f"domain of column {name!r} must hold at least one value, got none")
    more = {None: None} if missing == "category" else {}
    return replace(axis, listed={**axis.listed, **more}, drops=missing == "drop")


def choice_axis(rows: Rows, of: Any, argument: str, values: Any) -> Axis:
    """The column that holds a choice among public ones; rows without a choice are left out."""
    axis = _listed(rows, rows.column("of", of), argument, str(of), values)
    check_choices(argument, axis.listed)
    return replace(axis, argument=argument, drops=True)


def check_choices(argument: str, listed: Mapping[Any, Any]) -> None:
    """Refuses fewer than two choices."""
    if len(listed) < 2 or None in listed:
        raise ValueError(f"{argument} must be at least 2 values, none missing, got {[*listed]}")


def _listed(rows: Rows, column: "ir.Column", argument: str, name: str, values: Any) -> Axis:
    """Where a column of integers or dates has texts for public values, as from a shell, it is compared as
    text."""
    kind, listed = column.type(), values if isinstance(values, str | bytes) else list(values)
    words = bool(listed) and all(value is None or isinstance(value, str) for value in listed)
    text = rows.text or (words and (kind.is_integer() or kind.is_date()))
    key = column.cast("string") if text else column
    return Axis(name, public_values(argument, listed, text), key, column)


def _binned(rows: Rows, name: str, edges: Iterable[Any]) -> Axis:
    """An axis whose key is the number of the bin of a row, -1 outside and null where there is no value."""
    import ibis

    given = list(edges)
    dates = any(isinstance(edge, date | str) for edge in given)
    own = f"an edge of the bins of column {name!r}"
    ends: list[Any] = [
        _moment(own, edge) if dates else checks.number(own, edge, checks.real) for edge in given
    ]
    if len(ends) < 2 or any(a >= b for a, b in itertools.pairwise(ends)):
        raise ValueError(f"bins of column {name!r} must be two or more rising edges, got {given}")
    last = len(ends) - 2
    labels = [_interval(a, b, place == last) for place, (a, b) in enumerate(itertools.pairwise(ends))]
    first, *_, end = ends if dates else (min(max(end, -LARGEST), LARGEST) for end in ends)

    column, whole = rows.column("bins", name), None

    def key_of(value: "ir.Value", raw: "ir.Value") -> "ir.Value":
        inside = number_of_interval(value, ends[1:-1])
        return ibis.ifelse(value.between(first, end), inside, raw.isnull().ifelse(None, -1))

    value = rows.moments("bins", name) if dates else rows.numbers("bins", name, within=True)
    if not dates and column.type().is_integer() and ends[-1] - ends[0] < _FEW_GROUPS:
        low, high = math.ceil(ends[0]), math.floor(ends[-1])
        whole = (~column.between(low, high)).ifelse(low - 1, column)  # null stays null
    axis = Axis(name, dict(enumerate(labels)), key_of(value, column), column, "bins")
    return replace(axis, whole=whole, key_of=lambda own: key_of(own, own))


def number_of_interval(value: "ir.Value", ends: Sequence[Any]) -> "ir.Value":
    """How many of these rising ends are not above the value, by nested questions: few for each row."""
    import ibis

    def search(first: int, last: int) -> "ir.Value":
        if first == last:
            return ibis.literal(first)
        middle = (first + last + 1) // 2
        return ibis.ifelse(value < ends[middle - 1], search(first, middle - 1), search(middle, last))

    return search(0, len(ends))


def _moment(name: str, edge: Any) -> datetime:
    """An edge that is a date, as the moment when that day begins, or a moment without a time zone."""
    try:
        moment = datetime.fromisoformat(edge if isinstance(edge, str) else edge.isoformat())
    except (AttributeError, ValueError):
        raise ValueError(f"{name} must be a date like 2026-01-31 where another is, got {edge!r}") from None
    if moment.tzinfo is not None:
        raise ValueError(f"{name} must have no time zone, got {edge!r}: give the local time of the data")
    return moment


def _interval(lower: Any, upper: Any, last: bool) -> str:
    if isinstance(lower, datetime):
        first, end = (str(moment).removesuffix(" 00:00:00") for moment in (lower, upper))
        return f"{first} to {'' if last else 'before '}{end}"
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
    if person is None:
        found = _survey(rows, cells, None, {"people": rows.table.count()})
    else:
        found = count_kept(rows, people_of(rows, cells, person), cells.count, at_most)
    return cells.fill(found, "people")


def check_rows(rows: Rows, cells: Cells, people: Tensor) -> None:
    """Refuses a table of counts that is given as rows of people.

    In it every cell has one row at most, and another column has whole numbers alone.
    """
    others = [name for name in rows.columns if name not in cells.columns]
    if int(people.max()) > 1 or int(people.sum()) < 2 or not others or not cells.axes:
        return
    numbers = {f"n{at}": rows.numbers("by", name) for at, name in enumerate(others[:_FEW_COLUMNS])}
    whole = {
        name: ((own >= 0) & (own == own.floor())).fill_null(False).min() for name, own in numbers.items()
    }
    found = rows.ask(rows.table.aggregate(**whole)).to_pylist()[0]
    counts = [name for name, at in zip(others, whole, strict=False) if found[at]]
    if counts:
        named = counts[0] if len(counts) == 1 else "count"
        several = "make it long, with one row for each cell and one column of counts, and " * (
            len(counts) > 1
        )
        raise ValueError(
            f"every cell has one row and whole numbers in {', '.join(map(repr, counts))}, as in a table that "
            f"was counted already: {several}give counts={named!r}, or person= where rows are people"
        )


class Clamped(NamedTuple):
    """A column whose values are clamped to public limits, and then measured from ``middle`` in ``half``."""

    of: str
    lower: float
    upper: float
    middle: float
    half: float

    def units(self, value: "ir.Value") -> "ir.Value":
        """A value as a whole number of units of ``half`` / UNITS, at most UNITS of them."""
        ends = ((end - self.middle) / self.half * UNITS for end in (self.lower, self.upper))
        low, high = (max(-UNITS, min(UNITS, end)) for end in ends)
        return _rounded(((value - self.middle) / self.half * UNITS).clip(low, high))


def sums_in(
    rows: Rows, cells: Cells, columns: Sequence[Clamped], person: Any | None, at_most: int
) -> tuple[Tensor, Tensor]:
    """Counts the people in each cell, and sums their values, (cells, columns), in units of half / UNITS.

    Values are clamped, measured and rounded as ``columns`` say. Where a person has several rows in a cell
    the mean of their values counts. Rows that lack one of the values are left out with ``missing="drop"`` and
    refused otherwise; what is no finite number is always refused.

    Guarantee: as ``people_in``; and the value of one person moves the sum of a cell by at most UNITS. Sums
    are of integers, so there is no rounding that other rows could change.

    >>> import numpy as np
    >>> from ringfence.releases.reader import open_rows
    >>> with open_rows(np.array([[7, 0, 10.0], [7, 0, 30.0], [8, 0, 1e9]])) as rows:  # person, ward, euros
    ...     ward = public_cells(rows, [1], domain={1: [0]})
    ...     people, sums = sums_in(rows, ward, [Clamped("2", 0.0, 100.0, 50.0, 50.0)], person=0, at_most=1)
    >>> people.tolist(), (sums / UNITS).tolist()
    ([2], [[0.40000057220458984]])
    """
    names = [column.of for column in columns]
    values = [rows.numbers("of", name) for name in names]
    units = {f"u{at}": one.units(value) for at, (one, value) in enumerate(zip(columns, values, strict=True))}
    if cells.missing == "drop":  # a row that lacks one of the values counts in none of the sums
        everywhere = functools.reduce(operator.and_, (value.notnull() for value in values))
        units = {name: everywhere.ifelse(own, None) for name, own in units.items()}
    if person is None:
        sums = {name: own.sum() for name, own in units.items()}
        found = _survey(rows, cells, None, {"people": units["u0"].count(), **sums}, names)
    else:
        own = people_of(rows, cells, person, names, **units)
        own = own.filter(own.u0.notnull())
        means = {name: _rounded(own[name].sum().cast("float64") / own.count()) for name in units}
        own = own.group_by("cell", "person").aggregate(**means)
        found = count_kept(rows, own, cells.count, at_most, sums=tuple(units))
    return cells.fill(found, "people"), torch.stack([cells.fill(found, name) for name in units], dim=1)


def ranks_in(
    rows: Rows, cells: Cells, of: Any, candidates: Sequence[float], person: Any | None, at_most: int
) -> Tensor:
    """Counts the people in each cell by the candidate that is nearest to their value, (cells, candidates).

    Where a person has several rows in a cell the mean of their values counts, once.

    Guarantee: rows of one person, whatever they are, change at most ``at_most`` rows of these counts, each in
    one place by 1.

    >>> import numpy as np
    >>> from ringfence.releases.reader import open_rows
    >>> with open_rows(np.array([[7, 0, 10.0], [7, 0, 30.0], [8, 0, 1e9]])) as rows:  # person, ward, euros
    ...     ward = public_cells(rows, [1], domain={1: [0]})
    ...     ranks_in(rows, ward, 2, [0, 18, 24, 99], person=0, at_most=1).tolist()
    [[0, 1, 0, 1]]
    """
    value = rows.numbers("of", of)
    halfway = [a / 2 + b / 2 for a, b in itertools.pairwise(candidates)]
    if person is None:
        number = value.isnull().ifelse(None, number_of_interval(value, halfway))
        last = Axis(str(of), dict(enumerate(candidates)), number, value, drops=True)
        ranks = Cells((*cells.axes, last), cells.missing)
        found = _survey(rows, ranks, None, {"people": rows.table.count()}, [of])
        return ranks.fill(found, "people").reshape(cells.count, -1)
    own = people_of(rows, cells, person, [of], value=value)
    own = own.filter(own.value.notnull())
    own = own.group_by("cell", "person").aggregate(value=own.value.mean())
    own = own.select("cell", "person", choice=number_of_interval(own.value, halfway).cast("int64"))
    return count_choices(rows, own, cells.count, len(candidates), at_most)


def _rounded(number: "ir.Value") -> "ir.Value":
    """The nearest integer, the upper one of two: engines round a half in different ways."""
    return (number + 0.5).floor().cast("int64")


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


def cells_of_a_person(at_most: int, person: Any | None, cells: int, *, aggregated: bool = False) -> int:
    """The number of cells in which one person may count, which is never more than there are.

    >>> cells_of_a_person(5, "id", cells=3)
    3
    >>> cells_of_a_person(5, None, cells=3)
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


def _survey(
    rows: Rows, cells: Cells, person: Any | None, numbers: "Mapping[str, ir.Value]", of: Sequence[Any] = ()
) -> "pyarrow.Table":
    """For each cell that occurs its keys, its numbers and its place, before contributions are bounded.

    Refuses rows without a person, and those that have no finite number in the columns ``of``. Where more
    cells occur than are public, at least one of them is not public, and one more row than there are cells is
    enough to find it: a column of free text is never held as a whole. Rows that are left out have the place
    -1.
    """
    asked = {**numbers, "rows": rows.table.count()}
    if person is not None:
        who = rows.column("person", person)
        asked["nobody"] = who.isnull().cast("int32").sum()
        if who.type().is_floating():
            asked["rounded"] = (who.abs() >= 2.0**53).cast("int32").sum()
    wrong = [_no_number(rows, cells, name) for name in of]
    asked |= {f"wrong{at}": bad.cast("int32").sum() for at, bad in enumerate(wrong)}
    most = math.prod(len(axis.found) for axis in cells.axes)
    keys = {name: axis.key if axis.whole is None else axis.whole for name, axis in cells.named.items()}
    grouped = (rows.table.group_by(**keys) if keys else rows.table).aggregate(**asked)
    if any(axis.whole is not None for axis in cells.axes):  # all that is asked for adds up
        own = {name: axis.key_of(grouped[name]) for name, axis in cells.named.items()}
        grouped = grouped.group_by(**own).aggregate(**{name: grouped[name].sum() for name in asked})
    survey = rows.ask(grouped.limit(most + 1))
    if not sum(survey["rows"].to_pylist()):
        raise ValueError("the table must have at least one row, got none")
    found = zip(*(survey[key].to_pylist() for key in keys), strict=True) if cells.axes else [()]
    survey = survey.append_column("cell", [cells.places(rows, found)])
    if person is not None and any(survey["nobody"].to_pylist()):
        raise ValueError(f"column {str(person)!r} must name the person of every row, got a missing value")
    if "rounded" in asked and any(survey["rounded"].to_pylist()):
        raise ValueError(
            f"column {str(person)!r} must name people by integers or text, got floating-point numbers beyond "
            "2^53, where one may stand for several people"
        )
    for at, (name, bad) in enumerate(zip(of, wrong, strict=True)):
        if any(survey[f"wrong{at}"].to_pylist()):
            [value] = one_of(rows, rows.column("of", name), bad)
            what = f"the value {value!r}, where a finite number is needed"
            if value is None:
                leave = "give missing='drop' to leave such rows out"
                what = f"a missing value, where a number is needed: fill it, or {leave}"
            raise ValueError(f"column {str(name)!r} has {what}")
    left_out = [cell == _LEFT_OUT for cell in survey["cell"].to_pylist()]
    if number := sum(survey["rows"].filter(left_out).to_pylist()):
        rows.for_owner.append(f"Rows left out, which have no value in a column of the cells: {number:,}.")
    return survey


def _no_number(rows: Rows, cells: Cells, name: Any) -> "ir.Value":
    """Whether a value is no finite number; a missing one is wrong unless such rows are left out."""
    number = rows.numbers("of", name)
    return number.isnull() & rows.column("of", name).notnull() if cells.missing == "drop" else number.isnull()


def people_of(
    rows: Rows, cells: Cells, person: Any, of: Sequence[Any] = (), **more: "ir.Value"
) -> "ir.Table":
    """The cell and the person of every row, after a survey: the cell by its public number.

    Which number a cell has must not depend on who else is there, because people's cells are chosen by it.
    """
    import ibis
    import pyarrow

    survey = _survey(rows, cells, person, {}, of)
    keys, places = {}, {"cell": survey["cell"]}
    for name, axis in cells.named.items():
        key, found = axis.key, survey[name]
        known = found.drop_null()
        if len(known) < len(found):  # a missing value by a column of its own: Spark takes none from memory
            keys[f"{name}_missing"] = key.isnull().ifelse(1, 0).cast("int64")
            places[f"{name}_missing"] = found.is_null().cast("int64")
        if len(known):
            keys[name], places[name] = key.fill_null(known[0].as_py()), found.fill_null(known[0])
    own = rows.table.select(**keys, person=rows.column("person", person), **more)
    if not cells.axes:
        return own.mutate(cell=ibis.literal(0, "int64"))
    own = own.join(ibis.memtable(pyarrow.table(places)), [*keys]).select("person", "cell", *more)
    return own.filter(own.cell != _LEFT_OUT) if _LEFT_OUT in places["cell"].to_pylist() else own


def count_kept(
    rows: Rows,
    own: "ir.Table",
    cells: int,
    at_most: int,
    by: Sequence[str] = ("cell",),
    sums: Sequence[str] = (),
) -> "pyarrow.Table":
    """The people in each group of what ``bounded`` keeps, and sums; the owner is told whom it is short of."""
    kept = bounded(rows, own, cells, at_most)
    asked = {"people": kept.count(), **{name: kept[name].sum() for name in (*sums, "beyond")}}
    answer = rows.ask(kept.group_by(*by).aggregate(**asked))
    if beyond := sum(answer["beyond"].to_pylist()):
        rows.for_owner.append(short_of(beyond, at_most))
    return answer


def count_choices(rows: Rows, own: "ir.Table", cells: int, choices: int, at_most: int) -> Tensor:
    """Counts people by what they chose, (cells, choices), each of them in at most ``at_most`` cells."""
    keys = ("cell", "choice")
    found = count_kept(rows, own, cells, at_most, by=keys)
    cell, choice, people = (torch.tensor(found[name].to_pylist()).long() for name in (*keys, "people"))
    return torch.zeros(cells, choices, dtype=torch.int64).index_put_((cell, choice), people)


def short_of(beyond: int, at_most: int) -> str:
    """The sentence for the owner of the data about people who count less often than they could."""
    return f"People of whom at_most={at_most} leaves something out, who would count more often: {beyond:,}."


def bounded(
    rows: Rows, own: "ir.Table", cells: int, at_most: int, each: Sequence[str] = ("person",)
) -> "ir.Table":
    """The rows of ``own`` that count: at most ``at_most`` cells of each person, and each of them once.

    ``own`` has persons and cells, and perhaps something of a person in a cell, which then stands there once.
    A person's cells have numbers that are hashes of person, cell and a fresh random number, and the smallest
    ones are kept. ``each`` may bound the cells of a person within groups of them. ``beyond`` is 1 in one row
    of each person who has more cells.

    Guarantee: which rows of a person count depends on that person's rows alone.
    """
    import ibis
    import ibis.expr.operations as ops

    more = [name for name in own.columns if name not in ("cell", *each)]
    if at_most >= cells:
        return (own if more else own.distinct()).mutate(beyond=0)
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
        beyond = (own.cell.min() != own.cell.max()).ifelse(1, 0)
        return own.group_by(*each).aggregate(cell=number.min() % cells, beyond=beyond, **first)
    turn, many = ibis.row_number().over(group_by=each, order_by="number"), ibis._.count().over(group_by=each)
    own = own.mutate(number=number).distinct().mutate(turn=turn, many=many)
    beyond = ((own.turn == 0) & (own.many > at_most)).ifelse(1, 0)
    return own.mutate(beyond=beyond).filter(own.turn < at_most)
