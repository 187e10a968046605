"""One way to charge a release, one way to load an account, and the claim of a fixed theta."""

from dataclasses import replace

import pytest
import torch

import ringfence as rf
from ringfence.accounting.profile import fixed_theta_guarantee
from ringfence.accounting.subsampling import accountant_from_state_dict

LAW = rf.RectifiedGaussian(1.0, 2.0)
THETA = torch.linspace(-1, 1, 8, dtype=torch.float64)
WIDE = torch.linspace(-3, 3, 40, dtype=torch.float64)


def per_instance() -> rf.PerInstanceAccountant:
    return rf.PerInstanceAccountant(LAW, 0.1, [2.0, 8.0])


def sampled() -> rf.SampledAccountant:
    return rf.SampledAccountant(LAW, 0.1, 0.5)


def test_a_charge_is_the_step_that_the_account_would_make() -> None:
    charged, stepped = per_instance(), per_instance()
    charged.charge(THETA)
    stepped.step(THETA)
    assert charged.state_dict() == stepped.state_dict()
    charged, stepped = sampled(), sampled()
    charged.charge(THETA)
    charged.charge(torch.full_like(THETA, 100.0))  # the released batch is not looked at
    stepped.step_worst_case(THETA, count=2)
    assert charged.state_dict() == stepped.state_dict()


@pytest.mark.parametrize("kind", ["FisherAccountant", "", None, 1, ["PerInstanceAccountant"]])
def test_an_unknown_kind_is_named(kind: object) -> None:
    with pytest.raises(
        ValueError,
        match=r"kind must be one of \['AllocatedAccountant', 'PerInstanceAccountant', 'SampledAccountant'\]",
    ):
        accountant_from_state_dict({**per_instance().state_dict(), "kind": kind})


def test_a_state_is_a_dict() -> None:
    with pytest.raises(TypeError, match="state must be a dict, got list"):
        accountant_from_state_dict([])


@pytest.mark.parametrize("law", [rf.RectifiedGaussian(1.0, 2.0), rf.Gaussian(1.0)], ids=repr)
def test_a_fixed_theta_has_the_claim_of_its_account_and_the_epsilon_of_its_profile(law: rf.Mechanism) -> None:
    claim = fixed_theta_guarantee(law, WIDE, 5e-3, steps=10, delta=1e-5)
    account = rf.PerInstanceAccountant(law, 5e-3)
    account.step(WIDE, count=10)
    usual = account.guarantee(1e-5)
    profile = rf.privacy_profile(law, WIDE, 5e-3, 10)
    own = claim.per_instance
    assert own.epsilon == min(profile.epsilon(1e-5), usual.per_instance.epsilon) <= own.gaussian_epsilon
    assert replace(claim, per_instance=usual.per_instance) == usual
    numbers = ("ex_post_epsilon", "renyi_epsilon", "delta", "steps")
    assert [getattr(own, name) for name in numbers] == [getattr(usual.per_instance, name) for name in numbers]


def test_no_release_has_no_account() -> None:
    with pytest.raises(ValueError, match="steps must be at least 1, got 0"):
        fixed_theta_guarantee(rf.Gaussian(1.0), WIDE, 5e-3, steps=0, delta=1e-5)


def test_methods_of_version_0_6_are_errors_that_name_the_new_ones() -> None:
    with pytest.raises(AttributeError, match=r"SampledAccountant.cost is now SampledAccountant.privacy_loss"):
        sampled().cost()  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"PerInstanceAccountant.step_of_any is now .*step_worst_case"):
        per_instance().step_of_any(THETA)  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="'SampledAccountant' object has no attribute 'costs'"):
        _ = sampled().costs  # type: ignore[attr-defined]
