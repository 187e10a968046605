"""Secure releases have finite randomness, and pay for it out of delta."""

import pytest
import torch

import ringfence as rf
from ringfence.accounting.costs.finite_randomness import secure_guarantee

LAW = rf.RectifiedGaussian(1.0, bound=2.0)


def test_finite_randomness_takes_its_share_of_delta() -> None:
    account = rf.PerInstanceAccountant(LAW, 0.1)
    account.step(torch.zeros(5, dtype=torch.float64))
    asked = []

    def of(delta: float) -> rf.Guarantee:
        asked.append(delta)
        return account.guarantee(delta)

    result = secure_guarantee(of, 5, 1e-5)
    assert result.delta == 1e-5
    assert asked[0] == 5e-6
    assert asked[1] < 1e-5  # rounded down: 1e-5 - 1e-59 is 1e-5 in floats
    assert result.epsilon >= account.guarantee(1e-5).epsilon
    assert 2 * 5 * 2.0**-200 < result.true_positive_rate(0.0) < 1e-50  # once in 2^200 per number, either way
    assert account.guarantee(1e-5).true_positive_rate(0.0) == 0
    assert result.mu == account.guarantee(1e-5).mu
    with pytest.raises(ValueError, match="delta must be larger, got 1e-58"):
        secure_guarantee(account.guarantee, 5, 1e-58)
