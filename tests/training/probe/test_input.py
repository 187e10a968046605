"""What a probe refuses of its features, labels and public constants, and what it makes of the rest."""

from typing import Any

import numpy as np
import pytest
import torch

import ringfence as rf
from ringfence.training.probe.input import class_codes, seed_of
from tests.training.probe.test_probe import FEATURES, LABELS, probe


def test_labels_become_places_among_the_declared_classes() -> None:
    classes, codes = class_codes(np.array([5, 1, 5]), public_classes=[1, 3, 5])
    assert (classes.tolist(), codes.tolist()) == ([1, 3, 5], [2, 0, 2])
    with pytest.raises(ValueError, match="y must hold public_classes only, got 4 at index 1"):
        class_codes(np.array([5, 4]), public_classes=[1, 5])


def test_a_random_state_gives_another_seed_every_time_and_an_integer_the_same() -> None:
    state = np.random.RandomState(0)
    seeds = [seed_of(state), seed_of(state)]
    assert seeds[0] != seeds[1]
    assert all(2**64 < seed < 2**128 for seed in seeds)
    assert seed_of(np.int64(3)) == 3


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"public_center": []}, "public_center must be one number or 6"),
        ({"public_scale": np.ones(5)}, "public_scale must be one number or 6"),
        ({"public_scale": 0.0}, "public_scale must be > 0"),
        ({"public_center": "a"}, "public_center must be a number"),
        ({"public_scale": 5e-324}, "features must"),  # was a warning of an overflow
        ({"public_classes": []}, "public_classes must hold 2 classes at least"),
        ({"random_state": 2**63}, "random_state 9223372036854775808 cannot be used"),
    ],
)
def test_hostile_settings_are_refused_by_name(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises((TypeError, ValueError), match=complaint):
        probe(**changes).fit(FEATURES, LABELS)


def test_a_tensor_with_a_gradient_is_an_array_like_any_other() -> None:
    """scikit-learn passed on torch's RuntimeError."""
    plain = probe().fit(FEATURES, LABELS)
    features = torch.tensor(FEATURES, requires_grad=True)
    assert np.array_equal(probe().fit(features, torch.from_numpy(LABELS)).coef_, plain.coef_)


def test_numbers_that_no_float_holds_are_refused_by_name() -> None:
    for wrong in (10**400, [[10**400]]):
        with pytest.raises(ValueError, match=r"X and y must be .* too large to convert to float"):
            rf.LinearProbe(rf.Gaussian(1.0)).fit(wrong, [0])
