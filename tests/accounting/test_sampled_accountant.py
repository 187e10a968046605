"""Running sums of sampled releases: the contract of every accountant, and what sampling adds."""

import math

import pytest
import torch

import ringfence as rf
from ringfence.accounting import subsampling
from ringfence.accounting.conversion import epsilon_from_rdp, sampled_gaussian_epsilon, smallest_mu
from ringfence.accounting.per_instance import PerInstanceAccountant
from ringfence.accounting.subsampling import SampledAccountant, subsampled_rdp
from tests.tensors import float64

ORDERS = [2, 4, 8, 16]
LAW = rf.TruncatedGaussian(1.0, bound=1.0)
BATCHES = 0.5 * torch.randn(3, 3, generator=torch.Generator().manual_seed(0)).double()
MU = 0.05 * math.sqrt(3)  # of one release of everything


def account(law: rf.Mechanism = LAW, **changes: object) -> SampledAccountant:
    arguments = {"sensitivity": 0.05, "sampling_rate": 0.1, "orders": ORDERS, "failure_probability": 1e-9}
    return SampledAccountant(law, **{**arguments, **changes})


def test_n_steps_are_n_times_one() -> None:
    one, many, counted, batches = account(), account(), account(), BATCHES[:2]
    one.step(batches)
    for _ in range(3):
        many.step(batches)
    counted.step(batches, count=3)
    rdp = subsampled_rdp(LAW, batches, 0.05, 0.1, ORDERS, failure_probability=1e-9)
    torch.testing.assert_close(one.forward, rdp.forward, rtol=0, atol=0)
    torch.testing.assert_close(one.backward, rdp.backward, rtol=0, atol=0)
    for three in (many, counted):
        torch.testing.assert_close(three.worst, 3 * one.worst)
        assert three.steps == 3
        assert three.settings == ((pytest.approx(MU), 0.1, 3),)
    assert many.spent == pytest.approx(3e-9, rel=1e-9, abs=0)
    assert counted.spent == 1e-9  # one average, estimated once


@pytest.mark.parametrize(
    "law", [LAW, rf.RectifiedGaussian(1.0, 1.0), rf.StochasticSign(1.0), rf.Gaussian(1.0)], ids=repr
)
def test_attacks_are_no_better_than_on_the_gaussian(law: rf.Mechanism) -> None:
    running = account(law)
    running.step(BATCHES, count=10)
    assert bool((running.worst <= running.data_independent).all())
    claim = running.guarantee(1e-5)
    sampled = sampled_gaussian_epsilon(((MU, 0.1, 10),), 1e-5)
    assert claim.epsilon <= sampled * (1 + 1e-6)
    gaussian = rf.PrivacyLoss(((MU, 0.1, 10),))
    assert claim.mu == pytest.approx(smallest_mu(gaussian.releases, 1e-5), rel=1e-9)
    assert claim.advantage <= gaussian.advantage * (1 + 1e-9)
    for rate in (1e-6, 1e-3, 0.5):
        assert (
            rate
            < claim.true_positive_rate(rate)
            <= float(gaussian.attack_rates(float64([rate]))[0]) * (1 + 1e-9)
        )


def test_a_law_with_smaller_divergences_is_attacked_with_less_success() -> None:
    narrow, wide = (account(law) for law in (rf.TruncatedGaussian(1.0, 0.3), rf.Gaussian(1.0)))
    for running in (narrow, wide):
        running.step_worst_case(BATCHES[0], count=10)
    ours, theirs = narrow.guarantee(1e-5), wide.guarantee(1e-5)
    assert ours.advantage < 0.5 * theirs.advantage
    assert ours.true_positive_rate(0.1) < theirs.true_positive_rate(0.1)


def test_delta_is_paid_for_estimating() -> None:
    running = account(failure_probability=1e-6)
    running.step(BATCHES)
    running.step(BATCHES)
    claim = running.guarantee(1e-5)
    assert claim.per_instance.failure_probability == running.spent == pytest.approx(2e-6, rel=1e-9, abs=0)
    assert claim.per_instance.renyi_epsilon == float(
        epsilon_from_rdp(running.orders, running.worst, 1e-5 - running.spent)
    )
    assert "2e-06 is spent on estimating averages over batches" in claim.per_instance.statement
    with pytest.raises(ValueError, match="delta must be above 2e-06, which pairs and estimates"):
        running.guarantee(2e-6)


def test_everything_released_agrees_with_the_plain_account() -> None:
    running, plain = account(sampling_rate=1.0), PerInstanceAccountant(LAW, 0.05, ORDERS)
    for one in (running, plain):
        one.step_worst_case(BATCHES[0], count=2)
    torch.testing.assert_close(running.worst, plain.worst, rtol=1e-9, atol=0)
    claim, expected = running.guarantee(1e-5), plain.guarantee(1e-5)
    assert claim.epsilon >= expected.epsilon * (1 - 1e-9)
    assert claim.mu == pytest.approx(expected.mu, rel=1e-9)
    assert 1 <= claim.advantage / expected.advantage < 1.02  # here only integer orders are known
    with pytest.raises(ValueError, match=r"sampling_rate must be below 1 where batches are given"):
        running.step(BATCHES)


