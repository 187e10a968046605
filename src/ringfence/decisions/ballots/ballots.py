"""Ballots: for each person and each query, which of the public choices the person made."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.decisions.moves import DecisionLaw
from ringfence.decisions.ballots.sheet import Sheet
from ringfence.mechanisms.base import Mechanism
from ringfence.noise import Noise

_NUMBERS = 1 << 22  # of random numbers that are held at once


@dataclass(frozen=True)
class Ballots:
    """``marks`` are the numbers of the choices, (people, queries), and -1 where a person made none."""

    queries: list[str]
    choices: tuple[Any, ...]
    marks: Tensor
    people: list[Any] | None  # their names, where a column has them

    @property
    def counts(self) -> Tensor:
        """How many people made each choice, (queries, choices), in float64.

        >>> Ballots(["q"], ("yes", "no"), torch.tensor([[0], [0], [1], [-1]]), None).counts.tolist()
        [[2.0, 1.0]]
        """
        many = len(self.choices) + 1  # those who made none come first, and are left out
        rows = [torch.bincount(column + 1, minlength=many)[1:] for column in self.marks.T]
        return torch.stack(rows).double()

    def entries(self, law: DecisionLaw) -> Tensor:
        """The marks as accounts take them: numbers of choices, or for a law of surpluses 1, 0 and -1.

        >>> import ringfence as rf
        >>> ballots = Ballots(["q"], ("yes", "no"), torch.tensor([[0], [1], [-1]]), None)
        >>> ballots.entries(rf.StochasticSign(1.0)).tolist(), ballots.entries(rf.NoisyWinner(1.0)).tolist()
        ([[1.0], [-1.0], [0.0]], [[0.0], [1.0], [-1.0]])
        """
        if isinstance(law, Mechanism):
            return (self.marks == 0).double() - (self.marks == 1).double()
        return self.marks.double()

    def limited(self, at_most: int | None, noise: Noise | None) -> "Ballots":
        """The same with at most so many marks of each person: which ones is drawn at random.

        Guarantee: which marks of a person count depends on that person's ballot and on random numbers that
        belong to that person alone, so one person changes the counts of at most ``at_most`` queries.

        >>> marks = torch.tensor([[0, 1, 0, -1], [-1, -1, 1, -1]])
        >>> kept = Ballots(list("abcd"), ("yes", "no"), marks, None).limited(2, None).marks
        >>> (kept >= 0).sum(dim=1).tolist(), bool(((kept == marks) | (kept == -1)).all())
        ([2, 1], True)
        """
        if at_most is None or at_most >= len(self.queries):
            return self
        draws = (noise or Noise()).at("decisions", "ballots", at_most)
        kept = []
        for some in self.marks.split(max(1, _NUMBERS // len(self.queries))):
            place = draws.uniforms(some.shape).masked_fill(some < 0, 2.0)
            first = place.argsort(dim=1)[:, :at_most]
            kept.append(torch.full_like(some, -1).scatter(1, first, some.gather(1, first)))
        return replace(self, marks=torch.cat(kept))


def read_ballots(
    sheet: Sheet,
    choices: tuple[Any, ...],
    code: Callable[[Any], int | None],
    rule: str,
    *,
    queries: Sequence[Any] | None,
    argument: str,
    person: Any | None,
    ignore: Sequence[Any],
) -> Ballots:
    """The ballots of a sheet: rows are people, columns queries. A missing value is no choice.

    >>> import numpy as np
    >>> from ringfence.decisions.ballots.sheet import read_sheet
    >>> sheet = read_sheet(np.array([[7, 1, 0], [8, 1, 1]]))
    >>> read = read_ballots(sheet, ("a", "b"), [0, 1].index, "", queries=None, argument="queries", person=0,
    ...                     ignore=())
    >>> read.people, read.marks.tolist()
    ([7, 8], [[1, 0], [1, 1]])
    """
    own = [] if person is None else [sheet.known("person", person)]
    people = None if person is None else sheet.names(own[0])
    names = sheet.chosen(argument, queries, [*checks.listed("ignore", ignore), *own])
    columns = [sheet.coded(name, code, -1, rule) for name in names]
    marks = torch.stack(columns, dim=1)
    if not len(marks):
        raise ValueError("the table must have at least one row, got none")
    return Ballots(names, choices, marks, people)


def public_choices(
    argument: str, values: Iterable[Any], text: bool
) -> tuple[tuple[Any, ...], dict[Hashable, int]]:
    """Public values, at least two and each once, and the number of each by how it stands in the data.

    >>> public_choices("candidates", ["red", "blue"], text=True)[1]
    {'red': 0, 'blue': 1}
    """
    try:
        if isinstance(values, str | bytes):
            raise TypeError
        listed = tuple(value.item() if hasattr(value, "item") else value for value in values)
        keys = [str(value) if text else value for value in listed]
        numbers = {key: number for number, key in enumerate(keys)}
    except (TypeError, ValueError, RuntimeError):  # no list, or of things that are no values
        raise TypeError(f"{argument} must be a list of values, got {values!r}") from None
    if len(listed) < 2:
        raise ValueError(f"{argument} must be at least 2, got {len(listed)}")
    for number, value in enumerate(listed):
        if value is None or value != value or numbers[keys[number]] != number:
            raise ValueError(f"{argument} must hold each value once and none that is missing, got {value!r}")
    return listed, numbers
