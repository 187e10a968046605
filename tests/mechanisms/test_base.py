"""What every law does with arguments at the ends of what floats hold, and with what is no argument."""

from typing import Any

import pytest
import torch

import ringfence as rf
from ringfence.mechanisms.secure.release import SecureRelease


def test_a_curve_needs_an_order() -> None:
    with pytest.raises(ValueError, match="orders must hold at least one order"):
        rf.QuantizedGaussian(1.0, 1.0, 4).renyi_curve(1.0, 1.0, [])


@pytest.mark.parametrize("name", [[], {}, torch.ones(3), None])
def test_a_name_that_is_no_name(name: Any) -> None:
    with pytest.raises(ValueError, match="mechanism must be one of"):
        rf.Mechanism.by_name(name, sigma=1.0)


def test_levels_and_bounds_that_no_table_holds() -> None:
    with pytest.raises(ValueError, match="levels must be at most 65536"):
        rf.QuantizedGaussian(1.0, 1.0, 2**31)
    with pytest.raises(ValueError, match="bound must have a finite width"):  # its levels were NaN
        rf.QuantizedGaussian(1.0, 1.7e308, 3)


def test_secure_is_a_flag() -> None:
    with pytest.raises(TypeError, match="secure must be True or False"):
        rf.Gaussian(1.0).release(0.0, secure=torch.ones(2))  # type: ignore[arg-type]


def test_what_a_secure_release_adds_is_about_one_epsilon() -> None:
    secure = SecureRelease(rf.Gaussian(1.0))
    with pytest.raises(ValueError, match="epsilon must be a single number"):
        secure.delta(1, torch.ones(3))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="coordinates must be at most"):
        secure.delta(10**400, 1.0)


@pytest.mark.parametrize("shift", [1e3, 1e12, 1e14, 1e18, 1e50, 1e160])
def test_a_hockey_stick_does_not_vanish_where_the_shift_is_enormous(shift: float) -> None:
    """That of the truncated law was 0 from 1e18 sigma on: the threshold had lost its digits."""
    law = rf.TruncatedGaussian(1.0, 1.0)
    for move in (shift, -shift):
        assert float(law.hockey_stick(0.0, move, 1.0)) > 0.99
        assert float(law.hockey_stick(torch.tensor(0.0), min(max(move, -1e30), 1e30), 1.0)) > 0.99


@pytest.mark.parametrize("bound", [0.25, 4.0])
@pytest.mark.parametrize("shift", [1e15, 1e30])
def test_an_enormous_shift_loses_at_most_the_width_of_the_support(bound: float, shift: float) -> None:
    """The loss of a truncated law is linear, with slope shift: beyond shift times width nothing is lost."""
    law, most = rf.TruncatedGaussian(1.0, bound), 2 * bound * shift
    for move in (shift, -shift):
        assert float(law.hockey_stick(0.0, move, 0.99 * most)) == 1.0
        assert float(law.hockey_stick(0.0, move, 1.01 * most)) == 0.0