def test_refusals_name_the_argument() -> None:
    with pytest.raises(ValueError, match="orders must be integers"):
        account(orders=[2.5])
    with pytest.raises(ValueError, match=r"failure_probability must be in \(0, 1\), got 1"):
        account(failure_probability=1.0)
    running = account()
    with pytest.raises(ValueError, match="count must be at least 1, got 0"):
        running.step(BATCHES, count=0)
    assert running.steps == 0
    assert running.guarantee(1e-5).epsilon == 0


def test_a_step_worst_case_dataset_is_never_below_one_that_was_estimated() -> None:
    law = rf.RectifiedGaussian(1.0, bound=0.5)
    batches = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)).double()
    seen, unseen = (rf.SampledAccountant(law, 0.1, 0.2, orders=[2, 8, 32]) for _ in range(2))
    seen.step(batches, count=7)
    unseen.step_worst_case(torch.zeros(3), count=7)
    assert bool((unseen.worst >= seen.worst).all())
    assert torch.equal(unseen.worst, unseen.data_independent)
    assert unseen.spent == 0
    assert unseen.steps == 7
    claims = seen.guarantee(1e-5), unseen.guarantee(1e-5)
    assert claims[0].epsilon == claims[1].epsilon
    with pytest.raises(ValueError, match="count must be at least 1, got 0"):
        unseen.step_worst_case(torch.zeros(3), count=0)


def test_a_step_worst_case_dataset_may_have_settings_of_its_own() -> None:
    other = {"mechanism": rf.RectifiedGaussian(2.0, 1.0), "sensitivity": 0.3, "sampling_rate": 0.2}
    account, alone = rf.SampledAccountant(rf.Gaussian(1.0), 0.1, 0.5), rf.SampledAccountant(*other.values())
    account.step_worst_case(torch.zeros(3), **other)
    alone.step_worst_case(torch.zeros(3))
    torch.testing.assert_close(account.forward, alone.forward, rtol=0, atol=0)
    torch.testing.assert_close(account.gaussian, alone.gaussian, rtol=0, atol=0)
    account.step_worst_case(torch.zeros(3), **{**other, "sensitivity": 0.15, "mechanism": rf.Gaussian(1.0)})
    assert [count for *_, count in account.settings] == [2]  # the same Gaussian
    own, single = (rf.SampledAccountant(rf.Gaussian(1.0), 0.1, 0.5) for _ in range(2))
    for settings in ({}, other, {}):  # the cost of an account's own step is kept, for its own steps alone
        own.step_worst_case(torch.zeros(3), **settings)
    single.step_worst_case(torch.zeros(3), count=2)
    torch.testing.assert_close(own.forward, single.forward + alone.forward, rtol=1e-12, atol=0)


def test_a_second_step_reads_the_tables_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    one, batches = account(rf.StochasticSign(1.0)), BATCHES.repeat(1, 100)
    one.step(iter(batches))
    monkeypatch.setattr(one._tables.divergences, "tabulated", None)
    one.step(iter(batches))
    assert one.steps == 2


def test_a_norm_costs_for_every_dataset_what_other_accountants_say() -> None:
    """Noise multiplier 1.1, rate 0.02, 500 steps."""
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.rdp import RdpAccountant

    running = SampledAccountant(rf.Gaussian(2.2), rf.Sensitivity(norm=2.0), 0.02)
    running.step_worst_case(torch.zeros(1000), count=500)
    claim = running.guarantee(1e-5)
    release = SelfComposedDpEvent(PoissonSampledDpEvent(0.02, GaussianDpEvent(1.1)), 500)
    exact = PLDAccountant().compose(release).get_epsilon(1e-5)
    assert claim.epsilon == pytest.approx(exact, rel=1e-9)
    sums = RdpAccountant(running.orders.tolist()).compose(release).get_epsilon(1e-5)
    assert claim.per_instance.renyi_epsilon == pytest.approx(sums, rel=1e-3)
    opacus_prv, opacus_rdp = 2.303403, 2.575660  # of Opacus 1.6.0; the first up to its error of 0.01
    assert opacus_prv - 0.02 <= claim.epsilon <= opacus_prv
    assert claim.per_instance.renyi_epsilon == pytest.approx(opacus_rdp, rel=1e-3)


def test_what_holds_for_every_dataset_is_computed_once_for_a_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    account = rf.SampledAccountant(rf.Gaussian(1.0), 0.1, 0.2, [2, 8])
    account.step_worst_case(torch.zeros(3))
    once = account.worst.clone()
    monkeypatch.setattr(subsampling, "SampledDivergence", None)
    account.step_worst_case(torch.zeros(3))
    torch.testing.assert_close(account.worst, 2 * once, rtol=1e-12, atol=0)
    with pytest.raises(TypeError):
        account.step_worst_case(torch.zeros(4))


def test_how_an_epsilon_was_proved_is_said() -> None:
    for rate, proof in (
        (1.0, "Gaussian, exactly"),
        (0.1, "Gaussian on random batches, by privacy loss dist"),
    ):
        account = rf.SampledAccountant(rf.Gaussian(1.0), 1.0, rate)
        account.step_worst_case([0.0], count=20)
        assert account.guarantee(1e-5).per_instance.proof.startswith(proof)
