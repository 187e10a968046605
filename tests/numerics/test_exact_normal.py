"""Distribution functions to 400 bits, however narrow the interval."""

import pytest
from mpmath import mp, mpf

from ringfence.numerics.exact_normal import _context, _tail, cumulative


@pytest.mark.parametrize("sigma", [1e20, 1e60, 1e120, 1e160, 1e290])
def test_a_narrow_interval_costs_no_digits(sigma: float) -> None:
    """The law is uniform up to 1 / sigma^2. With 512 bits the mass was 0 / 0 at a sigma of 1e160."""
    with mp.workprec(500):
        off = abs(mpf(cumulative(0.5, 0.0, sigma, -1.0, 1.0)) - mpf("0.75"))
        assert off <= mpf(1) / mpf(sigma) ** 2 + mpf(2) ** -400


def test_tails_where_erfc_fails_are_those_of_the_density() -> None:
    """P(Z >= x) = phi(x) / x up to 1 / x^2."""
    context = _context(1000)
    x = context.mpf(2) * 10**100
    density = context.exp(-(x**2) / 2) / context.sqrt(2 * context.pi)
    assert abs(_tail(context, x) * x / density - 1) < 1 / x
