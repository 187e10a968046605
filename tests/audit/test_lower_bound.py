"""The lower bound on epsilon: never above the truth more often than it says, and near it with many draws."""

import math

import pytest
import torch
from scipy.stats import binom
from torch import Tensor

from ringfence.accounting.conversion import gaussian_epsilon
from ringfence.audit.lower_bound import AuditResult, epsilon_lower_bound, rate_bounds
from tests.tensors import float64


@pytest.mark.parametrize("hits", [0, 1, 7, 20])
def test_rates_are_those_at_which_the_count_becomes_unlikely(hits: int) -> None:
    lower, upper = (float(end[hits]) for end in rate_bounds(20, 0.01))
    assert lower == 0 or binom.sf(hits - 1, 20, lower) == pytest.approx(0.01)
    assert upper == 1 or binom.cdf(hits, 20, upper) == pytest.approx(0.01)


def normal(mu: float, trials: int, seed: int = 3) -> tuple[Tensor, Tensor]:
    draws = torch.randn(2, trials, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
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
    inside, outside = float64([5.0, 6.0, 7.0, 0.0, 0.0, 0.0]), float64([0.0] * 3 + [9.0] * 3)
    assert epsilon_lower_bound(inside, outside, 0.01, 0.5) == 0


def test_atoms_belong_to_the_set() -> None:
    most = math.log((0.005 ** (1 / 500) - 1e-3) / (1 - 0.005 ** (1 / 500)))
    found = epsilon_lower_bound(torch.ones(1000), torch.zeros(1000), 1e-3, 0.99)
    assert found == pytest.approx(most)


def test_the_best_of_several_statistics_is_found() -> None:
    inside, outside = normal(2.0, 20_000)
    useless = torch.zeros_like(inside)
    both = [torch.stack((useless, side)) for side in (inside, outside)]
    assert epsilon_lower_bound(*both, 0.01, 0.99) == epsilon_lower_bound(inside, outside, 0.01, 0.99) > 2


def test_nan_is_refused() -> None:
    values = torch.full((4,), math.nan)
    with pytest.raises(FloatingPointError, match="NaN"):
        epsilon_lower_bound(values, values, 0.1, 0.9)
    with pytest.raises(ValueError, match="equally many"):
        epsilon_lower_bound(values, values[:2], 0.1, 0.9)


def test_results_name_what_fell() -> None:
    result = AuditResult("", 0.01, 0.99, 10, 1.0, {"a": 0.9, "b": 1.0}, exceeded=0.02)
    assert result.violated == ("a", "ex-post")
    assert not result.holds
    assert AuditResult("", 0.01, 0.99, 10, 1.0, {"a": float("nan")}).violated == ("a",)
