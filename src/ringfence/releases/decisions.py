"""Decisions by votes: noisy majorities of yes/no questions, and candidates with the largest noisy count.

A poll is answered by a law of surpluses (yes minus no) or of counts. Only the decisions are released.
"""

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import NormalDist
from typing import Any, Literal, NamedTuple

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
from ringfence.accounting.ledger import Ledger
from ringfence.accounting.privacy_loss import PrivacyLoss
from ringfence.mechanisms.base import Mechanism
from ringfence.mechanisms.sign import StochasticSign
from ringfence.mechanisms.winner import ConfidentWinner, GumbelWinner, NoisyWinner
from ringfence.noise import Noise
from ringfence.numerics.normal import log_tail
from ringfence.numerics.rounding import rounded_up
from ringfence.releases.ballots import UNCLEAR, Votes, read_ballots, read_choices, read_counts, read_votes
from ringfence.releases.budget import Budget, count_noise
from ringfence.releases.cells import Domain, Missing, cells_of_a_person
from ringfence.releases.reader import Codes, Columns, code_values, kind_of, make_coded_table
from ringfence.releases.release import Measured, Release, ReleaseAccount, Source, bar_chart, bars

DecisionNoise = Literal["auto", "gaussian", "gumbel"]

_MANY = 5  # questions, of which shares tell more than majorities
_NUMBERS = {"yes": 1, "no": -1}  # answers in an array
# the choice that an answer in the data stands for, unless yes= and no= are given
_CODES: dict[Any, int] = {1.0: 0, "yes": 0, "true": 0, -1.0: 1, "no": 1, "false": 1}
_WRONG = 0.01  # the chance of a wrong decision that public sentences speak of
_GAIN, _FOUND = 0.999, 1e-4  # of sigma: less than that is not looked for, and how closely it is found
_CLOSE, _CLOSE_SIGN = 0.25, 0.15  # of a wrong winner, or sign: where two kinds of noise are compared
_SMALL = 0.001  # chances below need no digits
_THRESHOLD = 2.0  # the noise of the question whether there is an answer, in units of that of the winner


