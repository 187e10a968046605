"""The noise that meets a target, and that nothing over a target is released."""

import numpy as np
import pytest

import ringfence as rf
from ringfence.accounting.conversion import gaussian_epsilon
from ringfence.releases.account import Budget


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 20.0])
def test_the_noise_meets_the_target_and_a_little_less_does_not(epsilon: float) -> None:
    sigma = Budget.checked(epsilon, 1e-7).multiplier
    assert gaussian_epsilon(1 / sigma, 1e-7) <= epsilon < gaussian_epsilon(1.002 / sigma, 1e-7)


def test_an_account_over_its_target_is_refused() -> None:
    account = rf.release_counts(np.ones(3), sigma=1.0).account
    with pytest.raises(FloatingPointError, match=r"more than epsilon=0\.5"):
        Budget.checked(0.5, 1e-6).charge(account, "a table")
