"""Backward induction against all outcomes of a few releases and all choices of moves."""

import itertools
import math
from statistics import NormalDist

import numpy as np
import pytest
import scipy.stats
import torch

import ringfence as rf
from ringfence.accounting import induction as method
from ringfence.accounting.conversion import gaussian_epsilon, zcdp_epsilon
from ringfence.accounting.decisions import decision_profile
from ringfence.accounting.induction import (
    Grid,
    Loss,
    Pairs,
    _worst_coins,
    atoms_delta,
    dominated_curve,
    dominated_delta,
    dominated_epsilon,
    envelopes,
    induction,
    worst_losses,
)
from ringfence.accounting.profile import composed_delta
from tests.accounting.exact_profile import enumerated_delta
from tests.tensors import float64

STEP = 1e-3
GRID = Grid(STEP, 6000)
P = np.array([0.5, 0.3, 0.2])
MOVES = [np.array([0.4, 0.4, 0.2]), np.array([0.6, 0.2, 0.2]), np.array([0.45, 0.3, 0.25])]

SIGN, NORMAL = rf.StochasticSign(1.0), NormalDist()
THETAS, SIZES = [0.2, -0.5, 1.5, 0.9, -0.1], [0.6, 0.3, 0.6, 0.4, 0.5]


def loss(p: np.ndarray, q: np.ndarray) -> Loss:
    return Loss.of_atoms(p, np.log(p / q), STEP)


def stick(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(0, p - math.exp(epsilon) * q).sum())


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


def named(ranges: tuple[tuple[float, int], ...]) -> tuple[tuple[str, float, int], ...]:
    return tuple(("range", eta, count) for eta, count in ranges)


def coin(eta: float, t: float) -> tuple[float, float]:
    """The chance of the loss t under P; the other loss is t - eta."""
    return math.expm1(eta - t) * math.exp(t) / math.expm1(eta), t


def worst_range(etas: list[float], x: float, places: int) -> float:
    """By definition: after each coin the interval of the next may be chosen anew, at ``places`` places."""
    if not etas:
        return max(0.0, -math.expm1(-x))
    (eta, *rest), found = etas, 0.0
    for t in np.linspace(0, eta, places).tolist():
        p, _ = coin(eta, t)
        up, down = worst_range(rest, x + t, places), worst_range(rest, x + t - eta, places)
        found = max(found, p * up + (1 - p) * down)
    return found


@pytest.mark.parametrize("etas", [[0.3], [0.3, 0.3], [4.0, 4.0], [1e-4, 1e-4]])
def test_every_interval_of_a_range_is_covered(etas: list[float]) -> None:
    ranges = tuple((eta, etas.count(eta)) for eta in dict.fromkeys(etas))
    for share in (0.0, 0.3, 0.7, 0.95):
        epsilon = share * sum(etas)
        exact = worst_range(etas, -epsilon, 4001 if len(etas) == 1 else 161)
        assert exact <= dominated_delta(named(ranges), epsilon) <= 1.02 * exact + 1e-4 * sum(etas)
        if len(etas) == 1:  # the best t has a closed form
            closed = (math.exp(etas[0] / 2) - math.exp(epsilon / 2)) ** 2 / math.expm1(etas[0])
            assert exact == pytest.approx(closed, rel=1e-3)
        found = dominated_delta(named(ranges), epsilon)
        assert epsilon <= dominated_epsilon(named(ranges), found) * (1 + 1e-9)
        assert dominated_epsilon(named(ranges), found) == pytest.approx(epsilon, abs=1e-6 * sum(etas))


@pytest.mark.parametrize(("eta", "count"), [(0.2, 7), (0.05, 60), (2.0, 5)])
def test_ranges_on_one_dataset_are_below_those_chosen_in_the_light_of_outcomes(
    eta: float, count: int
) -> None:
    """Coins whose t is fixed in advance, binomially; little is lost, and zCDP and the sum are beaten."""
    heads = np.arange(count + 1)
    for delta in (1e-3, 1e-7):
        epsilon = dominated_epsilon((("range", eta, count),), delta)

        def fixed(t: float, epsilon: float) -> float:
            losses = count * t - (count - heads) * eta
            chances = scipy.stats.binom.pmf(heads, count, coin(eta, t)[0])
            return float((chances * -np.expm1(np.minimum(0, epsilon - losses))).sum())

        assert max(fixed(t, epsilon) for t in np.linspace(0, eta, 500)) <= delta
        assert max(fixed(t, 0.985 * epsilon) for t in np.linspace(0, eta, 500)) > delta
        assert epsilon < min(count * eta, zcdp_epsilon(count * eta**2 / 8, delta))


