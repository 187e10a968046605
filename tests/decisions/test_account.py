"""The noise that meets a target, and that nothing over a target is released."""

import numpy as np
import pytest

import ringfence as rf
from ringfence.accounting.claim.conversion import gaussian_epsilon
from ringfence.decisions.account import noise_multiplier, within


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 20.0])
def test_the_noise_meets_the_target_and_a_little_less_does_not(epsilon: float) -> None:
    sigma = noise_multiplier(epsilon, 1e-7, None)
    assert gaussian_epsilon(1 / sigma, 1e-7) <= epsilon < gaussian_epsilon(1.002 / sigma, 1e-7)


def test_an_account_over_its_target_is_refused() -> None:
    account = rf.release_counts(np.ones(3), sigma=1.0).account
    with pytest.raises(FloatingPointError, match=r"more than epsilon=0\.5"):
        within(0.5, account)
