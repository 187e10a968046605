"""The expansion of the loss: its remainder and its delta against exact transforms, every sign pattern."""

import math
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import binom

import ringfence as rf
from ringfence.accounting.central_limit import LossSums, _saddle
from ringfence.mechanisms.base import LossMoments
from tests import oracle
from tests.accounting.drawing import draw
from tests.accounting.exact_profile import Array, ExactProfile, log_moment
from tests.tensors import float64

BOUND = 1.0
LAWS = {"truncated": rf.TruncatedGaussian(1.0, BOUND), "rectified": rf.RectifiedGaussian(1.0, BOUND)}
MOVES = {"small": draw(40, seed=1).abs() * 0.02, "large": torch.full((40,), 0.3, dtype=torch.float64)}
THETA = 1.5 * draw(40)
every_direction = pytest.mark.parametrize("backward", [False, True])


def pair(move: torch.Tensor, backward: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Where P sits, and the shift from it to Q."""
    return (THETA + move, -move) if backward else (THETA, move)


def moments(move: torch.Tensor, backward: bool) -> LossMoments:
    """Of a product: the first half of the coordinates truncated, the other rectified."""
    start, shift = pair(move, backward)
    halves = [
        law.loss_moments(start[part], shift[part])
        for law, part in zip(LAWS.values(), (slice(20), slice(20, None)), strict=True)
    ]
    return LossMoments(
        *(torch.cat([getattr(half, field.name) for half in halves]) for field in fields(halves[0]))
    )


def exact_log_moment(w: complex, start: Array, shift: Array) -> complex:
    return sum(
        log_moment(law, w, start[part], shift[part], BOUND)
        for law, part in zip(LAWS, (slice(20), slice(20, None)), strict=True)
    )


def patterns() -> list[torch.Tensor]:
    """Up, down, towards the centre, away from it, at random."""
    up = torch.ones_like(THETA)
    return [up, -up, -THETA.sign(), THETA.sign(), draw(40, seed=2).sign()]


def coins(count: int, releases: int, move: float) -> LossSums:
    law, theta = rf.StochasticSign(1.0), torch.zeros(count, dtype=torch.float64)
    return LossSums.worst_of(*(law.loss_moments(theta, side) for side in (move, -move)), releases)


@every_direction
def test_each_coordinate_counts_with_the_sign_that_is_worse_for_each_moment(backward: bool) -> None:
    """And so for every pattern of signs."""
    both = [moments(sign * MOVES["large"], backward) for sign in (1, -1)]
    sums = LossSums.worst_of(*both, releases=3)
    variances, thirds, fourths, extents = (
        torch.stack([getattr(side, name) for side in both])
        for name in ("variance", "third", "fourth", "extent")
    )
    variance, third, fourth = variances.amax(0), thirds.abs().amax(0), fourths.amax(0)
    expected = {
        "variance": variance,
        "variance_spread": variance - variances.amin(0),
        "variance_cubed": variance**3,
        "third": third,
        "third_times_variance": third * variance,
        "fourth": fourth,
        "fourth_cumulant": (fourths - 3 * variances**2).abs().amax(0),
        "fourth_times_variance": fourth * variance,
    }
    for name, terms in expected.items():
        assert getattr(sums, name) == pytest.approx(3 * float(terms.sum()), rel=1e-11), name
    assert (sums.largest_variance, sums.extent) == (float(variance.max()), float(extents.max()))


@pytest.mark.parametrize("law", [rf.StochasticSign(1.0), *LAWS.values()], ids=repr)
def test_the_extent_is_how_far_the_loss_can_go(law: rf.Mechanism) -> None:
    low, high = (law.log_prob(end, 0.3) - law.log_prob(end, 0.7) for end in (-1.0, 1.0))
    side = law.loss_moments(float64([0.3]), 0.4)
    assert LossSums.worst_of(side, side, 1).extent == pytest.approx(float(low - high), rel=1e-12)


@every_direction
@pytest.mark.parametrize("size", MOVES)
def test_the_remainder_is_a_bound_for_complex_arguments(size: str, backward: bool) -> None:
    """|log M(w) - V (w^2 + w) / 2 - K (w^3 - w) / 6|, V the middle variance, K that of the pattern."""
    move = MOVES[size]
    sums = LossSums.worst_of(moments(move, backward), moments(-move, backward), releases=1)
    middle = sums.variance - sums.variance_spread / 2
    finite = 0
    for signs in patterns():
        start, shift = pair(signs * move, backward)
        third = float(moments(signs * move, backward).third.sum())
        for real in (0.01, 0.5, 1.0, 3.0, 12.0):
            for tau in (0.0, 0.1, 1.0, 4.0, 20.0):
                w = complex(real, tau)
                bound = float(sums.remainder(np.array([abs(w)]), real)[0])
                exact = exact_log_moment(w, start.numpy(), shift.numpy())
                off = abs(exact - middle * (w**2 + w) / 2 - third * (w**3 - w) / 6)
                assert off <= bound * (1 + 1e-9) + 1e-13
                finite += bound < math.inf
    assert finite > 0.5 * 5 * 25 or size == "large"
    assert finite > 0.1 * 5 * 25


@pytest.mark.parametrize("name", LAWS)
@every_direction
def test_delta_is_above_the_exact_one(name: str, backward: bool) -> None:
    law, bound, move, releases = LAWS[name], BOUND, torch.full_like(THETA, 0.02), 60
    sides = [law.loss_moments(*pair(signed, backward)) for signed in (move, -move)]
    sums = LossSums.worst_of(*sides, releases)
    for epsilon in (0.0, 0.4, 1.5):
        delta = sums.delta(epsilon)
        exact = []
        for signs in patterns():
            start, shift = pair(signs * move, backward)
            exact.append(ExactProfile(name, start.numpy(), shift.numpy(), bound, releases, near=epsilon))
        worst = max(profile.delta(epsilon) for profile in exact)
        assert worst <= delta <= 1.4 * worst


@pytest.mark.parametrize(("count", "move"), [(1000, 0.03), (2000, 0.02)])
def test_coins_between_whose_outcomes_nothing_lies(count: int, move: float) -> None:
    """Losses on a lattice: the transform comes back to its peak for ever, and that is charged."""
    law = rf.StochasticSign(1.0)
    p, q = (float(law.log_prob(1.0, where).exp()) for where in (0.0, move))
    heads = np.arange(count + 1)
    step = math.log((1 - p) / (1 - q)) - math.log(p / q)
    loss = count * math.log(p / q) + (count - heads) * step
    sums = coins(count, 1, move)
    for epsilon in np.linspace(0.0, 6 * step, 13):
        exact = float((binom.pmf(heads, count, p) * np.maximum(0, -np.expm1(epsilon - loss))).sum())
        assert exact <= sums.delta(float(epsilon)) <= 1.03 * exact


def test_one_where_there_is_no_expansion() -> None:
    gaussian = rf.Gaussian(1.0).loss_moments(torch.zeros(500).double(), 0.05)
    sums = LossSums.worst_of(gaussian, gaussian, 1)
    assert sums.extent == math.inf
    assert sums.delta(1.0) == 1.0
    assert coins(1, 1, 1.0).delta(1.0) == 1.0  # one large loss is nothing like normal
    assert coins(50, 1, 0.0).delta(1.0) == 1.0  # nothing to expand
    assert float(coins(3, 1, 1.0).remainder(np.array([3.0]), 3.0)[0]) == math.inf


def test_a_release_that_gives_everything_away_has_delta_one() -> None:
    """No variance is sure there, and dividing by it used to fail."""
    law, theta = rf.RectifiedGaussian(1.0, 1.0), torch.tensor([5.0]).double()
    assert 0 < rf.privacy_profile(law, theta, 6.0).delta(0.0) <= 1


SUMS = LossSums(
    variance=0.9,
    variance_spread=0.02,
    variance_cubed=1e-6,
    third=0.011,
    third_times_variance=5e-6,
    fourth=1e-3,
    fourth_cumulant=3e-4,
    fourth_times_variance=1e-6,
    largest_variance=1.3e-3,
    extent=0.07,
)


@pytest.mark.parametrize(("size", "real"), [(1.0, 0.3), (2.0, 1.5), (3.0, 2.9), (9.0, 1.0)])
def test_the_remainder_is_the_formula_of_the_guarantees(size: float, real: float) -> None:
    """R(|w|, e^(c0 B)) + |w| R(1, e^B) + spread, docs/guarantees.md, with sums that are no one's."""

    def order_four_and_more(r: float, g: float) -> float:
        cubed = (r**2 * g / 2) ** 3 * 1e-6 / (3 * (1 - r**2 * 1.3e-3 * g / 2))
        square = (r**3 * 5e-6 / 6 + r**4 * 1e-6 * g / 24) * r**2 * (g + 1) / 2
        return r**4 * 3e-4 / 24 + r**5 * 0.07 * 1e-3 * g / 120 + square / 2 + cubed

    spread = abs(size**2 + size) / 2 * 0.02 / 2  # V is within half its spread of the middle
    expected = order_four_and_more(size, math.exp(real * 0.07)) + spread
    expected += size * order_four_and_more(1.0, math.exp(0.07))
    assert float(SUMS.remainder(np.array([size]), real)[0]) == pytest.approx(expected, rel=1e-12, abs=0)


def test_the_remainder_ends_where_the_logarithm_no_longer_converges() -> None:
    """|u| <= |w|^2 v e^(c0 B) / 2 must be below 1/2."""
    edge = 1 / math.sqrt(1.3e-3 * math.exp(0.07))
    inside, outside = SUMS.remainder(np.array([edge * 0.999, edge * 1.001]), 1.0)
    assert math.isfinite(inside)
    assert math.isinf(outside)


@pytest.mark.parametrize(("epsilon", "real"), [(0.5, 1.0), (2.0, 2.5), (3.0, 3.0)])
def test_delta_is_the_worst_piece_and_what_it_leaves_out(epsilon: float, real: float) -> None:
    """The integrals of docs/guarantees.md by another quadrature, for each piece of the third cumulant."""
    middle, half = 0.9 - 0.02 / 2, 0.011 / 32

    def reference(tau: float, third: float) -> complex:
        w = complex(real, tau)
        return np.exp(middle * (w**2 + w) / 2 + third * (w**3 - w) / 6 - w * epsilon) / (w * (w + 1))

    def charged(tau: float, third: float) -> float:
        size = math.hypot(real, tau)
        off = float(SUMS.remainder(np.array([size]), real)[0]) + half * (size**3 + size) / 6
        return abs(reference(tau, third)) * math.expm1(off)

    pieces = [-0.011 + half * (2 * k + 1) for k in (0, 15, 31)]
    worst = 0.0
    for third in pieces:
        near = quad(lambda tau, third=third: reference(tau, third).real, 0, 20, limit=200)[0]
        near += 1.001 * quad(lambda tau, third=third: charged(tau, third), 0, 20, limit=200)[0]
        peak = (abs(reference(0.0, third)) + charged(0.0, third)) * real * (real + 1)
        worst = max(worst, (near + peak * 0.07 / math.pi) / math.pi)
    got = SUMS._delta(epsilon, middle, real)
    assert got == pytest.approx(worst, rel=1e-6, abs=0)
    assert SUMS.delta(epsilon) <= min(1.0, 1.02 * got)  # at the best of four contours


def test_where_the_expansion_overflows_there_is_no_bound() -> None:
    wide = replace(SUMS, extent=700.0)
    assert np.isinf(wide.remainder(np.array([1.0, 2.0]), 0.5)).all()
    assert np.isinf(SUMS.remainder(np.array([1.0]), 9000.0)).all()
    assert wide.delta(1.0) == 1


def test_no_bound_where_the_remainder_is_not_small_at_the_end_of_the_contour() -> None:
    middle = SUMS.variance - SUMS.variance_spread / 2
    assert SUMS._delta(1.0, middle, 1.0) < 1
    assert replace(SUMS, fourth_cumulant=0.015)._delta(1.0, middle, 1.0) == 1


@pytest.mark.parametrize("variance", [0.3, 2.0])
@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_of_a_normal_loss_only_the_margin_is_left(variance: float, epsilon: float) -> None:
    """No third or fourth cumulant, no remainder: the Gaussian's curve, a billionth above it."""
    sums = LossSums(variance, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, extent=1e-14)
    mu = math.sqrt(variance)
    truth = oracle.below(mu / 2 - epsilon / mu) - math.exp(epsilon) * oracle.below(-mu / 2 - epsilon / mu)
    assert float(sums.delta(epsilon) / truth - 1) == pytest.approx(1e-9, rel=0.01)


@pytest.mark.parametrize("real", [0.3, 2.0])
def test_where_the_expansion_ends(real: float) -> None:
    """At e^-60 of the peak, for the smallest variance of any pattern under the tilted law; at pi / extent."""
    wide = replace(SUMS, variance_spread=0.4)
    decay = 2 / math.pi**2 * (0.9 - 0.4) * math.exp(-2 * real * 0.07)
    expected = (math.sqrt(60 / decay), math.pi / 0.07)
    assert wide._ends_of_the_expansion(real) == pytest.approx(expected, rel=1e-13)
    assert replace(SUMS, variance_spread=0.9)._ends_of_the_expansion(real) is None
    assert wide._ends_of_the_expansion(1e5) is None  # nothing is left of the variance


@pytest.mark.parametrize(("variance", "epsilon"), [(0.9, 0.0), (0.01, 3.0), (40.0, 1.0)])
def test_the_saddle_is_where_the_integrand_is_smallest(variance: float, epsilon: float) -> None:
    """Of exp(v (c^2 + c) / 2 - c epsilon) / (c (c + 1)), whose logarithm is convex: by its slope at both
    sides."""
    c0 = _saddle(variance, epsilon)

    def slope(c: float) -> float:
        return variance * (c + 0.5) - epsilon - 1 / c - 1 / (c + 1)

    assert slope(c0 * (1 - 1e-9)) < 0 < slope(c0 * (1 + 1e-9))
