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


def test_the_smallest_proof_is_the_per_instance_number_and_old_names_say_so() -> None:
    account = rf.release_counts(np.array([3, 80]), sigma=4.0, suppress_below=30).account
    assert account.per_instance.proof == "the worst cell, exactly"
    assert account.per_instance.epsilon < account.per_instance.renyi_epsilon
    assert "for the one release it is about" in account.per_instance.statement
    for old, new in (("epsilon_tight", "epsilon"), ("proof", "proof")):
        with pytest.raises(AttributeError, match=f"is now ReleaseAccount.per_instance.{new}$"):
            getattr(account, old)
    with pytest.raises(AttributeError, match="no attribute 'epsilons'"):
        account.epsilons  # noqa: B018
