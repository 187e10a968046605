"""Ballots and counts of votes, and what the releases of decisions from them share.

A poll is answered by a law of surpluses (yes minus no) or of counts. Only the decisions are released.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from statistics import NormalDist
from typing import Any, Literal

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.calibration import smallest_sigma
from ringfence.accounting.decision_publication import publishable_decision_epsilon, publishing_cost
from ringfence.accounting.decisions import (
    DecisionLaw,
    Neighbours,
    checked_at_most,
    decision_rdp,
    loss_of_any,
    number_of_queries,
    profile_and_rdp,
)
from ringfence.accounting.guarantee import ADDED_OR_REMOVED
from ringfence.accounting.per_instance import PerInstanceRdp
from ringfence.accounting.privacy_loss import PrivacyLoss
from ringfence.mechanisms.base import Mechanism
from ringfence.mechanisms.sign import StochasticSign
from ringfence.mechanisms.winner import GumbelWinner
from ringfence.noise import CipherDraws, Noise
from ringfence.numerics.blocks import at_once
from ringfence.numerics.normal import log_tail
from ringfence.numerics.rounding import rounded_up
from ringfence.releases.budget import Budget
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
from ringfence.releases.release import Measured, ReleaseAccount, RowsAre

DecisionNoise = Literal["auto", "gaussian", "gumbel"]

TAKEN = ("winner", "label", "chance_of_error")  # columns that a release of winners has
WRONG = 0.01  # the chance of a wrong decision that public sentences speak of
_GAIN, _FOUND = 0.999, 1e-4  # of sigma: less than that is not looked for, and how closely it is found
_CLOSE, _CLOSE_SIGN = 0.25, 0.15  # of a wrong winner, or sign: where two kinds of noise are compared
_NUMBERS = 1 << 22  # of random numbers that are held at once
_COUNTED = 1 << 17  # marks that are counted at once
_KEPT = 1 << 25  # marks in files that are read into memory
_SMALL = 0.001  # chances below need no digits
_VALUES = 10_000  # different values of a column that are looked at
UNCLEAR = -2  # the mark of a 0, which is no answer, unless nobody chose the last of the choices


@dataclass(frozen=True)
class Votes:
    """Counts of voters, (queries, choices).

    ``keys`` are the columns that tell the queries apart, where there are some. ``for_owner`` are sentences
    for the owner of the data alone.
    """

    queries: list[Any]
    choices: tuple[Any, ...]
    counts: Tensor
    rows_are: RowsAre
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
    queries: Sequence[Any] | None,
    argument: str,
    person: Any | None,
    ignore: Sequence[Any],
    limit: Callable[[int], int | None] = lambda queries: None,
    noise: Noise | None = None,
) -> Votes:
    """Reads ballots: rows are people, columns queries. A missing value is no choice.

    Each person counts in as many queries as ``limit`` says of all, which ``noise`` draws for ballots that are
    in memory, or few of them in files. Others are counted where they are.

    >>> import numpy as np
    >>> data = np.array([[7, 1, 0], [8, 1, 1]])
    >>> codes_of = partial(code_values, code={0: 0, 1: 1}.get, rule="must hold 0 or 1")
    >>> how = {"queries": None, "argument": "queries", "person": 0, "ignore": ()}
    >>> read = read_ballots(data, ("a", "b"), codes_of, **how)
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
            table.names(own[0])  # each of them once
        marks = table.coded(names, codes_of)
    if not len(marks):
        raise ValueError("the table must have at least one row, got none")
    counts = count_marks(names, marks, len(choices))
    if bound is not None:
        draws = (noise or Noise()).at("decisions", "ballots", bound)
        parts = marks.split(at_once(_NUMBERS, each=len(names)))
        counts = count_marks(names, torch.cat([keep_few(some, bound, draws) for some in parts]), len(choices))
        if beyond := int(((marks >= 0).sum(dim=1) > bound).sum()):
            sentences = (short_of(beyond, bound),)
    return Votes(names, choices, counts, rows_are, for_owner=sentences)


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
    >>> read = read_choices(votes, "classes", [8, 7], queries=None, argument="", person=None, ignore=())
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
    if not len(counts):
        raise ValueError("the table must have at least one row, got none")
    names = table.names(own[0]) if own else list(range(1, len(counts) + 1))
    if own and own[0] in TAKEN:
        raise ValueError(f"query must not name a column {own[0]!r}, which the release has too: rename it")
    keys = {own[0]: names} if own else None
    return Votes(names, tuple(columns), counts, "aggregated", keys=keys)


