"""Every printed sentence against what is proved (docs/guarantees.md)."""

import dataclasses
import math
import pickle
import re
from typing import Any

import pytest
import torch
from scipy.stats import norm

import ringfence as rf
from ringfence.accounting.conversion import epsilon_from_rdp, ex_post_epsilon, gaussian_epsilon
from ringfence.accounting.guarantee import Guarantee
from ringfence.accounting.privacy_loss import PrivacyLoss
from ringfence.numerics.rounding import rounded_up

THETA = torch.linspace(-3, 3, 200, dtype=torch.float64)


def claim(steps: int = 10, delta: float = 1e-5, law: rf.Mechanism | None = None) -> Guarantee:
    account = rf.PerInstanceAccountant(law or rf.RectifiedGaussian(1.0, bound=1.0), sensitivity=5e-3)
    account.step(THETA, count=steps)
    return account.guarantee(delta)


def sentences(paragraph: str) -> list[str]:
    return [sentence for sentence in re.split(r"(?<=[a-z0-9])\.\s", paragraph.rstrip(".")) if sentence]


def test_the_three_numbers_are_what_they_are_called() -> None:
    account = rf.PerInstanceAccountant(rf.RectifiedGaussian(1.0, bound=1.0), sensitivity=5e-3)
    account.step(THETA, count=10)
    got = account.guarantee(1e-5)
    worst = torch.maximum(account.forward, account.backward)
    assert got.per_instance.ex_post_epsilon == float(ex_post_epsilon(account.orders, worst, 1e-5))
    assert got.per_instance.renyi_epsilon == float(epsilon_from_rdp(account.orders, worst, 1e-5))
    mu = math.sqrt(10 * THETA.numel()) * 5e-3
    assert got.epsilon == pytest.approx(gaussian_epsilon(mu, 1e-5), rel=1e-9)
    assert (got.delta, got.steps) == (1e-5, 10)


def test_the_truncated_law_has_a_smaller_number_for_every_dataset() -> None:
    narrow = claim(law=rf.TruncatedGaussian(1.0, bound=0.5))
    factor = float(rf.TruncatedGaussian(1.0, bound=0.5).fisher_information(0.0))
    zcdp = 10 * THETA.numel() * 25e-6 / 2
    expected = PrivacyLoss.of_zcdp(zcdp, zcdp * factor).epsilon(1e-5)
    assert narrow.epsilon == pytest.approx(expected, rel=1e-10)
    assert narrow.epsilon < 0.5 * gaussian_epsilon(math.sqrt(2 * zcdp), 1e-5)
    assert factor == pytest.approx(0.0806, abs=1e-4)


def test_first_paragraph_is_ordinary_differential_privacy() -> None:
    got = claim()
    number = rounded_up(got.epsilon)
    assert sentences(got.statement.split("\n\n")[0]) == [
        f"Differential privacy, every dataset: the 10 releases satisfy ({number}, 1e-05)-differential "
        "privacy for every dataset and every single record added or removed, provided the number of "
        "releases, the noise, the bound and the sensitivity were not chosen by looking at the data",
        "An attacker who tries to tell from the 10 releases whether a given record is in the data, and "
        "accepts one false alarm in 1,000, finds at most "
        f"{rounded_up(100 * got.true_positive_rate(1e-3))} % of the records that are",
        "These numbers do not depend on the data and may be published",
    ]
    # ... and indeed it does not depend on the data
    account = rf.PerInstanceAccountant(rf.RectifiedGaussian(1.0, bound=1.0), sensitivity=5e-3)
    account.step(torch.full_like(THETA, 40.0), count=10)
    other = account.guarantee(1e-5)
    assert other.epsilon == got.epsilon
    assert other.true_positive_rate() == got.true_positive_rate()
    assert other.per_instance.ex_post_epsilon < got.per_instance.ex_post_epsilon


