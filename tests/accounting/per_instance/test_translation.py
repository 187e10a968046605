"""Theta and the ends of the support are measured from the nearer end where that is far from 0."""

import math

import pytest

import ringfence as rf
from ringfence.accounting.per_instance.translation import from_nearer_end
from tests.tensors import float64


@pytest.mark.parametrize("sigma", [1.0, 4.0])
@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("other", [0.0, math.inf])
def test_only_beyond_256_sigma_and_only_where_the_end_is_closer_than_zero(
    sigma: float, sign: float, other: float
) -> None:
    """One of the ends is enough. A theta at half its way to the end is moved, one before it is not."""
    edge = 256 * sigma
    for end, moved in ((edge, False), (math.nextafter(edge, math.inf), True)):
        bound = (-other, end) if sign > 0 else (-end, other)
        law = rf.RectifiedGaussian(sigma, bound)
        theta = sign * float64([end - 0.5])
        expected = theta - sign * end if moved else theta
        found, at = from_nearer_end(law, theta)
        assert at.tolist() == expected.tolist()
        assert (found is law) == (not moved)
    law = rf.RectifiedGaussian(sigma, (-other, 3 * edge) if sign > 0 else (-3 * edge, other))
    halfway = sign * float64([2.0 * edge, math.nextafter(2 * edge, 0.0), -edge])
    assert from_nearer_end(law, halfway)[1].tolist() == [-sign * edge, *halfway[1:].tolist()]
