"""Public functions with one hostile argument: a refusal of ours that names it, or an answer."""

from contextlib import chdir
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

import ringfence as rf
from tests.fuzz import arguments
from tests.fuzz.properties import fuzzed

QUICK = [
    name
    for name in arguments.FUNCTIONS
    if name not in arguments.SLOW
    and not name.startswith(("Ledger", "LinearProbe.e", "PrivacyEngine", "release"))
]


@fuzzed(
    *("arguments", 1, 100), name=st.sampled_from(QUICK), value=st.sampled_from(arguments.VALUES), at=st.data()
)
def test_a_hostile_argument_is_taken_or_refused_by_name(name: str, value: Any, at: Any) -> None:
    argument = at.draw(st.sampled_from(sorted(arguments.good(name))))
    assert arguments.fault(name, argument, value) is None


@pytest.mark.parametrize("name", ["Clamp", "Mechanism.sample", "decision_profile", "train_linear"])
def test_good_arguments_are_taken(name: str) -> None:
    """Else every refusal of this function would be about another argument."""
    arguments.FUNCTIONS[name][0](**arguments.good(name))


@pytest.mark.parametrize(
    ("name", "argument", "value"),
    [
        ("PrivacyEngine.make_private", "model", None),
        ("release_counts", "domain", 1.0),
        ("release_counts", "by", 1.0),
        ("release_votes", "ignore", None),
        ("release_votes", "questions", 1.0),
        ("release_votes", "ledger", "study.jsonl"),
        ("LinearProbe", "device", rf.Gaussian),
        ("LinearProbe", "device", "no such device"),
        ("LinearProbe", "momentum", "0.5"),
        ("LinearProbe.fit", "X", np.ones(6)),
        ("Ledger", "path", 1.0),
        ("SecureRelease", "law", 1.0),
        ("SecureRelease.draw", "draws", 1.0),
        ("Decision.release", "draws", 1.0),
        ("ExampleAccountant.step", "mechanism", 1.0),
        ("train_linear", "steps", 2**53),
        ("train_linear", "clip", 0.1),
        ("calibrate_sigma", "sampling_rate", 5e-324),
        ("tune", "expected_runs", 1e23),
        ("tune", "target_epsilon", 1e308),
    ],
)
def test_what_was_found_is_refused_by_name(name: str, argument: str, value: Any) -> None:
    """What generation found on 0.6.0, one of each kind."""
    assert arguments.fault(name, argument, value) is None
    with chdir(arguments.PLACE), pytest.raises((ValueError, TypeError)):
        arguments.FUNCTIONS[name][0](**{**arguments.good(name), argument: value})


def test_an_error_of_another_library_is_a_fault() -> None:
    """The detector itself: numpy's refusal, Python's, and one that names nothing."""
    arguments.FUNCTIONS["numpy"] = (lambda **given: np.zeros(given["shape"]), {"shape": 1})
    arguments.FUNCTIONS["python"] = (lambda **given: given["theta"] + 1, {"theta": 1})
    try:
        assert "'a'" in str(arguments.fault("numpy", "shape", "a"))
        assert "can only concatenate" in str(arguments.fault("python", "theta", "a"))
        assert arguments.fault("python", "theta", 2) is None
    finally:
        del arguments.FUNCTIONS["numpy"], arguments.FUNCTIONS["python"]


@pytest.mark.parametrize("number", [np.int64(2), np.int32(2), np.uint8(2)])
def test_numbers_of_numpy_are_numbers(number: Any) -> None:
    account = rf.PerInstanceAccountant(rf.Gaussian(number), number)
    account.step([0.0], count=number)
    assert type(account.steps) is int
    assert rf.PerInstanceAccountant.from_state_dict(account.state_dict()).steps == 2
    assert rf.LinearProbe(rf.Gaussian(1.0), 0.1, number, number).fit(arguments.X, arguments.Y).steps_ == 2
    with pytest.raises(TypeError, match="sigma must be a number"):
        rf.Gaussian(np.bool_(True))
