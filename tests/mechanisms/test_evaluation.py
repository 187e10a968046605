"""Kernels at the ends of what floats hold: an answer, or an error that names the method."""

import math

import pytest

import ringfence as rf


def test_a_hockey_stick_is_at_most_1() -> None:
    """Rounding made it 1 + 7e-16."""
    assert float(rf.RectifiedGaussian(1.0, math.inf).hockey_stick(-0.0, -8.8861e6, 0.0)) <= 1


@pytest.mark.parametrize("method", ["fisher_information", "renyi_divergence", "hockey_stick", "loss_moments"])
def test_what_cannot_be_represented_says_so(method: str) -> None:
    """Was a ValueError: cannot convert float NaN to integer."""
    law = rf.QuantizedGaussian(0.3, (-1.0, -0.97), 4)
    arguments = {"renyi_divergence": (1.0, 2.0), "hockey_stick": (1.0, 0.5), "loss_moments": (1.0,)}
    with pytest.raises(FloatingPointError, match=f"QuantizedGaussian.{method} cannot be represented"):
        getattr(law, method)(1.7976931348623157e308, *arguments.get(method, ()))
