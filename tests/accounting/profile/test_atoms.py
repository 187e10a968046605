"""Profiles of laws of atoms: every pattern of signs, every choice of coordinates, enumerated."""

import itertools
import math

import numpy as np
import pytest
import torch

import ringfence as rf
from ringfence.accounting.profile import atoms
from ringfence.accounting.profile.atoms import atoms_delta, envelope, mechanism_delta, worst_losses
from ringfence.accounting.profile.backward_induction import Grid, Loss
from tests.accounting.exact_profile import enumerated_delta
from tests.tensors import float64

SIGN = rf.StochasticSign(1.0)
THETAS, MOVES = [0.2, -0.5, 1.5, 0.9, -0.1], [0.6, 0.3, 0.6, 0.4, 0.5]


def masses(where: float) -> list[float]:
    return [float(SIGN.log_prob(outcome, where).exp()) for outcome in (-1.0, 1.0)]


# what is lost is what a record gains that chooses its moves in the light of outcomes
def test_all_outcomes_and_all_patterns() -> None:
    delta = mechanism_delta(SIGN, float64(THETAS), float64(MOVES), steps=1)
    assert delta is not None
    for epsilon in (0.0, 0.5, 1.0, 2.0):
        exact = enumerated_delta(masses, THETAS, MOVES, epsilon)
        assert exact <= delta(epsilon) <= 1.2 * exact


def test_coordinates_that_do_not_move_cost_nothing() -> None:
    """And hide nothing of what the others cost."""
    some = mechanism_delta(SIGN, float64(THETAS[:2]), float64(MOVES[:2]), steps=2)
    all_of_them = mechanism_delta(SIGN, float64(THETAS), float64([*MOVES[:2], 0.0, 0.0, 0.0]), steps=2)
    none = mechanism_delta(SIGN, float64(THETAS), float64(0.0), steps=2)
    assert some is not None
    assert all_of_them is not None
    assert none is not None
    for epsilon in (0.0, 0.5, 1.0):
        assert all_of_them(epsilon) == some(epsilon) > none(epsilon) == 0


@pytest.mark.parametrize("at_most", [1, 2, 3])
def test_all_choices_of_coordinates(at_most: int) -> None:
    delta = mechanism_delta(SIGN, float64(THETAS), float64(MOVES), 1, at_most)
    assert delta is not None
    for epsilon in (0.0, 0.5, 1.0):
        exact = max(
            enumerated_delta(masses, [THETAS[i] for i in some], [MOVES[i] for i in some], epsilon)
            for some in itertools.combinations(range(5), at_most)
        )
        assert exact <= delta(epsilon) <= 1.2 * exact + 1e-12


def test_a_quantised_law_with_many_levels() -> None:
    law = rf.QuantizedGaussian(1.0, bound=1.0, levels=5)
    delta = mechanism_delta(law, float64([0.3, 2.0]), float64(0.4), steps=1)
    assert delta is not None
    atoms = law.support.atoms

    def levels(where: float) -> list[float]:
        return [float(law.log_prob(atom, where).exp()) for atom in atoms]

    for epsilon in (0.0, 0.3, 0.8):
        exact = enumerated_delta(levels, [0.3, 2.0], [0.4, 0.4], epsilon)
        assert exact <= delta(epsilon) <= 1.2 * exact


def test_an_envelope_lies_above_each_and_touches_the_largest() -> None:
    step = 0.02
    log_p, rho = SIGN.pair(float64(0.4), float64([0.3, 0.2, -0.3, 0.1]))
    mass, ratio = log_p.exp().numpy(), rho.numpy()
    rows, first = np.zeros((4, 61)), -30
    for row, move in zip(rows, range(4), strict=True):
        one = Loss.of_atoms(mass[:, move], ratio[:, move], step)
        row[one.places - first] = one.masses
    whole = envelope(rows, np.zeros(4), first, step)
    for place in range(-29, 30):

        def stick(places: np.ndarray, weights: np.ndarray, at: int = place) -> float:
            return float((weights * -np.expm1(np.minimum(0.0, step * (at - places)))).sum())

        each = [stick(first + np.arange(61), row) for row in rows]
        assert stick(whole.places, whole.masses) == pytest.approx(max(each), rel=1e-12, abs=1e-15)


