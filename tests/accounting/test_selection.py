"""The best of a random number of runs: the bound against the exact law of the best, and dp-accounting's."""

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting import rdp
from scipy.stats import norm

from ringfence.accounting.conversion import gaussian_delta, gaussian_epsilon
from ringfence.accounting.selection import _slack, selection_epsilon


def exact_delta(mu: float, runs: float, epsilon: float, rank: np.ndarray, x: np.ndarray) -> float:
    """The larger hockey stick of the best of a geometric number of N(0, 1) and N(mu, 1), by its definition.

    Runs are better the larger their ``rank``; the law is a histogram on x. The chance of the best to be at
    most at a place is E[F^K] = g F / (1 - (1 - g) F).
    """
    order, g = np.argsort(rank), 1 / runs
    best = []
    for shift in (0.0, mu):
        mass = np.diff(norm.cdf(x - shift), prepend=0.0)
        below = np.minimum(np.cumsum(mass[order]), 1.0)
        best.append(np.diff(g * below / (1 - (1 - g) * below), prepend=0.0))
    first, second = best
    return max(
        np.maximum(first - math.exp(epsilon) * second, 0).sum(),
        np.maximum(second - math.exp(epsilon) * first, 0).sum(),
    )


@pytest.mark.parametrize(("mu", "runs"), [(0.05, 10), (0.3, 1.5), (0.3, 100), (1.5, 10)])
def test_no_order_of_the_runs_costs_more_than_the_bound(mu: float, runs: float) -> None:
    x = np.linspace(-9, 9 + mu, 4_001)
    ranks = {"up": x, "down": -x, "middle": -abs(x - mu / 2), "tails": abs(x), "mixed": np.sin(7 * x)}
    for delta in (0.1, 1e-3, 1e-6):
        epsilon = selection_epsilon(mu, runs, delta)
        worst = max(exact_delta(mu, runs, epsilon, rank, x) for rank in ranks.values())
        assert worst <= delta + 1e-12
        assert worst > gaussian_delta(mu, epsilon) * 1.05  # choosing does cost something


@pytest.mark.parametrize(("mu", "runs"), [(0.02, 30.0), (0.2, 3.0), (1.0, 30.0)])
def test_below_the_renyi_bound_and_above_one_run(mu: float, runs: float) -> None:
    accountant = rdp.RdpAccountant([1 + 1.05**k for k in range(-60, 200)])
    run = dp_accounting.GaussianDpEvent(1 / mu)
    accountant.compose(dp_accounting.dp_event.RepeatAndSelectDpEvent(run, runs, 1))
    ours = selection_epsilon(mu, runs, 1e-5)
    assert gaussian_epsilon(mu, 1e-5) < ours < accountant.get_epsilon(1e-5)


def test_one_run_costs_one_run_and_nothing_costs_nothing() -> None:
    assert selection_epsilon(0.3, 1, 1e-5) == pytest.approx(gaussian_epsilon(0.3, 1e-5), rel=1e-10)
    assert selection_epsilon(0.0, 10, 1e-5) == 0.0


@pytest.mark.parametrize("runs", [0.99, 0.0, -1.0, math.inf, math.nan])
def test_fewer_than_one_run_is_refused(runs: float) -> None:
    with pytest.raises(ValueError, match="expected_runs"):
        selection_epsilon(0.1, runs, 1e-5)


def test_roundings_are_charged() -> None:
    mu = 0.2
    assert selection_epsilon(mu, 1, 1e-5) / gaussian_epsilon(mu, 1e-5) - 1 == pytest.approx(1e-11, rel=0.02)


@pytest.mark.parametrize(("mu", "runs"), [(0.2, 10.0), (1.0, 3.0), (0.05, 1e5)])  # at last it exceeds mu
def test_the_slack_holds_and_hardly_less_does(mu: float, runs: float) -> None:
    def enough(h: float) -> bool:
        return (runs - 1) * gaussian_delta(mu, h) * (1 + 1e-11) <= math.expm1(h)

    h = _slack(mu, runs)
    assert (h > mu) == (runs == 1e5)
    assert enough(h)
    assert not enough(h - 2 * max(mu, h) * 2.0**-40)
