"""PATE: labels follow the law, every call has noise of its own, and the running account covers all of it."""

import itertools
import math
from typing import Any

import numpy as np
import pandas
import polars
import pytest
import torch

import ringfence as rf
from ringfence.accounting.decisions import decision_profile
from ringfence.accounting.publication import PublishableEpsilon
from tests.tensors import float64

VOTES = np.array([[240, 9, 1], [3, 235, 12], [90, 85, 75]])
MANY = np.tile(VOTES, (40, 1))  # so many that publishing what they cost gains
PETS = ["cat", "dog", "fox"]


def test_labels_follow_the_law_and_a_wrong_sigma_is_rejected() -> None:
    pate = rf.Pate(8.0, threshold=14, threshold_sigma=16.0, seed=3)
    drawn = np.concatenate([pate.label([[12, 8, 8]] * 500) for _ in range(2)])
    for outcome in (-1, 0, 1):
        wanted = float(rf.ConfidentWinner(8.0, 14.0, 16.0).log_prob(outcome, [12, 8, 8]).exp())
        assert abs((drawn == outcome).mean() - wanted) < 4 * math.sqrt(wanted * (1 - wanted) / 1000)
    assert pate.release().values.tolist() == drawn.tolist()
    assert rf.Pate(8.0, threshold=14).law.threshold_sigma == 16.0


@pytest.mark.parametrize("seed", [None, 5])
def test_calls_with_equal_votes_have_noise_of_their_own(seed: int | None) -> None:
    """Otherwise equal votes had equal labels for certain, and those of a neighbour, who differs once, not."""
    pate = rf.Pate(20.0, seed=seed)
    first, second = (pate.label([[50, 50]] * 400) for _ in range(2))
    assert abs((first == second).mean() - 0.5) < 4 * 0.5 / math.sqrt(400)


def test_the_claims_cover_every_vote_of_every_teacher() -> None:
    """By definition: delta(epsilon) of the joint law of all labels, against every neighbour."""
    ballots = np.array([[0, 0, 1]] * 4 + [[0, 2, 1]] * 2 + [[1, 2, 2]] * 3)
    pate = rf.Pate(2.0, threshold=4, threshold_sigma=3.0, classes=range(3), adaptive=False)
    pate.label(predictions=ballots)
    claim = pate.guarantee(delta=1e-2)
    every = [ballots]
    for teacher, other in itertools.product((0, 4, 6), itertools.product(range(3), repeat=3)):
        every.append(ballots.copy())
        every[-1][teacher] = other
    counts = float64(np.array([[np.bincount(column, minlength=3) for column in one.T] for one in every]))
    chances = torch.stack([pate.law.log_prob(outcome, counts) for outcome in (-1, 0, 1, 2)], dim=2).exp()
    joint = torch.einsum("na,nb,nc->nabc", *chances.unbind(dim=1)).flatten(1)

    def worst(epsilon: float) -> float:
        own, grown = joint[:1], math.exp(epsilon)
        return max(float((p - grown * q).clamp(min=0).sum(1).max()) for p, q in ((own, joint), (joint, own)))

    assert worst(claim.per_instance.epsilon) <= 1e-2 < worst(0.6 * claim.per_instance.epsilon)
    assert claim.per_instance.epsilon < 0.8 * claim.epsilon


def test_several_calls_add_up_to_the_account_of_all_queries() -> None:
    adaptive, fixed = (rf.Pate(20.0, threshold=150, threshold_sigma=40.0, adaptive=a) for a in (True, False))
    for pate in (adaptive, fixed):
        assert pate.cost() == rf.PrivacyLoss()
        for row in VOTES:
            pate.label(row[None])
    accountant = rf.DecisionAccountant(fixed.law, neighbours="replaced")
    accountant.step(VOTES)
    wanted, claim, tight = accountant.guarantee(1e-5), adaptive.guarantee(1e-5), fixed.guarantee(1e-5)
    assert claim.steps == 3
    assert claim.epsilon == tight.epsilon == pytest.approx(wanted.epsilon, rel=1e-9)
    for own in (claim, tight):
        assert own.per_instance.ex_post_epsilon == pytest.approx(wanted.per_instance.ex_post_epsilon)
    assert claim.per_instance.epsilon == claim.epsilon
    profile = decision_profile(fixed.law, VOTES, neighbours="replaced")
    assert tight.per_instance.epsilon == pytest.approx(profile.epsilon(1e-5), rel=1e-9)
    assert adaptive.cost().epsilon(1e-5) == pytest.approx(wanted.epsilon, rel=1e-9)
    assert "one teacher alone" in claim.statement


