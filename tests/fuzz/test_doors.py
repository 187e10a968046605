"""Public functions with one hostile argument: a refusal of ours that names it, or an answer."""

from contextlib import chdir
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

import ringfence as rf
from tests.fuzz import doors
from tests.fuzz.properties import fuzzed

# A few doors take a second for every call: the long run (python -m tests.fuzz.doors) has them.
SLOW = {"tune", "calibrate_bound", "calibrate_steps", "publishable_epsilon", "privacy_profile"}
QUICK = [
    door
    for door in doors.DOORS
    if door not in SLOW and not door.startswith(("Ledger", "LinearProbe.e", "PrivacyEngine", "release"))
]


@fuzzed(
    "doors", share=1, few=150, door=st.sampled_from(QUICK), value=st.sampled_from(doors.VALUES), at=st.data()
)
def test_a_hostile_argument_is_taken_or_refused_by_name(door: str, value: Any, at: Any) -> None:
    argument = at.draw(st.sampled_from(sorted(doors.good(door))))
    assert doors.fallen(door, argument, value) is None


@pytest.mark.parametrize(
    "door", ["Clamp", "Mechanism.sample", "decision_profile", "LinearOperator.of", "train_linear"]
)
def test_good_arguments_are_taken(door: str) -> None:
    """Else every refusal of this door would be about another argument."""
    doors.DOORS[door][0](**doors.good(door))


@pytest.mark.parametrize(
    ("door", "argument", "value"),
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
        ("PublicProjection.save", "path", "\0"),
        ("SecureRelease", "law", 1.0),
        ("SecureRelease.draw", "draws", 1.0),
        ("Decision.release", "draws", 1.0),
        ("ExampleAccountant.step", "mechanism", 1.0),
        ("fixed_batch_rdp", "record", np.array(["a", "b"])),
        ("voter_epsilons", "candidates", 2**31),
        ("train_linear", "steps", 2**53),
        ("train_linear", "clip", 0.1),
        ("subsampled_rdp", "failure_probability", 5e-324),
        ("calibrate_sigma", "sampling_rate", 5e-324),
        ("publishable_decision_epsilon", "order", 1e300),
        ("tune", "expected_runs", 1e23),
        ("tune", "target_epsilon", 1e308),
    ],
)
def test_what_fell_is_refused_by_name(door: str, argument: str, value: Any) -> None:
    """What generation found on 0.6.0, one of each kind."""
    assert doors.fallen(door, argument, value) is None
    with chdir(doors.PLACE), pytest.raises((ValueError, TypeError)):
        doors.DOORS[door][0](**{**doors.good(door), argument: value})


def test_an_error_of_another_library_falls() -> None:
    """The detector itself: numpy's refusal, Python's, and one that names nothing."""
    doors.DOORS["numpy"] = (lambda **given: np.zeros(given["shape"]), {"shape": 1})
    doors.DOORS["python"] = (lambda **given: given["theta"] + 1, {"theta": 1})
    try:
        assert "'a'" in str(doors.fallen("numpy", "shape", "a"))
        assert "can only concatenate" in str(doors.fallen("python", "theta", "a"))
        assert doors.fallen("python", "theta", 2) is None
    finally:
        del doors.DOORS["numpy"], doors.DOORS["python"]


@pytest.mark.parametrize("number", [np.int64(2), np.int32(2), np.uint8(2)])
def test_numbers_of_numpy_are_numbers(number: Any) -> None:
    account = rf.PerInstanceAccountant(rf.Gaussian(number), number)
    account.step([0.0], count=number)
    assert type(account.steps) is int
    assert rf.PerInstanceAccountant.from_state_dict(account.state_dict()).steps == 2
    assert rf.LinearProbe(rf.Gaussian(1.0), 0.1, number, number).fit(doors.X, doors.Y).steps_ == 2
    with pytest.raises(TypeError, match="sigma must be a number"):
        rf.Gaussian(np.bool_(True))
