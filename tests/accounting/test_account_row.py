"""The account of a fixed theta: each number is that of its own accountant."""

import json

import pytest
import torch

import ringfence as rf
from ringfence.accounting.account_row import account_row

THETA = torch.linspace(-3, 3, 40, dtype=torch.float64)


@pytest.mark.parametrize("law", [rf.RectifiedGaussian(1.0, 2.0), rf.Gaussian(1.0)], ids=repr)
def test_every_number_has_its_source(law: rf.Mechanism) -> None:
    row = account_row(law, THETA, 5e-3, steps=10, delta=1e-5)
    account = rf.PerInstanceAccountant(law, 5e-3)
    account.step(THETA, count=10)
    assert row.guarantee == account.guarantee(1e-5)
    profile = rf.privacy_profile(law, THETA, 5e-3, 10)
    assert row.epsilon_profile == min(profile.epsilon(1e-5), row.guarantee.per_instance.epsilon)
    assert row.epsilon_profile <= row.gaussian_epsilon_profile
    assert (row.coordinates, row.guarantee.steps) == (40, 10)


def test_plain_data_holds_both_statements() -> None:
    row = account_row(rf.StochasticSign(1.0), THETA, 5e-3, steps=1, delta=1e-5)
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
        account_row(rf.Gaussian(1.0), THETA, 5e-3, steps=0, delta=1e-5)
