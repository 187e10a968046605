"""The epsilon that a budget is compared with."""

import math

import pytest

from ringfence.accounting.claim.conversion import gaussian_epsilon
from ringfence.accounting.costs.budget import budget_epsilon, composed_guarantee
from ringfence.accounting.costs.cost import Cost
from ringfence.accounting.costs.finite_randomness import TooLittleNoiseError

WHOLE = Cost(releases=((0.5, 1.0, 1),), zcdp=0.01)  # a law that proves less than its Gaussian


def test_only_mu_counts_where_releases_may_be_chosen_by_others() -> None:
    """zCDP of the law may say less, but no filter is known for the smaller of both."""
    assert budget_epsilon("a mean", WHOLE, 1e-5, planned=False) == gaussian_epsilon(0.5, 1e-5)
    composed = composed_guarantee(WHOLE, 1e-5).epsilon
    assert budget_epsilon("a mean", WHOLE, 1e-5, planned=True) == composed < gaussian_epsilon(0.5, 1e-5)


def test_finite_randomness_is_in_it() -> None:
    secure = WHOLE + Cost(numbers=10**9)
    assert budget_epsilon("a mean", secure, 1e-45, planned=False) > gaussian_epsilon(0.5, 1e-45)
    for planned in (True, False):
        with pytest.raises(ValueError, match="delta must be larger, got 1e-58"):
            budget_epsilon("a mean", secure, 1e-58, planned=planned)
        with pytest.raises(TooLittleNoiseError, match="the noise is too small for 256-bit randomness"):
            budget_epsilon("a mean", Cost(((50.0, 1.0, 1),), zcdp=1250.0, numbers=1), 1e-6, planned=planned)


@pytest.mark.parametrize("other", [Cost.of_pair(0.2, 1e-7), Cost(releases=((0.1, 0.1, 10),), zcdp=math.inf)])
def test_samples_and_pairs_need_a_plan(other: Cost) -> None:
    total = WHOLE + other
    composed = composed_guarantee(total, 1e-5).epsilon
    assert budget_epsilon("a mean", total, 1e-5, planned=True) == composed
    with pytest.raises(ValueError, match="planned must be True, got False: a mean is of samples or known by"):
        budget_epsilon("a mean", total, 1e-5, planned=False)
