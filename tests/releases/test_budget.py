"""Which noise a table takes, that it is as large as the statement says, and what it promises at delta = 0."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import ringfence as rf
from ringfence.accounting.induction import dominated_epsilon
from ringfence.accounting.ledger import BudgetExceededError
from ringfence.releases.budget import (
    Budget,
    GaussianNoise,
    LaplaceNoise,
    count_noise,
    errors_of_sum,
    laplace_scale,
)
from tests.tensors import float64


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("cells", [1, 2, 4, 8, 16, 64])
def test_the_smaller_standard_error_is_taken(epsilon: float, cells: int) -> None:
    budget = Budget.checked(epsilon, 1e-6)
    taken, *both = (
        count_noise(replace(budget, kind=kind), cells) for kind in ("auto", "gaussian", "laplace")
    )
    assert taken.deviation == min(one.deviation for one in both)
    assert [one.name for one in both] == ["Gaussian", "Laplace"]
    assert (taken.name == "Laplace") == (cells <= (4 if epsilon == 0.1 else 8))


@pytest.mark.parametrize(("epsilon", "delta", "cells"), [(1.0, 1e-6, 1), (1.0, 1e-6, 40), (0.3, 0.0, 7)])
def test_the_scale_meets_the_target_and_a_little_less_does_not(
    epsilon: float, delta: float, cells: int
) -> None:
    scale = laplace_scale(Budget.checked(epsilon, delta, kind="laplace"), cells)
    assert scale <= cells / epsilon * (1 + 1e-9)
    assert dominated_epsilon((("pure", 1 / scale, cells),), delta) <= epsilon
    assert dominated_epsilon((("pure", 1.002 / scale, cells),), delta) > epsilon


@pytest.mark.parametrize("noise", [LaplaceNoise(2.0), GaussianNoise(8.0)])
def test_the_noise_is_that_of_the_law_and_a_wrong_scale_is_rejected(noise: LaplaceNoise) -> None:
    """40,000 cells: mean and deviation of whole numbers, and what suppression shows."""
    how: dict[str, Any] = {"epsilon": 0.5} if noise.name == "Laplace" else {"sigma": 8.0}
    table, error = rf.release_counts(np.full(40_000, 50), **how, seed=3), errors_of_sum(noise, 0.95, 1)[0]
    off = table.values - 50
    assert bool((off == off.round()).all())
    assert abs(off.mean()) < 4 * error / 200
    assert off.std() == pytest.approx(error, rel=0.03)
    assert float(np.asarray(table.errors)[0]) == pytest.approx(error, rel=1e-9)
    said = f"{noise.name} noise with a standard deviation of {noise.deviation:.3g} was"
    assert said in table.statement.public
    hidden = rf.release_counts(np.full(40_000, 50), **how, seed=4, suppress_below=53)
    seen = hidden.values[~np.isnan(hidden.values)]
    chance, above = noise.shown(50, 53)
    assert len(seen) / 40_000 == pytest.approx(chance, rel=0.05)
    assert seen.mean() - 50 == pytest.approx(above, rel=0.05)
    assert seen.min() == 53  # "below 53" and nothing else is hidden


@pytest.mark.parametrize("noise", [LaplaceNoise(1.7), GaussianNoise(3.0)])
@pytest.mark.parametrize("count", [3, 10, 14])
def test_how_often_a_count_is_shown_and_how_much_too_large(noise: LaplaceNoise, count: int) -> None:
    """Against the masses of the law itself."""
    law, threshold = noise.law(None), 10
    k = np.arange(threshold, 200)
    if noise.name == "Laplace":
        mass = law.log_prob(k.astype(float), float(count)).exp().numpy()
    else:
        below = law.distribution(float64(count), float64(3.0)).below
        mass = (below(float64(k + 0.5)) - below(float64(k - 0.5))).numpy()
    chance, above = noise.shown(count, threshold)
    assert chance == pytest.approx(mass.sum(), rel=1e-9)
    assert above == pytest.approx(float((mass * (k - count)).sum() / mass.sum()), rel=0.03)


def test_delta_zero_is_pure_differential_privacy() -> None:
    for at_most in (1, 3):
        table = rf.release_counts(
            np.array([120, 3, 44]), epsilon=0.5, delta=0, at_most=at_most, suppress_below=5
        )
        account = table.account
        assert account.epsilon == pytest.approx(0.5, rel=1e-9)
        assert account.epsilon <= 0.5
        assert account.per_instance.epsilon == account.per_instance.ex_post_epsilon == account.epsilon
        assert "(epsilon 0.5, delta 0)" in table.statement.public
        assert account.promise.true_positive_rate(1e-3) <= math.exp(0.5) * 1e-3 * (1 + 1e-9)
        assert '"delta": 0.0' in account.to_json()


def test_a_release_may_cost_all_of_its_epsilon_and_no_more() -> None:
    account = rf.release_counts(np.ones(3), sigma=1.0).account
    Budget.checked(account.epsilon, 1e-6).charge(account, "counts")
    with pytest.raises(FloatingPointError, match="would cost"):
        Budget.checked(math.nextafter(account.epsilon, 0), 1e-6).charge(account, "counts")


def test_a_ledger_at_delta_zero_adds_up_pure_releases_and_refuses_others() -> None:
    with rf.Ledger(epsilon=1.0, delta=0.0) as ledger:
        for _ in range(2):
            rf.release_counts(np.array([5, 6]), epsilon=0.5, delta=0, ledger=ledger)
        assert ledger.guarantee().epsilon == pytest.approx(1.0, rel=1e-9)
        with pytest.raises(BudgetExceededError, match=r"above the ledger's 1: nothing"):
            rf.release_counts(np.array([5, 6]), epsilon=0.1, delta=0, ledger=ledger)
        with pytest.raises(BudgetExceededError, match="epsilon to inf at delta 0"):
            rf.release_counts(np.array([5, 6]), sigma=1e4, ledger=ledger)


def test_with_a_ledger_at_a_delta_noise_is_gaussian_unless_it_is_named() -> None:
    """Its budget counts Gaussians, and pure releases alone by their sum, which holds whatever is chosen."""
    with rf.Ledger(epsilon=1.0, delta=1e-6) as ledger:
        first = rf.release_counts(np.array([5, 6]), epsilon=0.4, ledger=ledger, noise="laplace")
        second = rf.release_counts(np.array([5, 6]), epsilon=0.4, ledger=ledger, noise="laplace")
        assert "Laplace" in first.statement.public
        assert "Laplace" in second.statement.public
        assert ledger.guarantee().epsilon == pytest.approx(0.8, rel=1e-4)
        with pytest.raises(BudgetExceededError):  # beside a Gaussian, Laplace counts as one
            rf.release_counts(np.array([5, 6]), epsilon=0.1, ledger=ledger)
    with rf.Ledger(epsilon=1.0, delta=1e-6) as ledger:
        assert "Gaussian" in rf.release_counts(np.array([5]), epsilon=0.4, ledger=ledger).statement.public


def test_beside_a_gaussian_and_beside_samples_laplace_noise_costs_about_its_epsilon() -> None:
    one = rf.release_counts(np.array([5, 6]), epsilon=1.0).account.promised
    gaussian = rf.release_counts(np.array([5, 6]), epsilon=1.0, noise="gaussian").account.promised
    assert 1.0 < (one + gaussian).epsilon(1e-6) <= 2.0
    sampled = rf.SampledAccountant(rf.Gaussian(1.0), 1.0, 0.01)
    sampled.step_worst_case([0.0], count=100)
    alone = sampled.privacy_loss()
    both = one + alone
    assert both.epsilon(1e-6) == pytest.approx(alone.epsilon(1e-6) + 1, rel=1e-3)
    assert (alone + one).pairs == both.pairs != ()


def test_sigma_is_the_standard_deviation_whatever_the_noise() -> None:
    table = rf.release_counts(np.zeros(20_000), sigma=5.0, noise="laplace", seed=1)
    assert table.values.std() == pytest.approx(5.0, rel=0.03)
    assert "Gaussian" in rf.release_counts(np.zeros(2), sigma=5.0).statement.public


def test_noise_beyond_what_can_be_drawn_is_gaussian_or_refused() -> None:
    assert "Gaussian" in rf.release_counts(np.zeros(2), epsilon=1e-10).statement.public
    for wrong in ({"noise": "laplace", "delta": 1e-15}, {"delta": 0.0}):
        with pytest.raises(ValueError, match=r"epsilon must be larger with Laplace noise, got 1e-10"):
            rf.release_counts(np.zeros(2), epsilon=1e-10, **wrong)


@pytest.mark.parametrize("epsilon", [1.0, 1e4, 3e5, 1e6, 3e6])
@pytest.mark.parametrize("coverage", [0.5, 0.95, 0.9999])
def test_intervals_of_sums_hold_where_the_law_has_few_steps(epsilon: float, coverage: float) -> None:
    made = rf.release_sums(np.ones((1, 1)), 0, lower=0, upper=1, epsilon=epsilon, coverage=coverage)
    noise = eval(dict(made.settings)["law"], {"LaplaceNoise": LaplaceNoise})
    far = (made.columns["high"][0] - made.columns["sum"][0]) * noise.units
    beyond = math.floor(far + 1e-3) + 1  # steps
    assert 2 * noise.ratio**beyond / (1 + noise.ratio) <= 1 - coverage


@pytest.mark.parametrize(("at_most", "moved"), [(3, 3), (9, 5)])
def test_laplace_noise_is_gdp_and_zcdp_of_the_numbers_that_one_person_moves(at_most: int, moved: int) -> None:
    """sqrt(pi / 2) / scale and 1 / (2 scale^2) for each (docs/guarantees.md), of five numbers."""
    loss = LaplaceNoise(2.0).loss(float64([0, 1, 2, 3, 4]), at_most)
    assert loss.mu == pytest.approx(math.sqrt(moved * math.pi / 2) / 2.0, rel=1e-9)
    assert loss.zcdp == pytest.approx(moved / (2 * 2.0**2), rel=1e-9)
