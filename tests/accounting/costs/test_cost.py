"""Costs of different kinds of releases add up to what they cost together."""

import json
import math
from typing import Any

import dp_accounting
import pytest
import torch
from dp_accounting import pld

import ringfence as rf
from ringfence.accounting.costs.cost import ADDED_UP, Cost

DELTA = 1e-5


def gaussian(mu: float, count: int = 1) -> Cost:
    account = rf.PerInstanceAccountant(rf.Gaussian(1.0), sensitivity=mu)
    account.step([0.0], count=count)
    return account.cost()


def sampled() -> rf.SampledAccountant:
    account = rf.SampledAccountant(rf.Gaussian(1.0), sensitivity=0.3, sampling_rate=0.05)
    account.step_of_any([0.0], count=40)
    return account


def decided(neighbours: Any) -> rf.DecisionAccountant:
    account = rf.DecisionAccountant(rf.NoisyWinner(20.0), neighbours=neighbours)
    account.step([[230, 12, 8], [140, 90, 20]])
    return account


def test_one_account_alone_says_the_same() -> None:
    truncated = rf.PerInstanceAccountant(rf.TruncatedGaussian(1.0, bound=2.0), sensitivity=0.1)
    truncated.step(torch.linspace(-3, 3, 50))
    for account in (truncated, decided("replaced"), decided("added")):
        claim, own = account.cost().guarantee(DELTA), account.guarantee(DELTA)
        assert claim.statement == own.statement
        for name in ("epsilon", "mu"):
            assert getattr(claim, name) == pytest.approx(getattr(own, name), rel=1e-7)
        for name in ("epsilon", "ex_post_epsilon", "gaussian_ex_post_epsilon"):
            ours, theirs = (getattr(one.per_instance, name) for one in (claim, own))
            assert ours == pytest.approx(theirs, rel=1e-7)
    # at orders that are not integers, the sums of samples are those of the next integer
    ours, theirs = sampled().cost().guarantee(DELTA), sampled().guarantee(DELTA)
    assert ours.epsilon == theirs.epsilon
    assert ours.mu == theirs.mu
    least = theirs.per_instance.ex_post_epsilon
    assert least <= ours.per_instance.ex_post_epsilon < 1.05 * least


def test_gaussians_and_samples_compose_exactly() -> None:
    total = (gaussian(0.3) + gaussian(0.4, count=3)).guarantee(DELTA)
    exact = dp_accounting.get_epsilon_gaussian(1 / math.sqrt(0.09 + 3 * 0.16), DELTA)
    assert total.epsilon == pytest.approx(exact, rel=1e-6)
    mixed = (gaussian(0.3) + sampled().cost()).guarantee(DELTA).epsilon
    accountant = pld.PLDAccountant()
    accountant.compose(dp_accounting.GaussianDpEvent(1 / 0.3))
    once = dp_accounting.PoissonSampledDpEvent(0.05, dp_accounting.GaussianDpEvent(1 / 0.3))
    accountant.compose(dp_accounting.SelfComposedDpEvent(once, 40))
    assert mixed == pytest.approx(accountant.get_epsilon(DELTA), rel=1e-3)


def test_what_is_known_by_a_pair_is_added_up() -> None:
    pair = Cost.of_pair(0.5, 1e-7)
    claim = (gaussian(0.3) + pair).guarantee(DELTA)
    alone = gaussian(0.3).guarantee(DELTA - 2e-7)
    assert claim.delta == DELTA
    assert claim.epsilon == pytest.approx(alone.epsilon + 0.5, rel=1e-9)
    for name in ("epsilon", "renyi_epsilon", "ex_post_epsilon"):
        more = 0.5 + math.log(2) * (name == "ex_post_epsilon")
        for field in (name, f"gaussian_{name}"):
            own, rest = (getattr(one.per_instance, field) for one in (claim, alone))
            assert own == pytest.approx(rest + more, rel=1e-9), field
    assert claim.per_instance.delta == DELTA
    assert claim.per_instance.proof == ADDED_UP
    with pytest.raises(ValueError, match="delta must be above 2e-07, which pairs and estimates take"):
        pair.guarantee(1e-7)


def test_attacks_on_a_pair_are_no_better_than_the_worst_pair_allows() -> None:
    """Randomised response at epsilon 1 has the rates e x, up to the corner: the bound is just above."""
    claim = Cost.of_pair(1.0, 0.0).guarantee(DELTA)
    for rate in (1e-3, 0.1):
        assert math.e * rate <= claim.true_positive_rate(rate) <= math.e * rate + 2 * DELTA
    assert math.tanh(0.5) <= claim.advantage <= math.tanh(0.5) + 2 * DELTA
    assert claim.mu == math.inf


def test_neighbours_are_the_same_or_refused() -> None:
    total = decided("added").cost() + gaussian(0.1)
    assert total.change == "added or removed"
    with pytest.raises(ValueError, match="neighbours must be the same, got one record added or removed"):
        _ = total + decided("replaced").cost()


def test_a_record_that_is_replaced_is_removed_and_added() -> None:
    """A Gaussian release of a sum of 1s, moved by 2: exactly twice the shift."""
    cost = gaussian(0.3).of_replaced()
    moved = gaussian(0.6).guarantee(DELTA)
    assert cost.guarantee(DELTA).per_instance.ex_post_epsilon == pytest.approx(
        moved.per_instance.ex_post_epsilon
    )
    assert cost.guarantee(DELTA).epsilon == pytest.approx(moved.epsilon)
    assert (cost + decided("replaced").cost()).change == "replaced by another one"
    assert decided("replaced").cost().of_replaced() == decided("replaced").cost()
    assert sampled().cost().of_replaced().is_whole
    assert Cost.of_pair(1.0, 1e-9).of_replaced().pairs == ((2.0, (1 + math.e) * 1e-9),)


def test_a_cost_survives_json() -> None:
    cost = sampled().cost() + gaussian(0.3) + Cost.of_pair(0.1, 0.0) + Cost(numbers=7)
    assert Cost.from_state(json.loads(json.dumps(cost.state()))) == cost
    with pytest.raises(ValueError, match=r"cost has missing keys .*'zcdp'"):
        Cost.from_state({"steps": 1})