@dataclass(frozen=True)
class Poll:
    """The request of a release of decisions: the budget, who is protected, and whether epsilon is published.

    With ``publish`` the noise leaves room for the cost of publishing the per-instance epsilon. ``noise`` is
    "gaussian", "gumbel", or "auto" for the one that decides better, by public numbers.
    """

    budget: Budget
    neighbours: Neighbours
    at_most: int | None
    publish: bool
    noise: DecisionNoise = "gaussian"

    @classmethod
    def checked(
        cls,
        budget: Budget,
        neighbours: Neighbours | None,
        at_most: int | None,
        publish_epsilon: bool,
        *,
        binary: bool = False,
        noise: DecisionNoise = "gaussian",
    ) -> "Poll":
        """The request that the arguments of a job describe, which are refused before the data is read.

        Where ``neighbours`` is None they are those of the ledger, or else "added" where answers are
        ``binary``, yes or no, and "replaced" otherwise.
        """
        if neighbours is None:
            usual: Neighbours = "added" if binary else "replaced"
            neighbours = usual if budget.ledger is None else budget.ledger.neighbours
        checks.one_of("noise", noise, ("auto", "gaussian", "gumbel"))
        if publish_epsilon and noise == "gumbel":
            raise ValueError("noise must be 'gaussian' with publish_epsilon, got 'gumbel'")
        if noise == "auto" and (publish_epsilon or budget.epsilon is None or budget.ledger is not None):
            noise = "gaussian"  # a ledger's budget counts Gaussians
        if checks.flag("publish_epsilon", publish_epsilon) and budget.epsilon is not None:
            budget = replace(budget, multiplier=room_to_publish(budget.multiplier, binary))
        return cls(budget, neighbours, checked_at_most(at_most, neighbours), publish_epsilon, noise)

    def limit(self, queries: int) -> int | None:
        """The bound on the queries of one person, None where all count."""
        return checked_at_most(self.at_most, self.neighbours, queries)

    def sigma(self, queries: int, square: float) -> float:
        """The noise, where one person moves each query that counts by ``square``, as a squared L2 norm."""
        return self.budget.sigma(math.sqrt(square * (self.at_most or queries)))

    def law(self, gaussian: DecisionLaw, queries: int, choices: int) -> DecisionLaw:
        """The law with Gaussian noise, or that with Gumbel noise where it is asked for or decides better.

        It decides better where a choice that leads needs fewer votes to be passed over with a chance of at
        most a quarter, or 15 % for yes or no: far leads are safe with either noise. The Gaussian noise of yes
        or no is that of ``sign_law``.

        >>> import ringfence as rf
        >>> poll = Poll.checked(Budget.checked(1.0, 1e-6), "added", None, False, noise="auto")
        >>> poll.law(rf.NoisyWinner(poll.sigma(5, 1.0)), queries=5, choices=3)
        GumbelWinner(scale=4.29...)
        """
        deviation, close = deviation_of(gaussian), _CLOSE
        if isinstance(gaussian, StochasticSign):
            gaussian, close = sign_law(self, queries, float(gaussian.sigma)), _CLOSE_SIGN
        if self.noise == "gaussian":
            return gaussian
        gumbel = gumbel_law(self, queries, deviation)
        is_better = lead_of(gumbel, choices, close) < lead_of(gaussian, choices, close)
        return gumbel if self.noise == "gumbel" or is_better else gaussian

    def decide(self, law: DecisionLaw, votes: Votes, what: str) -> list[int]:
        """Draws the number of a choice for each query, exactly; -1 is no answer."""
        values = votes.values(law)
        if isinstance(law, Mechanism):  # 1 is the first choice
            return (self.budget.release(law, values, what) < 0).long().tolist()
        return law.release(values, draws=self.budget.draws(law, values, what)).tolist()

    def charge(self, law: DecisionLaw, votes: Votes, what: str) -> tuple[ReleaseAccount, tuple[str, ...]]:
        """Charges the ledger; returns the account and, with ``publish``, the published sentence."""
        values = votes.values(law)
        who: dict[str, Any] = {"neighbours": self.neighbours, "at_most": self.at_most}
        account = account_of(law, values, delta=self.budget.delta, **who)
        said: tuple[str, ...] = ()
        if self.publish:  # drawn, and charged before anybody sees it
            found = publishable_decision_epsilon(law, values, delta=self.budget.delta, **who)
            account = account.plus(publishing_loss(found.publishing_zcdp, account.promised.change))
            said = (found.statement,)
        self.budget.charge(account, what)
        return account, said


