"""Winners: the law that decides, what it is said to cost, what stays private and what is refused."""

import math
from typing import Any

import numpy as np
import pandas
import polars
import pytest
import torch

import ringfence as rf
from ringfence.accounting.conversion import gaussian_epsilon
from ringfence.releases.ballots import margin

COUNTS = pandas.DataFrame({"cat": [240, 3, 90], "dog": [9, 235, 80], "fox": [1, 12, 0]})
BALLOTS = pandas.DataFrame({"q1": ["cat"] * 40 + ["dog"] * 8 + [None] * 3, "q2": ["dog"] * 50 + ["cat"]})
PETS = ["cat", "dog", "fox"]


def sigma_of(winners: Any) -> float:
    return float(dict(winners.settings)["law"].split("sigma=")[1].split(",")[0].rstrip(")"))


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


@pytest.mark.parametrize(
    ("arguments", "square"),
    [
        ({}, 3 * 2),
        ({"neighbours": "added"}, 3),
        ({"neighbours": "added", "at_most": 2}, 2),
        ({"confident_above": 100}, 3 * 2.25),
        ({"confident_above": 100, "neighbours": "added", "at_most": 1}, 1.25),
    ],
)
def test_a_target_is_met_for_every_dataset_and_hardly_missed(
    arguments: dict[str, Any], square: float
) -> None:
    winners = rf.release_winners(COUNTS, epsilon=0.7, delta=1e-5, **arguments)
    assert 0.69 < winners.account.epsilon <= 0.7
    wanted = gaussian_epsilon(math.sqrt(square) / sigma_of(winners), 1e-5)
    assert winners.account.epsilon == pytest.approx(wanted, rel=1e-6)


def test_an_epsilon_that_is_published_is_within_the_target() -> None:
    plain, more = (
        rf.release_winners(COUNTS, epsilon=0.7, delta=1e-5, publish_epsilon=flag) for flag in (False, True)
    )
    assert 0.69 < more.account.epsilon <= 0.7
    assert 1.01 < sigma_of(more) / sigma_of(plain) < 1.1


def test_two_candidates_are_a_yes_or_no_question() -> None:
    """The difference of two noisy counts has sqrt 2 times the noise; also for each voter."""
    marks = np.array([[1, -1]] * 30 + [[-1, -1]] * 12 + [[1, 1]] * 4)
    votes = rf.release_votes(marks, sigma=8.0 * math.sqrt(2), delta=1e-5)
    winners = rf.release_winners(marks, candidates=[1, -1], neighbours="added", sigma=8.0, delta=1e-5)
    assert winners.account.per_instance.epsilon == pytest.approx(votes.account.per_instance.epsilon, rel=1e-6)
    both = (one.account.details["voter_epsilons"] for one in (votes, winners))
    assert next(both) == pytest.approx(next(both), rel=1e-9)
    assert winners.errors.tolist() == pytest.approx(votes.errors.tolist())


def test_the_kind_of_frame_comes_back() -> None:
    winners = rf.release_winners(polars.from_pandas(COUNTS), sigma=0.5)
    assert type(winners.values) is polars.DataFrame
    assert winners.columns == {"query": [1, 2, 3], "winner": ["cat", "dog", "cat"]}
    tensor = rf.release_winners(torch.tensor(COUNTS.to_numpy()), sigma=0.5)
    assert tensor.values.tolist() == [0, 1, 0]
    named = rf.release_winners(COUNTS.assign(place=["a", "b", "c"]), query="place", sigma=0.5)
    assert type(named.values) is pandas.DataFrame
    assert named.rows() == [("a", "cat"), ("b", "dog"), ("c", "cat")]


def test_ballots_are_counted_and_bounded() -> None:
    winners = rf.release_winners(BALLOTS, candidates=PETS, sigma=1.0)
    assert winners.account.details["votes"] == [[40, 8, 0], [1, 50, 0]]
    assert winners.rows() == [("q1", "cat"), ("q2", "dog")]
    few = rf.release_winners(BALLOTS, candidates=PETS, sigma=1.0, neighbours="added", at_most=1)
    assert np.array(few.account.details["votes"]).sum() == 51
    assert "counts in at most 1 query, once in each" in few.statement.promises[1]
    assert "each person must have been counted" in rf.release_winners(COUNTS, sigma=1.0).statement.promises[1]


