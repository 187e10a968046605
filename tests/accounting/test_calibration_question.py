"""The cost that a calibration asks for is the one that the account would print."""

import pytest
import torch

import ringfence as rf
from ringfence.accounting.calibration_question import CalibrationQuestion
from ringfence.accounting.guarantee import EpsilonKind

THETA = torch.linspace(-2, 2, 60, dtype=torch.float64)
LAW = rf.TruncatedGaussian(1.0, 3.0)


@pytest.mark.parametrize(
    ("kind", "field"),
    [("ex_post", "epsilon"), ("pdp", "epsilon_pdp"), ("data_independent", "epsilon_data_independent")],
)
def test_the_account_says_the_same(kind: EpsilonKind, field: str) -> None:
    account = rf.PerInstanceAccountant(LAW, 0.05)
    account.step(THETA, count=4)
    question = CalibrationQuestion.asked(THETA, 0.05, 1e-5, kind, None, 1.0)
    assert question.costs(LAW)(4) == pytest.approx(getattr(account.guarantee(1e-5), field), rel=1e-14)


def test_sampled_releases_cost_what_their_account_says() -> None:
    account = rf.SampledAccountant(LAW, 0.05, 0.5)
    account.step_of_any(THETA, count=4)
    question = CalibrationQuestion.asked(THETA, 0.05, 1e-5, "data_independent", None, 0.5)
    assert question.costs(LAW)(4) == account.guarantee(1e-5).epsilon_data_independent


def test_moves_too_large_to_compose_have_a_cost() -> None:
    question = CalibrationQuestion.asked(None, 1e4, 1e-5, "data_independent", 1, 0.5)
    assert 4e7 < question.costs(rf.Gaussian(1.0))(1) < 6e7


def test_coordinates_scale_the_cost_of_a_sample_of_theta() -> None:
    many = CalibrationQuestion.asked(THETA, 0.05, 1e-5, "pdp", 600, 1.0)
    repeated = CalibrationQuestion.asked(THETA.repeat(10), 0.05, 1e-5, "pdp", None, 1.0)
    assert many.costs(LAW)(1) == pytest.approx(repeated.costs(LAW)(1), rel=5e-3)
