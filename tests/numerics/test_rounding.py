"""Printed numbers still hold, and numbers whose squares floats cannot hold are found."""

import math
from fractions import Fraction

import pytest
import torch

from ringfence.numerics.rounding import UP, float32_at_most, rounded_up, square_is_representable
from tests.tensors import float64


@pytest.mark.parametrize("digits", [1, 4, 7])
def test_a_printed_number_is_not_below_and_has_few_digits(digits: int) -> None:
    for value in (1.0, math.pi, 0.1, 9.99999, 1e-12, 123456.789, 1e300):
        printed = Fraction(rounded_up(value, digits))
        assert 0 <= printed - Fraction(value) <= Fraction(value) * Fraction(10) ** (1 - digits)
    assert (rounded_up(0.0), rounded_up(math.inf)) == ("0", "inf")


def test_squares_and_their_reciprocals_are_finite_and_not_zero() -> None:
    values = float64([1e-141, 1e-140, 1.0, 1e140, 1e141, math.nan])
    held = square_is_representable(values)
    assert held.tolist() == [False, True, True, True, False, False]
    for square in (values[held] ** 2, values[held] ** -2):
        assert bool((torch.isfinite(square) & (square > 0)).all())


def test_up_is_eight_roundings() -> None:
    assert UP == 1 + 8 * 2.0**-53


def test_the_largest_float32_number_that_is_not_above() -> None:
    for value in (0.1, 0.3, 1.0, 1e-30):
        single = torch.tensor(float32_at_most("clip", value))
        assert float(single) <= value < float(torch.nextafter(single, torch.tensor(math.inf)))
    with pytest.raises(ValueError, match=r"clip \(as torch.float32\) must be > 0, got 0.0"):
        float32_at_most("clip", 1e-60)