def test_the_ex_post_paragraph() -> None:
    got = claim()
    number = rounded_up(got.per_instance.ex_post_epsilon)
    assert sentences(got.per_instance.statement.split("\n\n")[0]) == [
        "Ex-post, this dataset and this trajectory: for each single record added or removed, the realised "
        f"privacy loss of the 10 releases is at most {number}, except with probability 1e-05 over the run, "
        "provided that delta was fixed beforehand, as the Rényi orders of an account are",
        "This holds also when theta depends on earlier releases",
        "It speaks of everything that was released together, not of something that is computed from it "
        "afterwards",
        "It is not a differential privacy guarantee, neither for other datasets nor for other runs",
        "The number is computed from the data and is itself sensitive: do not publish it, and do not stop, "
        "go on or change the noise or the bound because of it",
    ]


def test_the_per_instance_paragraph_is_a_guarantee_for_one_release_only() -> None:
    one, ten = claim(steps=1), claim(steps=10)
    first, last = (got.per_instance.statement.split("\n\n")[1] for got in (one, ten))
    assert "This is a guarantee for the one release it is about." in first
    assert "estimate" not in first
    assert (
        "This is a guarantee only if theta at every release was fixed in advance; where theta depends on "
        "earlier releases, as in training, it is an estimate and not a guarantee."
    ) in last
    for got, paragraph in ((one, first), (ten, last)):
        assert f"({rounded_up(got.per_instance.epsilon)}, 1e-05)-indistinguishable" in paragraph
        assert paragraph.endswith("is computed from it and must not be published.")


def test_one_release_and_many_are_told_apart() -> None:
    account = rf.PerInstanceAccountant(rf.Gaussian(1.0), 0.1)
    assert account.steps == 0
    for steps, words, verb in ((1, "the release", "is"), (2, "the 2 releases", "are")):
        account.step(torch.zeros(3))
        said = account.guarantee(1e-5).per_instance.statement
        assert account.steps == steps
        assert f"privacy loss of {words} is at most" in said
        assert f"{words} {verb} (" in said


@pytest.mark.parametrize(
    ("law", "proof"),
    [
        (rf.Gaussian(1.0), "Gaussian, exactly"),
        (rf.RectifiedGaussian(1.0, bound=8.0), "Gaussian, exactly"),
        (rf.RectifiedGaussian(1.0, bound=0.5), "Rényi sums"),
        (rf.TruncatedGaussian(1.0, bound=0.5), "zCDP of the law"),
    ],
    ids=repr,
)
def test_the_best_that_is_proved_is_claimed_and_how(law: rf.Mechanism, proof: str) -> None:
    account = rf.PerInstanceAccountant(law, sensitivity=5e-3)
    account.step(THETA * (3 if proof == "Rényi sums" else 0), count=10)
    got = account.guarantee(1e-5)
    assert got.per_instance.epsilon == min(got.per_instance.renyi_epsilon, got.epsilon)
    assert got.per_instance.proof == proof
    assert (got.per_instance.epsilon == got.per_instance.renyi_epsilon) == (proof == "Rényi sums")
    exact = gaussian_epsilon(math.sqrt(10 * THETA.numel()) * 5e-3, 1e-5)
    assert got.per_instance.gaussian_epsilon == pytest.approx(exact, rel=1e-9)
    assert got.per_instance.gaussian_renyi_epsilon > 1.05 * exact
    third = got.per_instance.statement.split("\n\n")[1]
    assert f"Proved by: {proof}." in third
    # what is proved for every dataset needs no theta fixed in advance
    assert ("estimate" in third) == (proof == "Rényi sums")


def test_assumptions_are_said_last() -> None:
    got = claim()
    assert got.assumptions == ()
    assuming = dataclasses.replace(got, assumptions=("The moon is public.", "So is the sun."))
    assert assuming.statement == f"{got.statement}\n\nAssumed: The moon is public. So is the sun."


