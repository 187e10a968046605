"""One way to charge a release and one way to load an account; each number of a row is its accountant's."""

import json
from typing import Any

import pytest
import torch

import ringfence as rf
from ringfence.accounting.account import account_row, accountant_from_state_dict

LAW = rf.RectifiedGaussian(1.0, 2.0)
THETA = torch.linspace(-1, 1, 8, dtype=torch.float64)
WIDE = torch.linspace(-3, 3, 40, dtype=torch.float64)
BATCHES = THETA + torch.linspace(0, 0.1, 4, dtype=torch.float64).unsqueeze(1)


def per_instance() -> rf.PerInstanceAccountant:
    return rf.PerInstanceAccountant(LAW, 0.1, [2.0, 8.0])


def sampled() -> rf.SampledAccountant:
    return rf.SampledAccountant(LAW, 0.1, 0.5, [2, 8])


def test_a_charge_is_the_step_that_the_account_would_make() -> None:
    charged, stepped = per_instance(), per_instance()
    charged.charge(THETA)
    charged.charge(THETA, iter(BATCHES))
    stepped.step(THETA, count=2)
    assert charged.state_dict() == stepped.state_dict()

    charged, stepped = sampled(), sampled()
    charged.charge(THETA)
    stepped.step_worst_case(THETA)
    assert charged.state_dict() == stepped.state_dict()
    charged.charge(torch.full_like(THETA, 100.0), iter(BATCHES))  # the released batch is not looked at
    stepped.step(iter(BATCHES))
    assert charged.state_dict() == stepped.state_dict()
    assert charged.spent > 0


@pytest.mark.parametrize("make", [per_instance, sampled])
def test_a_state_is_loaded_by_its_kind(make: Any) -> None:
    account = make()
    account.charge(THETA)
    again = accountant_from_state_dict(json.loads(json.dumps(account.state_dict())))
    assert type(again) is type(account)
    assert again.state_dict() == account.state_dict()


@pytest.mark.parametrize("kind", ["FisherAccountant", "", None, 1, ["PerInstanceAccountant"]])
def test_an_unknown_kind_is_named(kind: object) -> None:
    with pytest.raises(
        ValueError, match=r"kind must be one of \['PerInstanceAccountant', 'SampledAccountant'\]"
    ):
        accountant_from_state_dict({**per_instance().state_dict(), "kind": kind})


def test_an_unknown_version_is_named() -> None:
    with pytest.raises(ValueError, match="version must be 1, got 2"):
        accountant_from_state_dict({**sampled().state_dict(), "version": 2})
    with pytest.raises(TypeError, match="state must be a dict, got list"):
        accountant_from_state_dict([])


@pytest.mark.parametrize("law", [rf.RectifiedGaussian(1.0, 2.0), rf.Gaussian(1.0)], ids=repr)
def test_every_number_has_its_source(law: rf.Mechanism) -> None:
    row = account_row(law, WIDE, 5e-3, steps=10, delta=1e-5)
    account = rf.PerInstanceAccountant(law, 5e-3)
    account.step(WIDE, count=10)
    assert row.guarantee == account.guarantee(1e-5)
    profile = rf.privacy_profile(law, WIDE, 5e-3, 10)
    assert row.epsilon_profile == min(profile.epsilon(1e-5), row.guarantee.per_instance.epsilon)
    assert row.epsilon_profile <= row.gaussian_epsilon_profile
    assert (row.coordinates, row.guarantee.steps) == (40, 10)


def test_plain_data_holds_both_statements() -> None:
    row = account_row(rf.StochasticSign(1.0), WIDE, 5e-3, steps=1, delta=1e-5)
    data = json.loads(json.dumps(row.as_dict()))
    assert data["mechanism"] == "StochasticSign(sigma=1.0)"
    assert data["per_instance"]["tight_epsilon"] == row.epsilon_profile
    assert (data["mu"], data["advantage"]) == (row.guarantee.mu, row.guarantee.advantage)
    assert data["true_positive_rates"]["0.001"] == row.guarantee.true_positive_rate(1e-3)
    assert "every_dataset" not in data
    assert data["statement"] == row.guarantee.statement
    assert "must not be published" in data["per_instance"]["statement"]


def test_no_release_has_no_account() -> None:
    with pytest.raises(ValueError, match="steps must be at least 1, got 0"):
        account_row(rf.Gaussian(1.0), WIDE, 5e-3, steps=0, delta=1e-5)
