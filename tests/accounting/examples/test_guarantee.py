"""What is said about single examples: epsilons are those of the ordinary conversions, words are there."""

import dp_accounting
import pytest
import torch

import ringfence as rf
from ringfence.accounting.claim.conversion import epsilon_from_rdp, ex_post_epsilon
from ringfence.accounting.claim.data_independent import data_independent_epsilon
from ringfence.accounting.examples.accountant import ExampleAccountant
from tests.accounting.gradients import LAWS, draws


def test_epsilons_are_those_of_the_scalar_conversions() -> None:
    theta, gradients = draws(40, 30, 0.3)
    gradients *= torch.logspace(-6, 1, 40, dtype=torch.float64).unsqueeze(1)
    account = ExampleAccountant(LAWS["truncated"], [1.005, 1.1, 2.0, 8.0, 64.0, 2048.0])
    account.step(theta, gradients)
    for delta in (1e-8, 1e-5, 0.3):
        ex_post, pdp = account.epsilons(delta), account.epsilons(delta, kind="per_instance")
        most = data_independent_epsilon(*account._zcdps.tolist(), delta)
        for i, curve in enumerate(account.worst):
            truth = ex_post_epsilon(account.orders, curve, delta)[0]
            assert float(ex_post[i]) == pytest.approx(truth, rel=1e-12, abs=0)
            truth = epsilon_from_rdp(account.orders, curve, delta)[0]
            assert float(pdp[i]) == pytest.approx(min(truth, most), rel=1e-10, abs=0)
            direct = dp_accounting.rdp.compute_epsilon(account.orders.tolist(), curve.tolist(), delta)[0]
            assert float(pdp[i]) == pytest.approx(min(direct, most), rel=1e-10, abs=0)


def test_the_statement_says_what_is_proved_and_what_is_not() -> None:
    account = ExampleAccountant(LAWS["truncated"], [2.0, 64.0])
    account.step(torch.zeros(3), torch.ones(2, 3))
    assert "the release about that record" in account.statement
    assert "is a guarantee for the one release it is about" in account.statement
    account.step(torch.zeros(3), torch.ones(2, 3))
    statement = account.statement
    for phrase in (
        "this dataset and this trajectory",
        "one record that is in the data",
        "leaving that record out and with having it twice",
        "the realised privacy loss of the 2 releases",
        "for each example by itself, not for all of them at once",
        "an estimate and not a guarantee",
        "Neither is differential privacy",
        "nothing about records that are not in the data",
        "itself sensitive: do not publish it",
        "do not stop, go on, leave out examples or change the noise because of it",
    ):
        assert phrase in statement
    assert repr(account) == (
        "ExampleAccountant(TruncatedGaussian(sigma=1.0, bound=(-2.0, 2.0)), examples=2, steps=2)"
    )


def test_a_guarantee_is_both_kinds_of_epsilon_and_the_statement() -> None:
    account = ExampleAccountant(rf.RectifiedGaussian(1.0, 2.0))
    account.step(torch.zeros(4), 0.1 * torch.ones(3, 4), count=2)
    claim = account.guarantee(1e-5)
    assert torch.equal(claim.epsilons, account.epsilons(1e-5))
    assert torch.equal(claim.per_instance_epsilons, account.epsilons(1e-5, kind="per_instance"))
    assert (claim.delta, claim.steps, claim.statement) == (1e-5, 2, account.statement)
