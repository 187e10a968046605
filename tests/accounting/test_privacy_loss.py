"""What different kinds of releases cost adds up."""

import json
import math
from dataclasses import replace
from typing import Any

import dp_accounting
import pytest
import torch
from dp_accounting import pld

import ringfence as rf
from ringfence.accounting.conversion import DEFAULT_ORDERS, GaussianBound, RenyiBound, gaussian_epsilon
from ringfence.accounting.gaussian_releases import GaussianRelease
from ringfence.accounting.privacy_loss import PrivacyLoss, RenyiSums

DELTA = 1e-5
LAW = rf.RectifiedGaussian(1.0, bound=2.0)
SAMPLES = GaussianRelease(0.1, rate=0.1, count=10)


def gaussian(mu: float, count: int = 1) -> PrivacyLoss:
    account = rf.PerInstanceAccountant(rf.Gaussian(1.0), sensitivity=mu)
    account.step([0.0], count=count)
    return account.privacy_loss()


def sampled() -> rf.SampledAccountant:
    account = rf.SampledAccountant(rf.Gaussian(1.0), sensitivity=0.3, sampling_rate=0.05)
    account.step_worst_case([0.0], count=40)
    return account


def decided(neighbours: Any) -> rf.DecisionAccountant:
    account = rf.DecisionAccountant(rf.NoisyWinner(20.0), neighbours=neighbours)
    account.step([[230, 12, 8], [140, 90, 20]])
    return account


def test_sums_at_all_orders_are_not_printed() -> None:
    assert len(repr(rf.release_counts([0, 1], sigma=1.0).account.promised)) < 300


def test_epsilon_and_delta_are_inverse() -> None:
    truncated = rf.PerInstanceAccountant(rf.TruncatedGaussian(1.0, bound=0.5), sensitivity=0.1)
    truncated.step(torch.zeros(50))
    for account in (truncated, decided("replaced"), sampled()):
        loss = account.privacy_loss()
        assert loss.epsilon(DELTA) == account.guarantee(DELTA).epsilon
        for more in (loss, loss + PrivacyLoss.of_pair(0.5, 1e-7, loss.change)):
            assert 0.9 * DELTA <= more.delta(more.epsilon(DELTA)) <= DELTA * (1 + 1e-3)
        rates = [1e-3, 0.5]
        assert torch.equal(loss.trade_off(rates), account.guarantee(DELTA).trade_off(rates))


def test_the_smaller_epsilon_of_two_proofs_counts() -> None:
    exact, narrow = PrivacyLoss.of_zcdp(0.0512, 0.0512), PrivacyLoss.of_zcdp(0.0512, 0.004)
    claims = [loss.guarantee(DELTA) for loss in (exact, narrow)]
    assert claims[0].epsilon == pytest.approx(gaussian_epsilon(0.32, DELTA), rel=1e-12)
    assert [claim.per_instance.proof for claim in claims] == ["Gaussian, exactly", "zCDP of the law"]
    assert claims[0].advantage == GaussianBound(0.32 * (1 + 1e-11)).advantage  # smaller than by zCDP
    assert claims[1].advantage == RenyiBound.of_zcdp(0.004).advantage
    assert claims[1].advantage < 0.5 * claims[0].advantage
    assert claims[1].epsilon < claims[1].per_instance.gaussian_epsilon == claims[0].epsilon
    sums = [torch.tensor(DEFAULT_ORDERS, dtype=torch.float64) * zcdp for zcdp in (1.0, 5e-4, 0.0512)]
    smaller = replace(exact, own=RenyiSums.of(sums[0], sums[1], sums[1])).guarantee(DELTA).per_instance
    assert (smaller.proof, smaller.every_dataset) == ("Rényi sums", False)
    one = replace(exact, own=RenyiSums.of(*sums))
    assert one.guarantee(DELTA).per_instance == claims[0].per_instance  # the worse direction counts


def test_ranges_count_where_all_releases_have_one() -> None:
    """Sums keep them, also from a file; one release without them, and a Gaussian bound, leave them out."""
    few = PrivacyLoss.of_zcdp(0.002, 0.00125, dominating=(("range", 0.1, 1),))
    other = few + PrivacyLoss.of_zcdp(0.008, 0.005, dominating=(("range", 0.2, 1),))
    assert other.dominating == (("range", 0.1, 1), ("range", 0.2, 1))
    assert other.epsilon(1e-9) == other.epsilon(0.0) == pytest.approx(0.3, rel=1e-10)
    more = few + few + PrivacyLoss() + few + few
    assert more.dominating == (("range", 0.1, 4),)
    assert more.epsilon(0.0) == pytest.approx(0.4, rel=1e-10)
    claim = more.guarantee(DELTA)
    assert claim.epsilon == more.epsilon(DELTA) < 0.4
    assert claim.per_instance.proof == "bounded range, by backward induction"
    assert "every dataset, also where theta depends on earlier" in claim.per_instance.statement
    assert more.delta(claim.epsilon) == pytest.approx(DELTA, rel=1e-3)
    assert more.delta(0.41) == 0.0
    assert claim.true_positive_rate(1e-3) <= math.exp(0.4) * 1e-3 * 1.001
    assert PrivacyLoss.from_state(json.loads(json.dumps(more.state()))) == more
    assert few.of_replaced().dominating == (("range", 0.2, 1),)
    assert more.gaussian_bound().dominating == (gaussian(0.1) + more).dominating == ()
    paired = more + PrivacyLoss.of_pair(0.1, 0.0)
    assert paired.dominating == more.dominating
    assert paired.epsilon(0.0) == pytest.approx(0.5, rel=1e-10)
    with pytest.raises(ValueError, match="dominating must be one of"):
        replace(more, dominating=(("shape", 0.1, 1),))


