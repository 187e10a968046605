"""Winners: the law that decides, what it is said to cost, what stays private and what is refused."""

import math

import numpy as np
import pandas
import pytest
import torch

import ringfence as rf
from ringfence.mechanisms import winner
from ringfence.releases.budget import Budget
from ringfence.releases.decisions import Poll, lead_of, votes_ahead

COUNTS = pandas.DataFrame({"cat": [240, 3, 90], "dog": [9, 235, 80], "fox": [1, 12, 0]})
BALLOTS = pandas.DataFrame({"q1": ["cat"] * 40 + ["dog"] * 8 + [None] * 3, "q2": ["dog"] * 50 + ["cat"]})
PETS = ["cat", "dog", "fox"]
NORMAL, GUMBEL = rf.NoisyWinner(20.0), rf.GumbelWinner(20.0)


def test_winners_follow_the_law_and_a_wrong_sigma_is_rejected() -> None:
    winners = rf.release_winners(np.array([[12, 8, 8]] * 1000), sigma=8.0, seed=3)
    wanted = float(rf.NoisyWinner(8.0).log_prob(0, [12, 8, 8]).exp())
    first = float((winners.values == 0).mean())
    assert abs(first - wanted) < 4 * math.sqrt(wanted * (1 - wanted) / 1000)
    assert winners.errors[0] == pytest.approx(1 - wanted)
    sure = rf.release_winners(np.array([[12, 8, 8]] * 1000), sigma=8.0, confident_above=14, seed=3)
    silent = float((sure.values == -1).mean())
    wanted = float(torch.special.ndtr(torch.tensor(2 / 16.0)))
    assert abs(silent - wanted) < 4 * math.sqrt(wanted * (1 - wanted) / 1000)
    assert {row[1] for row in sure.rows()} == {"0", "1", "2", "no answer"}


def test_two_candidates_are_a_yes_or_no_question() -> None:
    """The difference of two noisy counts has sqrt 2 times the noise."""
    marks = np.array([[1, -1]] * 30 + [[-1, -1]] * 12 + [[1, 1]] * 4)
    votes = rf.release_votes(marks, sigma=8.0 * math.sqrt(2), delta=1e-5)
    winners = rf.release_winners(marks, candidates=[1, -1], neighbours="added", sigma=8.0, delta=1e-5)
    assert winners.account.per_instance.epsilon == pytest.approx(votes.account.per_instance.epsilon, rel=1e-6)
    assert winners.errors.tolist() == pytest.approx(votes.errors.tolist())


def test_ballots_are_counted_and_bounded() -> None:
    winners = rf.release_winners(BALLOTS, candidates=PETS, sigma=1.0)
    assert winners.account.details["votes"] == [[40, 8, 0], [1, 50, 0]]
    assert winners.rows() == [("q1", "cat"), ("q2", "dog")]
    array = np.array([["dog", "cat"]] * 30 + [["cat", "cat"]] * 9)
    assert rf.release_winners(array, candidates=PETS, sigma=1.0).values.tolist() == [1, 0]
    few = rf.release_winners(BALLOTS, candidates=PETS, sigma=1.0, neighbours="added", at_most=1)
    assert np.array(few.account.details["votes"]).sum() == 51
    assert "Each row is taken as one person" in winners.statement.promises[1]
    assert (
        "counts in at most 1 of the queries, at most once in each: a person with several rows"
        in few.statement.promises[1]
    )
    assert "each person must have been counted" in rf.release_winners(COUNTS, sigma=1.0).statement.promises[1]


def test_the_margin_of_the_public_sentence_is_enough_and_no_longer() -> None:
    for law, others, less in ((NORMAL, 1, 1), (NORMAL, 9, 3), (GUMBEL, 1, 1), (GUMBEL, 9, 1)):
        lead = votes_ahead(law, others + 1)
        worst = [[lead, *[0] * others], [lead - less, *[0] * others]]
        wrong = law.chance_of_error(worst)
        assert float(wrong[0]) <= 0.01 < float(wrong[1])
    said = rf.release_winners(COUNTS, sigma=20.0, confident_above=100).statement.public
    assert "there is no answer where the largest count with noise of 40 is below 100" in said
    assert f"leads by at least {votes_ahead(NORMAL, 3)} votes" in said


