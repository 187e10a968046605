"""Contribution bounding per person: at most so many cells, once in each, chosen by that person's rows alone.

PipelineDP and SmartNoise bound contributions in this way before they add noise.
"""

import secrets
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ringfence import checks
from ringfence.releases.domains import Cells
from ringfence.releases.reader import Rows

UNITS = 1 << 20  # a value between -1 and 1 is counted in units of 1 / UNITS, so that sums are exact


def people_in(rows: Rows, cells: Cells, person: Any | None, at_most: int) -> Tensor:
    """Counts the people in each cell.

    Without ``person`` every row is a person of its own. With it, a person counts once in each of at most
    ``at_most`` cells: of all the cells that the rows of the person fall in, those with the smallest hashes of
    person, cell and a fresh random number.

    Guarantee: rows of one person, whatever they are, change at most ``at_most`` of these counts, each by at
    most 1, because which cells a person counts in depends on that person's rows alone.

    >>> import numpy as np
    >>> from ringfence.releases.domains import public_cells
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
    >>> from ringfence.releases.domains import public_cells
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
    >>> from ringfence.releases.domains import public_cells
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