def test_losses_at_different_orders_add_up_to_an_upper_bound() -> None:
    """A missing order has the sum of the next larger one, and infinity beyond the last."""
    few = PrivacyLoss.of_zcdp(0.25, 0.25, own=RenyiSums((3.0, 32.0), (0.75, 8.0), (0.5, 8.0)))
    assert (few + few).own == RenyiSums((3.0, 32.0), (1.5, 16.0), (1.0, 16.0))
    assert (few + PrivacyLoss.of_pair(0.1, 0.0)).own == few.own
    assert (PrivacyLoss.of_zcdp(0.5, 0.5) + few).own == RenyiSums((3.0, 32.0), (2.25, 24.0), (2.0, 24.0))
    total = (few + gaussian(0.0)).own
    by_order = dict(zip(total.orders, total.forward, strict=True))
    assert total.orders == DEFAULT_ORDERS
    assert [by_order[at] for at in (1.5, 3.0, 3.5, 32.0, 36.0)] == [0.75, 0.75, 8.0, 8.0, math.inf]
    with pytest.raises(ValueError, match="own must hold one sum for each order, got"):
        PrivacyLoss.of_zcdp(0.1, 0.1, own=RenyiSums((2.0,), (1.0,), ()))


def test_only_mu_counts_where_releases_may_be_chosen_by_others() -> None:
    """zCDP of the law may say less, but no filter is known for the smaller of both."""
    law = PrivacyLoss.of_gaussian(GaussianRelease(0.5, zcdp=0.01))
    bound = law.gaussian_bound()
    assert bound.epsilon(1e-5) == pytest.approx(gaussian_epsilon(0.5, 1e-5), rel=1e-12)
    assert law.epsilon(1e-5) < bound.epsilon(1e-5)
    for other in (PrivacyLoss.of_pair(0.2, 1e-7), PrivacyLoss.of_gaussian(SAMPLES)):
        with pytest.raises(ValueError, match="are not bounded by a Gaussian alone"):
            (law + other).gaussian_bound()


def test_gaussians_and_samples_compose_exactly() -> None:
    total = (gaussian(0.3) + gaussian(0.4, count=3)).guarantee(DELTA)
    exact = dp_accounting.get_epsilon_gaussian(1 / math.sqrt(0.09 + 3 * 0.16), DELTA)
    assert total.epsilon == pytest.approx(exact, rel=1e-6)
    mixed = (gaussian(0.3) + sampled().privacy_loss()).guarantee(DELTA).epsilon
    accountant = pld.PLDAccountant()
    accountant.compose(dp_accounting.GaussianDpEvent(1 / 0.3))
    once = dp_accounting.PoissonSampledDpEvent(0.05, dp_accounting.GaussianDpEvent(1 / 0.3))
    accountant.compose(dp_accounting.SelfComposedDpEvent(once, 40))
    assert mixed == pytest.approx(accountant.get_epsilon(DELTA), rel=1e-3)


def test_what_is_known_by_a_pair_is_added_up() -> None:
    pair = PrivacyLoss.of_pair(0.5, 1e-7)
    claim = (gaussian(0.3) + pair).guarantee(DELTA)
    alone = gaussian(0.3).guarantee(DELTA - 2e-7)
    assert claim.delta == DELTA
    assert claim.epsilon == pytest.approx(gaussian(0.3).epsilon(DELTA - 1e-7) + 0.5, rel=1e-9)
    for name in ("epsilon", "renyi_epsilon", "ex_post_epsilon"):
        more = 0.5 + math.log(2) * (name == "ex_post_epsilon")
        for field in (name, f"gaussian_{name}"):
            own, rest = (getattr(one.per_instance, field) for one in (claim, alone))
            assert own == pytest.approx(rest + more, rel=2e-3 if name == "epsilon" else 1e-9), field
    assert claim.per_instance.delta == DELTA
    assert claim.per_instance.proof == "epsilons added up"
    with pytest.raises(ValueError, match="delta must be above 2e-07, which pairs take"):
        pair.guarantee(1e-7)