def test_losses_of_many_moves_are_two() -> None:
    log_p, rho = SIGN.pair(float64(1.0), float64([0.3, 0.2, -0.3, 0.1, -0.2]))
    found = worst_losses(log_p.exp().numpy(), rho.numpy(), 0.01)
    assert len(found) == 2
    for one in found:
        assert one.masses.sum() == pytest.approx(1.0, abs=1e-12)


def test_ninety_nine_questions_are_sharper_than_renyi() -> None:
    surplus = torch.arange(99, dtype=torch.float64) * 7 + 3
    for sigma in (10.0, 40.0):
        profile = rf.privacy_profile(rf.StochasticSign(sigma), surplus, 1.0)
        assert profile.proof(1e-5) == "backward induction"
        renyi = rf.PrivacyProfile({"": profile.proofs["Rényi"]}).epsilon(1e-5)
        assert profile.epsilon(1e-5) < 0.93 * renyi


def test_ratios_are_raised_by_their_rounding() -> None:
    """The exact delta of one pair is never above what two releases of which one does nothing give."""
    delta = mechanism_delta(SIGN, float64([0.0, 60.0]), float64(0.5), steps=1)
    assert delta is not None
    assert delta(0.0) >= float(SIGN.hockey_stick(0.0, 0.5, 0.0))
    assert math.isfinite(delta(30.0))


def test_two_moves_stay_as_they_are() -> None:
    """Both are skewed the same way, so that an envelope would make one loss of them."""
    log_p, rho = SIGN.pair(float64(1.0), float64([0.3, 0.2]))
    mass, ratio = log_p.exp().numpy(), rho.numpy()
    found = worst_losses(mass, ratio, 0.01)
    assert len(worst_losses(mass[:, [0, 1, 1]], ratio[:, [0, 1, 1]], 0.01)) == 1
    for move, one in enumerate(found):
        assert one.places.tolist() == Loss.of_atoms(mass[:, move], ratio[:, move], 0.01).places.tolist()
    assert len(found) == 2


def test_losses_whose_squares_floats_do_not_hold_have_no_such_proof() -> None:
    """Was an error about integers. The other proofs go on."""
    assert mechanism_delta(rf.StochasticSign(1e-60), float64([2.0, 1.0]), float64(1.0), steps=1) is None
    assert mechanism_delta(rf.StochasticSign(1e-40), float64([2.0, 1.0]), float64(1.0), steps=1) is not None
    profile = rf.decision_profile(rf.StochasticSign(1e-60), [2.0, 1.0], neighbours="added")
    assert sorted(profile.proofs) == ["Gaussian", "Rényi"]


@pytest.mark.parametrize(("at_most", "moved"), [(3, [2, 1, 0]), (7, [2, 4, 1]), (None, [2, 4, 5])])
def test_the_grid_is_fitted_to_the_moves_that_cost_most(
    at_most: int | None, moved: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second release costs most, then the third; every release is made as often as it is made."""
    seen = []
    monkeypatch.setattr(atoms, "_grid", lambda _, counts: seen.append(counts.tolist()) or Grid(0.1, 10))
    monkeypatch.setattr(atoms, "induction", lambda releases, *_: seen.append([many for _, many in releases]))
    rho = float64([[[0.1, 0.3, 0.2]], [[-0.1, -0.4, -0.2]]])
    assert atoms_delta(torch.full_like(rho, -math.log(2)), rho, torch.tensor([5, 2, 4]), at_most) is None
    assert seen == [moved, [2, 4, 5], [2, 4, 5]]