def test_publishing_and_labels_are_charged_to_account_and_ledger_alike() -> None:
    with rf.Ledger(neighbours="replaced", delta=1e-5) as ledger:
        pate = rf.Pate(20.0, delta=1e-5, adaptive=False, ledger=ledger)
        pate.label(MANY)
        before = pate.guarantee()
        number = pate.publish()
        pate.label(VOTES)
    assert isinstance(number, PublishableEpsilon)
    assert number.failure_probability == 1e-3
    assert [entry.what for entry in ledger.entries] == ["Pate.label", "Pate.publish", "Pate.label"]
    claim, charged = pate.guarantee(), ledger.guarantee()
    assert charged.epsilon == pytest.approx(claim.epsilon, rel=1e-7)
    assert charged.per_instance.ex_post_epsilon == pytest.approx(claim.per_instance.ex_post_epsilon)
    assert pate.cost().zcdp == pytest.approx(123 / 20**2 + number.publishing_zcdp)
    assert number.epsilon > before.epsilon
    assert number.statement in pate.statement.promises


def test_a_target_covers_the_planned_queries_and_one_published_number() -> None:
    for publish in (False, True):
        pate = rf.Pate(epsilon=2.0, delta=1e-5, queries=123, threshold=100, publish_epsilon=publish)
        pate.label(MANY)
        pate.label(VOTES[:2])
        with pytest.raises(ValueError, match="123 planned queries at most, got 124 in all"):
            pate.label(VOTES[:2])
        if publish:
            pate.publish()
        with pytest.raises(ValueError, match=f"publish_epsilon={publish} and {int(publish)} earlier calls"):
            pate.publish()
        pate.label(VOTES[:1])
        assert 1.9 < pate.guarantee().epsilon <= 2.0
        assert "(epsilon 2, delta 1e-05)" in pate.statement.public
    with pytest.raises(ValueError, match="would gain nothing for 1 decisions"):
        rf.Pate(epsilon=2.0, delta=1e-5, queries=1, publish_epsilon=True)


def test_a_ledger_without_room_stops_labels_and_published_numbers() -> None:
    most = 1.01 * rf.PrivacyLoss.of_zcdp(120 / 20**2, 120 / 20**2).epsilon(1e-5)  # of 120 labels
    ledger = rf.Ledger(epsilon=most, delta=1e-5, neighbours="replaced")
    pate = rf.Pate(20.0, delta=1e-5, ledger=ledger)
    with pytest.raises(ValueError, match=r"Pate\.label would bring epsilon to"):
        pate.label(np.tile(VOTES, (42, 1)))
    assert pate.cost() == rf.PrivacyLoss()
    pate.label(MANY)
    with pytest.raises(ValueError, match=r"Pate\.publish would bring epsilon to"):
        pate.publish()
    assert pate.guarantee().epsilon <= most


def test_predictions_of_any_labels_are_counted() -> None:
    marks = np.array([[0, 1, 2]] * 200 + [[0, 2, 0]] * 50)
    names = np.array(PETS)[marks]
    frame = pandas.DataFrame(names, columns=["a", "b", "c"])
    for predictions in (names, names.astype(object), frame, polars.from_pandas(frame)):
        pate = rf.Pate(1.0, threshold=220, threshold_sigma=1.0, classes=PETS)
        labels = pate.label(predictions=predictions)
        assert labels.dtype == object
        assert labels.tolist() == ["cat", None, None]
        assert pate.release().account.details["votes"] == [[250, 0, 0], [0, 200, 50], [50, 0, 200]]
    for numbers in (marks, torch.tensor(marks), marks.astype(float)):
        drawn = rf.Pate(1.0, threshold=220, threshold_sigma=1.0, classes=np.arange(3)).label(
            predictions=numbers
        )
        assert drawn.dtype == np.int64
        assert drawn.tolist() == [0, -1, -1]
    counts = pandas.DataFrame(VOTES, columns=PETS)
    assert rf.Pate(1.0).label(counts).tolist() == ["cat", "dog", "cat"]
    assert rf.Pate(1.0, classes=[7, 8, 9]).label(VOTES).tolist() == [7, 8, 7]
    assert rf.Pate(1.0, classes=[True, False]).label([[30, 0]]).tolist() == [True]


