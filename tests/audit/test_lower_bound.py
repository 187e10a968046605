"""The lower bound on epsilon: never above the truth more often than it says, and near it with many draws."""

import math

import pytest
import torch
from scipy.stats import binom

from ringfence.accounting.conversion import gaussian_epsilon
from ringfence.audit.lower_bound import AuditResult, epsilon_lower_bound, rate_bounds
from tests.tensors import float64


@pytest.mark.parametrize("hits", [0, 1, 7, 20])
def test_rates_are_those_at_which_the_count_becomes_unlikely(hits: int) -> None:
    lower, upper = (float(end[hits]) for end in rate_bounds(20, 0.01))
    assert lower == 0 or binom.sf(hits - 1, 20, lower) == pytest.approx(0.01)
    assert upper == 1 or binom.cdf(hits, 20, upper) == pytest.approx(0.01)


def _normal(mu: float, trials: int, settings: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    draws = torch.randn(2, 1, settings, trials, generator=generator, dtype=torch.float64)
    return draws[0] + mu, draws[1]


@pytest.mark.parametrize(("mu", "delta"), [(0.5, 0.01), (1.0, 0.1), (1.0, 0.001), (2.0, 0.01)])
def test_many_draws_come_near_the_exact_epsilon(mu: float, delta: float) -> None:
    bound = float(epsilon_lower_bound(*_normal(mu, 400_000), float64([delta]), 0.99))
    exact = gaussian_epsilon(mu, delta)
    assert 0.75 * exact < bound < exact


def test_it_fails_no_more_often_than_the_confidence_allows() -> None:
    """At a confidence of 70 % the bound is above the truth in at most 30 % of 2,000 settings."""
    bounds = epsilon_lower_bound(*_normal(1.0, 300, 2000), torch.full((2000,), 0.1, dtype=torch.float64), 0.7)
    share = float((bounds > gaussian_epsilon(1.0, 0.1)).double().mean())
    assert 0 < share < 0.3


def test_the_threshold_is_not_chosen_on_the_draws_it_is_judged_by() -> None:
    """Two equal laws with six draws: the first half separates perfectly, the second does not."""
    ours, theirs = float64([[[5.0, 6.0, 7.0, 0.0, 0.0, 0.0]]]), float64([[[0.0] * 3 + [9.0] * 3]])
    assert float(epsilon_lower_bound(ours, theirs, float64([0.01]), 0.5)) == 0


def test_atoms_belong_to_the_set() -> None:
    ours, theirs = torch.ones(1, 1, 1000).double(), torch.zeros(1, 1, 1000).double()
    most = math.log((0.005 ** (1 / 500) - 1e-3) / (1 - 0.005 ** (1 / 500)))
    assert float(epsilon_lower_bound(ours, theirs, float64([1e-3]), 0.99)) == pytest.approx(most)


def test_the_best_of_several_tests_is_found() -> None:
    ours, theirs = _normal(2.0, 20_000)
    useless = torch.zeros_like(ours)
    both = epsilon_lower_bound(
        torch.cat((useless, ours)), torch.cat((useless, theirs)), float64([0.01]), 0.99
    )
    assert torch.equal(both, epsilon_lower_bound(ours, theirs, float64([0.01]), 0.99))
    assert float(both) > 2


def test_nan_is_refused() -> None:
    values = torch.full((1, 1, 4), math.nan, dtype=torch.float64)
    with pytest.raises(FloatingPointError, match="NaN"):
        epsilon_lower_bound(values, values, float64([0.1]), 0.9)
    with pytest.raises(ValueError, match="equally many"):
        epsilon_lower_bound(values, values[..., :2], float64([0.1]), 0.9)


def test_results_name_what_fell() -> None:
    result = AuditResult("", 0.01, 0.99, 10, 1.0, {"a": 0.9, "b": 1.0}, exceeded=0.02)
    assert result.violated == ("a", "ex-post")
    assert not result.holds
    assert AuditResult("", 0.01, 0.99, 10, 1.0, {"a": float("nan")}).violated == ("a",)
