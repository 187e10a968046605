"""Accounts of Poisson samples: what they charge every dataset, and what they read from a file."""

import math

import pytest
import torch

import ringfence as rf
from ringfence.accounting.gaussian_releases import GaussianRelease, sampled_gaussian_epsilon, smallest_mu
from ringfence.accounting.subsampling import SampledAccountant
from tests.tensors import float64

LAW, THETA = rf.TruncatedGaussian(1.0, bound=1.0), torch.zeros(3)
MU = 0.05 * math.sqrt(3)  # of one release of everything


def account(law: rf.Mechanism = LAW, count: int = 0, rate: float = 0.1) -> SampledAccountant:
    made = SampledAccountant(law, 0.05, rate)
    if count:
        made.step_worst_case(THETA, count=count)
    return made


def test_n_steps_are_n_times_one() -> None:
    many, counted = account(), account(count=3)
    for _ in range(3):
        many.step_worst_case(THETA)
    (release,) = counted.releases
    assert many.state_dict() == counted.state_dict()
    assert (release.mu, release.rate, release.count) == (pytest.approx(MU), 0.1, 3)
    assert release.zcdp == pytest.approx(0.5 * MU**2 * float(LAW.fisher_information(0.0)), rel=1e-9)


@pytest.mark.parametrize(
    "law", [LAW, rf.RectifiedGaussian(1.0, 1.0), rf.StochasticSign(1.0), rf.Gaussian(1.0)], ids=repr
)
def test_attacks_are_no_better_than_on_the_gaussian(law: rf.Mechanism) -> None:
    claim, releases = account(law, 10).guarantee(1e-5), (GaussianRelease(MU, rate=0.1, count=10),)
    assert claim.epsilon <= sampled_gaussian_epsilon(releases, 1e-5) * (1 + 1e-6)
    gaussian = rf.PrivacyLoss.of_gaussian(*releases)
    assert claim.mu == pytest.approx(smallest_mu(releases, 1e-5), rel=1e-9)
    assert claim.advantage <= gaussian.advantage * (1 + 1e-9)
    for rate in (1e-6, 1e-3, 0.5):
        most = float(gaussian.attack_rates(float64([rate]))[0])
        assert rate < claim.true_positive_rate(rate) <= most * (1 + 1e-9)


def test_a_law_with_smaller_divergences_is_attacked_with_less_success() -> None:
    ours, theirs = (
        account(law, 10).guarantee(1e-5) for law in (rf.TruncatedGaussian(1.0, 0.3), rf.Gaussian(1.0))
    )
    assert ours.epsilon < 0.5 * theirs.epsilon
    assert ours.advantage < 0.5 * theirs.advantage
    assert ours.true_positive_rate(0.1) < theirs.true_positive_rate(0.1)


def test_everything_released_agrees_with_the_plain_account() -> None:
    plain = rf.PerInstanceAccountant(LAW, 0.05)
    plain.step_worst_case(THETA, count=2)
    claim, expected = account(count=2, rate=1.0).guarantee(1e-5), plain.guarantee(1e-5)
    assert claim.epsilon == pytest.approx(expected.epsilon, rel=1e-9)
    assert claim.mu == pytest.approx(expected.mu, rel=1e-9)
    assert claim.advantage == pytest.approx(expected.advantage, rel=1e-9)
    assert claim.per_instance.ex_post_epsilon == pytest.approx(
        expected.per_instance.ex_post_epsilon, rel=1e-9
    )


def test_refusals_name_the_argument_and_cost_nothing() -> None:
    running = account()
    with pytest.raises(ValueError, match="count must be at least 1, got 0"):
        running.step_worst_case(THETA, count=0)
    with pytest.raises(
        AttributeError, match=r"SampledAccountant\.step is now SampledAccountant\.step_worst_case"
    ):
        running.step(torch.zeros(2, 3))  # type: ignore[attr-defined]
    assert running.steps == 0
    assert running.guarantee(1e-5).epsilon == 0


def test_a_step_may_have_settings_of_its_own() -> None:
    other = {"mechanism": rf.RectifiedGaussian(2.0, 1.0), "sensitivity": 0.3, "sampling_rate": 0.2}
    one, alone = account(), SampledAccountant(*other.values())
    one.step_worst_case(THETA, **other)
    alone.step_worst_case(THETA)
    assert one.releases == alone.releases
    one.step_worst_case(THETA, **{**other, "sensitivity": 0.15, "mechanism": rf.Gaussian(1.0)})
    assert [release.count for release in one.releases] == [2]  # the same Gaussian
    one.step_worst_case(THETA)
    assert (len(one.releases), one.steps) == (2, 3)


def test_a_norm_costs_for_every_dataset_what_other_accountants_say() -> None:
    """Noise multiplier 1.1, rate 0.02, 500 steps."""
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
    from dp_accounting.pld import PLDAccountant

    running = SampledAccountant(rf.Gaussian(2.2), rf.Sensitivity(norm=2.0), 0.02)
    running.step_worst_case(torch.zeros(1000), count=500)
    claim = running.guarantee(1e-5)
    release = SelfComposedDpEvent(PoissonSampledDpEvent(0.02, GaussianDpEvent(1.1)), 500)
    exact = PLDAccountant().compose(release).get_epsilon(1e-5)
    assert claim.epsilon == pytest.approx(exact, rel=1e-9)
    opacus_prv, opacus_rdp = 2.303403, 2.575660  # of Opacus 1.6.0; the first up to its error of 0.01
    assert opacus_prv - 0.02 <= claim.epsilon <= opacus_prv
    assert claim.per_instance.renyi_epsilon == pytest.approx(opacus_rdp, rel=1e-3)


def test_how_an_epsilon_was_proved_is_said() -> None:
    proofs = [account(rf.Gaussian(1.0), 20, rate).guarantee(1e-5).per_instance.proof for rate in (1.0, 0.1)]
    assert proofs == ["Gaussian, exactly", "Gaussian on random batches, by privacy loss distributions"]


def test_states_of_version_0_6_and_those_that_do_not_add_up_are_refused() -> None:
    now = account(rf.Gaussian(1.0), 5)
    with pytest.raises(ValueError, match=r"got one of version 0\.6: finish with that version, or charge"):
        SampledAccountant.from_state_dict({**now.state_dict(), "spent": 0.0})
    with pytest.raises(ValueError, match=r"releases must count 6 steps"):
        SampledAccountant.from_state_dict({**now.state_dict(), "steps": 6})
    with pytest.raises(ValueError, match=r"releases must be a list of 6, got \[1\]"):
        SampledAccountant.from_state_dict({**now.state_dict(), "releases": [[1]]})