def release_winners(
    data: Any,
    queries: Sequence[str | int] | None = None,
    *,
    by: str | int | Sequence[str | int] | None = None,
    of: str | int | None = None,
    epsilon: float | None = None,
    delta: float = 1e-6,
    sigma: float | None = None,
    noise: DecisionNoise = "auto",
    candidates: Iterable[Any] | None = None,
    domain: Domain | None = None,
    bins: Domain | None = None,
    missing: Missing = "refuse",
    confident_above: float | None = None,
    threshold_sigma: float | None = None,
    neighbours: Neighbours | None = None,
    at_most: int | None = None,
    person: str | int | None = None,
    query: str | int | None = None,
    ignore: Sequence[str | int] = (),
    publish_epsilon: bool = False,
    seed: int | Noise | None = None,
    ledger: Ledger | None = None,
    what: str | None = None,
) -> Release:
    """Releases which candidate won each query, decided with noise.

    ``data`` is a frame (pandas, polars, pyarrow), a table (Ibis, DuckDB, Spark), the names of
    CSV or parquet files, or an array or tensor.
    It holds counts of voters: one row per query, one column per candidate, and perhaps a column ``query``
    with names of the queries. Or it holds ballots, if ``candidates`` lists the public candidates: one row
    per person, one column per query (``queries``, or all), each entry a candidate or, in a frame, missing.
    ``person`` names the column that names each person once. Columns to ``ignore`` are left out. Or each row
    is a vote: ``by`` are the columns that say at which query, with ``domain``, ``bins`` and ``missing`` as
    ``release_counts`` takes them, and ``of`` is the column that holds the candidate. ``person`` then says
    whose vote it is; left out, each row is a person, who votes at one query.

    Give ``epsilon`` and ``delta``, which hold for every dataset, and the noise is found, or give ``sigma``,
    the standard deviation of the noise of each count. ``noise`` is "gaussian", "gumbel" (the exponential
    mechanism), or "auto": the one that decides better, with which a candidate needs the smaller lead to be
    passed over with a chance of at most a quarter, by the numbers of queries and candidates, and Gaussian
    with ``sigma``, ``confident_above``, ``publish_epsilon`` or a ``ledger``, whose budget counts Gaussians.
    ``neighbours`` is "replaced" (what somebody voted is protected) or "added" (whether somebody took part
    is); left out, it is that of the ledger, or "replaced". ``at_most`` bounds the queries in which one person
    counts: for ballots they are drawn at random among those where the person voted; counts must have been
    made that way. ``seed`` is for tests. ``ledger`` is charged beforehand, in an entry called ``what``.

    With ``confident_above`` there is "no answer" where the largest count, with noise of its own
    (``threshold_sigma``, twice ``sigma`` if left out), is below that number; both questions are charged.

    With ``publish_epsilon`` the per-instance epsilon is released too, with noise of its own: the statement
    has it, and its cost is part of ``epsilon``.

    An array is answered by an array of numbers of candidates: of columns, or of places in ``candidates``, and
    -1 is no answer. ``errors`` are the chances that a candidate is announced who does not have the largest
    count. They depend on the private votes and must not be published; the statement has a public sentence
    about them.

    Guarantee: (epsilon, delta)-differential privacy for every dataset and any one person replaced, or added
    or removed, provided that what is given here was not chosen by looking at the data. The law is
    ``NoisyWinner``, ``GumbelWinner`` or ``ConfidentWinner``, drawn exactly. An error releases nothing, but
    its message may contain values of the data.

    >>> import ringfence as rf
    >>> from pandas import DataFrame
    >>> counts = DataFrame({"cat": [240, 3], "dog": [9, 235], "fox": [1, 12]})
    >>> winners = rf.release_winners(counts, sigma=20.0)
    >>> winners.rows()
    [('1', 'cat'), ('2', 'dog')]
    >>> winners.account.per_instance.epsilon < 1e-3 < winners.account.epsilon
    True
    """
    budget = Budget.checked(epsilon, delta, sigma, seed, ledger, what)
    if of is not None and person is None:
        at_most = cells_of_a_person(1 if at_most is None else at_most, None, 1)
    if confident_above is not None:
        if noise == "gumbel":
            raise ValueError("noise must be 'gaussian' with confident_above, got 'gumbel'")
        noise = "gaussian" if noise == "auto" else noise
    poll = Poll.checked(budget, neighbours, at_most, publish_epsilon, noise=noise)
    cells: dict[str, Any] = {"by": by, "domain": domain, "bins": bins}
    who: dict[str, Any] = {"person": person, "limit": poll.limit}
    read: Callable[[], Votes] = partial(read_counts, data, query, ignore)
    left_out, kind = {"person": person, "queries": queries, **cells}, "counts"
    if of is not None:
        if candidates is None:
            raise ValueError("candidates must list the public candidates of the column of, got None")
        read = partial(read_votes, data, of=of, candidates=candidates, missing=missing, **cells, **who)
        left_out, kind = {"queries": queries, "query": query, "ignore": ignore or None}, "rows that are votes"
    elif candidates is not None:
        how: dict[str, Any] = {"queries": queries, "ignore": ignore, "noise": budget.noise}
        read = partial(read_choices, data, "candidates", candidates, **how, **who)
        left_out, kind = {"query": query, **cells}, "ballots (of= is missing, where each row is a vote)"
    for name, given in left_out.items():
        if given is not None:
            raise ValueError(f"{name} must be left out where data holds {kind}, got {given!r}")
    votes = read()
    poll = replace(poll, at_most=poll.limit(len(votes.queries)))
    gaussian = winner_law(poll, len(votes.queries), confident_above, threshold_sigma)
    law = poll.law(gaussian, len(votes.queries), len(votes.choices))
    account, published = poll.charge(law, votes, "release_winners")
    winners = poll.decide(law, votes, "winners")
    codes = {name: at for at, name in enumerate(votes.choices)} | {None: -1}
    like = partial(make_coded_table, kind_of(data), codes)
    return announce(law, votes, winners, account, poll, published, like, _WINNERS)