def test_a_number_of_the_data_at_hand_does_not_pass_for_one_of_every_dataset() -> None:
    """Rényi sums and a pair together are about this dataset, as the sums are."""
    sums = (0.016, 0.128)
    known = PrivacyLoss.of_zcdp(0.02, 0.02, own=RenyiSums((8.0, 64.0), sums, sums))
    own = (known + PrivacyLoss.of_pair(0.5, 0.0)).guarantee(DELTA)
    assert own.per_instance.epsilon < own.epsilon
    assert own.per_instance.proof == "Rényi sums"
    assert "every dataset" not in own.per_instance.statement.split("\n\n")[1]


def test_a_loss_without_releases_is_not_free() -> None:
    with pytest.raises(ValueError, match=r"releases must hold .* take a pair \(epsilon, delta\)"):
        PrivacyLoss(dominating=(("pure", 1.0, 1),))


@pytest.mark.parametrize(
    "known",
    [
        {"pairs": ((-1.0, 0.0),)},
        {"pairs": ((0.5, -1e-5),)},
        {"steps": -1},
        {"dominating": (("pure", math.nan, 1),)},
        {"own": RenyiSums((2.0,), (-1.0,), (1.0,))},
    ],
)
def test_a_negative_cost_or_nan_is_refused(known: dict[str, Any]) -> None:
    """It would take from what other releases cost."""
    with pytest.raises(ValueError, match="a PrivacyLoss must hold numbers from 0 on, got"):
        PrivacyLoss(**{"releases": (GaussianRelease(1.0),), **known})


def test_attacks_on_a_pair_are_no_better_than_the_worst_pair_allows() -> None:
    """Randomised response at epsilon 1 has the rates e x, up to the corner: the bound is just above."""
    claim = PrivacyLoss.of_pair(1.0, 0.0).guarantee(DELTA)
    for rate in (1e-3, 0.1):
        assert math.e * rate <= claim.true_positive_rate(rate) <= math.e * rate + 2 * DELTA
    assert math.tanh(0.5) <= claim.advantage <= math.tanh(0.5) + 2 * DELTA
    assert claim.mu == math.inf


def test_neighbours_are_the_same_or_refused() -> None:
    total = decided("added").privacy_loss() + gaussian(0.1)
    assert total.change == "added or removed"
    with pytest.raises(ValueError, match="neighbours must be the same, got one record added or removed"):
        _ = total + decided("replaced").privacy_loss()


def test_a_record_that_is_replaced_is_removed_and_added() -> None:
    """A Gaussian release of a sum of 1s, moved by 2: exactly twice the shift."""
    cost = gaussian(0.3).of_replaced()
    moved = gaussian(0.6).guarantee(DELTA)
    assert cost.guarantee(DELTA).per_instance.ex_post_epsilon == pytest.approx(
        moved.per_instance.ex_post_epsilon
    )
    assert cost.guarantee(DELTA).epsilon == pytest.approx(moved.epsilon)
    assert (cost + decided("replaced").privacy_loss()).change == "replaced by another one"
    assert decided("replaced").privacy_loss().of_replaced() == decided("replaced").privacy_loss()
    assert sampled().privacy_loss().of_replaced().is_gaussian
    assert PrivacyLoss.of_pair(1.0, 1e-9).of_replaced().pairs == ((2.0, (1 + math.e) * 1e-9),)


def test_a_cost_survives_json() -> None:
    cost = sampled().privacy_loss() + gaussian(0.3) + PrivacyLoss.of_pair(0.1, 0.0)
    assert PrivacyLoss.from_state(json.loads(json.dumps(cost.state()))) == cost
    with pytest.raises(ValueError, match=r"cost has missing keys .*'releases'"):
        PrivacyLoss.from_state({"steps": 1})


def test_a_cost_of_version_0_6_is_refused_by_name() -> None:
    for cost in ({"zcdp": 1.0}, {**gaussian(0.3).state(), "zcdp": 0.045, "spent": 0.0, "numbers": 0}):
        with pytest.raises(ValueError, match=r"got one of version 0\.6: finish with that version, or charge"):
            PrivacyLoss.from_state(cost)


def test_releases_of_which_no_sums_are_known_cost_the_data_at_hand_what_they_cost_every_dataset() -> None:
    """They counted as free: the per-instance epsilon of a loss that was built by hand was 0."""
    known = rf.PrivacyLoss.of_gaussian(GaussianRelease(0.3, count=2))
    claim, exact = known.guarantee(1e-5), rf.PrivacyLoss.of_zcdp(0.09, 0.09).guarantee(1e-5)
    assert claim.per_instance.epsilon == claim.epsilon == pytest.approx(exact.epsilon, rel=1e-9)
    assert claim.per_instance.ex_post_epsilon == pytest.approx(exact.per_instance.ex_post_epsilon, rel=1e-9)
    both = (known + rf.PrivacyLoss.of_zcdp(0.01, 0.01)).guarantee(1e-5).per_instance
    assert both.renyi_epsilon > exact.per_instance.renyi_epsilon
    sampled = rf.PrivacyLoss.of_gaussian(GaussianRelease(0.3, rate=0.1, count=5)).guarantee(1e-5)
    assert 0 < sampled.epsilon == sampled.per_instance.epsilon < sampled.per_instance.renyi_epsilon
