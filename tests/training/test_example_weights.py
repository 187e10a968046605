"""Weights multiply clipped gradients, and a record is charged with the clip times the largest weight."""

from typing import Any

import numpy as np
import pytest
import torch

import ringfence as rf
from ringfence.training import linear as module
from ringfence.training.linear import ExampleWeights

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 3, 60)
FEATURES = RNG.normal(size=(60, 4)).astype(np.float32) + 2 * np.eye(3, 4)[LABELS]
WEIGHTS = RNG.integers(0, 4, 60)


def probe(**changes: Any) -> rf.LinearProbe:
    arguments = {"mechanism": rf.TruncatedGaussian(1.0, 40.0), "clip": 0.2, "learning_rate": 8.0, "steps": 2}
    return rf.LinearProbe(**{**arguments, "random_state": 0, "public_largest_weight": 4.0, **changes})


@pytest.mark.parametrize("clip", [rf.Clamp(0.5), rf.Norm(0.5), rf.Norm(1.0, each=0.5)], ids=repr)
@pytest.mark.parametrize("few", [0, 32])
def test_a_weight_is_that_of_so_many_examples(clip: rf.Clip, few: int, monkeypatch: Any) -> None:
    """By groups of equal weights, and one by one: the sums are those of repeated rows."""
    monkeypatch.setattr(module, "_FEW", few)
    monkeypatch.setattr(module, "_CHUNK_ENTRIES", 100)
    residuals, features = torch.from_numpy(RNG.normal(size=(60, 3))), torch.from_numpy(FEATURES).double()
    repeats = torch.from_numpy(WEIGHTS)
    weighted = ExampleWeights(repeats.double(), 3.0).outer_sum(clip, residuals, features)
    repeated = clip.outer_sum(residuals.repeat_interleave(repeats, 0), features.repeat_interleave(repeats, 0))
    torch.testing.assert_close(weighted, repeated, rtol=1e-9, atol=1e-9)


def test_one_record_moves_the_sum_by_at_most_what_is_charged() -> None:
    """And by nearly that where its weight is the largest and its gradient is clipped everywhere."""
    far = np.concatenate((FEATURES, np.full((1, 4), 1e3)))
    labels, weights = np.append(LABELS, 0), np.append(WEIGHTS, 4.0)
    first = []
    for count in (60, 61):
        fitted = probe().fit(far[:count], labels[:count], sample_weight=weights[:count])
        first.append(fitted._training.run.trajectory[0].theta)  # type: ignore[union-attr]
    charged = fitted.account_.sensitivity.farthest
    moved = (first[1] - first[0]).abs().max()
    assert float(charged) == 0.2 * 4.0
    assert 0.999 * charged <= moved <= charged * (1 + 1e-6)


def test_the_target_is_met_with_weights_and_costs_more_noise() -> None:
    target = {"mechanism": None, "target_epsilon": 1.0, "target_delta": 1e-5, "clip": None}
    plain = probe(**target).fit(FEATURES, LABELS)
    weighted = probe(**target).fit(FEATURES, LABELS, sample_weight=np.ones(60))
    assert float(weighted.mechanism_.sigma) == pytest.approx(4 * float(plain.mechanism_.sigma), rel=2e-3)
    assert 0.99 < weighted.guarantee(1e-5).epsilon <= 1.0
    assert "public_largest_weight" in weighted.guarantee(1e-5).statement
    assert "public_largest_weight" not in plain.guarantee(1e-5).statement


def test_the_weight_of_an_example_is_in_its_own_numbers() -> None:
    weights = np.where(np.arange(60) % 2 == 0, 0.0, 4.0)
    fitted = probe().fit(FEATURES, LABELS, sample_weight=weights)
    epsilons, eta = fitted.example_epsilons(1e-5), fitted.fisher_information_loss()
    assert (epsilons[::2] < epsilons[1::2].min()).all()
    assert (eta[::2] == 0).all()
    assert (eta[1::2] > 0).all()
    assert epsilons.max() <= fitted.guarantee(1e-5).per_instance.ex_post_epsilon * (1 + 1e-9)
    # what an example gives away grows with its weight as its gradient does
    twice = probe().fit(FEATURES, LABELS, sample_weight=weights / 2)
    first = fitted._training.run.trajectory[0].theta  # type: ignore[union-attr]
    assert torch.allclose(first, 2 * twice._training.run.trajectory[0].theta)  # type: ignore[union-attr]


def test_other_weights_have_other_noise() -> None:
    """The difference of two releases with the same seed must not be free of noise."""
    one, other = (
        probe(steps=1, fit_intercept=False).fit(FEATURES, LABELS, sample_weight=np.full(60, w))
        for w in (1.0, 2.0)
    )
    noise = [
        -fitted.coef_ * 60 / 8 - fitted._training.run.trajectory[0].theta.numpy()  # type: ignore[union-attr]
        for fitted in (one, other)
    ]
    assert np.abs(noise[0] - noise[1]).min() > 1e-3


def test_classes_have_public_weights() -> None:
    data = probe(class_weight={1: 3.0, 2: 0.5})._prepared(FEATURES, LABELS, WEIGHTS)
    assert data.weights is not None
    assert data.weights.largest == 12.0
    assert data.weights.values.tolist() == (WEIGHTS * np.array([1.0, 3.0, 0.5])[LABELS]).tolist()
    alone = probe(class_weight={1: 3.0})._prepared(FEATURES, LABELS)
    assert alone.weights is not None
    assert alone.weights.largest == 3.0  # public_largest_weight is of sample_weight
    unnamed = probe(class_weight={1: 0.5})._prepared(FEATURES, LABELS)
    assert unnamed.weights is not None
    assert unnamed.weights.largest == 1.0


@pytest.mark.parametrize(
    ("changes", "weights", "complaint"),
    [
        (
            {"class_weight": "balanced"},
            None,
            "got 'balanced': those weights are computed from the private counts",
        ),
        ({"class_weight": [1, 2]}, None, r"class_weight must be a dict of public weights, got \[1, 2\]"),
        (
            {"class_weight": {7: 1.0}},
            None,
            r"class_weight must name classes only, got 7: the classes are \[0, 1",
        ),
        ({"class_weight": {0: -1.0}}, None, r"class_weight of 0 must be >= 0, got -1\.0"),
        ({"class_weight": {0: 0, 1: 0, 2: 0}}, None, "class_weight must have a weight above 0"),
        ({"public_largest_weight": 0.0}, None, "public_largest_weight must be > 0"),
        ({}, np.full(60, 4.5), "sample_weight must be at most public_largest_weight, 4, got 4.5 at index"),
        ({}, np.full(60, -1.0), r"sample_weight must be >= 0, got -1\.0 at index"),
        ({}, np.full(60, np.nan), "sample_weight must not be NaN"),
        ({}, np.ones(59), r"sample_weight must be one number per example, 60, got shape \[59\]"),
        (
            {"secure": True, "public_size": 60, "random_state": None},
            np.ones(60),
            "sample_weight and class_weight must be None where secure is True",
        ),
    ],
)
def test_what_cannot_be_weights_is_refused(changes: Any, weights: Any, complaint: str) -> None:
    with pytest.raises((ValueError, TypeError), match=complaint):
        probe(**changes).fit(FEATURES, LABELS, sample_weight=weights)