def test_the_margin_of_the_public_sentence_is_enough_and_no_longer() -> None:
    for others, less in ((1, 1), (9, 3)):
        lead = margin(20.0 * math.sqrt(2), others)
        worst = [[lead, *[0] * others], [lead - less, *[0] * others]]
        wrong = rf.NoisyWinner(20.0).chance_of_error(worst)
        assert float(wrong[0]) <= 0.01 < float(wrong[1])
    said = rf.release_winners(COUNTS, sigma=20.0, confident_above=100).statement.public
    assert "there is no answer where the largest count with noise of 40 is below 100" in said
    assert f"leads by at least {margin(20.0 * math.sqrt(2), 2)} votes" in said


def test_the_chart_counts_wins() -> None:
    (panel,) = rf.release_winners(COUNTS, sigma=0.5, confident_above=100, threshold_sigma=0.5).chart().panels
    assert panel.x_names == ("cat", "dog", "fox", "no answer")
    assert panel.lines[0].y == (1, 1, 0, 1)


@pytest.mark.parametrize(
    ("data", "arguments", "complaint"),
    [
        (COUNTS[["cat"]], {}, r"data must have at least 2 candidates \(columns\), got 1"),
        (COUNTS.assign(cat=-1), {}, "column 'cat' must hold counts .* got -1"),
        (COUNTS.assign(cat=0.5), {}, "column 'cat' must hold counts .* got 0.5"),
        (COUNTS.assign(cat=math.nan), {}, "column 'cat' must hold counts .* got a missing value"),
        (np.array([[1.0, math.nan]]), {}, "column '1' must hold counts .* got nan"),
        (COUNTS.assign(cat="many"), {}, "column 'cat' must hold counts .* got 'many'"),
        (COUNTS.assign(cat=True), {}, "column 'cat' must hold counts .* got True"),
        (COUNTS[:0], {}, "the table must have at least one row"),
        (np.array([3, 4]), {}, r"got shape \[2\]"),
        (COUNTS, {"query": "place"}, "query names the column 'place'"),
        (COUNTS, {"query": "dog", "ignore": ["cow"]}, "ignore names the column 'cow'"),
        (COUNTS, {"person": "cat"}, "person must be left out where data holds counts"),
        (COUNTS, {"queries": ["cat"]}, "queries must be left out where data holds counts"),
        (COUNTS, {"at_most": 1}, "at_most must be left out where neighbours is 'replaced'"),
        (COUNTS, {"threshold_sigma": 1.0}, "threshold_sigma needs confident_above and sigma"),
        (COUNTS, {"confident_above": math.inf}, "confident_above must be finite"),
        (
            COUNTS,
            {"epsilon": None, "sigma": 1.0, "confident_above": 9, "threshold_sigma": 0.0},
            "threshold_sigma must be > 0",
        ),
        (COUNTS, {"neighbours": "both"}, "neighbours must be"),
        (BALLOTS, {"candidates": ["cat"]}, "candidates must be at least 2 values"),
        (BALLOTS, {"candidates": "cat"}, "candidates must be a list of values, got 'cat'"),
        (BALLOTS, {"candidates": ["cat", "cat"]}, "candidates must hold each value once .* got 'cat'"),
        (BALLOTS, {"candidates": ["cat", "fox"]}, "column 'q1' must hold a candidate, got 'dog'"),
        (BALLOTS, {"candidates": PETS, "query": "q1"}, "query must be left out where data holds ballots"),
        (BALLOTS, {"candidates": PETS, "queries": ["q3"]}, "queries names the column 'q3'"),
    ],
)  # fmt: skip
def test_bad_input_is_named_in_one_line(data: Any, arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises((ValueError, TypeError), match=complaint) as raised:
        rf.release_winners(data, **{"epsilon": 1.0, **arguments})
    assert "\n" not in str(raised.value)