@pytest.mark.parametrize(
    "make",
    [
        lambda orders: rf.PerInstanceAccountant(rf.Gaussian(1.0), 0.1, orders),
        lambda orders: rf.DecisionAccountant(rf.NoisyWinner(1.0), neighbours="added", orders=orders),
        lambda orders: rf.ExampleAccountant(rf.Gaussian(1.0), orders),
    ],
)
def test_orders_are_fixed_at_construction(make: Any) -> None:
    """The union over K orders charges nothing for orders that were picked after the run."""
    given = torch.tensor([2.0, 8.0, 64.0], dtype=torch.float64)
    account = make(given)
    with pytest.raises(AttributeError):
        account.orders = given[:1]
    account.orders.mul_(2)
    given.mul_(2)
    assert account.orders.tolist() == [2.0, 8.0, 64.0]


def test_attacks_are_bounded_by_the_gaussian_that_dominates() -> None:
    got, mu = claim(), math.sqrt(10 * THETA.numel()) * 5e-3
    assert got.mu == pytest.approx(mu, rel=1e-10)
    assert got.mu >= mu
    assert got.advantage == pytest.approx(math.erf(mu / math.sqrt(8)), rel=1e-10)
    assert got.true_positive_rate(0.05) == pytest.approx(norm.cdf(norm.ppf(0.05) + mu), rel=1e-9)
    assert got.true_positive_rate() == got.true_positive_rate(false_positive_rate=1e-3)
    curve = got.trade_off([[0.0, 1e-3], [0.05, 1.0]])
    assert curve.shape == (2, 2)
    assert curve.flatten().tolist() == pytest.approx([1, *norm.sf(norm.ppf([1e-3, 0.05]) + mu), 0], abs=1e-10)
    assert claim(delta=1e-9).as_dict()["true_positive_rates"] == got.as_dict()["true_positive_rates"]


def test_the_truncated_law_is_attacked_with_less_success() -> None:
    narrow, wide = claim(law=rf.TruncatedGaussian(1.0, bound=0.5)), claim()
    assert narrow.mu == wide.mu
    assert narrow.advantage < 0.5 * wide.advantage
    assert narrow.true_positive_rate(1e-3) < 0.8 * wide.true_positive_rate(1e-3)


@pytest.mark.parametrize("rate", [-0.1, 1.5, math.nan, math.inf, "a", None, [0.1, 0.2]])
def test_a_false_positive_rate_is_from_0_to_1(rate: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="false_positive_rate "):
        claim().true_positive_rate(rate)
    if rate != [0.1, 0.2]:
        with pytest.raises((ValueError, TypeError), match="false_positive_rates "):
            claim().trade_off(rate)


def test_old_names_say_the_new_ones_and_a_claim_survives_a_pickle() -> None:
    got = claim()
    for old, new in (("epsilon_data_independent", "epsilon"), ("epsilon_pdp", "per_instance.epsilon")):
        with pytest.raises(AttributeError, match=f"Guarantee.{old} is now Guarantee.{new}$"):
            getattr(got, old)
    with pytest.raises(AttributeError, match="no attribute 'eps'"):
        _ = got.eps
    assert pickle.loads(pickle.dumps(got)) == got


def test_printing_a_claim_prints_the_promise_alone() -> None:
    got = claim()
    assert str(got) == got.statement
    assert "\n" not in str(got)
    with pytest.raises(dataclasses.FrozenInstanceError):
        got.epsilon = 0.0  # type: ignore[misc]
    assert rounded_up(got.epsilon) in str(got)
    for number in (got.per_instance.epsilon, got.per_instance.ex_post_epsilon):
        assert rounded_up(number) not in str(got)
    assert "Ex-post" not in str(got)
    assert got.as_dict()["epsilon"] == got.epsilon
    assert got.as_dict()["per_instance"]["ex_post_epsilon"] == got.per_instance.ex_post_epsilon
