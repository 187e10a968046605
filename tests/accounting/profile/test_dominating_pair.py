"""A few coordinates composed: the sign law against all outcomes and all patterns, enumerated."""

import math

import pytest
import torch

import ringfence as rf
from ringfence.accounting.claim.conversion import gaussian_delta
from ringfence.accounting.profile.dominating_pair import Coordinate, bounded_delta, composed_delta, grid_step
from tests.accounting.exact_profile import enumerated_delta
from tests.mechanisms.cases import CASES, Case
from tests.tensors import float64

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
SIGN = rf.StochasticSign(1.0)
EPSILONS = (0.0, 0.5, 1.0, 2.0)


def enumerated(thetas: list[float], moves: list[float], epsilon: float) -> float:
    def masses(where: float) -> list[float]:
        return [float(SIGN.log_prob(outcome, where).exp()) for outcome in (-1.0, 1.0)]

    return enumerated_delta(masses, thetas, moves, epsilon)


@pytest.mark.parametrize(
    ("thetas", "moves"),
    [
        ([0.2, -0.5], [0.6, 0.6]),
        ([0.2, 0.2, 0.2], [0.6, 0.6, 0.6]),  # one coordinate repeated
        ([0.2, 0.2, -0.5], [0.6, 0.3, 0.6]),  # the same theta, moved by less
        ([1.5, 1.5, 1.5, -1.5], [0.4, 0.4, 0.4, 0.4]),
        ([0.2, 7.0, -0.5, 0.1], [0.6, 0.0, 0.6, 0.0]),  # two of them not moved at all
    ],
)
def test_all_outcomes_and_all_patterns(thetas: list[float], moves: list[float]) -> None:
    composed = composed_delta(SIGN, float64(thetas), float64(moves), steps=1)
    for epsilon in EPSILONS:
        exact = enumerated(thetas, moves, epsilon)
        assert exact <= composed(epsilon) <= 1.35 * exact + 1e-11


@pytest.mark.parametrize("theta", [0.3, -1.5])
def test_steps_are_repeated_coordinates(theta: float) -> None:
    composed = composed_delta(SIGN, float64([theta]), float64([0.5]), steps=3)
    for epsilon in EPSILONS:
        exact = enumerated([theta] * 3, [0.5] * 3, epsilon)
        # only one direction and number of upward pushes is worst: hardly anything is lost
        assert exact <= composed(epsilon) <= 1.02 * exact + 1e-11
    apart = composed_delta(SIGN, float64([theta] * 3), float64([0.5]), steps=1)
    assert [apart(epsilon) for epsilon in EPSILONS] == pytest.approx(
        [composed(e) for e in EPSILONS], rel=1e-9
    )


def test_parameters_may_differ_by_coordinate() -> None:
    law = rf.StochasticSign(float64([1.0, 2.0]))
    composed = composed_delta(law, float64([0.2, 0.4]), float64(0.6), steps=1)
    for epsilon in EPSILONS:
        exact = enumerated([0.2, 0.2], [0.6, 0.3], epsilon)  # theta and move in units of sigma
        assert exact <= composed(epsilon) <= 1.25 * exact + 1e-4


@every_case
def test_one_release_is_exact(case: Case) -> None:
    """The hockey stick of the worse sign and direction, whatever lies beside it without moving."""
    law, theta, c = case.make(0.8, -1.0, 1.5), 0.4, 0.7
    alone = composed_delta(law, float64([theta]), float64([c]), steps=1)
    beside = composed_delta(law, float64([theta, 0.1]), float64([c, 0.0]), steps=1)
    for epsilon in (0.0, 0.3, 1.5):
        exact = max(
            float(law.hockey_stick(start, shift, epsilon))
            for start, shift in ((theta, c), (theta, -c), (theta + c, -c), (theta - c, c))
        )
        # the rounding of one release is charged, and no more
        assert alone(epsilon) == beside(epsilon) == pytest.approx(exact * (1 + 1e-11), rel=1e-13, abs=1e-300)


