"""What is special to the stochastic sign: two atoms, whatever sigma."""

import math

import pytest
import torch

import ringfence as rf


def test_support_is_two_points() -> None:
    support = rf.StochasticSign(1.0).support
    assert support.interval is None
    assert [float(atom) for atom in support.atoms] == [-1.0, 1.0]


def test_at_zero_it_is_a_fair_coin() -> None:
    law = rf.StochasticSign(3.0)
    assert float(law.log_prob(1.0, 0.0)) == pytest.approx(-math.log(2), rel=1e-14, abs=0)
    assert float(law.fisher_information(0.0)) == pytest.approx(2 / math.pi / 9, rel=1e-13, abs=0)


def test_a_confident_vote_costs_almost_nothing() -> None:
    """The margin decides: at 6 sigma one vote moves the odds by 1e-9 of what the Gaussian gives."""
    sign, gaussian = rf.StochasticSign(1.0), rf.Gaussian(1.0)
    cost = sign.renyi_divergence(6.0, -0.1, 2.0) / gaussian.renyi_divergence(6.0, -0.1, 2.0)
    assert 0 < float(cost) < 1e-6


def test_draws_are_plus_or_minus_one_in_thetas_dtype() -> None:
    draws = rf.StochasticSign(1.0).sample(torch.zeros(100), generator=torch.Generator().manual_seed(0))
    assert set(draws.tolist()) == {-1.0, 1.0}
    assert draws.dtype == torch.float32
