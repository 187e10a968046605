"""Poisson samples that are cut at a public maximum: against all samples of small datasets."""

import itertools
import json
import math

import numpy as np
import pytest
import torch

import ringfence as rf
from ringfence.accounting.gaussian_releases import (
    GaussianRelease,
    sampled_gaussian_delta,
    sampled_gaussian_epsilon,
)
from ringfence.accounting.privacy_loss import PrivacyLoss
from ringfence.accounting.subsampling import chance_of_cut

GRID = np.linspace(-24, 24, 9_601)
MOST = 4  # records of the smaller of two neighbours


def density(records: tuple[float, ...], rate: float, maximum: int, sigma: float) -> np.ndarray:
    """Of the sum over a Poisson sample, of which a random subset is kept where it is too large."""
    total = np.zeros_like(GRID)
    for size in range(len(records) + 1):
        chance = rate**size * (1 - rate) ** (len(records) - size)
        for sample in itertools.combinations(records, size):
            kept = list(itertools.combinations(sample, min(size, maximum)))
            for batch in kept:
                total += chance / len(kept) * np.exp(-((GRID - sum(batch)) ** 2) / (2 * sigma**2))
    return total / (sigma * math.sqrt(2 * math.pi))


def integral(values: np.ndarray) -> float:
    return float(values.sum() * (GRID[1] - GRID[0]))


@pytest.mark.parametrize(("rate", "maximum"), [(0.5, 2), (0.3, 1), (0.7, 3), (0.95, 2)])
@pytest.mark.parametrize("sigma", [0.7, 2.0])
def test_no_small_dataset_costs_more(rate: float, maximum: int, sigma: float) -> None:
    cut = chance_of_cut(MOST, rate, maximum)
    account = rf.SampledAccountant(rf.Gaussian(sigma), 1.0, rate, cut=cut)
    account.step_worst_case(0.0)
    loss = account.privacy_loss()
    (release,) = releases = loss.releases
    assert (release.mu, release.rate, release.cut) == (pytest.approx(2 / sigma), rate, cut)
    orders = torch.tensor([2.0, 3.0, 8.0], dtype=torch.float64)
    ceilings = loss.divergences(orders).amax(dim=0)
    worst, above_uncut, uncut = 0.0, False, GaussianRelease(1 / sigma, rate=rate)
    for others in range(MOST + 1):
        for own, other in itertools.product((1.0, -0.4), (-1.0, 1.0)):
            without = density((other,) * others, rate, maximum, sigma)
            with_it = density((other,) * others + (own,), rate, maximum, sigma)
            for p, q in ((without, with_it), (with_it, without)):
                for epsilon in (0.0, 0.3, 1.0, 2.0):
                    true = integral(np.maximum(p - math.exp(epsilon) * q, 0))
                    bound = sampled_gaussian_delta(releases, epsilon)
                    assert true <= bound + 1e-9
                    worst = max(worst, true / bound)
                    above_uncut |= true > 1.01 * sampled_gaussian_delta((uncut,), epsilon)
                for order, ceiling in zip((2, 3, 8), ceilings.tolist(), strict=True):
                    tilted = order * np.log(p + 1e-300) + (1 - order) * np.log(q + 1e-300)
                    true = math.log(integral(np.exp(tilted))) / (order - 1)
                    assert true <= ceiling * (1 + 1e-9)
    assert worst > 0.55
    assert above_uncut or sigma < 1  # the account of samples that are not cut would be wrong


def test_the_number_of_dp_accounting_is_reproduced_and_ours_is_close_where_samples_are_rarely_cut() -> None:
    """Its event is about one size of the dataset, ours about all up to a maximum."""
    from dp_accounting import TruncatedSubsampledGaussianDpEvent as Event
    from dp_accounting.pld import PLDAccountant

    own_test = PLDAccountant().compose(Event(4, 0.5, 2, 1.0), 3).compose(Event(3, 0.5, 2, 1.0), 2)
    assert own_test.get_epsilon(1e-6) == pytest.approx(17.904330, abs=1e-6)
    ours = tuple(
        GaussianRelease(2.0, rate=0.5, cut=chance_of_cut(size - 1, 0.5, 2), count=count)
        for size, count in ((4, 3), (3, 2))
    )
    assert 17.904330 < sampled_gaussian_epsilon(ours, 1e-6) < 19.7
    theirs = PLDAccountant(value_discretization_interval=1e-3).compose(Event(50_001, 0.08192, 4352, 3.0), 50)
    cut = chance_of_cut(50_000, 0.08192, 4352)
    found = sampled_gaussian_epsilon((GaussianRelease(2 / 3, rate=0.08192, cut=cut, count=50),), 1e-5)
    plain = sampled_gaussian_epsilon((GaussianRelease(1 / 3, rate=0.08192, count=50),), 1e-5)
    assert plain < found <= theirs.get_epsilon(1e-5) * 1.001


def test_the_chance_of_a_cut_is_a_binomial_tail() -> None:
    tail = sum(math.comb(30, k) * 0.2**k * 0.8 ** (30 - k) for k in range(9, 31))
    assert tail < chance_of_cut(29.5, 0.2, 9) == pytest.approx(tail, rel=1e-8)
    assert chance_of_cut(5, 0.2, 6) == 0


@pytest.mark.parametrize("law", [rf.TruncatedGaussian(1.0, 1.0), rf.StochasticSign(1.0)], ids=repr)
def test_other_laws_cost_no_more_than_the_gaussian_and_a_state_survives(law: rf.Mechanism) -> None:
    account = rf.SampledAccountant(law, 0.05, 0.1, cut=0.01)
    account.step_worst_case(torch.zeros(3), count=4)
    own = account.guarantee(1e-5).per_instance
    assert own.renyi_epsilon <= own.gaussian_renyi_epsilon
    plain = rf.SampledAccountant(law, 0.05, 0.1)
    plain.step_worst_case(torch.zeros(3), count=4)
    assert plain.guarantee(1e-5).per_instance.renyi_epsilon < own.renyi_epsilon
    again = rf.SampledAccountant.from_state_dict(json.loads(json.dumps(account.state_dict())))
    assert again.state_dict() == account.state_dict()
    assert again.guarantee(1e-5) == account.guarantee(1e-5)
    loss = account.privacy_loss()
    assert PrivacyLoss.from_state(json.loads(json.dumps(loss.state()))) == loss
    assert loss.of_replaced().epsilon(1e-5) > loss.epsilon(1e-5)
    assert 0 < account.guarantee(1e-5).mu < 2 * loss.mu
    assert plain.guarantee(1e-5).advantage < account.guarantee(1e-5).advantage < 1
    with pytest.raises(ValueError, match="cut must be"):
        rf.SampledAccountant(law, 0.05, 0.1, cut=1.5)
