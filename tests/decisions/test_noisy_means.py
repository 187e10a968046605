"""Noisy means: what they cost, and how often their intervals cover."""

import math
from statistics import NormalDist

import pytest
import torch
from torch import Tensor

import ringfence as rf
from ringfence.accounting.claim.conversion import gaussian_epsilon
from ringfence.decisions.noisy_means import MeanPlan, NoisyMeans, with_private_sizes, with_public_sizes

GROUPS = 4000
DEVIATIONS = NormalDist().inv_cdf(0.95)  # intervals of 90 %


def plan(threshold: int, at_most: int = 1, multiplier: float = 5.0) -> MeanPlan:
    return MeanPlan(multiplier, threshold, at_most, DEVIATIONS, None, 1e-6, rf.Noise(seed=11))


def covered(means: NoisyMeans, truth: float) -> Tensor:
    return (means.low <= truth) & (truth <= means.high)


@pytest.mark.parametrize(("truth", "size"), [(0.6, 60), (0.0, 400), (-0.95, 60)])
def test_intervals_cover_as_often_as_they_say(truth: float, size: int) -> None:
    """Groups of the same mean; the noise of their sizes is 8.7, so 60 people are seven deviations."""
    sizes = torch.full((GROUPS,), float(size), dtype=torch.float64)
    slack = 4 * math.sqrt(0.09 / GROUPS)
    for make in (with_private_sizes, with_public_sizes):
        _, means = make(sizes, truth * sizes, plan(threshold=20))
        assert not bool(means.mean.isnan().any())
        rate = float(covered(means, truth).double().mean())
        assert 0.9 - slack < rate, make
        if make is with_public_sizes or size == 400:
            assert (
                rate < 0.9 + slack or abs(truth) > 0.9
            )  # beyond a limit an interval ends there: it may cover more


def test_a_group_that_is_shown_misses_no_more_often_than_promised() -> None:
    """Sizes near the threshold, where being shown and being covered go together."""
    sizes = torch.full((GROUPS,), 35.0, dtype=torch.float64)
    _, means = with_private_sizes(sizes, 0.5 * sizes, plan(threshold=35))
    shown = ~means.mean.isnan()
    assert 0.45 < float(shown.double().mean()) < 0.55
    assert float((shown & ~covered(means, 0.5)).double().mean()) < 0.1


def test_the_two_releases_cost_what_one_of_length_1_costs() -> None:
    """Also where a person is in three groups."""
    nobody, nine = torch.zeros(5).double(), torch.full((5,), 9.0).double()
    for account, _ in (
        with_private_sizes(nobody, nobody, plan(20, at_most=3)),
        with_public_sizes(nine, nobody, plan(1, at_most=3)),
    ):
        assert account.epsilon == pytest.approx(gaussian_epsilon(1 / 5, 1e-6), rel=1e-9)


def test_a_bounded_support_spares_people_whose_mean_is_far_from_its_limits_nothing_and_at_them_much() -> None:
    """Public sizes: where everybody is at a limit, the noisy sum is often clamped there."""
    ten = torch.full((1,), 10.0, dtype=torch.float64)
    inner, _ = with_public_sizes(1000 * ten, 0 * ten, plan(1))
    edge, _ = with_public_sizes(ten, ten, plan(1))
    assert edge.epsilon_tight < 0.98 * inner.epsilon_tight


def test_lost_sizes_have_the_widest_interval() -> None:
    sizes = torch.full((50,), 2.0, dtype=torch.float64)
    _, means = with_private_sizes(sizes, sizes, plan(threshold=0))
    lost = ~means.mean.isnan() & (torch.tensor([one or 0 for one in means.people]) < 10)
    assert bool(lost.any())
    assert set(means.low[lost].tolist()) == {-1.0}
    assert set(means.high[lost].tolist()) == {1.0}
