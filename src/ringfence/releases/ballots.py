"""Ballots and counts of votes, and the account of decisions that are made from them."""

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.decisions import (
    DecisionAccountant,
    DecisionLaw,
    Neighbours,
    checked_at_most,
    decision_profile,
)
from ringfence.accounting.guarantee import ADDED_OR_REMOVED
from ringfence.accounting.privacy_loss import PrivacyLoss
from ringfence.accounting.publication import publishable_decision_epsilon, publishing_cost
from ringfence.accounting.voters import voter_epsilons
from ringfence.mechanisms.base import Mechanism
from ringfence.noise import Noise
from ringfence.numerics.rounding import rounded_up
from ringfence.releases.account import Budget, ReleaseAccount
from ringfence.releases.reader import Table
from ringfence.releases.release import RowsAre

WRONG = 0.01  # the chance of a wrong decision that public sentences speak of
_MOST = 1 << 24  # log ratios of queries, candidates and candidates: with more, voters are left out
_NUMBERS = 1 << 22  # of random numbers that are held at once


@dataclass(frozen=True)
class Votes:
    """Counts of voters, (queries, choices), and the ballots that they were counted from, if any.

    ``marks`` are the numbers of the choices, (people, queries), and -1 where a person made none. ``people``
    are the names of the people, where a column has them.
    """

    queries: list[Any]
    choices: tuple[Any, ...]
    counts: Tensor
    rows_are: RowsAre
    marks: Tensor | None = None
    people: list[Any] | None = None

    @classmethod
    def of_ballots(
        cls, queries: list[Any], choices: tuple[Any, ...], marks: Tensor, people: list[Any] | None = None
    ) -> "Votes":
        """Counts ballots.

        >>> Votes.of_ballots(["q"], ("yes", "no"), torch.tensor([[0], [0], [1], [-1]])).counts.tolist()
        [[2.0, 1.0]]
        """
        many = len(choices) + 1  # those who made none come first, and are left out
        rows = [torch.bincount(column + 1, minlength=many)[1:] for column in marks.T]
        rows_are: RowsAre = "rows" if people is None else "persons"
        return cls(queries, choices, torch.stack(rows).double(), rows_are, marks, people)

    def values(self, law: DecisionLaw) -> Tensor:
        """The numbers that a law decides on: counts, or for a law of surpluses yes minus no."""
        return self.counts[:, 0] - self.counts[:, 1] if isinstance(law, Mechanism) else self.counts

    def limit(self, at_most: int | None, noise: Noise) -> "Votes":
        """Keeps at most so many marks of each person, drawn at random; aggregated counts stay as they are.

        Guarantee: which marks of a person count depends on that person's ballot and on random numbers that
        belong to that person alone, so one person changes the counts of at most ``at_most`` queries.

        >>> marks = torch.tensor([[0, 1, 0, -1], [-1, -1, 1, -1]])
        >>> kept = Votes.of_ballots(list("abcd"), ("yes", "no"), marks).limit(2, Noise()).marks
        >>> (kept >= 0).sum(dim=1).tolist(), bool(((kept == marks) | (kept == -1)).all())
        ([2, 1], True)
        """
        if self.marks is None or at_most is None or at_most >= len(self.queries):
            return self
        draws = noise.at("decisions", "ballots", at_most)
        kept = []
        for some in self.marks.split(max(1, _NUMBERS // len(self.queries))):
            place = draws.uniforms(some.shape).masked_fill(some < 0, 2.0)
            first = place.argsort(dim=1)[:, :at_most]
            kept.append(torch.full_like(some, -1).scatter(1, first, some.gather(1, first)))
        return Votes.of_ballots(self.queries, self.choices, torch.cat(kept), self.people)


def read_ballots(
    table: Table,
    choices: tuple[Any, ...],
    code: Callable[[Any], int | None],
    rule: str,
    *,
    queries: Sequence[Any] | None,
    argument: str,
    person: Any | None,
    ignore: Sequence[Any],
) -> Votes:
    """Reads ballots: rows are people, columns queries. A missing value is no choice.

    >>> import numpy as np
    >>> from ringfence.releases.reader import read_table
    >>> table = read_table(np.array([[7, 1, 0], [8, 1, 1]]))
    >>> read = read_ballots(table, ("a", "b"), [0, 1].index, "", queries=None, argument="queries", person=0,
    ...                     ignore=())
    >>> read.people, read.marks.tolist()
    ([7, 8], [[1, 0], [1, 1]])
    """
    own = [] if person is None else [table.column("person", person)]
    people = None if person is None else table.names(own[0])
    names = table.chosen(argument, queries, [*checks.listed("ignore", ignore), *own])
    columns = [table.coded(name, code, -1, rule) for name in names]
    marks = torch.stack(columns, dim=1)
    if not len(marks):
        raise ValueError("the table must have at least one row, got none")
    return Votes.of_ballots(names, choices, marks, people)


def read_counts(table: Table, query: Any | None, ignore: Sequence[Any]) -> Votes:
    """Reads counts of voters: rows are queries, columns candidates.

    >>> from ringfence.releases.reader import read_table
    >>> read_counts(read_table(torch.tensor([[5, 3], [0, 9]])), None, ()).counts.tolist()
    [[5.0, 3.0], [0.0, 9.0]]
    """
    own = [] if query is None else [table.column("query", query)]
    columns = table.chosen("candidates", None, [*checks.listed("ignore", ignore), *own])
    if len(columns) < 2:
        raise ValueError(f"data must have at least 2 candidates (columns), got {len(columns)}")
    counts = torch.stack([table.counts(name) for name in columns], dim=1)
    if not len(counts):
        raise ValueError("the table must have at least one row, got none")
    names = table.names(own[0]) if own else list(range(1, len(counts) + 1))
    return Votes(names, tuple(columns), counts, "aggregated")


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


@dataclass(frozen=True)
class Poll:
    """What every release of decisions is asked for: the budget, who is protected, and what is published.

    With ``publish`` the noise leaves room for the cost of publishing the per-instance epsilon.
    """

    budget: Budget
    neighbours: Neighbours
    at_most: int | None
    publish: bool

    @classmethod
    def checked(
        cls, budget: Budget, neighbours: Neighbours, at_most: int | None, publish_epsilon: bool
    ) -> "Poll":
        """The request that the arguments of a job describe, which are refused before the data is read."""
        if checks.flag("publish_epsilon", publish_epsilon) and budget.epsilon is not None:
            budget = replace(budget, multiplier=room_to_publish(budget.multiplier))
        return cls(budget, neighbours, checked_at_most(at_most, neighbours), publish_epsilon)

    def limit(self, votes: Votes) -> "tuple[Poll, Votes]":
        """The request and the votes with the bound on the queries of one person, None where all count."""
        size = checked_at_most(self.at_most, self.neighbours, len(votes.queries))
        return replace(self, at_most=size), votes.limit(size, self.budget.noise)

    def charge(
        self, law: DecisionLaw, votes: Votes, chances: Sequence[float], what: str
    ) -> tuple[ReleaseAccount, tuple[str, ...]]:
        """Charges the ledger; returns the account and, with ``publish``, the published sentence."""
        account = decision_account(
            law,
            votes.values(law),
            neighbours=self.neighbours,
            at_most=self.at_most,
            delta=self.budget.delta,
            chances=chances,
            publish=self.publish,
            votes=votes,
        )
        self.budget.charge(account, what)
        if not self.publish:
            return account, ()
        published = publishable_decision_epsilon(
            law, votes.values(law), neighbours=self.neighbours, at_most=self.at_most, delta=self.budget.delta
        )
        return account, (published.statement,)


def room_to_publish(multiplier: float) -> float:
    """The noise multiplier that leaves room for publishing within what ``multiplier`` would cost.

    >>> more = room_to_publish(4.0)
    >>> every = 0.5 / more**2
    >>> round(4.0**2 * 2 * (every + publishing_cost(every)), 9), round(more / 4.0, 3)
    (1.0, 1.024)
    """
    whole = 0.5 / multiplier**2
    low, high = 0.0, whole
    for _ in range(100):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if middle + publishing_cost(middle) < whole else (low, middle)
    return math.sqrt(0.5 / low) * (1 + 1e-12)


def decision_account(
    law: DecisionLaw,
    values: Tensor,
    *,
    neighbours: Neighbours,
    at_most: int | None,
    delta: float,
    chances: Sequence[float],
    publish: bool = False,
    votes: Votes | None = None,
) -> ReleaseAccount:
    """The account of one decision for each query: Rényi, tight, and the epsilon of each voter.

    ``chances`` are those of a wrong decision. They depend on the votes, so they are in ``details`` with the
    votes and, where there are ballots in ``votes``, one epsilon per voter. With ``publish`` all numbers but
    those of the voters include the cost of a ``publishable_decision_epsilon``.

    >>> import ringfence as rf
    >>> surplus = torch.tensor([40.0, -3.0], dtype=torch.float64)
    >>> account = decision_account(rf.StochasticSign(10.0), surplus, neighbours="added", at_most=None,
    ...                            delta=1e-6, chances=[0.0, 0.4])
    >>> account.per_instance.epsilon < account.per_instance.renyi_epsilon < account.epsilon
    True
    """
    accountant = DecisionAccountant(law, neighbours=neighbours, at_most=at_most)
    accountant.step(values)
    profile = decision_profile(law, values, neighbours=neighbours, at_most=at_most)
    cost = accountant.privacy_loss().drawn_securely(2 * accountant.steps)  # a confident one is two numbers
    exact = cost.delta_left(delta)
    tight = [(profile.epsilon(exact), profile.proof(exact))]
    details: dict[str, Any] = {"votes": values.tolist(), "chances_of_error": list(chances)}
    if votes is not None and votes.marks is not None:
        if values.numel() * len(votes.choices) <= _MOST:
            own = voter_epsilons(law, _entries(law, votes.marks), delta=exact, candidates=len(votes.choices))
            everybody = min(cost.guarantee(delta).per_instance.epsilon, tight[0][0])
            details["voter_epsilons"] = own.clamp(max=everybody).tolist()
        if votes.people is not None:
            details["voters"] = votes.people
    if publish:  # a Gaussian release more, which the profile does not know
        tight = []
        cost = cost + _gaussian_cost(publishing_cost(accountant.gaussian_zcdp), cost.change)
    return ReleaseAccount.of(cost, delta, tight, **details)


def _gaussian_cost(zcdp: float, change: str | None) -> PrivacyLoss:
    """The cost of one secure Gaussian release of a number."""
    return PrivacyLoss.of_zcdp(zcdp, zcdp, steps=0, change=change or ADDED_OR_REMOVED).drawn_securely(1)


def _entries(law: DecisionLaw, marks: Tensor) -> Tensor:
    """The marks as ``voter_epsilons`` takes them: numbers of choices, or for a law of surpluses 1, 0, -1."""
    return (marks == 0).double() - (marks == 1).double() if isinstance(law, Mechanism) else marks.double()


def sensitive_sentences(account: ReleaseAccount, queries: Sequence[Any]) -> tuple[str, ...]:
    """The sentences about the voters' epsilons and the chances of error, for the owner of the data alone.

    >>> import numpy as np
    >>> import ringfence as rf
    >>> account = rf.release_votes(np.ones((80, 2)), sigma=10.0).account
    >>> sensitive_sentences(account, ["a", "b"])[0].split(":")[0]
    "The cost of a voter's own ballot to that voter"
    """
    chances = account.details["chances_of_error"]
    worst = max(range(len(chances)), key=chances.__getitem__)
    voters = account.details.get("voter_epsilons")
    own: tuple[str, ...] = ()
    if voters is not None:
        low, middle, high = (rounded_up(value) for value in (min(voters), median(voters), max(voters)))
        own = (
            f"The cost of a voter's own ballot to that voter: an epsilon between {low} and {high}, with a "
            f"median of {middle}, where {rounded_up(account.epsilon)} holds for everybody.",
        )
    return (
        *own,
        f"The chance of a wrong decision is largest at {queries[worst]}, {rounded_up(chances[worst])}; "
        f"{rounded_up(math.fsum(chances))} of {len(chances)} decisions are expected to be wrong.",
    )


def smallest_margin(chance_of_error: Callable[[int], float], most: float) -> int:
    """The smallest margin at which a falling chance of an error is at most ``WRONG``; ``most`` is enough.

    >>> smallest_margin(lambda margin: 0.5 * 0.9**margin, most=100.0)
    38
    """
    low, high = 0, math.ceil(most)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if chance_of_error(middle) <= WRONG else (middle + 1, high)
    return low
