"""Backward induction against all outcomes of a few releases, summed."""

import itertools
import math

import numpy as np
import pytest

from ringfence.accounting.profile.backward_induction import Grid, Loss, induction

STEP = 1e-3
GRID = Grid(STEP, 6000)
P = np.array([0.5, 0.3, 0.2])
MOVES = [np.array([0.4, 0.4, 0.2]), np.array([0.6, 0.2, 0.2]), np.array([0.45, 0.3, 0.25])]


def loss(p: np.ndarray, q: np.ndarray) -> Loss:
    return Loss.of_atoms(p, np.log(p / q), STEP)


def stick(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(0, p - math.exp(epsilon) * q).sum())


def worst_of_patterns(releases: int, at_most: int, epsilon: float) -> float:
    worst = 0.0
    for pattern in itertools.product([P, *MOVES], repeat=releases):
        if sum(law is not P for law in pattern) > at_most:
            continue
        p, q = np.ones(1), np.ones(1)
        for law in pattern:
            p, q = np.outer(p, P).ravel(), np.outer(q, law).ravel()
        worst = max(worst, stick(p, q, epsilon))
    return worst


def worst_in_the_light_of_outcomes(releases: int, at_most: int, p: float, q: float) -> float:
    """By definition: after each outcome the record may choose its next move anew; P and Q so far are p, q."""
    if not releases:
        return max(0.0, p - q)
    found = []
    for law in [P, *MOVES] if at_most else [P]:
        left = at_most - (law is not P)
        outcomes = zip(P.tolist(), law.tolist(), strict=True)
        found.append(
            sum(
                worst_in_the_light_of_outcomes(releases - 1, left, p * here, q * there)
                for here, there in outcomes
            )
        )
    return max(found)


@pytest.mark.parametrize("at_most", [1, 2, 3])
def test_every_choice_of_moves_is_covered(at_most: int) -> None:
    delta = induction([([loss(P, q) for q in MOVES], 3)], GRID, at_most)
    assert delta is not None
    for epsilon in (0.0, 0.1, 0.3, 0.6, 0.9):
        assert worst_of_patterns(3, at_most, epsilon) <= delta(epsilon)
        exact = worst_in_the_light_of_outcomes(3, at_most, 1.0, math.exp(epsilon))
        assert exact <= delta(epsilon) <= exact + 3e-4
    assert delta(-1.0) >= 1 - math.exp(-1.0)


def test_one_move_that_is_fixed_is_exact_but_for_the_grid() -> None:
    q = MOVES[0]
    delta = induction([([loss(P, q)], 2)], GRID)
    assert delta is not None
    p2, q2 = np.outer(P, P).ravel(), np.outer(q, q).ravel()
    for epsilon in (0.0, 0.2, 0.4):
        assert stick(p2, q2, epsilon) <= delta(epsilon) <= stick(p2, q2, epsilon) + 2e-4


def test_small_deltas_keep_their_digits() -> None:
    """Ten rare answers in a row: 1e-60, which no composition by FFT would see."""
    p, q = np.array([1e-6, 1 - 1e-6]), np.array([1e-7, 1 - 1e-7])
    delta = induction([([Loss.of_atoms(p, np.log(p / q), 0.01)], 10)], Grid(0.01, 4000))
    assert delta is not None
    exact = 1e-60 - math.exp(22.5) * 1e-70
    assert exact <= delta(22.5) <= 1.1 * exact


def test_a_curve_has_the_loss_that_it_came_from() -> None:
    p, q, step = P, MOVES[0], 0.05
    places = np.arange(-30, 31)
    curve = np.array([stick(p, q, step * place) for place in places])
    found, expected = Loss.of_curve(curve, -30, step), Loss.of_atoms(p, np.log(p / q), step)
    own = dict(zip(found.places.tolist(), found.masses.tolist(), strict=True))
    for place, mass in zip(expected.places.tolist(), expected.masses.tolist(), strict=True):
        assert own[place] == pytest.approx(mass, abs=1e-12)
    assert found.masses.sum() == pytest.approx(1.0, abs=1e-12)


def test_many_points_of_mass_cost_what_they_cost_one_by_one() -> None:
    dense = Loss(np.arange(-40, 41), np.full(81, 1 / 81), 0.0)
    values = np.linspace(0, 1, 301) ** 2
    slow = sum(values[40 + k : 261 + k] / 81 for k in range(-40, 41))
    np.testing.assert_allclose(dense.expected(values, 40), slow, rtol=1e-12)


def test_losses_beyond_the_grid_are_not_lost() -> None:
    """One outcome that only P has, nearly, and a grid that is far too short for it."""
    p, q = np.array([0.01, 0.99]), np.array([1e-12, 1 - 1e-12])
    short = induction([([Loss.of_atoms(p, np.log(p / q), 0.01)], 1)], Grid(0.01, 100))
    assert short is not None
    assert short(0.5) >= 0.01 * (1 - 1e-9)
    assert short(50.0) == short(1.0)


def test_what_would_take_minutes_is_left_out() -> None:
    assert induction([([loss(P, MOVES[0])], 10**6)], GRID) is None


def test_beyond_the_grid_the_last_chord_is_exact_and_only_the_margin_is_added() -> None:
    """On a grid from -1 to 1 losses of -1.5, 0 and 1.5, of which the first and the last lie beyond it."""
    far = Loss(np.array([-15, 0, 15]), np.array([0.25, 0.5, 0.249]), 1e-3)
    delta = induction([([far], 1)], Grid(0.1, 10))
    assert delta is not None
    for k in range(11):
        exact = 1e-3 + 0.249 * -math.expm1(k / 10 - 1.5)
        assert delta(k / 10) / exact - 1 == pytest.approx(2e-11, rel=0.02)


@pytest.mark.parametrize(
    ("share", "step"), [(1e-9, 2.0), (1.0, 2.0**-5), (1.2, 2.0**-6), (1e9, 2 * 11.1 / 2**16)]
)
def test_a_grid_adds_a_thousandth_to_the_variance_or_has_as_many_points_as_it_may(
    share: float, step: float
) -> None:
    """From four deviations of one release on, by halves; it reaches ten deviations beyond the mean."""
    grid = Grid.fitted(1.0, 0.1, 4, lambda step: share * step**2)
    assert grid.step == pytest.approx(step, rel=1e-12, abs=0)
    assert grid.reach == math.ceil(11.1 / grid.step)
