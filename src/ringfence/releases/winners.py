"""Winners of votes: for each query the candidate with the largest noisy count, and nothing else."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

from ringfence import checks
from ringfence.accounting.decisions import Neighbours
from ringfence.accounting.ledger import Ledger
from ringfence.mechanisms.decision import Decision
from ringfence.mechanisms.winner import ConfidentWinner, NoisyWinner
from ringfence.noise import Noise
from ringfence.releases.ballots import (
    NoiseKind,
    Poll,
    Votes,
    read_choices,
    read_counts,
    read_votes,
    votes_ahead,
)
from ringfence.releases.budget import Budget
from ringfence.releases.cells import Domain, Missing, checked_at_most
from ringfence.releases.reader import Columns, kind_of, make_coded_table
from ringfence.releases.release import Bars, Release, ReleaseAccount, Series, Source

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
    noise: NoiseKind = "auto",
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
        at_most = checked_at_most(1 if at_most is None else at_most, None, 1)
    if confident_above is not None:
        if noise == "gumbel":
            raise ValueError("noise must be 'gaussian' with confident_above, got 'gumbel'")
        noise = "gaussian" if noise == "auto" else noise
    poll = Poll.checked(budget, neighbours, at_most, publish_epsilon, noise=noise)
    if threshold_sigma is not None and (confident_above is None or sigma is None):
        raise ValueError(
            f"threshold_sigma needs confident_above and sigma, got {threshold_sigma!r} without one of them"
        )
    cells: dict[str, Any] = {"by": by, "domain": domain, "bins": bins}
    if of is not None:
        left_out, kind = {"queries": queries, "query": query, "ignore": ignore or None}, "rows that are votes"
        if candidates is None:
            raise ValueError("candidates must list the public candidates of the column of, got None")
    elif candidates is None:
        left_out, kind = {"person": person, "queries": queries, **cells}, "counts"
    else:
        left_out, kind = {"query": query, **cells}, "ballots (of= is missing, where each row is a vote)"
    for name, given in left_out.items():
        if given is not None:
            raise ValueError(f"{name} must be left out where data holds {kind}, got {given!r}")
    who: dict[str, Any] = {"person": person, "limit": poll.size}
    if of is not None:
        read = read_votes(data, of=of, candidates=candidates, missing=missing, **cells, **who)
    elif candidates is None:
        read = read_counts(data, query, ignore)
    else:
        how: dict[str, Any] = {"queries": queries, "argument": "queries", "ignore": ignore}
        read = read_choices(data, "candidates", candidates, **how, **who)
    poll, votes = poll.limit(read)
    gaussian = winner_law(poll, len(votes.queries), confident_above, threshold_sigma)
    law = cast(Decision, poll.law(gaussian, len(votes.queries), len(votes.choices)))
    account, published = poll.charge(law, votes, "release_winners")
    winners = poll.decide(law, votes, "winners")
    codes = {name: at for at, name in enumerate(votes.choices)} | {None: -1}
    return announce(
        law,
        votes,
        winners,
        account,
        poll,
        published,
        partial(make_coded_table, kind_of(data), codes),
        WINNERS,
    )


class Words(NamedTuple):
    """The nouns of a release of winners, and what it does not promise."""

    winner: str
    winners: str
    candidate: str
    candidates: str
    leaves_out: tuple[str, ...]


WINNERS = Words(
    *("winner", "winners", "candidate", "candidates"),
    ("By how many votes a candidate won is not released, nor how many people voted.",),
)


def announce(
    law: Decision,
    votes: Votes,
    winners: list[int],
    account: ReleaseAccount,
    poll: Poll,
    published: Sequence[str],
    like: Callable[[Columns], Any],
    words: Words,
) -> Release:
    """The release of these winners, one number of a choice for each query and -1 where there is none."""
    names = (*votes.choices, None)
    confident = ""
    if isinstance(law, ConfidentWinner):
        confident = (
            f", there is no answer where the largest count with noise of {law.threshold_sigma:.3g} is below "
            f"{law.threshold:g}"
        )
    lead = votes_ahead(law, len(votes.choices))
    drawn = [*range(len(votes.choices)), *([-1] if -1 in winners else [])]
    bars = Bars(
        f"How many of {len(winners):,} queries each {words.candidate} won.",
        "queries won",
        [Series("queries won", [winners.count(at) for at in drawn])],
        {words.candidate: ["no answer" if at < 0 else names[at] for at in drawn]},
    )
    keys = votes.keys or {"query": votes.queries}
    return Source(keys, like, votes.rows_are, poll.at_most, poll.for_owner(law, votes)).release(
        account,
        poll.budget,
        words.winners.capitalize(),
        {words.winner: [names[number] for number in winners]},
        None,
        bars,
        (
            ("law", repr(law)),
            ("queries", f"{len(votes.queries):,}"),
            (words.candidates, f"{len(votes.choices):,}"),
            *poll.settings,
        ),
        units="queries",
        data="votes",
        hidden="no answer",
        method=f"{law.noise} noise with a standard deviation of {law.deviation:.3g} was added to every "
        f"count{confident}, and a {words.candidate} that leads by at least {lead:,} votes is passed over "
        "for another one with a chance of at most 1 %",
        public=f"Queries, {words.candidates} and noise",
        promises=published,
        leaves_out=words.leaves_out,
    )


def winner_law(
    poll: Poll, queries: int, confident_above: float | None, threshold_sigma: float | None
) -> NoisyWinner | ConfidentWinner:
    """The law of each winner."""
    # of the move at one query; a replaced ballot that is bounded may leave one and join another, each by 1
    square = 2.0 if poll.neighbours == "replaced" else 1.0
    largest = 2.0 if poll.neighbours == "replaced" and poll.at_most is not None else 1.0
    if confident_above is None:
        return NoisyWinner(poll.sigma(queries, square))
    threshold = checks.number("confident_above", confident_above, checks.finite)
    sigma = poll.sigma(queries, square + largest * _THRESHOLD**-2)
    return ConfidentWinner(
        sigma, threshold, _THRESHOLD * sigma if threshold_sigma is None else threshold_sigma
    )
