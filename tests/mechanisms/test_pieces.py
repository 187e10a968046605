"""Pieces in units of sigma: ends, moments of the loss, and a sum over atoms by its definition."""

import math

import pytest
import torch
from mpmath import mp, mpf

from ringfence.mechanisms import pieces
from ringfence.numerics.normal import TruncatedNormal
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


@pytest.mark.parametrize("alpha", [1.01, 2.0, 300.0])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_series_of_the_excess_has_all_the_terms_it_needs(alpha: float, sign: int) -> None:
    """Up to alpha |rho| = 1, of one number by itself and beside others: a few roundings, no more."""
    rho = sign / alpha * float64([1e-6, 1e-3, 0.1, 0.5, 0.99, 1.01, 1.3, 1.9, 2.5])
    with mp.workdps(60):
        exact = [mp.expm1(alpha * mpf(one)) - mpf(alpha) * mp.expm1(mpf(one)) for one in rho.tolist()]
        wanted = float64([float(mp.log(one)) for one in exact])
    together = pieces.log_excess(rho, float64(alpha))
    alone = torch.cat([pieces.log_excess(one, float64([alpha])) for one in rho.split(1)])
    for found in (together, alone):
        torch.testing.assert_close(found, wanted, rtol=4e-16, atol=3e-15)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("sizes", [[1e-9], [1e-3], [0.5, 0.2], [0.999], [0.1, 1.0]])
def test_a_series_of_the_excess_ends_where_the_rest_is_negligible(
    sizes: list[float], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first term with (j + 1) y^j / (j + 2)! below an eighth of a rounding is the last, y = alpha rho."""
    made, honest = [], torch.addcdiv
    monkeypatch.setattr(torch, "addcdiv", lambda *parts: made.append(1) or honest(*parts))
    pieces.log_excess(torch.tensor(sizes, dtype=dtype) / 2, torch.tensor(2.0, dtype=dtype))
    largest, last = max(sizes), 0
    while (last + 1) * largest**last / math.factorial(last + 2) > torch.finfo(dtype).eps / 8:
        last += 1
    assert len(made) == last


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
