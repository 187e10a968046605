"""Votes as they are read: ballots, rows that are votes, and counts of voters."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.decisions import DecisionLaw
from ringfence.mechanisms.base import Mechanism
from ringfence.noise import CipherDraws, Noise
from ringfence.numerics.blocks import at_once
from ringfence.releases.cells import (
    Cells,
    Domain,
    Missing,
    bounded,
    check_choices,
    choice_axis,
    count_choices,
    people_in,
    people_of,
    public_cells,
    short_of,
)
from ringfence.releases.reader import (
    Codes,
    Columns,
    Rows,
    are_files,
    check_names,
    chosen_columns,
    code_values,
    known_column,
    open_ballots,
    open_rows,
    public_values,
)
from ringfence.releases.release import RowsAre

TAKEN = ("winner", "label", "chance_of_error")  # columns that a release of winners has
_NUMBERS = 1 << 22  # of random numbers that are held at once
_COUNTED = 1 << 17  # marks that are counted at once
_KEPT = 1 << 25  # marks in files that are read into memory
_VALUES = 10_000  # different values of a column that are looked at
UNCLEAR = -2  # the mark of a 0, which is no answer, unless nobody chose the last of the choices


@dataclass(frozen=True)
class Votes:
    """Counts of voters, (queries, choices).

    ``voters`` is how many ballots there are, where that is known. ``keys`` are the columns that tell the
    queries apart, where there are some. ``for_owner`` are sentences for the owner of the data alone.
    """

    queries: list[Any]
    choices: tuple[Any, ...]
    counts: Tensor
    rows_are: RowsAre
    voters: int | None = None
    keys: Columns | None = None
    for_owner: tuple[str, ...] = ()

    def values(self, law: DecisionLaw) -> Tensor:
        """The numbers that a law decides on: counts, or for a law of surpluses yes minus no."""
        return self.counts[:, 0] - self.counts[:, 1] if isinstance(law, Mechanism) else self.counts


def check_clear(column: str, unclear: bool) -> None:
    """Refuses a column with 0 and without -1, in which 0 may be no or no answer."""
    if unclear:
        raise ValueError(
            f"column {column!r} holds 0 and no -1: say what 0 means, yes=1 and no=0, or neither=0 where it "
            "is no answer"
        )


def read_ballots(
    data: Any,
    choices: tuple[Any, ...],
    codes_of: Codes,
    *,
    queries: Sequence[Any] | None = None,
    argument: str = "queries",
    person: Any | None = None,
    ignore: Sequence[Any] = (),
    limit: Callable[[int], int | None] = lambda queries: None,
    noise: Noise | None = None,
) -> Votes:
    """Reads ballots: rows are people, columns queries. A missing value is no choice.

    Each person counts in as many queries as ``limit`` says of all, which ``noise`` draws for ballots that are
    in memory, or few of them in files. Others are counted where they are.

    >>> import numpy as np
    >>> data = np.array([[7, 1, 0], [8, 1, 1]])
    >>> codes_of = partial(code_values, code={0: 0, 1: 1}.get, rule="must hold 0 or 1")
    >>> read = read_ballots(data, ("a", "b"), codes_of, person=0)
    >>> read.rows_are, read.counts.tolist()
    ('persons', [[0.0, 2.0], [1.0, 1.0]])
    """
    sentences: tuple[str, ...] = ()
    with open_ballots(data) as table:
        columns = list(table.columns)
        own = [] if person is None else [known_column("person", person, columns)]
        names = chosen_columns(argument, queries, [*checks.listed("ignore", ignore), *own], columns)
        rows_are: RowsAre = "persons" if own else "rows"
        bound = limit(len(names))
        if isinstance(table, Rows) and not table.fits(len(names), _KEPT):
            counts = count_ballots(table, names, len(choices), codes_of, own, bound)
            return Votes(names, choices, counts, rows_are, for_owner=tuple(table.for_owner))
        table = table.read([*own, *names])
        if own:
            check_names(own[0], table.values(own[0]))
        marks = table.coded(names, codes_of)
    counts = count_marks(names, marks, len(choices))
    if bound is not None:
        draws = (noise or Noise()).at("decisions", "ballots", bound)
        parts = marks.split(at_once(_NUMBERS, each=len(names)))
        counts = count_marks(names, torch.cat([keep_few(some, bound, draws) for some in parts]), len(choices))
        if beyond := int(((marks >= 0).sum(dim=1) > bound).sum()):
            sentences = (short_of(beyond, bound),)
    return Votes(names, choices, counts, rows_are, len(marks), for_owner=sentences)


def count_marks(names: list[Any], marks: Tensor, choices: int) -> Tensor:
    """Counts marks, (people, queries): numbers of choices, negative where a person made none.

    >>> count_marks(["q"], torch.tensor([[0], [0], [1], [-1]]), 2).tolist()
    [[2.0, 1.0]]
    """
    many = choices + 2
    found = torch.zeros(len(names) * many, dtype=torch.int64)
    first = many * torch.arange(len(names)) + 2  # those who made none come first, and are left out
    for some in marks.split(at_once(_COUNTED, each=len(names))):
        found += torch.bincount((first + some).flatten(), minlength=len(found))
    unclear, _, *counts = found.view(-1, many).T
    for name, zeros, last in zip(names, unclear.tolist(), counts[-1].tolist(), strict=True):
        check_clear(name, zeros > 0 and not last)
    return torch.stack(counts, dim=1).double()


def keep_few(marks: Tensor, at_most: int, draws: CipherDraws) -> Tensor:
    """Keeps at most ``at_most`` marks of each person, drawn at random; the others are -1.

    Guarantee: which marks of a person count depends on that person's ballot and on random numbers that
    belong to that person alone, so one person changes the counts of at most ``at_most`` queries.

    >>> marks = torch.tensor([[0, 1, 0, -1], [-1, -1, 1, -1]])
    >>> kept = keep_few(marks, 2, Noise().at("ballots"))
    >>> (kept >= 0).sum(dim=1).tolist(), bool(((kept == marks) | (kept == -1)).all())
    ([2, 1], True)
    """
    place = draws.uniforms(marks.shape).masked_fill(marks < 0, 2.0)
    first = place.argsort(dim=1)[:, :at_most]
    return torch.full_like(marks, -1).scatter(1, first, marks.gather(1, first).clamp(min=-1))


def count_ballots(
    rows: Rows, names: list[str], choices: int, codes_of: Codes, person: list[str], at_most: int | None
) -> Tensor:
    """Counts ballots where they are, (queries, choices): only different values with their numbers come back.

    Guarantee: with ``at_most``, one person changes the counts of at most that many queries (``bounded``).
    """
    import ibis

    who = rows.column("person", person[0]) if person else ibis.row_number()
    own = rows.table.select(person=who, **{f"q{at}": rows.table[name] for at, name in enumerate(names)})
    counts, parts = torch.zeros(len(names), choices, dtype=torch.int64), []
    once = rows.text or at_most is not None  # text is read and rows are numbered once
    with rows.computed(own) if once else nullcontext(own) as own:
        if person:
            named = own.group_by("person").aggregate(rows=own.count())
            for bad in rows.ask(named.filter((named.rows > 1) | named.person.isnull()).limit(1)).to_pylist():
                check_names(person[0], [bad["person"]] * 2)
        for at, name in enumerate(names):
            value_of = own[f"q{at}"]
            found = rows.ask(own.group_by(value=value_of).aggregate(people=own.count()).limit(_VALUES))
            values = found["value"].to_pylist()
            codes = codes_of(name, values)
            if not values:
                raise ValueError("the table must have at least one row, got none")
            if len(values) == _VALUES:
                raise ValueError(f"column {name!r} must hold fewer than {_VALUES:,} different values")
            check_clear(name, UNCLEAR in codes.values() and choices - 1 not in codes.values())
            for value, people in zip(values, found["people"].to_pylist(), strict=True):
                if codes[value] >= 0:
                    counts[at, codes[value]] += people
            if made := [(value, number) for value, number in codes.items() if number >= 0]:
                choice = value_of.cases(*made, else_=-1)
                part = own.select("person", cell=ibis.literal(at, "int64"), choice=choice)
                parts.append(part.filter(part.choice >= 0))
        if at_most is not None and parts:
            counts = count_choices(rows, ibis.union(*parts), len(names), choices, at_most)
    return counts.double()


def read_choices(data: Any, name: str, values: Any, **how: Any) -> Votes:
    """Reads ballots whose entries are the public ``values`` of the argument ``name``; see ``read_ballots``.

    >>> votes = torch.tensor([[7, 8], [7, 7]])
    >>> read = read_choices(votes, "classes", [8, 7])
    >>> read.choices, read.counts.tolist()
    ((8, 7), [[0.0, 2.0], [1.0, 1.0]])
    """
    numbers = public_values(name, values, are_files(data))
    check_choices(name, numbers)
    code = {key: number for number, key in enumerate(numbers)}.get
    codes_of = partial(code_values, code=code, rule=f"must hold one of the {name}")
    return read_ballots(data, tuple(numbers.values()), codes_of, **how)


def read_votes(
    data: Any,
    by: Any,
    of: Any,
    candidates: Any,
    *,
    domain: Domain | None,
    bins: Domain | None,
    missing: Missing,
    person: Any | None,
    limit: Callable[[int], int | None],
) -> Votes:
    """Reads rows that are votes: the columns ``by`` say at which query, ``of`` says for which candidate.

    A person counts once at each of as many queries as ``limit`` says of all. Of several votes of a person at
    one query one counts, which depends on that person's rows alone.

    >>> import numpy as np
    >>> rows = np.array([[7, 0, 1], [7, 0, 1], [8, 1, 0], [9, 1, 1]])  # person, district, party
    >>> read = read_votes(rows, 1, 2, [0, 1], domain={1: [0, 1]}, bins=None, missing="refuse", person=0,
    ...                   limit=lambda queries: None)
    >>> read.keys, read.counts.tolist()
    ({'1': [0, 1]}, [[0.0, 1.0], [1.0, 1.0]])
    """
    with open_rows(data) as rows:
        places = public_cells(rows, by, domain, bins, TAKEN, missing)
        if not places.axes:
            raise ValueError("by must name the columns that tell the queries apart, got none")
        axis = choice_axis(rows, of, "candidates", candidates)
        cells, choices = Cells((*places.axes, axis), missing), len(axis.values)
        if person is None:
            counts = people_in(rows, cells, None, 1)
        else:
            own = people_of(rows, cells, person)
            own = own.mutate(query=own.cell // choices)
            own = bounded(rows, own, cells.count, 1, each=("person", "query"))
            own = own.select("person", cell=own.query, choice=own.cell % choices)
            most = limit(places.count) or places.count
            counts = count_choices(rows, own, places.count, choices, most)
    names = list(zip(*places.columns.values(), strict=True))
    queries = [own[0] if len(own) == 1 else ", ".join(map(str, own)) for own in names]
    return Votes(
        queries,
        axis.values,
        counts.view(-1, choices).double(),
        "rows" if person is None else "persons",
        keys=places.columns,
        for_owner=tuple(rows.for_owner),
    )


def read_counts(data: Any, query: Any | None, ignore: Sequence[Any]) -> Votes:
    """Reads counts of voters: rows are queries, columns candidates.

    >>> read_counts(torch.tensor([[5, 3], [0, 9]]), None, ()).counts.tolist()
    [[5.0, 3.0], [0.0, 9.0]]
    """
    with open_ballots(data) as table:
        every = list(table.columns)
        own = [] if query is None else [known_column("query", query, every)]
        columns = chosen_columns("candidates", None, [*checks.listed("ignore", ignore), *own], every)
        if len(columns) < 2:
            raise ValueError(f"data must have at least 2 columns of counts, got {len(columns)}")
        if isinstance(table, Rows) and not own and not table.is_here:
            raise ValueError("query must name a column on an engine, where rows have no order, got None")
        table = table.read([*own, *columns])
    counts = torch.stack([table.counts(name) for name in columns], dim=1)
    names = check_names(own[0], table.values(own[0])) if own else list(range(1, len(counts) + 1))
    if own and own[0] in TAKEN:
        raise ValueError(f"query must not name a column {own[0]!r}, which the release has too: rename it")
    keys = {own[0]: names} if own else None
    return Votes(names, tuple(columns), counts, "aggregated", keys=keys)