def release_votes(
    ballots: Any,
    questions: Sequence[str | int] | None = None,
    *,
    yes: Any = None,
    no: Any = None,
    neither: Any = None,
    epsilon: float | None = None,
    delta: float = 1e-6,
    sigma: float | None = None,
    noise: DecisionNoise = "auto",
    at_most: int | None = None,
    person: str | int | None = None,
    ignore: Sequence[str | int] = (),
    neighbours: Neighbours | None = None,
    publish_epsilon: bool = False,
    seed: int | Noise | None = None,
    ledger: Ledger | None = None,
    what: str | None = None,
) -> Release:
    """Releases what the majority answered to each question, yes or no, decided with noise.

    ``ballots`` is a frame (pandas, polars, pyarrow), a table (Ibis, DuckDB, Spark), the names of
    CSV or parquet files, or an array or tensor. Rows are people and columns questions: 1 is yes, -1 is no, 0
    is neither, and so are yes and no, True and False in words. ``yes`` and ``no`` name other codes, one or a
    list of them each (``yes=1, no=2``), and ``neither`` those that are no answer. A column with 0 and without
    -1 is refused until one of them says what 0 means. A missing value (null, NaN in pandas, an empty cell in
    a file) is a question that was not answered; NaN in an array or in polars is refused. ``questions`` names
    the columns that are questions; left out, all are, except ``person``, which names each person once, and
    those to ``ignore``.

    Give ``epsilon`` and ``delta``, which hold for every dataset, and the noise is found, or give ``sigma``,
    the standard deviation of the noise of each surplus (yes minus no). ``noise`` is "gaussian", "gumbel" (on
    the counts of yes and of no), or "auto": the one that decides better, as in ``release_winners``.
    ``at_most`` answers of each person count, drawn at random among those that the person gave; without it all
    of them do, and one person can move all questions. ``neighbours`` is "added" (whether somebody took part
    is protected) or "replaced" (what somebody answered is, and it takes twice the noise); left out, it is
    that of the ledger, or "added". Every call is a
    release of its own, to be paid for; ``ledger`` is charged for it beforehand, in an entry called ``what``.
    ``seed`` is for tests: everybody who knows it knows the surpluses.

    With ``publish_epsilon`` the per-instance epsilon is released too, with noise of its own: the statement
    has it, and its cost is part of ``epsilon``.

    An array is answered by an array of 1 and -1. ``errors`` are chances of a wrong answer, with Gaussian
    noise Phi(-|surplus| / sigma), and 0 in a tie, where neither answer is wrong. They depend on the private
    ballots and must not be published; the statement has a public sentence about them.

    Guarantee: (epsilon, delta)-differential privacy for every dataset and any one person added or removed, or
    replaced, provided that what is given here was not chosen by looking at the data. The law is the
    stochastic sign of each surplus, or ``GumbelWinner``, drawn exactly. An error releases nothing, but its
    message may contain values of the data. Of many questions ``release_shares`` tells more.

    >>> import ringfence as rf
    >>> from pandas import DataFrame
    >>> people = DataFrame({"more trees": [1] * 90 + [-1] * 10, "more cars": [-1] * 70 + [0, None, 1] * 10})
    >>> votes = rf.release_votes(people, epsilon=1.0, delta=1e-6)
    >>> votes.rows()
    [('more trees', 'yes'), ('more cars', 'no')]
    >>> votes.account.per_instance.epsilon < 0.01 < votes.account.epsilon <= 1.0
    True
    """
    budget = Budget.checked(epsilon, delta, sigma, seed, ledger, what)
    poll = Poll.checked(budget, neighbours, at_most, publish_epsilon, binary=True, noise=noise)
    votes = read_ballots(
        ballots,
        ("yes", "no"),
        coding(yes, no, neither),
        queries=questions,
        argument="questions",
        person=person,
        ignore=ignore,
        limit=poll.limit,
        noise=budget.noise,
    )
    poll = replace(poll, at_most=poll.limit(len(votes.queries)))
    gaussian = StochasticSign(poll.sigma(len(votes.queries), 4.0 if poll.neighbours == "replaced" else 1.0))
    law = poll.law(gaussian, len(votes.queries), 2)
    account, published = poll.charge(law, votes, "release_votes")
    answers = poll.decide(law, votes, "votes")
    like = partial(make_coded_table, kind_of(ballots), _NUMBERS)
    votes = replace(votes, for_owner=(*votes.for_owner, *shares_instead(budget, votes)))
    return announce(law, votes, answers, account, poll, published, like, _ANSWERS)


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
        if self.neighbours == "replaced" and votes.voters and self.budget.delta * votes.voters > 1:
            warnings.warn(
                f"delta {self.budget.delta:g} is more than 1 / {votes.voters:,}, the number of voters: the "
                "promise may fail for one of them",
                stacklevel=3,
            )
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
        return Measured(replace(promised, own=rdp.sums), (), details)
    profile, rdp = profile_and_rdp(law, values, neighbours, at_most)
    return Measured(replace(promised, own=rdp.sums), (profile.best(delta),), details)


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


