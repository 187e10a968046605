"""Decisions by votes: noisy majorities of yes/no questions, and candidates with the largest noisy count.

Nothing else is released.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from ringfence import checks
from ringfence.accounting.decisions import DecisionLaw, Neighbours
from ringfence.accounting.ledger import Ledger
from ringfence.mechanisms.sign import StochasticSign
from ringfence.mechanisms.winner import ConfidentWinner, NoisyWinner
from ringfence.noise import Noise
from ringfence.releases.ballots import (
    UNCLEAR,
    DecisionNoise,
    Poll,
    Votes,
    chances_of_error,
    deviation_of,
    expected_wrong,
    read_ballots,
    read_choices,
    read_counts,
    read_votes,
    votes_ahead,
)
from ringfence.releases.budget import Budget
from ringfence.releases.cells import Domain, Missing, cells_of_a_person
from ringfence.releases.reader import Codes, Columns, code_values, kind_of, make_coded_table
from ringfence.releases.release import Bars, Release, ReleaseAccount, Series, Source

_NUMBERS = {"yes": 1, "no": -1}  # answers in an array
# the choice that an answer in the data stands for, unless yes= and no= are given
_CODES: dict[Any, int] = {1.0: 0, "yes": 0, "true": 0, -1.0: 1, "no": 1, "false": 1}
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
        how: dict[str, Any] = {"queries": queries, "argument": "queries", "ignore": ignore}
        read = partial(read_choices, data, "candidates", candidates, **how, **who, noise=budget.noise)
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
    return announce(law, votes, answers, account, poll, published, like, _ANSWERS)


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
    bars = Bars(
        f"How many of {len(winners):,} {words.queries} each {words.candidate} won.",
        f"{words.queries} won",
        [Series(f"{words.queries} won", [winners.count(at) for at in drawn])],
        {words.candidate: ["no answer" if at < 0 else names[at] for at in drawn]},
    )
    keys = votes.keys or {words.query: votes.queries}
    wrong = expected_wrong(chances_of_error(law, votes.values(law)).tolist(), votes.queries)
    return Source(keys, like, votes.rows_are, poll.at_most, (*votes.for_owner, wrong)).release(
        account,
        poll.budget,
        words.winners.capitalize(),
        {words.winner: [names[number] for number in winners]},
        None,
        bars,
        (
            ("law", repr(law)),
            (words.queries, f"{len(votes.queries):,}"),
            (words.candidates, f"{len(votes.choices):,}"),
            ("votes of one person", "all" if poll.at_most is None else f"at most {poll.at_most}"),
            ("neighbours", f"one person {poll.neighbours}"),
        ),
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
    if not isinstance(value, bool):
        try:
            return float(value)
        except (TypeError, ValueError):
            pass
    return str(value).strip().casefold()
