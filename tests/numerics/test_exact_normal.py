"""Distribution functions to 400 bits, however narrow the interval."""

from typing import Any

import pytest
from mpmath import mp, mpf

from ringfence.numerics import exact_normal
from ringfence.numerics.exact_normal import _context, _tail, cumulative


@pytest.mark.parametrize("sigma", [1e20, 1e60, 1e120, 1e160, 1e290])
def test_a_narrow_interval_costs_no_digits(sigma: float) -> None:
    """The law is uniform up to 1 / sigma^2. With 512 bits the mass was 0 / 0 at a sigma of 1e160."""
    with mp.workprec(500):
        off = abs(mpf(cumulative(0.5, 0.0, sigma, -1.0, 1.0, bits=256)) - mpf("0.75"))
        assert off <= mpf(1) / mpf(sigma) ** 2 + mpf(2) ** -400


@pytest.mark.parametrize("scale", [2.0**-200, 2.0**-40, 2.0**200])
def test_far_tails_keep_their_digits_in_any_unit(scale: float) -> None:
    """2^70 sigma away the exponent alone has 140 bits before its point."""
    expected, found = (cumulative(0.0, 2.0**70 * unit, unit, -unit, unit, bits=256) for unit in (1.0, scale))
    with mp.workprec(500):
        assert abs(mpf(found) / mpf(expected) - 1) < mpf(2) ** -400
        # phi is all but an exponential with the rate 2^70 there
        assert abs(mpf(expected) / mp.exp(-(mpf(2) ** 70) + mpf(1) / 2) - 1) < mpf(2) ** -68


@pytest.mark.parametrize(
    ("arguments", "bits"),
    [
        ((0.5, 0.0, 1.0), 512),
        ((0.5, 0.0, 1.0, -1.0, 1.0), 512),
        ((3.0, 2.5, 0.125, 2.0, 4.0), 512),
        ((2.0**60, 0.0, 1.0), 512),
        ((2.0**60 + 256, 0.0, 1.0), 6000),
        ((-(2.0**40), 2.0**40, 2.0**-20), 6000),  # 2^61 sigma apart, on both sides of 0
        ((2.0**80, 2.0**80, 1.0), 512),
        ((0.0, 0.0, 1.0, -(2.0**61), 2.0**61), 6000),
        ((0.0, 0.0, 2.0**61, -1.0, 1.0), 512),
        ((0.0, 0.0, 2.0**62, -1.0, 1.0), 6000),  # narrow: 2^-61 sigma
    ],
)
def test_more_bits_are_taken_only_where_they_are_needed(
    arguments: tuple[float, ...], bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They take a hundred times longer."""
    taken = []

    def recorded(bits: int) -> Any:
        taken.append(bits)
        return _context(bits)

    monkeypatch.setattr(exact_normal, "_context", recorded)
    cumulative(*arguments, bits=256)
    assert taken == [bits]


@pytest.mark.parametrize("power", [101, 120, 300])
def test_tails_far_out_have_all_their_bits(power: int) -> None:
    """The leading term alone errs by 1 / x^2, which is 2^-671 at 1e101. The square of x takes 2000 bits."""
    context = _context(6000)
    x = 2 * context.mpf(10) ** power
    assert abs(2 * _tail(context, x) / context.erfc(x / context.sqrt(2)) - 1) < context.ldexp(1, -3900)
