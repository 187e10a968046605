"""Votes on yes/no questions: the noisy majority of each question, and nothing else."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.decisions.moves import NEIGHBOURS, Neighbours, checked_at_most
from ringfence.accounting.decisions.publication import publishable_decision_epsilon
from ringfence.accounting.ledger import Ledger
from ringfence.accounting.publication import PublishableEpsilon
from ringfence.decisions.account import ReleaseAccount, checked_arguments, noise_multiplier, released, within
from ringfence.decisions.ballots.ballots import read_ballots
from ringfence.decisions.ballots.cost import (
    decision_account,
    room_to_publish,
    sensitive_sentences,
    whole_numbers_beyond,
)
from ringfence.decisions.ballots.sheet import read_sheet
from ringfence.decisions.bars import MOST_BARS, MOST_NAMES
from ringfence.decisions.result import DecisionRelease
from ringfence.decisions.statement import RowsAre, Statement, attack, one_person, rehearsal, target
from ringfence.mechanisms.sign import StochasticSign
from ringfence.noise import Noise
from ringfence.numerics.normal import log_tail
from ringfence.report.chart import Chart, Line, Panel

_NUMBERS = {"yes": 1, "no": -1}  # answers in an array
_PLACES = {1.0: 0, -1.0: 1, 0.0: -1}  # choices by what stands in a ballot


def release_votes(
    ballots: Any,
    questions: Sequence[str | int] | None = None,
    *,
    epsilon: float | None = None,
    delta: float = 1e-6,
    sigma: float | None = None,
    at_most: int | None = None,
    person: str | int | None = None,
    ignore: Sequence[str | int] = (),
    neighbours: Neighbours = "added",
    publish_epsilon: bool = False,
    noise: Noise | None = None,
    ledger: Ledger | None = None,
) -> DecisionRelease:
    """What the majority answered to each question, yes or no, decided with noise.

    ``ballots`` is a frame (pandas, polars, pyarrow), the names of CSV or parquet files, or an array or
    tensor. Rows are people and columns questions: 1 is yes, -1 is no, 0 is neither. A missing value (null,
    NaN in pandas, an empty cell in a file) is a question that was not answered and counts as 0; NaN in an
    array or in polars is refused. ``questions`` names the columns that are questions; left out, all are,
    except ``person``, which names each person once, and those to ``ignore``.

    Give ``epsilon`` and ``delta``, which hold for every dataset, and the noise is found, or give ``sigma``,
    the standard deviation of the noise of each surplus (yes minus no). ``at_most`` answers of each person
    count, drawn at random among those that the person gave; without it all of them do, and one person can
    move all questions. ``neighbours`` is "added" (whether somebody took part is protected) or "replaced"
    (what somebody answered is, and it takes twice the noise). Every call is a release of its own, to be paid
    for; ``ledger`` is charged for it beforehand. ``noise`` is for rehearsals and tests: whoever knows its
    seed knows the surpluses.

    With ``publish_epsilon`` the per-instance epsilon is released too, with noise of its own: the statement
    has it, and its cost is part of ``epsilon``.

    An array is answered by an array of 1 and -1. ``errors`` are chances of a wrong answer, Phi(-|surplus| /
    sigma), and 0 in a tie, where neither answer is wrong. They depend on the private ballots and must not be
    published; the statement has a public sentence about them.

    Guarantee: (epsilon, delta)-differential privacy for every dataset and any one person added or removed, or
    replaced, provided that what is given here was not chosen by looking at the data. The law is the
    stochastic sign of each surplus, drawn exactly. An error releases nothing, but it may say something about
    the data to whoever reads it.

    >>> import ringfence as rf
    >>> from pandas import DataFrame
    >>> people = DataFrame({"more trees": [1] * 90 + [-1] * 10, "more cars": [-1] * 70 + [0, None, 1] * 10})
    >>> votes = rf.release_votes(people, epsilon=1.0, delta=1e-6)
    >>> votes.rows()
    [('more trees', 'yes'), ('more cars', 'no')]
    >>> votes.account.epsilon_tight < 0.01 < votes.account.epsilon <= 1.0
    True
    """
    epsilon, delta = checked_arguments(epsilon, delta, noise)
    multiplier = noise_multiplier(epsilon, delta, sigma)
    if checks.flag("publish_epsilon", publish_epsilon) and sigma is None:
        multiplier = room_to_publish(multiplier)
    checks.one_of("neighbours", neighbours, NEIGHBOURS)
    sheet = read_sheet(ballots)
    read = read_ballots(
        sheet,
        ("yes", "no"),
        _answer,
        "must hold 1 (yes), -1 (no) or 0",
        queries=questions,
        argument="questions",
        person=person,
        ignore=ignore,
    )
    names = read.queries
    size = checked_at_most(at_most, neighbours, len(names))
    read = read.limited(size, noise)
    farthest = (2.0 if neighbours == "replaced" else 1.0) * math.sqrt(size or len(names))
    noisy = multiplier * farthest if sigma is None else multiplier
    law = StochasticSign(noisy)
    counts = read.counts
    surplus = counts[:, 0] - counts[:, 1]
    chances = wrong_answers(surplus, noisy).tolist()
    account = decision_account(
        law,
        surplus,
        neighbours=neighbours,
        at_most=size,
        delta=delta,
        ballots=read,
        chances=chances,
        publish=publish_epsilon,
    )
    within(epsilon, account, ledger, "release_votes")
    published = None
    if publish_epsilon:
        published = publishable_decision_epsilon(
            law, surplus, neighbours=neighbours, at_most=size, delta=delta
        )
    answers = ["yes" if value > 0 else "no" for value in released(law, surplus, noise, "votes").tolist()]
    return DecisionRelease(
        title="Answers",
        columns={"question": names, "answer": answers},
        error_columns={"question": names, "chance_of_error": chances},
        hidden="",
        numbers=("answer",),
        like=partial(sheet.like, codes=_NUMBERS),
        account=account,
        statement=_statement(
            account,
            epsilon,
            noisy,
            "rows" if person is None else "persons",
            size,
            neighbours,
            names,
            published,
            noise is not None and noise.seeded,
        ),
        drawn=_chart,
        settings=(
            ("noise", f"Gaussian, standard deviation {noisy:.6g} votes; only the sign is released"),
            ("questions", f"{len(names):,}"),
            ("answers of one person", "all" if size is None else f"at most {size}"),
            ("neighbours", f"one person {neighbours}"),
        ),
        errors_are_sensitive=True,
    )


def wrong_answers(surplus: Tensor, sigma: float) -> Tensor:
    """The chance that noise turns the sign of each surplus; a tie has no wrong answer.

    >>> found = wrong_answers(torch.tensor([0.0, -2.0, 30.0], dtype=torch.float64), 1.0)
    >>> [f"{chance:.6g}" for chance in found.tolist()]
    ['0', '0.0227501', '4.90671e-198']
    """
    return torch.where(surplus == 0, 0.0, torch.exp(log_tail(surplus.abs() / sigma)))


def margin(sigma: float) -> int:
    """How many votes must decide a question so that it is answered wrong with a chance of at most 1 %.

    >>> margin(10.0)  # 2.33 sigma
    24
    """

    def chance(votes: int) -> float:
        return float(wrong_answers(torch.tensor(votes, dtype=torch.float64), sigma)) if votes else 1.0

    return whole_numbers_beyond(chance, 3 * sigma)


def _answer(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    try:
        return _PLACES.get(float(value))
    except (TypeError, ValueError):
        return None


def _statement(
    account: ReleaseAccount,
    epsilon: float | None,
    sigma: float,
    rows_are: RowsAre,
    at_most: int | None,
    neighbours: Neighbours,
    names: list[str],
    published: PublishableEpsilon | None,
    seeded: bool,
) -> Statement:
    who = one_person(rows_are)
    public = (
        f"These answers are protected by differential privacy ({target(epsilon, account)}) for each {who}: "
        f"random noise with a standard deviation of {sigma:.3g} votes was added before each majority was "
        f"read off, and a question decided by at least {margin(sigma):,} "
        f"{'' if at_most is None else 'counted '}votes is answered wrong with a chance of at most 1 %."
        f"{rehearsal(seeded)}"
    )
    counted = (
        "All answers of a person count."
        if at_most is None
        else f"Of each person at most {at_most} answers count, drawn at random among that person's own."
    )
    promises = (
        attack(account, who, replaced=neighbours == "replaced"),
        counted,
        *(
            ("Each row is taken as one person: whoever has several rows is protected less.",)
            if rows_are == "rows"
            else ()
        ),
        "Questions and noise are public. They must not have been chosen by looking at the ballots.",
        *(() if published is None else (published.statement,)),
    )
    leaves_out = (
        "It is about one person at a time: what a large group has in common shows in the answers.",
        "Every further release from the same ballots costs its own epsilon, and the epsilons add up.",
        "By how many votes a question was decided is not released, nor how many people answered it.",
    )
    return Statement(public, promises, leaves_out, sensitive_sentences(account, names))


def _chart(release: DecisionRelease) -> Chart:
    """A strip of bars: upward where the answer is yes, downward where it is no."""
    names, every = list(release.columns["question"])[:MOST_BARS], list(release.columns["answer"])
    answers, named = every[:MOST_BARS], len(names) <= MOST_NAMES
    drawn = (
        f" The first {MOST_BARS:,} of {len(every):,} questions are drawn." if len(every) > MOST_BARS else ""
    )
    place = tuple(float(number + (not named)) for number in range(len(names)))
    lines = tuple(
        Line(
            f"{answer} ({every.count(answer):,})",
            place,
            tuple(float(height) if own == answer else math.nan for own in answers),
            mechanism=look,
            bars=True,
        )
        for (answer, height), look in zip(_NUMBERS.items(), ("rectified", "truncated"), strict=True)
    )
    panel = Panel(
        title=release.title,
        x_label="question" if named else "row of the table",
        y_label="yes above, no below",
        lines=lines,
        x_names=tuple(names) if named else (),
    )
    caption = f"Up: the answer is yes. Down: it is no.{drawn}"
    return Chart("chart", release.title, caption, (panel,), columns=3)