def test_ranges_that_take_too_long_or_that_floats_do_not_hold() -> None:
    assert dominated_curve((("range", 0.1, 2), ("range", 0.2, 1))) is None  # which comes first matters
    for eta, count in ((0.01, 10**5), (1e-12, 3), (400.0, 2)):
        assert dominated_curve((("range", eta, count),)) is None
        assert dominated_epsilon((("range", eta, count),), 1e-5) == pytest.approx(eta * count)
        assert dominated_delta((("range", eta, count),), 0.9 * eta * count) == 1.0


def worst_signs(mu: float, count: int, x: float, t: list[float]) -> float:
    """By definition: after each answer t may be chosen anew, and which of both laws is the neighbour's."""
    if not count:
        return max(0.0, -math.expm1(-x))
    found = []
    for at in t:
        for p, q in ((at + mu, at), (at, at + mu)):
            outcomes = [(NORMAL.cdf(p), NORMAL.cdf(q)), (NORMAL.cdf(-p), NORMAL.cdf(-q))]
            found.append(sum(a * worst_signs(mu, count - 1, x + math.log(a / b), t) for a, b in outcomes))
    return max(found)


@pytest.mark.parametrize(
    ("mu", "count", "places"), [(0.5, 1, 2001), (0.5, 2, 81), (0.3, 3, 13), (4.0, 2, 41)]
)
def test_every_t_of_yes_or_no_is_covered(mu: float, count: int, places: int) -> None:
    pairs, t = (("sign", mu, count),), (np.linspace(-4, 4, places) - 0.37 * mu).tolist()
    for share in (0.0, 0.3, 0.7, 1.2):
        epsilon = share * mu * count
        exact = worst_signs(mu, count, -epsilon, t)
        assert exact <= dominated_delta(pairs, epsilon) <= 1.1 * exact + 1e-3 * mu
    assert dominated_epsilon(pairs, 0.0) == math.inf
    alone = [dominated_delta(pairs, epsilon) for epsilon in (0.1, 0.5)]
    assert alone == [dominated_delta((("sign", mu, count),), epsilon) for epsilon in (0.1, 0.5)]


@pytest.mark.parametrize(("mu", "count", "gain"), [(0.1, 99, 0.795), (0.1, 7, 0.875), (0.05, 400, 0.8)])
def test_yes_or_no_costs_little_more_than_any_t_for_all_and_less_than_the_gaussian(
    mu: float, count: int, gain: float
) -> None:
    """One t at every question, which is fixed in advance, binomially."""
    epsilon, no = dominated_epsilon((("sign", mu, count),), 1e-6), np.arange(count + 1)

    def fixed(t: float, epsilon: float) -> float:
        of_yes, of_no = (math.log(NORMAL.cdf(t + s * mu) / NORMAL.cdf(t)) for t, s in ((t, 1), (-t, -1)))
        chances = scipy.stats.binom.pmf(no, count, NORMAL.cdf(-t - mu))
        return float((chances * -np.expm1(np.minimum(0, epsilon - (count - no) * of_yes - no * of_no))).sum())

    worst = [max(fixed(t, share * epsilon) for t in np.linspace(-3, 3, 200)) for share in (1, 0.96)]
    assert worst[0] <= 1e-6 < worst[1]
    assert epsilon < gain * gaussian_epsilon(mu * math.sqrt(count), 1e-6)


def test_signs_that_take_too_long_or_that_floats_do_not_hold() -> None:
    for pairs in ((("sign", 0.1, 2), ("sign", 0.2, 1)), (("sign", 0.1, 10**5),), (("sign", 40.0, 1),)):
        assert dominated_curve(pairs) is None
        assert dominated_epsilon(pairs, 1e-5) == math.inf
        assert dominated_delta(pairs, 1.0) == 1.0


def randomised_response(sizes: list[float], epsilon: float) -> float:
    """By definition: every outcome of all releases that answer truly with odds e^size."""
    total = 0.0
    for answers in itertools.product((1, -1), repeat=len(sizes)):
        loss = sum(sign * size for sign, size in zip(answers, sizes, strict=True))
        chance = math.prod(1 / (1 + math.exp(-a * s)) for a, s in zip(answers, sizes, strict=True))
        total += chance * max(0.0, -math.expm1(epsilon - loss))
    return total


