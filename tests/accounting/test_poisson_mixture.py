"""P against (1 - q) P + q Q from moments: the Gaussian, whose moments are k (k - 1) s^2 / 2."""

import math
from typing import Any

import pytest
import torch
from mpmath import mp, mpf

import ringfence as rf
from ringfence.accounting import poisson_mixture
from ringfence.accounting.divergence_sums import released_shape
from ringfence.accounting.poisson_mixture import (
    PoissonMixture,
    chords,
    highest_moment,
    knots,
    log_excess_of_few,
)
from ringfence.accounting.subsampling import fixed_batch_rdp
from tests import oracle

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


def test_everything_released_is_exact_in_both_directions() -> None:
    moments, mixture = gaussian_moments(0.2), PoissonMixture(1.0, ORDERS)
    expected = torch.log(torch.expm1(0.5 * ORDERS * (ORDERS - 1) * 0.2**2))
    for result in (mixture.mixture_first(moments), mixture.mixture_second(moments, moments[1], moments)):
        torch.testing.assert_close(result, expected, rtol=0, atol=1e-11)


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


def test_chords_bound_a_convex_function_by_four_in_a_thousand() -> None:
    orders = torch.tensor([2.0, 250.0], dtype=torch.float64)
    known = knots(orders)
    points = torch.arange(2, highest_moment(orders) + 1, dtype=torch.float64)
    assert {2.0, 3.0, 4.0, 32.0, 250.0} <= set(known.tolist())
    assert len(known) < 60
    values = chords(known, (known * (known - 1)).unsqueeze(0), points)[0]
    ratio = values / (points * (points - 1))
    assert float(ratio.min()) >= 1 - 1e-15
    assert float(ratio.max()) < 1.004
    assert bool((ratio[points <= 32] == 1).all())


FEW_ORDERS = torch.tensor([2.0, 5.0, 40.0], dtype=torch.float64)


def number(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


def sign_excess(thetas: list[float], moves: list[float], rate: float, alpha: int) -> mpf:
    """E_P[(1 - q + q r)^(1 - alpha)] - 1 of independent signs, P at theta and Q at theta + move."""
    pairs = [(mpf(1), mpf(1))]
    for theta, move in zip(thetas, moves, strict=True):
        p, q = oracle.sign(1)(theta).atoms, oracle.sign(1)(mpf(theta) + mpf(move)).atoms
        pairs = [(a * p[point], b * q[point]) for a, b in pairs for point in p]
    return sum(p * (1 + mpf(rate) * (q / p - 1)) ** (1 - alpha) for p, q in pairs) - 1


@pytest.mark.parametrize(("size", "rate"), [(1e-7, 0.3), (0.4, 0.01), (3.0, 0.9)])
def test_two_signs_by_definition(size: float, rate: float) -> None:
    thetas = [0.3, -1.1]
    got = log_excess_of_few(
        rf.StochasticSign(1.0), torch.tensor(thetas).double(), number(size), rate, FEW_ORDERS
    )
    corners = [[a * size, b * size] for a in (1, -1) for b in (1, -1)]
    with mp.workdps(50):
        for i, alpha in enumerate(FEW_ORDERS.long().tolist()):
            added = max(sign_excess(thetas, v, rate, alpha) for v in corners)
            removed = max(
                sign_excess([t - m for t, m in zip(thetas, v, strict=True)], v, rate, alpha) for v in corners
            )
            for value, exact in zip(got[:, i].tolist(), (added, removed), strict=True):
                # of D: log(1 + excess) / (alpha - 1)
                assert 1 <= math.log1p(math.exp(value)) / float(mp.log1p(exact)) < 1.002


def test_every_coordinate_has_its_own_law_and_move() -> None:
    """Where the others do not move, one of four coordinates costs what it costs alone, on a coarser grid."""
    sigma, bound = torch.tensor([1.0, 2.0]).double(), torch.tensor([[1.0], [3.0]]).double()
    law, theta = rf.TruncatedGaussian(sigma, bound), number(0.4)
    assert released_shape(law, theta, number(0.1)).numel() == 4
    for row, column in ((0, 0), (1, 0), (1, 1)):
        moves = torch.zeros(2, 2, dtype=torch.float64)
        moves[row, column] = 0.5
        together = log_excess_of_few(law, theta, moves, 0.2, FEW_ORDERS)
        single = rf.TruncatedGaussian(sigma[column], bound[row, 0])
        alone = log_excess_of_few(single, theta, number(0.5), 0.2, FEW_ORDERS)
        torch.testing.assert_close(together, alone, rtol=0, atol=5e-3)


@pytest.mark.parametrize(
    ("law", "theta", "move"),
    [
        (rf.StochasticSign(1.0), 300.0, 1.0),  # the masses underflow
        (rf.Gaussian(1.0), 0.0, 1e-300),
        (rf.TruncatedGaussian(1.0, 1e-9), 1.0, 999.0),  # thresholds cannot be told from the ends
        (rf.QuantizedGaussian(1.0, 1.0, levels=3), 0.0, 1e6),
    ],
)
def test_no_bound_where_digits_are_lost(law: rf.Mechanism, theta: float, move: float) -> None:
    assert bool((log_excess_of_few(law, number(theta), number(move), 0.5, FEW_ORDERS) == torch.inf).all())
    assert bool(fixed_batch_rdp(law, theta, move, 0.5, [2, 5]).forward.isfinite().all())


def test_very_far_apart() -> None:
    """The ratio is 0 under P and the mixture (1 - q) P: the cost is -log(1 - q)."""
    for law in (rf.Gaussian(1.0), rf.StochasticSign(1.0), rf.RectifiedGaussian(1.0, 1.0)):
        excess = log_excess_of_few(law, number(-50.0), number(100.0), 0.2, FEW_ORDERS)[0]
        divergence = torch.logaddexp(excess, number(0.0)) / (FEW_ORDERS - 1)
        torch.testing.assert_close(divergence, torch.full_like(divergence, -math.log1p(-0.2)))


def test_roundings_that_grow_with_the_square_of_the_move_are_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Log densities of a move of m sigma go up to m^2 / 2, and are wrong by some 2^-52 of that. The grid ends
    where a tail of the Gaussian's loss is e^-70 of what is left out by (1 - q)^(1 - alpha), or at 300."""
    charged, grids = [], []
    pairs = poisson_mixture._pairs

    def seen(*arguments: Any) -> Any:
        charged.append(arguments[-1])
        grids.append(arguments[-2])
        return pairs(*arguments)

    monkeypatch.setattr(poisson_mixture, "_pairs", seen)
    for move in (1e-3, 16.0, 512.0):
        log_excess_of_few(rf.Gaussian(2.0), number(0.0), number(2 * move), 0.2, FEW_ORDERS)
    assert charged == pytest.approx([1e-11, 1e-11 + 2.0**-43, 1e-11 + 2.0**-33], rel=1e-9, abs=0)
    tail = math.sqrt(2 * (70 - float(FEW_ORDERS.max() - 1) * math.log1p(-0.2)))
    assert [len(grid) for grid in grids] == [385] * 3
    ends = [float(grid[-1]) for grid in grids]
    assert ends == pytest.approx([1e-3 * (1e-3 / 2 + tail), 300.0, 300.0], rel=1e-12, abs=0)