@pytest.mark.parametrize(
    ("queries", "candidates", "arguments", "noise"),
    [
        (1, 3, {}, "Gumbel"),
        (7, 3, {}, "Gumbel"),
        (7, 3, {"neighbours": "added", "at_most": 2}, "Gumbel"),
        (100, 2, {}, "Gumbel"),
        (100, 40, {}, "Gumbel"),
        (7, 3, {"confident_above": 9}, "Gaussian"),
        (200, 3, {"publish_epsilon": True}, "Gaussian"),
        (7, 3, {"noise": "gaussian"}, "Gaussian"),
        (100, 2, {"noise": "gumbel"}, "Gumbel"),
    ],
)
def test_the_noise_that_needs_the_smaller_lead(
    queries: int, candidates: int, arguments: dict, noise: str
) -> None:
    """By public numbers alone; the statement names it with its size, and the target is met and not missed."""
    counts = np.tile(np.arange(candidates) * 500, (queries, 1))
    made = rf.release_winners(counts, epsilon=1.0, delta=1e-6, **arguments)
    assert 0.99 < made.account.epsilon <= 1.0
    law = eval(dict(made.settings)["law"], vars(winner))
    assert law.noise == noise
    size = f"{noise} noise with a standard deviation of {law.deviation:.3g} was added to every count"
    assert size in made.statement.public
    assert f"leads by at least {votes_ahead(law, candidates):,} votes" in made.statement.public
    if not arguments:
        other = {"Gumbel": "gaussian", "Gaussian": "gumbel"}[noise]
        rival = rf.release_winners(counts, epsilon=1.0, delta=1e-6, noise=other)
        others = eval(dict(rival.settings)["law"], vars(winner))
        assert lead_of(law, candidates, 0.25) <= lead_of(others, candidates, 0.25)


def test_among_very_many_candidates_gaussian_noise_decides_better() -> None:
    """Where the lead is over a thousand others, the heavier tail of Gumbel noise counts."""
    poll = Poll.checked(Budget.checked(1.0, 1e-6), "replaced", None, False, noise="auto")
    gaussian = rf.NoisyWinner(poll.sigma(100, 2.0))
    assert [poll.law(gaussian, 100, many).noise for many in (40, 1000)] == ["Gumbel", "Gaussian"]


def test_gumbel_noise_of_a_given_size() -> None:
    """sigma is the standard deviation of either noise; a ledger, whose budget counts Gaussians, gets one."""
    made = rf.release_winners(COUNTS, sigma=20.0, noise="gumbel")
    law = eval(dict(made.settings)["law"], vars(winner))
    assert law.deviation == pytest.approx(20.0)
    assert law.scale == pytest.approx(20 * math.sqrt(6) / math.pi)
    assert made.account.epsilon == pytest.approx(3 * 2 / law.scale, rel=0.2)  # three ranges, almost
    assert made.account.per_instance.epsilon < made.account.epsilon
    assert made.account.promise.per_instance.proof == "bounded range, by backward induction"
    with rf.Ledger(epsilon=1.0, neighbours="replaced") as ledger:
        charged = rf.release_winners(COUNTS, epsilon=0.5, ledger=ledger)
        assert "Gaussian noise" in charged.statement.public
        rf.release_winners(COUNTS, epsilon=0.1, noise="gumbel", ledger=ledger)
        assert ledger.guarantee().epsilon <= 1.0


def test_the_chart_counts_wins() -> None:
    (panel,) = rf.release_winners(COUNTS, sigma=0.5, confident_above=100, threshold_sigma=0.5).chart().panels
    assert panel.x_names == ("cat", "dog", "fox", "no answer")
    assert panel.lines[0].y == (1, 1, 0, 1)
    (panel,) = rf.release_winners(COUNTS, sigma=0.5).chart().panels
    assert panel.x_names == ("cat", "dog", "fox")