@pytest.mark.parametrize("sizes", [[1.3], [0.4] * 6, [0.2, 0.2, 0.7], [3.0, 0.05]])
def test_pure_privacy_composes_as_randomised_response(sizes: list[float]) -> None:
    pairs = tuple(("pure", size, sizes.count(size)) for size in dict.fromkeys(sizes))
    alike = len(pairs) == 1
    for share in (0.0, 0.2, 0.55, 0.95):
        epsilon = share * sum(sizes)
        exact, found = randomised_response(sizes, epsilon), dominated_delta(pairs, epsilon)
        assert exact <= found <= exact * (1 + 1e-9 if alike else 1.001) + (0 if alike else 1e-4)
        assert dominated_epsilon(pairs, found) == pytest.approx(epsilon, abs=1e-5 * sum(sizes))
    assert dominated_delta(pairs, sum(sizes) * (1 + 1e-9)) == 0.0
    assert dominated_epsilon(pairs, 0.0) == pytest.approx(sum(sizes), rel=1e-10)


def test_pure_privacy_beside_a_gaussian() -> None:
    """Against the sum over the losses of the answers, each before an exact Gaussian curve."""
    pairs = (("pure", 0.5, 2), ("gaussian", 0.3, 1), ("gaussian", 0.4, 1))
    for epsilon in (0.0, 0.8, 2.0):
        exact = 0.0
        for answers, chance in ((1.0, 1 / (1 + math.exp(-0.5)) ** 2), (0.0, 2 / (2 + 2 * math.cosh(0.5)))):
            exact += chance * float(rf.Gaussian(1.0).hockey_stick(0.0, 0.5, epsilon - answers))
        exact += (1 + math.exp(0.5)) ** -2 * float(rf.Gaussian(1.0).hockey_stick(0.0, 0.5, epsilon + 1.0))
        assert exact <= dominated_delta(pairs, epsilon) <= 1.002 * exact
    assert dominated_epsilon(pairs, 0.0) == math.inf
    assert dominated_curve((*pairs, ("range", 0.1, 1))) is None
    assert dominated_curve((("pure", 1e4, 1),)) is None


@pytest.mark.parametrize("at_most", [1, 2, 3])
def test_every_choice_of_moves_is_covered(at_most: int) -> None:
    delta = induction([([loss(P, q) for q in MOVES], 3)], GRID, at_most)
    assert delta is not None
    for epsilon in (0.0, 0.1, 0.3, 0.6, 0.9):
        exact = worst_in_the_light_of_outcomes(3, at_most, 1.0, math.exp(epsilon))
        assert exact <= delta(epsilon) <= exact + 3e-4
    assert delta(-1.0) >= 1 - math.exp(-1.0)


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


def masses(where: float) -> list[float]:
    return [float(SIGN.log_prob(outcome, where).exp()) for outcome in (-1.0, 1.0)]


# what is lost is what a record gains that chooses its moves in the light of outcomes
def test_all_outcomes_and_all_patterns() -> None:
    delta = composed_delta(SIGN, float64(THETAS), float64(SIZES), steps=1)
    assert delta is not None
    for epsilon in (0.0, 0.5, 1.0, 2.0):
        exact = enumerated_delta(masses, THETAS, SIZES, epsilon)
        assert exact <= delta(epsilon) <= 1.2 * exact


@pytest.mark.parametrize("at_most", [1, 2, 3])
def test_all_choices_of_coordinates(at_most: int) -> None:
    delta = composed_delta(SIGN, float64(THETAS), float64(SIZES), 1, at_most)
    assert delta is not None
    for epsilon in (0.0, 0.5, 1.0):
        exact = max(
            enumerated_delta(masses, [THETAS[i] for i in some], [SIZES[i] for i in some], epsilon)
            for some in itertools.combinations(range(5), at_most)
        )
        assert exact <= delta(epsilon) <= 1.2 * exact + 1e-12


def test_an_envelope_lies_above_each_and_touches_the_largest() -> None:
    step = 0.02
    log_p, rho = SIGN.pair(float64(0.4), float64([0.3, 0.2, -0.3, 0.1]))
    mass, ratio = log_p.exp().numpy(), rho.numpy()
    rows, first = np.zeros((4, 61)), -30
    for row, move in zip(rows, range(4), strict=True):
        one = Loss.of_atoms(mass[:, move], ratio[:, move], step)
        row[one.places - first] = one.masses
    sides = [np.ones((1, 4), bool)]
    [[whole]] = envelopes(rows.T[:, None], np.zeros((1, 4)), np.array([first]), np.array([61]), sides, step)
    for place in range(-29, 30):

        def stick(places: np.ndarray, weights: np.ndarray, at: int = place) -> float:
            return float((weights * -np.expm1(np.minimum(0.0, step * (at - places)))).sum())

        each = [stick(first + np.arange(61), row) for row in rows]
        assert stick(whole.places, whole.masses) == pytest.approx(max(each), rel=1e-12, abs=1e-15)


