"""Secure releases have finite randomness, and pay for it out of delta."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

import ringfence as rf
from ringfence.accounting.costs.budget import composed_guarantee
from ringfence.accounting.costs.finite_randomness import TooLittleNoiseError, delta_left, secure_guarantee
from ringfence.releases.account import ReleaseAccount

LAW = rf.RectifiedGaussian(1.0, bound=2.0)
VALUES = {"of": 0, "lower": 0, "upper": 1}
RELEASES: dict[str, Callable[[float], ReleaseAccount]] = {
    "counts": lambda sigma: rf.release_counts(np.array([0, 1]), sigma=sigma).account,
    "suppressed": lambda sigma: rf.release_counts(np.array([0, 1]), sigma=sigma, suppress_below=3).account,
    "means": lambda sigma: rf.release_means(np.ones((9, 1)), **VALUES, sigma=sigma).account,
    "sizes": lambda sigma: rf.release_means(np.ones((9, 1)), **VALUES, sizes=[9], sigma=sigma).account,
    "votes": lambda sigma: rf.release_votes(np.ones((9, 1)), sigma=sigma).account,
    "winners": lambda sigma: rf.release_winners(np.array([[9, 1]]), sigma=1.4142 * sigma).account,
}


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
    own, plain = result.per_instance, account.guarantee(1e-5).per_instance
    assert own.ex_post_epsilon >= plain.ex_post_epsilon
    assert own.delta == 1e-5
    assert 2 * 5 * 2.0**-200 < result.true_positive_rate(0.0) < 1e-50  # once in 2^200 per number, either way
    assert account.guarantee(1e-5).true_positive_rate(0.0) == 0
    assert result.mu == account.guarantee(1e-5).mu
    with pytest.raises(ValueError, match="delta must be larger, got 1e-59"):
        secure_guarantee(account.guarantee, 5, 1e-59)
    assert secure_guarantee(account.guarantee, 0, 1e-5) == account.guarantee(1e-5)


def test_noise_that_256_bits_cannot_carry_is_refused_by_name() -> None:
    """At sigma 0.02 the releases of 0 and of 1 are never the same, whatever epsilon is claimed."""
    account = rf.PerInstanceAccountant(rf.Gaussian(0.02), 1.0)
    account.step([0.0])
    with pytest.raises(TooLittleNoiseError, match="too small for 256-bit randomness: epsilon would be 1494"):
        secure_guarantee(account.guarantee, 1, 1e-6)


def test_the_epsilon_of_every_dataset_decides() -> None:
    """e^epsilon 2^-200 is half of delta 1e-6 at epsilon 124.1, for one number."""
    assert delta_left(1, 1e-6, lambda at: 123.0) < 0.9e-6
    with pytest.raises(TooLittleNoiseError, match="Give a larger sigma or a smaller epsilon, or a larger de"):
        delta_left(1, 1e-6, lambda at: 125.0)
    with pytest.raises(TooLittleNoiseError, match="10 numbers"):
        delta_left(10, 1e-6, lambda at: 123.0)


@pytest.mark.parametrize("release", RELEASES)
def test_every_release_of_a_table_keeps_back_what_its_randomness_takes(release: str) -> None:
    """Epsilon about 110, where 2^-200 per number is no longer lost in the last digit of delta."""
    account = RELEASES[release](0.09)
    assert account.delta == account.guarantee.delta == 1e-6
    assert account.epsilon > account.cost.guarantee(1e-6).epsilon
    assert account.guarantee == composed_guarantee(account.cost, 1e-6)
    with pytest.raises(TooLittleNoiseError, match="too small for 256-bit randomness"):
        RELEASES[release](0.02)


def test_nothing_is_charged_for_noise_that_is_refused() -> None:
    ledger = rf.Ledger()
    with pytest.raises(TooLittleNoiseError):
        rf.release_counts(np.array([0, 1]), sigma=0.02, ledger=ledger)
    with pytest.raises(TooLittleNoiseError, match=r"epsilon would be 1487, .* or a smaller epsilon"):
        rf.release_counts(np.array([0, 1]), epsilon=1487.0, ledger=ledger)
    assert not ledger.entries


def test_a_published_number_pays_for_every_draw_and_not_for_one() -> None:
    """At epsilon 122, which 256 bits carry for one number at this delta, and not for 201."""
    assert delta_left(1, 1e-6, lambda at: 123.0) > 0
    law, surpluses = rf.StochasticSign(0.475), torch.zeros(200)
    for claim in (
        lambda: rf.publishable_decision_epsilon(law, surpluses, neighbours="added", delta=1e-6, at_most=30),
        lambda: rf.publishable_epsilon(
            law,
            surpluses,
            rf.Sensitivity(each=1.0, at_most=30),
            delta=1e-6,
            publishing_zcdp=0.1,
            failure_probability=1e-3,
        ),
    ):
        with pytest.raises(
            TooLittleNoiseError, match=r"epsilon would be 12[12].*randomness of (401|201) numbers"
        ):
            claim()