@pytest.mark.parametrize(("count", "steps"), [(1, 3), (3, 1), (1, 100)])
def test_gaussians_compose_to_a_gaussian(count: int, steps: int) -> None:
    """More than 64 releases take the larger curve at once, which costs a Gaussian nothing."""
    theta, move = torch.zeros(count).double(), 1.0 / (count * steps) ** 0.5
    composed = composed_delta(rf.Gaussian(1.0), theta, float64(move), steps)
    for epsilon in EPSILONS:
        exact = gaussian_delta(1.0, epsilon)
        assert exact * (1 - 1e-9) <= composed(epsilon) <= 1.01 * exact


def test_falls_with_epsilon_and_grows_with_steps() -> None:
    law, theta = rf.RectifiedGaussian(1.0, 1.0), float64([0.3, -2.0])
    rows = []
    for steps in (1, 3):
        composed = composed_delta(law, theta, float64(0.4), steps)
        rows.append([composed(epsilon) for epsilon in EPSILONS])
    for row in rows:
        assert row == sorted(row, reverse=True)
    for column in zip(*rows, strict=True):
        assert list(column) == sorted(column)


def test_the_grid_is_fine_against_every_loss_and_no_finer_than_can_be_held() -> None:
    law = rf.RectifiedGaussian(1.0, 1.0)
    releases = [Coordinate(law, float64(theta), float64(move)) for theta, move in ((0.5, 0.3), (2.5, 0.05))]
    deviations = []
    for release in releases:
        theta, move = release.theta, release.move
        pairs = ((theta, move), (theta, -move), (theta + move, -move), (theta - move, move))
        deviations += [float(law.loss_moments(*pair).variance) ** 0.5 for pair in pairs]
    assert grid_step(releases, [1, 1]) == pytest.approx(min(deviations) / 64, rel=1e-12, abs=0)
    reaches, repeats = [release.reach() for release in releases], [10**6, 3 * 10**6]
    spread = sum(repeat * reach**2 for repeat, reach in zip(repeats, reaches, strict=True)) ** 0.5
    assert grid_step(releases, repeats) == pytest.approx(8 * spread / 2**17, rel=1e-12, abs=0)


@pytest.mark.parametrize("shift", [300.0, 3000.0, 10_000.0])
def test_a_shift_of_very_many_sigma_is_charged_for_its_rounding(shift: float) -> None:
    """Log densities are as large as its square, of which rounding takes 2^-52 and less."""
    law = rf.QuantizedGaussian(1.0, bound=1.0, levels=3)
    delta = composed_delta(law, float64([0.0]), float64([shift]), steps=1)(0.1)
    curve = float(law.hockey_stick(0.0, shift, 0.1))
    assert 0.1 < curve < delta < 1
    assert delta >= curve * (1 + shift * shift * 2.0**-52)
    assert delta <= curve * (1 + shift * shift * 2.0**-50 + 1e-10)


def test_what_is_not_a_number_proves_nothing() -> None:
    class Distribution:
        def get_delta_for_epsilon(self, epsilon: float) -> float:
            return math.nan if epsilon > 700 else 0.25

    delta = bounded_delta(Distribution(), 0.125)
    assert (delta(1.0), delta(701.0)) == (0.375, 1.0)


def test_every_value_of_every_composition_is_charged() -> None:
    """At a large epsilon nothing else is left: 1e-15 for each point, release and composition."""
    theta, move = float64([0.2, 0.2, -0.5]), float64(0.6)
    delta = composed_delta(SIGN, theta, move, steps=2)(60.0)
    coordinates = [Coordinate(SIGN, float64(value), move) for value in (-0.5, 0.2)]
    step = grid_step(coordinates, [2, 4])
    points = sum(
        2 * (math.ceil(one.reach() / step) + 1) * many for one, many in zip(coordinates, (2, 4), strict=True)
    )
    assert 0.5 * points <= delta / (1e-15 * (6 + 2)) <= points + 1