def test_two_moves_stay_as_they_are() -> None:
    """Both are skewed the same way, so that an envelope would make one loss of them."""
    log_p, rho = SIGN.pair(float64(1.0), float64([[0.3], [0.2]]))
    mass, ratio = log_p.expand_as(rho).exp().numpy(), rho.numpy()
    [found] = worst_losses(mass, ratio, 0.01)
    assert len(worst_losses(mass[:, [0, 1, 1]], ratio[:, [0, 1, 1]], 0.01)[0]) == 1
    for move, one in enumerate(found):
        alone = Loss.of_atoms(mass[:, move, 0], ratio[:, move, 0], 0.01)
        assert one.places.tolist() == alone.places.tolist()
    assert len(found) == 2


def test_losses_whose_squares_floats_do_not_hold_have_no_such_proof() -> None:
    """Was an error about integers, or about numbers out of range. The other proofs go on."""
    assert composed_delta(rf.StochasticSign(1e-60), float64([2.0, 1.0]), float64(1.0), steps=1) is None
    assert composed_delta(rf.StochasticSign(1e-40), float64([2.0, 1.0]), float64(1.0), steps=1) is not None
    profile = decision_profile(rf.StochasticSign(1e-60), [2.0, 1.0], neighbours="added")
    winners = decision_profile(rf.NoisyWinner(0.01), [[12, 9, 3], [5, 5, 5]], neighbours="replaced")
    for found in (profile, winners):
        assert sorted(found.proofs) == ["Gaussian", "Rényi"]


@pytest.mark.parametrize(("at_most", "moved"), [(3, [0, 2, 1]), (7, [1, 2, 4]), (None, [5, 2, 4])])
def test_the_grid_is_fitted_to_the_moves_that_cost_most(
    at_most: int | None, moved: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second release costs most, then the third; every release is made as often as it is made."""
    seen = []
    monkeypatch.setattr(method, "_grid", lambda *given: seen.append(given[1].tolist()) or Grid(0.1, 10))
    monkeypatch.setattr(method, "induction", lambda releases, *_: seen.append([many for _, many in releases]))
    rho = float64([[[0.1, 0.3, 0.2]], [[-0.1, -0.4, -0.2]]])
    every = Pairs(torch.full_like(rho, -math.log(2)), rho, torch.tensor([5, 2, 4]))
    parts = [Pairs(*(part[..., some] for part in every[:3])) for some in (slice(2), slice(2, 3))]
    for given in ([every], parts):
        assert atoms_delta(given, at_most) is None
    assert seen == 2 * [moved, [2, 4, 5]]


def test_ratios_are_raised_by_their_rounding_seen_from_either_law() -> None:
    log_p, rho = SIGN.pair(float64([0.3, -1.0]), float64([[0.5], [-0.2]]))
    both = Pairs(log_p, rho, torch.tensor([1, 1])).directions()
    for (mass, raised), sign in zip(both, (1, -1), strict=True):
        above = (raised - sign * rho.numpy()) / rho.abs().numpy()
        np.testing.assert_allclose(above, np.full_like(above, 1e-11), rtol=1e-3)
        np.testing.assert_allclose(mass.sum(axis=0), np.ones_like(above[0]))
    nothing = atoms_delta([Pairs(log_p, 0 * rho, torch.tensor([2, 3]))])
    assert nothing is not None
    assert nothing(0.0) == 0


def test_the_worst_coin_between_two_points_of_the_grid() -> None:
    """V lies on chords in e^-x: every point of the grid, against 4,000 values of t in each cell."""
    generator, width, step = np.random.default_rng(0), 5, 0.07
    values = np.sort(generator.random(40) ** 6)[::-1]  # of which slopes differ much from cell to cell
    worst, shares = _worst_coins(values, width, step), np.linspace(0, 1, 4001)
    for at, found in enumerate(worst):
        tried = [values[width + at]]
        for place in range(width):
            t = place * step - np.log1p(shares * math.expm1(-step))
            top, bottom = (
                (1 - shares) * values[cell] + shares * values[cell + 1]
                for cell in (at + width + place, at + place)
            )
            chance = np.expm1(t) / math.expm1(width * step)  # of the loss t - width * step
            tried.append((top - (top - bottom) * chance).max())
        assert max(tried) * (1 - 1e-12) <= found <= max(tried) * (1 + 1e-6)
