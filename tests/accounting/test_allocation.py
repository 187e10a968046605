"""Random allocation: an epoch's hockey sticks against quadrature, draws and exact sums."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.special import ndtr  # type: ignore[import-untyped]

import ringfence as rf
from ringfence.accounting.allocation import epoch_losses, hockey_sticks
from ringfence.accounting.conversion import gaussian_delta, gaussian_epsilon
from ringfence.accounting.gaussian_releases import GaussianRelease, sampled_gaussian_epsilon
from ringfence.accounting.subsampling import AllocatedAccountant, accountant_from_state_dict

EPSILONS = np.array([0.0, 0.1, 0.5, 1.0, 2.0])


@pytest.mark.parametrize("mu", [0.05, 0.5, 1.5, 3.0])
def test_one_step_is_the_gaussian(mu: float) -> None:
    for side in hockey_sticks(mu, 1):
        for epsilon, delta in zip(EPSILONS, side(EPSILONS), strict=True):
            exact = gaussian_delta(mu, epsilon)
            assert exact <= delta * (1 + 1e-9) <= 1.01 * exact + 1e-9


@pytest.mark.parametrize("mu", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("steps", [2, 3])
def test_few_steps_by_quadrature(mu: float, steps: int) -> None:
    x, width = np.linspace(-9, 9 + mu, 2001 if steps == 2 else 201, retstep=True)
    weights = np.exp(-x * x / 2) / math.sqrt(2 * math.pi) * width
    y = np.exp(mu * x - mu * mu / 2)
    sums, masses = y, weights
    for _ in range(steps - 1):
        sums, masses = np.add.outer(sums, y), np.multiply.outer(masses, weights)
    ratios, masses = sums.ravel() / steps, masses.ravel()
    removed, added = (side(EPSILONS) for side in hockey_sticks(mu, steps))
    for place, z in enumerate(np.exp(EPSILONS)):
        both = float(masses @ (ratios - z).clip(min=0)), float(masses @ (1 - z * ratios).clip(min=0))
        for exact, bound in zip(both, (removed[place], added[place]), strict=True):
            assert 0.9995 * exact - 1e-6 <= bound <= 1.01 * exact + 1e-5


def test_many_steps_by_draws() -> None:
    mu, steps, draws = 1.2, 37, 200_000
    generator = np.random.default_rng(0)
    ratios = np.zeros(draws)
    for _ in range(steps):
        ratios += np.exp(mu * generator.standard_normal(draws) - mu * mu / 2) / steps
    for side, found in zip(
        hockey_sticks(mu, steps), ((ratios - 1.1).clip(min=0), (1 - 1.1 * ratios).clip(min=0)), strict=True
    ):
        assert float(side(np.log([1.1]))[0]) == pytest.approx(found.mean(), abs=5 * found.std() / draws**0.5)


def test_steps_that_depend_on_earlier_ones_are_dominated() -> None:
    """Three signs with thresholds that depend on what was released."""
    mu, steps = 0.8, 3

    def chance(outcome: tuple[int, ...], at: int | None) -> float:
        total, seen = 1.0, 0.0
        for step, value in enumerate(outcome):
            yes = float(ndtr(0.4 * seen - 0.3 * step + (mu if step == at else 0.0)))
            total, seen = total * (yes if value > 0 else 1 - yes), seen + value
        return total

    outcomes = list(itertools.product((-1, 1), repeat=steps))
    without = np.array([chance(outcome, None) for outcome in outcomes])
    record = np.mean([[chance(outcome, at) for outcome in outcomes] for at in range(steps)], axis=0)
    removed, added = (side(EPSILONS) for side in hockey_sticks(mu, steps))
    for place, z in enumerate(np.exp(EPSILONS)):
        assert (record - z * without).clip(min=0).sum() <= removed[place]
        assert (without - z * record).clip(min=0).sum() <= added[place]


@pytest.mark.parametrize(("mu", "steps", "epochs"), [(1.0, 100, 10), (0.5, 50, 50), (2.0, 10, 2)])
def test_epochs_cost_less_than_poisson_samples_and_far_less_than_without_chance(
    mu: float, steps: int, epochs: int
) -> None:
    found = epoch_losses(mu, steps, 1e-3).self_compose(epochs).get_epsilon_for_delta(1e-5)
    poisson = sampled_gaussian_epsilon((GaussianRelease(mu, rate=1 / steps, count=steps * epochs),), 1e-5)
    assert 0.6 * poisson < found < poisson
    assert found < 0.75 * gaussian_epsilon(mu * math.sqrt(epochs), 1e-5)


@pytest.mark.parametrize("mu", [1e-7, 5.0])
def test_where_nothing_is_gained_it_is_one_gaussian_release(mu: float) -> None:
    found = epoch_losses(mu, 10, 1e-3).get_epsilon_for_delta(1e-5)
    assert found == pytest.approx(gaussian_epsilon(mu, 1e-5), abs=2e-3)


THETA = torch.zeros(7)


def account(sigma: float = 2.0, steps: int = 20) -> AllocatedAccountant:
    return AllocatedAccountant(rf.TruncatedGaussian(sigma, bound=9.0), rf.Sensitivity(norm=2.0), steps)


def test_an_account_counts_epochs_that_were_begun() -> None:
    planned = account()
    for count in (1, 18, 1, 1, 20):  # 41 steps: the third epoch was begun
        planned.step_worst_case(THETA, count=count)
    assert (planned.steps, planned.epochs, round(planned.mu, 9)) == (41, 3, 1.0)
    claim = planned.guarantee(1e-5)
    losses = epoch_losses(1.0, 20, 1e-4).self_compose(3)
    assert claim.epsilon == pytest.approx(losses.get_epsilon_for_delta(1e-5), rel=1e-6)
    assert claim.epsilon < gaussian_epsilon(math.sqrt(3), 1e-5)
    assert "random batches" in claim.per_instance.proof
    charged = account()
    with pytest.raises(ValueError, match="enter must be called before charge"):
        charged.charge(THETA)
    for epoch in ((0, 0), (0, 0), (1, 0), (1, 1), (1, 1)):  # the second sample of an epoch is another one
        charged.enter(epoch)
        charged.charge(THETA)
    assert (charged.steps, charged.epochs) == (5, 3)
    assert charged.guarantee(1e-5).epsilon == claim.epsilon


def test_an_account_is_restored_and_adds_up() -> None:
    one = account()
    one.step_worst_case(THETA, count=40)
    again = accountant_from_state_dict(one.state_dict())
    assert again.state_dict() == one.state_dict()
    assert again.guarantee(1e-5) == one.guarantee(1e-5)
    again.enter((0, 1))  # nobody knows whether it is the same epoch: it counts once more
    assert again.epochs == 3
    both = one.privacy_loss() + one.privacy_loss()
    assert both.releases == (GaussianRelease(one.mu, epoch=20, count=4),)
    assert type(both).from_state(both.state()) == both
    assert account().privacy_loss().epsilon(1e-5) == 0
