"""P against (1 - q) P + q Q from moments: the Gaussian, whose moments are k (k - 1) s^2 / 2."""

import math

import pytest
import torch
from mpmath import mp, mpf

from ringfence.accounting.poisson_mixture import PoissonMixture

ORDERS = torch.tensor([2.0, 4.0, 16.0, 64.0], dtype=torch.float64)
K = torch.arange(2, 65, dtype=torch.float64)


def gaussian_moments(shift: float) -> torch.Tensor:
    return 0.5 * K * (K - 1) * shift**2


def excess(shift: float, rate: float, power: int) -> mpf:
    """E_P[(1 - q + q r)^power] - 1 of N(0, 1) and N(shift, 1), what is integrated being positive."""
    shift, rate = mpf(shift), mpf(rate)

    def integrand(y: mpf) -> mpf:
        x = rate * mp.expm1(shift * y - shift**2 / 2)
        return mp.npdf(y) * ((1 + x) ** power - 1 - power * x)

    places = [*range(-14, 15, 4), *range(18, int(15 + max(power, 0) * shift) + 4, 4)]
    return mp.quad(integrand, places, method="gauss-legendre")


@pytest.mark.parametrize(("rate", "shift"), [(0.01, 0.3), (0.1, 0.03), (0.5, 0.3)])
def test_gaussian_against_quadrature(rate: float, shift: float) -> None:
    moments, mixture = gaussian_moments(shift), PoissonMixture(rate, ORDERS)
    first = mixture.mixture_first(moments)
    second = mixture.mixture_second(moments, moments[1], moments)
    for i, alpha in enumerate([2, 4, 16]):
        assert float(first[i]) == pytest.approx(float(mp.log(excess(shift, rate, alpha))), abs=1e-10)
        reverse = float(mp.log(excess(shift, rate, 1 - alpha)))
        assert 1 <= math.exp(float(second[i]) - reverse) < 1.4
        assert reverse < float(first[i])  # Mironov, Talwar, Zhang 2019, Theorem 5


def test_tightness_where_the_taylor_bounds_of_lagrange_are_useless() -> None:
    """MATH.md's table: order 4 is about 18 times too large at q = 0.1, alpha = 64."""
    moments = gaussian_moments(0.1)
    for rate, alpha, at_most in [(0.01, 64, 1.001), (0.1, 16, 1.01), (0.1, 64, 1.2), (0.5, 64, 1.1)]:
        mixture = PoissonMixture(rate, torch.tensor([float(alpha)], dtype=torch.float64))
        bound = float(mixture.mixture_second(moments[: alpha - 1], moments[1], moments[: alpha - 1]).exp())
        assert 1 <= bound / float(excess(0.1, rate, 1 - alpha)) < at_most


@pytest.mark.parametrize("rate", [1e-4, 0.3, 0.99])
def test_remainder_is_what_taylor_leaves_at_the_lower_end(rate: float) -> None:
    """q^m R(-q) = (1 - q)^-b less the Taylor polynomial of degree m - 1 at x = -q."""
    mixture = PoissonMixture(rate, ORDERS)
    for m, logs in ((2, mixture._rest_of_2), (4, mixture._rest_of_4)):
        for alpha, log in zip(ORDERS.tolist(), logs.tolist(), strict=True):
            with mp.workdps(60):
                b, q = int(alpha) - 1, mpf(rate)
                left = mp.log((1 - q) ** -b - sum(mp.binomial(b + i - 1, i) * q**i for i in range(m)))
            assert log == pytest.approx(float(left), abs=1e-11)


def test_nothing_moves() -> None:
    moments, mixture = torch.zeros(63).double(), PoissonMixture(0.1, ORDERS)
    assert bool((mixture.mixture_first(moments) == -torch.inf).all())
    assert bool((mixture.mixture_second(moments, moments[1], moments) == -torch.inf).all())


def test_huge_and_tiny_moments_stay_finite() -> None:
    for shift in (1e-12, 100.0):
        moments = gaussian_moments(shift)
        for rate in (1e-6, 0.999):
            mixture = PoissonMixture(rate, ORDERS)
            assert bool(mixture.mixture_first(moments).isfinite().all())
            assert bool(mixture.mixture_second(moments, moments[1], moments).isfinite().all())
