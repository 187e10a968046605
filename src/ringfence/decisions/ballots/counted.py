"""Counts of voters, one row per query and one column per candidate: aggregated already, or from ballots."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ringfence import checks
from ringfence.decisions.ballots.ballots import Ballots, public_choices, read_ballots
from ringfence.decisions.ballots.sheet import Sheet, read_sheet
from ringfence.decisions.statement import RowsAre
from ringfence.noise import Noise


@dataclass(frozen=True)
class CountedVotes:
    """Counts, (queries, candidates), and where they come from."""

    sheet: Sheet
    names: list[Any]
    candidates: tuple[Any, ...]
    counts: Tensor
    ballots: Ballots | None
    rows_are: RowsAre

    def limited(self, at_most: int | None, noise: Noise | None) -> "CountedVotes":
        """The same with ballots of at most so many marks; counts that came aggregated stay as they are."""
        if self.ballots is None or at_most is None:
            return self
        kept = self.ballots.limited(at_most, noise)
        return CountedVotes(self.sheet, self.names, self.candidates, kept.counts, kept, self.rows_are)


def read_votes(
    data: Any,
    queries: Sequence[Any] | None,
    candidates: Iterable[Any] | None,
    person: Any | None,
    query: Any | None,
    ignore: Sequence[Any],
) -> CountedVotes:
    """Counts as they are, or of ballots if there are ``candidates``; the arguments of ``release_winners``.

    >>> import numpy as np
    >>> read_votes(np.array([[2], [0], [2]]), None, range(3), None, None, ()).counts.tolist()
    [[1.0, 0.0, 2.0]]
    """
    sheet = read_sheet(data)
    if candidates is None:
        for name, given in (("person", person), ("queries", queries)):
            if given is not None:
                raise ValueError(f"{name} must be left out where data holds counts, got {given!r}")
        own = [] if query is None else [sheet.known("query", query)]
        columns = sheet.chosen("candidates", None, [*checks.listed("ignore", ignore), *own])
        if len(columns) < 2:
            raise ValueError(f"data must have at least 2 candidates (columns), got {len(columns)}")
        counts = torch.stack([sheet.counts(name) for name in columns], dim=1)
        if not len(counts):
            raise ValueError("the table must have at least one row, got none")
        names = sheet.names(own[0]) if own else list(range(1, len(counts) + 1))
        return CountedVotes(sheet, names, tuple(columns), counts, None, "aggregated")
    if query is not None:
        raise ValueError(f"query must be left out where data holds ballots, got {query!r}")
    listed, numbers = public_choices("candidates", candidates, sheet.text)
    read = read_ballots(
        sheet,
        listed,
        numbers.get,
        "must hold a candidate",
        queries=queries,
        argument="queries",
        person=person,
        ignore=ignore,
    )
    return CountedVotes(
        sheet, read.queries, listed, read.counts, read, "rows" if person is None else "persons"
    )