def lead_of(law: DecisionLaw, choices: int, wrong: float = _WRONG) -> float:
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


class Words(NamedTuple):
    """The words of a release of decisions: its nouns, how it was made, and what it does not promise."""

    winner: str
    winners: str
    candidate: str
    candidates: str
    query: str
    queries: str
    leaves_out: tuple[str, ...]
    method: str = (
        "{noise} was added to every count{confident}, and a {candidate} that leads by at least {lead:,} "
        "votes is passed over for another one with a chance of at most 1 %"
    )


_WINNERS = Words(
    *("winner", "winners", "candidate", "candidates", "query", "queries"),
    ("By how many votes a candidate won is not released, nor how many people voted.",),
)
_ANSWERS = Words(
    *("answer", "answers", "answer", "answers", "question", "questions"),
    ("By how many votes a question was decided is not released, nor how many people answered it.",),
    "{noise} votes was added before each majority was read off, and a question decided by at least {lead:,} "
    "counted votes is answered wrong with a chance of at most 1 %",
)


def announce(
    law: DecisionLaw,
    votes: Votes,
    winners: list[int],
    account: ReleaseAccount,
    poll: Poll,
    published: Sequence[str],
    like: Callable[[Columns], Any],
    words: Words,
) -> Release:
    """The release of these winners, one number of a choice for each query and -1 where there is none."""
    names, own = (*votes.choices, None), words._asdict()
    noise, deviation = getattr(law, "noise", "Gaussian"), deviation_of(law)
    if words is _ANSWERS:  # a surplus has the noise of two counts
        deviation *= math.sqrt(2)
    confident = ""
    if isinstance(law, ConfidentWinner):
        confident = (
            f", there is no answer where the largest count with noise of {law.threshold_sigma:.3g} is below "
            f"{law.threshold:g}"
        )
    drawn = [*range(len(votes.choices)), *([-1] if -1 in winners else [])]
    chart = bar_chart(
        words.winners.capitalize(),
        f"How many of {len(winners):,} {words.queries} each {words.candidate} won.",
        f"{words.queries} won",
        [bars(f"{words.queries} won", [winners.count(at) for at in drawn])],
        {words.candidate: ["no answer" if at < 0 else names[at] for at in drawn]},
    )
    keys = votes.keys or {words.query: votes.queries}
    wrong = expected_wrong(chances_of_error(law, votes.values(law)).tolist(), votes.queries)
    return Source(keys, like, votes.rows_are, poll.at_most, (*votes.for_owner, wrong)).release(
        account,
        poll.budget,
        chart,
        {words.winner: [names[number] for number in winners]},
        None,
        law,
        units=words.queries,
        data="votes",
        hidden="no answer",
        method=words.method.format(
            noise=f"{noise} noise with a standard deviation of {deviation:.3g}",
            confident=confident,
            lead=votes_ahead(law, len(votes.choices)),
            **own,
        ),
        public=f"{words.queries.capitalize()}, {words.candidates} and noise",
        promises=published,
        leaves_out=words.leaves_out,
    )


