"""Votes on yes/no questions: the noisy majority of each question, and nothing else."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ringfence.accounting.decisions import Neighbours
from ringfence.accounting.ledger import Ledger
from ringfence.mechanisms.decision import Decision
from ringfence.mechanisms.sign import StochasticSign
from ringfence.noise import Noise
from ringfence.releases.ballots import UNCLEAR, NoiseKind, Poll, Votes, read_ballots, votes_ahead
from ringfence.releases.budget import Budget, count_noise
from ringfence.releases.reader import kind_of, make_coded_table
from ringfence.releases.release import Bars, Release, Series, Source

_MANY = 5  # questions, of which shares tell more than majorities
_NUMBERS = {"yes": 1, "no": -1}  # answers in an array
_CODES: dict[Any, int] = {
    1.0: 0,
    "yes": 0,
    "true": 0,
    -1.0: 1,
    "no": 1,
    "false": 1,
}  # choices by what is said


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
    noise: NoiseKind = "auto",
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
    message may contain values of the data. Of many questions ``release_shares`` tells more, and ``private``
    says how much.

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
    poll = Poll.checked(budget, neighbours, at_most, publish_epsilon, usual="added", binary=True, noise=noise)
    code, rule = coding(yes, no, neither)
    read = read_ballots(
        ballots,
        ("yes", "no"),
        code,
        rule,
        queries=questions,
        argument="questions",
        person=person,
        ignore=ignore,
        limit=poll.size,
    )
    poll, votes = poll.limit(read)
    gaussian = StochasticSign(poll.sigma(len(votes.queries), 4.0 if poll.neighbours == "replaced" else 1.0))
    law = poll.law(gaussian, len(votes.queries), 2)
    kind = law.noise if isinstance(law, Decision) else "Gaussian"
    noisy = math.sqrt(2) * law.deviation if isinstance(law, Decision) else float(law.sigma)
    account, published = poll.charge(law, votes, "release_votes")
    answers = [votes.choices[number] for number in poll.decide(law, votes, "votes")]
    series = [
        Series(
            f"{answer} ({answers.count(answer):,})",
            [height if own == answer else None for own in answers],
            mechanism=look,
            points=True,
        )
        for height, (answer, look) in enumerate((("no", "truncated"), ("yes", "rectified")))
    ]
    like = partial(make_coded_table, kind_of(ballots), _NUMBERS)
    for_owner = (*poll.for_owner(law, votes), *shares_instead(poll.budget, votes))
    keys = {"question": votes.queries}
    return Source(keys, like, votes.rows_are, poll.at_most, for_owner).release(
        account,
        poll.budget,
        "Answers",
        {"answer": answers},
        None,
        Bars("What the majority answered, decided with noise.", "answer", series, keys, ("no", "yes")),
        (
            ("noise", f"{kind}, standard deviation {noisy:.6g} votes; only the sign is released"),
            ("questions", f"{len(votes.queries):,}"),
            *poll.settings,
        ),
        units="questions",
        data="ballots",
        hidden="",
        method=f"{kind} noise with a standard deviation of {noisy:.3g} votes was added before each "
        f"majority was read off, and a question decided by at least {votes_ahead(law, 2):,} "
        f"{'' if poll.at_most is None else 'counted '}votes is answered wrong with a chance of at most 1 %",
        public="Questions and noise",
        promises=published,
        leaves_out=(
            "By how many votes a question was decided is not released, nor how many people answered it.",
        ),
    )


def shares_instead(budget: Budget, votes: Votes) -> tuple[str, ...]:
    """What the owner of the data is told who asks many questions: shares may be the better release."""
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


def coding(yes: Any, no: Any, neither: Any) -> tuple[Callable[[Any], int | None], str]:
    """The choice that a value stands for (-1: none, None: it is not allowed), and the rule in words.

    >>> code, rule = coding(1, 2, [8, 9])
    >>> [code(value) for value in ("1", 2.0, "9", 0)], rule
    ([0, 1, -1, None], 'must hold 1 (yes), 2 (no), 8 (neither) or 9 (neither)')
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
    return (lambda value: codes.get(_plain(value))), rule


def _plain(value: Any) -> Any:
    """A value as it is compared: a number, or a text without regard to case."""
    if not isinstance(value, bool):
        try:
            return float(value)
        except (TypeError, ValueError):
            pass
    return str(value).strip().casefold()
