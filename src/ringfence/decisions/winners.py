"""Winners of votes: for each query the candidate with the largest noisy count, and nothing else."""

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import torch

from ringfence import checks
from ringfence.accounting.decisions.moves import NEIGHBOURS, Neighbours, checked_at_most
from ringfence.accounting.decisions.publication import publishable_decision_epsilon
from ringfence.accounting.ledger import Ledger
from ringfence.accounting.publication import PublishableEpsilon
from ringfence.decisions.account import ReleaseAccount, checked_arguments, noise_multiplier, own_draws, within
from ringfence.decisions.ballots.cost import (
    WRONG,
    decision_account,
    room_to_publish,
    sensitive_sentences,
    whole_numbers_beyond,
)
from ringfence.decisions.ballots.counted import CountedVotes, read_votes
from ringfence.decisions.bars import bar_chart
from ringfence.decisions.result import DecisionRelease
from ringfence.decisions.statement import Statement, attack, one_person, rehearsal, target
from ringfence.mechanisms.decision import Decision
from ringfence.mechanisms.winner import ConfidentWinner, NoisyWinner
from ringfence.noise import Noise
from ringfence.report.chart import Chart

_THRESHOLD = 2.0  # the noise of the question whether there is an answer, in units of that of the winner


def release_winners(
    data: Any,
    queries: Sequence[str | int] | None = None,
    *,
    epsilon: float | None = None,
    delta: float = 1e-6,
    sigma: float | None = None,
    candidates: Iterable[Any] | None = None,
    confident_above: float | None = None,
    threshold_sigma: float | None = None,
    neighbours: Neighbours = "replaced",
    at_most: int | None = None,
    person: str | int | None = None,
    query: str | int | None = None,
    ignore: Sequence[str | int] = (),
    publish_epsilon: bool = False,
    noise: Noise | None = None,
    ledger: Ledger | None = None,
) -> DecisionRelease:
    """Which candidate won each query, decided with noise.

    ``data`` is a frame (pandas, polars, pyarrow), the names of CSV or parquet files, or an array or tensor.
    It holds counts of voters: one row per query, one column per candidate, and perhaps a column ``query``
    with names of the queries. Or it holds ballots, if ``candidates`` lists the public candidates: one row
    per person, one column per query (``queries``, or all), each entry a candidate or, in a frame, missing.
    ``person`` names the column that names each person once. Columns to ``ignore`` are left out.

    Give ``epsilon`` and ``delta``, which hold for every dataset, and the noise is found, or give ``sigma``,
    the standard deviation of the noise of each count. ``neighbours`` is "replaced" (what somebody voted is
    protected) or "added" (whether somebody took part is). With "added", ``at_most`` bounds the queries in
    which one person counts: for ballots they are drawn at random among those where the person voted; counts
    must have been made that way. ``noise`` is for rehearsals and tests. ``ledger`` is
    charged beforehand.

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
    ``NoisyWinner`` or ``ConfidentWinner``, drawn exactly. An error releases nothing, but it may say something
    about the data to whoever reads it.

    >>> import ringfence as rf
    >>> from pandas import DataFrame
    >>> counts = DataFrame({"cat": [240, 3], "dog": [9, 235], "fox": [1, 12]})
    >>> winners = rf.release_winners(counts, sigma=20.0)
    >>> winners.rows()
    [('1', 'cat'), ('2', 'dog')]
    >>> winners.account.epsilon_tight < 1e-3 < winners.account.epsilon
    True
    """
    epsilon, delta = checked_arguments(epsilon, delta, noise)
    multiplier = noise_multiplier(epsilon, delta, sigma)
    if checks.flag("publish_epsilon", publish_epsilon) and sigma is None:
        multiplier = room_to_publish(multiplier)
    checks.one_of("neighbours", neighbours, NEIGHBOURS)
    votes = read_votes(data, queries, candidates, person, query, ignore)
    size = checked_at_most(at_most, neighbours, len(votes.names))
    votes = votes.limited(size, noise)
    law = _law(
        multiplier, sigma is None, size or len(votes.names), neighbours, confident_above, threshold_sigma
    )
    chances = law.chance_of_error(votes.counts).tolist()
    account = decision_account(
        law,
        votes.counts,
        neighbours=neighbours,
        at_most=size,
        delta=delta,
        ballots=votes.ballots,
        chances=chances,
        publish=publish_epsilon,
    )
    within(epsilon, account, ledger, "release_winners")
    published = None
    if publish_epsilon:
        published = publishable_decision_epsilon(
            law, votes.counts, neighbours=neighbours, at_most=size, delta=delta
        )
    bits = own_draws(law, votes.counts, noise, "winners")
    numbers = law.release(votes.counts, draws=bits).tolist()
    codes = {name: number for number, name in enumerate(votes.candidates)} | {None: -1}
    return DecisionRelease(
        title="Winners",
        columns={"query": votes.names, "winner": [(*votes.candidates, None)[number] for number in numbers]},
        error_columns={"query": votes.names, "chance_of_error": chances},
        hidden="no answer",
        numbers=("winner",),
        like=partial(votes.sheet.like, codes=codes),
        account=account,
        statement=_statement(
            account, epsilon, law, votes, size, neighbours, published, noise is not None and noise.seeded
        ),
        drawn=partial(_chart, votes.candidates),
        settings=(
            ("law", repr(law)),
            ("queries", f"{len(votes.names):,}"),
            ("candidates", f"{len(votes.candidates):,}"),
            ("queries of one person", "all" if size is None else f"at most {size}"),
            ("neighbours", f"one person {neighbours}"),
        ),
        errors_are_sensitive=True,
    )