def winner_law(
    poll: Poll,
    queries: int,
    threshold: float | None,
    threshold_sigma: float | None,
    name: str = "confident_above",
) -> NoisyWinner | ConfidentWinner:
    """The law of each winner; ``name`` is that of the argument ``threshold``."""
    if threshold_sigma is not None and (threshold is None or poll.budget.epsilon is not None):
        raise ValueError(
            f"threshold_sigma needs {name} and sigma, got {threshold_sigma!r} without one of them"
        )
    # of the move at one query; a replaced ballot that is bounded may leave one and join another, each by 1
    square = 2.0 if poll.neighbours == "replaced" else 1.0
    largest = 2.0 if poll.neighbours == "replaced" and poll.at_most is not None else 1.0
    if threshold is None:
        return NoisyWinner(poll.sigma(queries, square))
    threshold = checks.number(name, threshold, checks.finite)
    sigma = poll.sigma(queries, square + largest * _THRESHOLD**-2)
    return ConfidentWinner(
        sigma, threshold, _THRESHOLD * sigma if threshold_sigma is None else threshold_sigma
    )


def shares_instead(budget: Budget, votes: Votes) -> tuple[str, ...]:
    """A sentence for the owner of the data who asks many questions: shares may be the better release."""
    many = len(votes.queries)
    if many < _MANY or votes.counts.sum() == 0:
        return ()
    answered = float(votes.counts.sum(dim=1).mean())
    points = 100 * count_noise(replace(budget, kind="auto"), many).deviation / math.sqrt(2) / answered
    return (
        f"The shares of yes and no in these {many:,} questions, by release_shares with the same budget, "
        f"would have a standard error of about {points:.2g} percentage points: they tell more than "
        "majorities do.",
    )


def coding(yes: Any, no: Any, neither: Any) -> Codes:
    """The choices that the values of a column stand for, -1 for none.

    >>> coding(1, 2, [8, 9])("trees", ["1", 2.0, "9"])
    {...'1': 0...}
    >>> coding(1, 2, [8, 9])("trees", [0])
    Traceback (most recent call last):
    ValueError: column 'trees' must hold 1 (yes), 2 (no), 8 (neither) or 9 (neither), got 0
    """
    if (yes is None) != (no is None):
        raise ValueError(f"yes and no must be given together, got yes={yes!r} and no={no!r}")
    codes = dict(_CODES) if yes is None else {}
    rule = "must hold 1 (yes), -1 (no) or 0, or yes and no in words, or what yes= and no= say"
    if yes is None and neither is None:
        codes[0.0] = UNCLEAR
    said = []
    for choice, name, given in ((0, "yes", yes), (1, "no", no), (-1, "neither", neither)):
        values = given if isinstance(given, list | tuple | set) else [given] * (given is not None)
        for value in values:
            if codes.setdefault(_plain(value), choice) != choice:
                raise ValueError(f"yes, no and neither must be different, got {value!r} twice")
            said.append(f"{value!r} ({name})")
    if yes is not None:
        rule = f"must hold {', '.join(said[:-1])} or {said[-1]}"
    return partial(code_values, code=lambda value: codes.get(_plain(value)), rule=rule)


def _plain(value: Any) -> Any:
    """A value as it is compared: a number, or a text without regard to case."""
    text = str(value).strip().casefold()
    try:
        return float(text)
    except ValueError:
        return text