def room_to_publish(multiplier: float, binary: bool) -> float:
    """The noise multiplier that leaves room for publishing within what ``multiplier`` would cost.

    >>> more = room_to_publish(4.0, binary=True)
    >>> every = 0.5 / more**2
    >>> round(4.0**2 * 2 * (every + publishing_cost(every, binary=True)), 9), round(more / 4.0, 3)
    (1.0, 1.024)
    """

    def cost(sigma: float) -> float:
        every = 0.5 / sigma**2
        return every + publishing_cost(every, binary=binary)

    return smallest_sigma(cost, 0.5 / multiplier**2, start=multiplier, tolerance=1e-12) * (1 + 1e-12)


def gumbel_law(poll: Poll, queries: int, deviation: float) -> GumbelWinner:
    """The law of each winner with Gumbel noise: of this standard deviation, or as much as the target needs.

    Guarantee: with a target, the account of all queries was computed and is not over it.
    """
    if poll.budget.epsilon is None:
        return GumbelWinner.of_deviation(deviation)
    cost = cost_of(GumbelWinner, poll, queries)
    return GumbelWinner(smallest_sigma(cost, poll.budget.epsilon, start=deviation / math.sqrt(2)))


def sign_law(poll: Poll, queries: int, sigma: float) -> StochasticSign:
    """The law of each yes or no with the noise of the Gaussian, or with less where less meets the target.

    Guarantee: with less, the account of all queries was computed and is not over the target.

    >>> poll = Poll.checked(Budget.checked(1.0, 1e-6), "added", None, False)
    >>> of_gaussian = [poll.sigma(questions, 1.0) for questions in (1, 7, 30)]
    >>> found = [sign_law(poll, *given).sigma.item() for given in zip((1, 7, 30), of_gaussian)]
    >>> [round(less / sigma, 2) for less, sigma in zip(found, of_gaussian)]
    [1.0, 0.88, 0.83]
    """
    target = poll.budget.epsilon
    if target is None or poll.publish or poll.budget.ledger is not None:  # which count Gaussians
        return StochasticSign(sigma)
    cost, most = cost_of(StochasticSign, poll, queries), _GAIN * sigma
    less = cost(most) <= target
    return StochasticSign(smallest_sigma(cost, target, start=most, tolerance=_FOUND) if less else sigma)


def cost_of(law: Callable[[float], DecisionLaw], poll: Poll, queries: int) -> Callable[[float], float]:
    """The epsilon of all queries for every dataset, by the noise of their law."""
    charged = poll.at_most or queries

    def cost(noise: float) -> float:
        loss = loss_of_any(law(noise), charged, poll.neighbours, poll.at_most, steps=queries)
        return loss.epsilon(poll.budget.delta)

    return cost


def account_of(
    law: DecisionLaw,
    values: Tensor,
    *,
    neighbours: Neighbours,
    at_most: int | None,
    delta: float,
    adaptive: bool = False,
) -> ReleaseAccount:
    """The account of one decision for each query, by Rényi divergences and tight.

    The tight profile is of queries that were fixed in advance: not of ``adaptive`` ones.

    >>> import ringfence as rf
    >>> surplus = torch.tensor([40.0, -3.0], dtype=torch.float64)
    >>> account = account_of(rf.StochasticSign(10.0), surplus, neighbours="added", at_most=None, delta=1e-6)
    >>> account.per_instance.epsilon < account.per_instance.renyi_epsilon < account.epsilon
    True
    """
    queries = number_of_queries(law, values)
    charged = queries if at_most is None else min(queries, at_most)
    promised = loss_of_any(law, charged, neighbours, at_most, steps=queries)
    own = partial(measure_decisions, promised, law, values, neighbours, at_most, None if adaptive else delta)
    return ReleaseAccount(promised, delta, own, adaptive)


