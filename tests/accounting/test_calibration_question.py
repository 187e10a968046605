"""The cost that a calibration asks for is the one that the account would print."""

from operator import attrgetter

import pytest
import torch

import ringfence as rf
from ringfence.accounting.calibration_question import CalibrationQuestion
from ringfence.accounting.guarantee import EpsilonKind

THETA = torch.linspace(-2, 2, 60, dtype=torch.float64)
LAW = rf.TruncatedGaussian(1.0, 3.0)


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("ex_post", "per_instance.ex_post_epsilon"),
        ("per_instance", "per_instance.epsilon"),
        ("data_independent", "epsilon"),
    ],
)
def test_the_account_says_the_same(kind: EpsilonKind, field: str) -> None:
    account = rf.PerInstanceAccountant(LAW, 0.05)
    account.step(THETA, count=4)
    question = CalibrationQuestion.asked(THETA, 0.05, 1e-5, kind, None, 1.0)
    assert question.costs(LAW)(4) == pytest.approx(attrgetter(field)(account.guarantee(1e-5)), rel=1e-14)


def test_sampled_releases_cost_what_their_account_says() -> None:
    account = rf.SampledAccountant(LAW, 0.05, 0.5)
    account.step_of_any(THETA, count=4)
    question = CalibrationQuestion.asked(THETA, 0.05, 1e-5, "data_independent", None, 0.5)
    assert question.costs(LAW)(4) == account.guarantee(1e-5).epsilon


def test_moves_too_large_to_compose_have_a_cost() -> None:
    question = CalibrationQuestion.asked(None, 1e4, 1e-5, "data_independent", 1, 0.5)
    assert 4e7 < question.costs(rf.Gaussian(1.0))(1) < 6e7


def test_coordinates_scale_the_cost_of_a_sample_of_theta() -> None:
    many = CalibrationQuestion.asked(THETA, 0.05, 1e-5, "per_instance", 600, 1.0)
    repeated = CalibrationQuestion.asked(THETA.repeat(10), 0.05, 1e-5, "per_instance", None, 1.0)
    assert many.costs(LAW)(1) == pytest.approx(repeated.costs(LAW)(1), rel=5e-3)


@pytest.mark.parametrize("rate", [1.0, 0.5])
@pytest.mark.parametrize(
    ("size", "length"),
    [
        (rf.Sensitivity(norm=0.4), 0.4),
        (rf.Sensitivity(0.2, at_most=4), 0.4),
        (rf.Sensitivity(0.2, norm=0.4), 0.4),
        (rf.Sensitivity(0.2, at_most=4, norm=9.0), 0.4),
        (rf.Sensitivity(0.2, at_most=9, norm=0.4), 0.4),
    ],
    ids=repr,
)
def test_a_length_needs_no_number_of_coordinates(size: rf.Sensitivity, length: float, rate: float) -> None:
    one = CalibrationQuestion.asked(None, length, 1e-5, "data_independent", 1, rate).costs(LAW)(4)
    for theta, coordinates in ((None, None), (None, 60), (THETA, None), (THETA[:7], 60)):
        question = CalibrationQuestion.asked(theta, size, 1e-5, "data_independent", coordinates, rate)
        assert question.costs(LAW)(4) == pytest.approx(one, rel=1e-9)


def test_a_length_that_depends_on_the_coordinates_needs_their_number() -> None:
    for size in (0.1, rf.Sensitivity(0.1), rf.Sensitivity([0.1, 0.2], norm=0.2)):
        with pytest.raises(ValueError, match="coordinates must be given where theta is None"):
            CalibrationQuestion.asked(None, size, 1e-5, "data_independent", None, 1.0)
    short = CalibrationQuestion.asked(None, rf.Sensitivity(0.1, norm=9.0), 1e-5, "data_independent", 4, 1.0)
    plain = CalibrationQuestion.asked(None, 0.1, 1e-5, "data_independent", 4, 1.0)
    assert short.costs(LAW)(1) == plain.costs(LAW)(1)


def test_a_sample_of_theta_does_not_say_which_coordinates_move() -> None:
    with pytest.raises(ValueError, match="coordinates must be left out, or theta hold all of them"):
        CalibrationQuestion.asked(THETA, rf.Sensitivity(norm=1.0), 1e-5, "per_instance", 600, 1.0)
    account = rf.PerInstanceAccountant(LAW, rf.Sensitivity(0.05, at_most=3))
    account.step(THETA, count=4)
    question = CalibrationQuestion.asked(THETA, account.sensitivity, 1e-5, "per_instance", 60, 1.0)
    assert question.costs(LAW)(4) == pytest.approx(account.guarantee(1e-5).per_instance.epsilon, rel=1e-14)
