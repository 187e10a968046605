"""Lower bounds: above the truth no more often than they say, near it with many draws, past the yardstick."""

import math

import numpy as np
import pytest
from scipy.stats import binom, norm

import ringfence as rf
from ringfence.accounting.conversion import gaussian_epsilon
from ringfence.auditing.bounds import approximate_blowup, one_run_bounds, one_run_refutes, rate_at_least
from ringfence.auditing.result import observed_rates
from tests.audit.lower_bound import epsilon_lower_bound
from tests.audit.result import AuditResult


@pytest.mark.parametrize("hits", [0, 1, 7, 20])
def test_rates_are_those_at_which_the_count_becomes_unlikely(hits: int) -> None:
    lower, upper = float(rate_at_least(hits, 20, 0.01)), 1 - float(rate_at_least(20 - hits, 20, 0.01))
    assert lower == 0 or binom.sf(hits - 1, 20, lower) == pytest.approx(0.01)
    assert upper == 1 or binom.cdf(hits, 20, upper) == pytest.approx(0.01)


def normal(mu: float, trials: int, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    draws = np.random.default_rng(seed).normal(size=(2, trials))
    return draws[0] + mu, draws[1]


@pytest.mark.parametrize(
    ("mu", "delta", "draws"),
    [(0.5, 0.01, 100_000), (1.0, 0.1, 100_000), (1.0, 0.001, 400_000), (-2.0, 0.01, 400_000)],
)
def test_many_draws_come_near_the_exact_epsilon_in_either_order(mu: float, delta: float, draws: int) -> None:
    exact, (inside, outside) = gaussian_epsilon(abs(mu), delta), normal(mu, draws)
    assert 0.75 * exact < epsilon_lower_bound(inside, outside, delta, 0.99) < exact
    assert 0.75 * exact < epsilon_lower_bound(outside, inside, delta, 0.99) < exact


def test_it_fails_no_more_often_than_the_confidence_allows() -> None:
    """At a confidence of 70 % the bound is above the truth in at most 30 % of 500 settings."""
    exact = gaussian_epsilon(1.0, 0.1)
    above = [epsilon_lower_bound(*normal(1.0, 300, seed), 0.1, 0.7) > exact for seed in range(500)]
    assert 0 < sum(above) < 150


def test_the_threshold_is_not_chosen_on_the_draws_it_is_judged_by() -> None:
    """Two equal laws with six draws: the first half separates perfectly, the second does not."""
    assert epsilon_lower_bound([5.0, 6.0, 7.0, 0.0, 0.0, 0.0], [0.0] * 3 + [9.0] * 3, 0.01, 0.5) == 0


def test_independent_scores_are_judged_by_those_that_did_not_choose() -> None:
    """Equal laws, which a threshold chosen on the scores that judge it tells apart most of the time."""
    told = sum(
        rf.audit_scores(*normal(0.0, 200, seed), delta=0.0, significance=0.5, independent=True).refutes(0.0)
        for seed in range(40)
    )
    assert told <= 20


def test_atoms_belong_to_the_set() -> None:
    most = math.log((0.005 ** (1 / 500) - 1e-3) / (1 - 0.005 ** (1 / 500)))
    assert epsilon_lower_bound(np.ones(1000), np.zeros(1000), 1e-3, 0.99) == pytest.approx(most)


def test_the_best_of_several_statistics_is_found() -> None:
    inside, outside = normal(2.0, 20_000)
    both = [np.stack((np.zeros_like(side), side)) for side in (inside, outside)]
    assert epsilon_lower_bound(*both, 0.01, 0.99) == epsilon_lower_bound(inside, outside, 0.01, 0.99) > 2


def test_nan_is_refused() -> None:
    with pytest.raises(FloatingPointError, match="NaN"):
        epsilon_lower_bound([math.nan] * 4, [math.nan] * 4, 0.1, 0.9)
    with pytest.raises(ValueError, match="at least 2 draws"):
        epsilon_lower_bound([1.0], [1.0, 2.0], 0.1, 0.9)


def test_results_name_what_fell() -> None:
    result = AuditResult("", 0.01, 0.99, 10, 1.0, {"a": 0.9, "b": 1.0}, exceeded=0.02)
    assert result.violated == ("a", "ex-post")
    assert not result.holds
    assert AuditResult("", 0.01, 0.99, 10, 1.0, {"a": float("nan")}).violated == ("a",)


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("canaries", [20, 100])
def test_the_bound_is_no_stricter_than_dependent_guesses_allow(canaries: int, epsilon: float) -> None:
    """Guesses of which k are right with a chance like C(m, k) e^(eps u(k)), u moving by at most 1, are
    epsilon-DP: one coin changes k by 1. They are independent where u(k) = k, else all lean on each other."""
    right = np.arange(canaries + 1)
    few, many = canaries // 2, 4 * canaries // 5
    for u in (right, abs(right - few), right.clip(many), right.clip(few, many), right.clip(few, few + 1)):
        mass = binom.pmf(right, canaries, 0.5) * np.exp(epsilon * (u - u.max()))
        for count in range(few, canaries + 1):
            real = mass[count:].sum() / mass.sum()
            assert real > 1 - 1e-6 or not one_run_refutes(
                approximate_blowup(epsilon, 0.0), canaries, canaries, count, real * (1 - 1e-6)
            )
            if u is right and 1e-6 < real < 0.1:  # and the curve is not far from them
                assert one_run_refutes(approximate_blowup(epsilon / 2, 0.0), canaries, canaries, count, real)


@pytest.mark.parametrize(("canaries", "delta"), [(20, 0.01), (100, 1e-3)])
def test_delta_allows_that_everything_is_told_now_and_then(canaries: int, delta: float) -> None:
    """Which is (0, delta)-DP: with a chance of delta all coins are told, and nothing otherwise."""
    real = delta + (1 - delta) * 0.5**canaries
    said = canaries, canaries, canaries, real * (1 - 1e-6)
    assert not one_run_refutes(approximate_blowup(0.0, delta), *said)
    assert one_run_refutes(approximate_blowup(0.0, delta / 4), *said)


def test_a_gaussian_curve_is_refuted_no_more_often_than_randomness_does() -> None:
    """Independent canaries of exactly mu: the p-value at the truth is not below the real probability."""
    mu, canaries = 1.0, 200
    chance = float(norm.cdf(mu / 2))  # of a right guess by the sign, for all of them
    for right in range(100, 200, 5):
        real = binom.sf(right - 1, canaries, chance)
        if real > 0:
            assert not one_run_refutes(
                lambda rate: float(norm.cdf(norm.ppf(rate) - mu)), canaries, canaries, right, 0.999 * real
            )


def test_the_yardstick_is_beaten() -> None:
    """10,000 normal quantiles a side, significance .05, delta 1e-6: the numbers of jax-privacy's own test."""
    quantiles = norm.ppf((np.arange(10_000) + 0.5) / 10_000)
    theirs = {1: (1.13346, 2.164749), 2: (2.311945, 4.7218075), 4: (4.395568, 9.133752)}
    for shift, (one_run, gaussian) in theirs.items():
        found = rf.audit_scores(quantiles + shift, quantiles, delta=1e-6, significance=0.05)
        assert gaussian_epsilon(shift, 1e-6) > found.bounds["one run"] > one_run
        assert gaussian_epsilon(shift, 1e-6) > found.bounds["one run, Gaussian"] > gaussian
        assert found.epsilon_lower_bound == found.bounds["one run"]
        assert found.mu_lower_bound < shift
        assert found.bounds["one run, Gaussian"] < gaussian_epsilon(found.mu_lower_bound, 1e-6)


@pytest.mark.parametrize("kind", ["response", "normal"])
def test_one_run_is_above_the_truth_no_more_often_than_it_says(kind: str) -> None:
    """True claims at their exact epsilon, by fair coins (``benchmarks.audit`` has thousands)."""
    rng, above, mu_above = np.random.default_rng(5), 0, 0
    truth = 1.0 if kind == "response" else gaussian_epsilon(0.5, 1e-3)
    delta = 0.0 if kind == "response" else 1e-3
    for _ in range(100):
        coins = rng.random(300) < 0.5
        lies = rng.random(300) < 1 / (1 + math.e)
        scores = (coins ^ lies).astype(float) if kind == "response" else rng.normal(size=300) + 0.5 * coins
        epsilon, mu = one_run_bounds(scores[coins], scores[~coins], delta, 0.2, rng)
        above += epsilon > truth
        mu_above += kind == "normal" and mu > 0.5
    assert above <= 20
    assert mu_above <= 20


def test_what_is_proved_is_not_refuted() -> None:
    found = rf.audit_scores(*normal(2.0, 100), delta=1e-6)
    assert not found.refutes(epsilon=found.epsilon_lower_bound)
    assert not found.refutes(mu=found.mu_lower_bound)
    assert found.refutes(mu=0.99 * found.mu_lower_bound)
    assert found.statement.startswith("These scores: at delta = 1e-06 epsilon is at least ")


def test_bands_hold_the_true_rate() -> None:
    missed = 0
    for seed in range(200):
        inside, outside = normal(1.0, 500, seed)
        for band in observed_rates(inside, outside, 0.2, (0.01, 0.1, 0.5)):
            truth = norm.sf(norm.isf(band.false_positive_rate) - 1)
            missed += not band.low <= truth <= band.high
            assert band.low <= band.high
    assert 0 < missed <= 0.2 * 600


@pytest.mark.parametrize(
    ("scores", "error", "said"),
    [
        (([1.0] * 9, [0.0] * 20), ValueError, "in_scores must be a list of at least 10"),
        (([1.0] * 20, [1.0] * 20), ValueError, "scores must differ, got .*1.0"),
        (([1.0] * 20, [math.nan] * 20), ValueError, "out_scores must not be NaN"),
        (([1.0] * 20, [[0.0, 1.0]] * 20), ValueError, "out_scores must be a list"),
    ],
)
def test_scores_that_tell_nothing_are_refused_by_name(scores: tuple, error: type, said: str) -> None:
    with pytest.raises(error, match=said):
        rf.audit_scores(*scores, delta=1e-6)


def test_equal_scores_are_ordered_by_chance() -> None:
    """Which side stands first in memory must not tell."""
    found = rf.audit_scores(np.r_[np.zeros(999), 1.0], np.zeros(1000), delta=0.0)
    assert found.epsilon_lower_bound == 0
