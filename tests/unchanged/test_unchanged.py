"""A number once printed stays: an upgrade that moves one has to say so.

These tests know no truth, only what was said before. That the numbers are right is for the tests
beside the code; here a change that was not meant to matter is seen to matter, at a millionth of a millionth.
"""

import pytest

from tests.unchanged.cases import CASES
from tests.unchanged.record import TOLERANCE, computed, moved, recorded

_RECORDED = recorded()


@pytest.mark.parametrize("case", sorted(_RECORDED))
def test_is_what_it_was(case: str) -> None:
    assert not moved(_RECORDED[case], computed(case)), "meant? then python -m tests.unchanged"


def test_every_case_is_recorded() -> None:
    assert set(_RECORDED) == set(CASES)


def test_sees_what_moves() -> None:
    before = {"a": [1.0, 2.0], "b": [float("inf"), 0.0]}
    assert moved(before, before) == []
    assert moved(before, {**before, "a": [1.0, 2.0 * (1 + 2 * TOLERANCE)]}) == [
        f"a[1]: 2.0, now {2.0 * (1 + 2 * TOLERANCE)!r}"
    ]
    assert moved(before, {**before, "b": [float("inf"), 1e-300]}) == ["b[1]: 0.0, now 1e-300"]
    assert moved(before, {**before, "a": [1.0]}) == ["a: 2 numbers, now 1"]
    assert moved(before, {"a": [1.0, 2.0]}) == ["names ['b']"]