def measure_decisions(
    promised: PrivacyLoss,
    law: DecisionLaw,
    values: Tensor,
    neighbours: Neighbours,
    at_most: int | None,
    delta: float | None,
) -> Measured:
    """The cost to the voters at hand; where ``delta`` is given, also by the tight profile.

    ``details`` has the votes and the chances of a wrong decision.
    """
    details = {"votes": values.tolist(), "chances_of_error": chances_of_error(law, values).tolist()}
    if delta is None:
        rdp = decision_rdp(law, values, neighbours=neighbours, at_most=at_most)
        return Measured(with_divergences(promised, rdp), (), details)
    profile, rdp = profile_and_rdp(law, values, neighbours, at_most)
    return Measured(with_divergences(promised, rdp), (profile.best(delta),), details)


def with_divergences(promised: PrivacyLoss, rdp: PerInstanceRdp) -> PrivacyLoss:
    """The promised loss with the Rényi divergences of the data at hand."""
    return replace(promised, forward=tuple(rdp.forward.tolist()), backward=tuple(rdp.backward.tolist()))


def publishing_loss(cost: float, change: str | None) -> PrivacyLoss:
    """The loss of publishing an epsilon at this zCDP: a secure Gaussian release of one number more."""
    return PrivacyLoss.of_zcdp(cost, cost, steps=0, change=change or ADDED_OR_REMOVED)


def expected_wrong(chances: Sequence[float], queries: Sequence[Any]) -> str:
    """How many decisions are expected to be wrong, for the owner of the data alone.

    >>> expected_wrong([0.5, 0.25], ["trees", "cars"])
    'The chance of a wrong decision is largest at trees, 0.5; 0.75 of 2 decisions are expected to be wrong.'
    """
    worst = max(range(len(chances)), key=chances.__getitem__)
    largest, total = (
        f"less than {_SMALL:g}" if one < _SMALL else rounded_up(one)
        for one in (chances[worst], math.fsum(chances))
    )
    return (
        f"The chance of a wrong decision is largest at {queries[worst]}, "
        f"{largest}; {total} of {len(chances)} decisions are expected to be wrong."
    )


def chances_of_error(law: DecisionLaw, votes: Tensor) -> Tensor:
    """The chance of a wrong decision at each query: a candidate who has not most votes, or the other sign.

    A tie has no wrong decision.

    >>> import ringfence as rf
    >>> surplus = torch.tensor([0.0, -2.0, 30.0], dtype=torch.float64)
    >>> [f"{chance:.6g}" for chance in chances_of_error(rf.StochasticSign(1.0), surplus).tolist()]
    ['0', '0.0227501', '4.90671e-198']
    """
    if isinstance(law, Mechanism):
        return torch.where(votes == 0, 0.0, torch.exp(log_tail(votes.abs() / law.sigma.double())))
    return law.chance_of_error(votes)


def deviation_of(law: DecisionLaw) -> float:
    """The standard deviation of the noise of each count; a surplus is the difference of two."""
    return float(law.sigma) / math.sqrt(2) if isinstance(law, Mechanism) else law.deviation


def lead_of(law: DecisionLaw, choices: int, wrong: float = WRONG) -> float:
    """The lead in votes over each other choice with which a decision is wrong with at most this chance.

    >>> import ringfence as rf
    >>> laws = rf.NoisyWinner(10.0), rf.GumbelWinner(10.0), rf.StochasticSign(10.0)
    >>> [round(lead_of(law, 2), 1) for law in laws]
    [32.9, 46.0, 23.3]
    """
    if isinstance(law, Mechanism):
        return float(law.sigma) * NormalDist().inv_cdf(1 - wrong)
    return law.lead(choices - 1, wrong)


def votes_ahead(law: DecisionLaw, choices: int) -> int:
    """The lead in whole votes with which a decision is wrong with a chance of at most 1 %.

    >>> import ringfence as rf
    >>> votes_ahead(rf.NoisyWinner(10.0), 10), votes_ahead(rf.GumbelWinner(10.0), 10)
    (44, 68)
    """
    return max(1, math.ceil(lead_of(law, choices)))
