"""Pieces in units of sigma: ends, moments of the loss, and a sum over atoms by its definition."""

import pytest
import torch
from mpmath import mp, mpf

from ringfence.mechanisms import pieces
from ringfence.numerics.truncated_normal import TruncatedNormal
from tests.tensors import float64


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_an_infinite_end_becomes_one_whose_square_is_finite(dtype: torch.dtype) -> None:
    theta, sigma, end = (torch.tensor([x], dtype=dtype) for x in (3.0, 2.0, torch.inf))
    lower, upper, width = pieces.standardized(theta, sigma, -end, end)
    assert (float(upper), float(lower)) == (-float(lower), -float(upper))
    assert float(width) == pytest.approx(2 * pieces.far(theta))
    assert bool(torch.isfinite(upper * upper))


def test_the_width_keeps_the_digits_that_the_ends_lose() -> None:
    width = pieces.standardized(*float64([1e9, 1.0, 0.0, 1e-9]).unbind())[2]
    assert float(width) == 1e-9


@pytest.mark.parametrize("alpha", [1.01, 2.0, 300.0])
@pytest.mark.parametrize("rho", [1e-12, -1e-3, 0.02, -3.0, 2.0])
def test_the_excess_is_its_definition(rho: float, alpha: float) -> None:
    with mp.workdps(60):
        ratio = mp.exp(mpf(rho))
        exact = mp.log(ratio ** mpf(alpha) - 1 - mpf(alpha) * (ratio - 1))
        got = pieces.log_excess(float64([rho]), float64([alpha]))
        assert abs(float(got) - float(exact)) < 1e-12 * max(1, abs(float(exact)))


def test_moments_of_atoms_and_of_a_stretch_are_those_of_the_whole_line() -> None:
    """Cut at two points, N(0, 1) against N(s, 1) loses nothing inside: L is N(s^2 / 2, s^2) there."""
    lower, upper, shift = float64([-30.0]), float64([30.0]), float64([0.3])
    log_p, rho = pieces.atoms(lower, upper, shift)
    stretch = TruncatedNormal(lower, upper, upper - lower)
    variance, third, fourth, extent = pieces.loss_moments(log_p, rho, (stretch, shift)).flatten().tolist()
    assert variance == pytest.approx(0.09, rel=1e-12)
    assert third == pytest.approx(0.0, abs=1e-15)
    assert fourth == pytest.approx(3 * 0.09**2, rel=1e-12)
    assert extent >= 0.3 * 60