def _law(
    multiplier: float,
    found: bool,
    queries: int,
    neighbours: Neighbours,
    confident_above: float | None,
    threshold_sigma: float | None,
) -> Decision:
    """The law, with noise that is given or, if it is ``found``, makes the longest move of a person 1 long."""
    square = 2.0 if neighbours == "replaced" else 1.0  # of the move at one query
    if threshold_sigma is not None and (confident_above is None or found):
        raise ValueError(
            f"threshold_sigma needs confident_above and sigma, got {threshold_sigma!r} without one of them"
        )
    if confident_above is None:
        return NoisyWinner(multiplier * math.sqrt(square * queries) if found else multiplier)
    threshold = checks.number("confident_above", confident_above, checks.finite)
    if found:
        multiplier *= math.sqrt((square + _THRESHOLD**-2) * queries)
    return ConfidentWinner(multiplier, threshold, threshold_sigma or _THRESHOLD * multiplier)


def margin(sigma: float, candidates: int) -> int:
    """By how many votes a winner must lead all others to be announced except with a chance of 1 %.

    The chance of an error is largest where all others are equally close behind.

    >>> margin(10.0, 2), margin(10.0, 10)
    (33, 43)
    """
    law = NoisyWinner(sigma)

    def chance(votes: int) -> float:
        counts = torch.zeros(candidates, dtype=torch.float64)
        counts[0] = votes
        return float(law.chance_of_error(counts)) if votes else 1.0

    # each of the others is ahead with a chance of Phi(-margin / (sqrt 2 sigma))
    share = torch.tensor(WRONG / (candidates - 1), dtype=torch.float64)
    return whole_numbers_beyond(chance, 1 - math.sqrt(2) * sigma * float(torch.special.ndtri(share)))


def _statement(
    account: ReleaseAccount,
    epsilon: float | None,
    law: Decision,
    votes: CountedVotes,
    at_most: int | None,
    neighbours: Neighbours,
    published: PublishableEpsilon | None,
    seeded: bool,
) -> Statement:
    who = one_person(votes.rows_are)
    sigma = float(law.sigma)  # type: ignore[attr-defined]
    confident = ""
    if isinstance(law, ConfidentWinner):
        confident = (
            f", there is no answer where the largest count with noise of {law.threshold_sigma:.3g} is below "
            f"{law.threshold:g}"
        )
    public = (
        f"These winners are protected by differential privacy ({target(epsilon, account)}) for each {who}: "
        f"random noise with a standard deviation of {sigma:.3g} was added to every count{confident}, and a "
        f"candidate who leads by at least {margin(sigma, len(votes.candidates)):,} votes is passed over for "
        f"another one with a chance of at most 1 %.{rehearsal(seeded)}"
    )
    once = "at most once in every query"
    if at_most is not None:
        once = f"in at most {at_most} {'query' if at_most == 1 else 'queries'}, once in each"
    counted = {
        "aggregated": f"The counts came aggregated: whoever made them must have counted each person {once}.",
        "rows": f"Each row is taken as one person and counts {once}: whoever has several rows is protected "
        "less.",
        "persons": f"Each person counts {once}.",
    }[votes.rows_are]
    promises = (
        attack(account, who, replaced=neighbours == "replaced"),
        counted,
        "Queries, candidates and noise are public. They must not have been chosen by looking at the votes.",
        *(() if published is None else (published.statement,)),
    )
    leaves_out = (
        "It is about one person at a time: what a large group has in common shows in the winners.",
        "Every further release from the same votes costs its own epsilon, and the epsilons add up.",
        "By how many votes a candidate won is not released, nor how many people voted.",
    )
    return Statement(public, promises, leaves_out, sensitive_sentences(account, votes.names))


def _chart(candidates: tuple[Any, ...], release: DecisionRelease) -> Chart:
    winners = list(release.columns["winner"])
    names = [*candidates, None] if None in winners else list(candidates)
    heights = [float(winners.count(name)) for name in names]
    return bar_chart(
        title=release.title,
        caption=f"How many of {len(winners):,} queries each candidate won.",
        y_label="queries won",
        names=["candidate"],
        labels=[("no answer" if name is None else str(name),) for name in names],
        heights=heights,
        ends=[(math.nan, math.nan)] * len(heights),
    )