def test_the_statement_says_who_is_protected() -> None:
    pate = rf.Pate(20.0, threshold=150, classes=PETS, seed=1)
    pate.label(VOTES)
    said = str(pate.statement)
    assert "These labels are protected by differential privacy" in said
    assert "The records of one person must be in the part of the data of one teacher alone" in said
    assert "Queries, classes and noise are public" in said
    assert "and no teacher" in said
    assert "Fixed seed: for testing" in said
    (panel,) = pate.release().chart().panels
    assert panel.x_names[:3] == ("cat", "dog", "fox")
    assert repr(pate).startswith("Pate(ConfidentWinner(sigma=20.0, threshold=150.0")


@pytest.mark.parametrize(
    ("made", "asked", "complaint"),
    [
        ({}, {"votes": [[3, 1.5]]}, r"column '1' must hold counts \(0, 1, 2, ...\), got 1.5"),
        ({}, {"votes": [[3, -1]]}, r"must hold counts \(0, 1, 2, ...\), got -1"),
        ({}, {"votes": [[3, math.nan]]}, "must hold counts .* got nan"),
        ({}, {"votes": [[3, 1], [2, 1]]}, "every teacher must vote once.*got 4 and, in row 2, 3"),
        ({}, {"votes": [[4], [4]]}, "data must have at least 2 columns of counts, got 1"),
        ({}, {"votes": [4, 3]}, r"with rows and columns, got shape \[2\]"),
        ({}, {}, "votes or predictions must be given, and not both, got neither"),
        ({}, {"votes": [[3, 1]], "predictions": [[0]]}, "and not both, got both"),
        ({}, {"predictions": np.zeros((4, 2))}, "classes must be given where teachers' predictions are"),
        ({}, {"votes": [[0, 0], [0, 0]]}, "votes must be of at least 1 teacher, got none"),
        ({"threshold": 5}, {"votes": [[3, 1]]}, "threshold must be at most the number of teachers, 4, got 5"),
        ({"threshold": math.inf}, {}, "threshold must be finite"),
        ({"threshold_sigma": 5.0}, {}, "threshold_sigma needs threshold and sigma, got 5.0"),
        ({"epsilon": 1.0}, {}, "epsilon or sigma must be given, and not both"),
        ({"sigma": None, "epsilon": 1.0}, {}, "epsilon and the planned queries must be given together"),
        ({"queries": 5}, {}, "epsilon and the planned queries must be given together"),
        ({"sigma": None, "epsilon": 1.0, "queries": 0}, {}, "queries must be at least 1, got 0"),
        ({"adaptive": 1}, {}, "adaptive must be True or False"),
        ({"classes": ["a"]}, {}, "classes must be at least 2 values"),
        ({"classes": [0, -1]}, {}, "neither -1 nor None"),
        ({"classes": [0, None]}, {}, "neither -1 nor None"),
        ({"classes": ["a", "a"]}, {}, "classes must hold each value once"),
        ({"classes": "ab"}, {}, "classes must be a list of values"),
        ({"classes": [0, 1]}, {"votes": [[3, 1, 0]]}, "votes must have a column for each of the classes"),
        ({"classes": PETS[:2]}, {"votes": pandas.DataFrame({"cat": [3], "fox": [1]})}, "a column for each"),
        ({"classes": [0, 1]}, {"predictions": np.array([[0, 2]])}, "'1' must hold one of the classes, got 2"),
        ({"classes": [0, 1]}, {"predictions": np.array([0, 1])}, r"with rows and columns, got shape \[2\]"),
        ({"classes": [0, 1]}, {"predictions": np.array([[0, None]])}, "every teacher must vote once"),
    ],
)
def test_bad_input_is_named_in_one_line(made: dict[str, Any], asked: dict[str, Any], complaint: str) -> None:
    with pytest.raises((ValueError, TypeError), match=complaint) as raised:
        rf.Pate(**{"sigma": 2.0, **made}).label(**asked)
    assert "\n" not in str(raised.value)


def test_later_calls_must_have_the_same_teachers_and_classes() -> None:
    pate = rf.Pate(2.0)
    for ask in (pate.guarantee, pate.publish, pate.release):
        with pytest.raises(ValueError, match="label must be called before"):
            ask()
    pate.label([[3, 1]])
    with pytest.raises(ValueError, match=r"got 4 and, in row 1, 5"):
        pate.label([[3, 2]])
    with pytest.raises(ValueError, match=r"votes must have a column for each of the classes \(0, 1\)"):
        pate.label([[3, 1, 0]])
    assert pate.guarantee().steps == 1
