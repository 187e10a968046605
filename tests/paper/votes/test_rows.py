import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import stats

from ringfence.accounting.per_instance.accountant import PerInstanceAccountant
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.mechanisms.rectified import RectifiedGaussian
from ringfence.mechanisms.sign import StochasticSign
from ringfence.mechanisms.truncated import TruncatedGaussian
from ringfence.paper.votes.rows import (
    VotesSettings,
    sigma_for_error,
    truncated_sigma_for_error,
    truncated_wrong_answer,
    votes,
    votes_epsilon,
    wrong_answer,
)

SMALL = VotesSettings(
    margins=(0.05, 0.2),
    questions=(1, 10, 100),
    errors=(0.01,),
    curve_errors=(0.1, 0.01),
    sigma_margins=(0.1, 0.4),
)


@pytest.fixture(scope="module")
def rows():
    return list(votes(SMALL))


@pytest.mark.parametrize(
    ("law", "expected"),
    [
        (Gaussian(60.0), wrong_answer(100.0, 60.0)),
        (StochasticSign(60.0), wrong_answer(100.0, 60.0)),
        (RectifiedGaussian(60.0, 30.0), wrong_answer(100.0, 60.0)),
        (TruncatedGaussian(60.0, 50.0), truncated_wrong_answer(100.0, 60.0, 50.0)),
    ],
)
def test_errors_are_those_of_the_sampler(law, expected):
    surplus = torch.full((200_000,), 100.0, dtype=torch.float64)
    wrong = float((law.sample(surplus, generator=torch.Generator().manual_seed(5)) < 0).double().mean())
    assert abs(wrong - expected) < 5 * math.sqrt(expected / 200_000)


def test_calibration_hits_its_error():
    for error in (0.3, 0.01, 1e-4):
        sigma = sigma_for_error(50.0, error)
        assert stats.norm.cdf(-50.0 / sigma) == pytest.approx(error, rel=1e-9)
        for bound in (0.3, 1.0, 5.0):
            sigma = truncated_sigma_for_error(50.0, error, bound)
            law = stats.truncnorm(-bound - 50 / sigma, bound - 50 / sigma, loc=50, scale=sigma)
            assert law.cdf(0.0) == pytest.approx(error, rel=1e-6)


def test_no_noise_makes_a_coin():
    with pytest.raises(ValueError, match=r"error must be below 0\.5, got 0\.5"):
        sigma_for_error(10.0, 0.5)


def test_rows(rows):
    # four pairs of margin and error with four laws each; two margins with three laws at one sigma
    assert len(rows) == 3 * (4 * 4 + 2 * 3)
    for row in rows:
        if row.mechanism == "Gaussian":
            assert row.epsilon == row.gaussian_epsilon
        if row.mechanism in ("sign", "rectified"):
            assert row.ratio >= 1 - 1e-9
            assert row.error == pytest.approx(wrong_answer(1000 * row.margin, row.sigma), rel=1e-9)
        if row.mechanism == "truncated":
            assert truncated_wrong_answer(1000 * row.margin, row.sigma, row.bound) == pytest.approx(
                row.error, rel=1e-9
            )


def test_a_certain_answer_is_free_at_this_delta(rows):
    certain = [row for row in rows if row.comparison == "equal noise" and row.margin == 0.4]
    assert all(row.ratio == math.inf for row in certain if row.mechanism != "Gaussian")


def test_the_account_is_the_best_of_its_proofs():
    surplus = torch.tensor([100.0], dtype=torch.float64)
    law = StochasticSign(40.0)
    account = PerInstanceAccountant(law, 1.0)
    account.step(surplus.expand(10))
    claim = account.guarantee(1e-5)
    assert votes_epsilon(law, surplus, 10, 1e-5) < 0.85 * claim.epsilon_pdp
    account.step(surplus.expand(90))
    claim = account.guarantee(1e-5)
    assert votes_epsilon(law, surplus, 100, 1e-5) < 0.92 * claim.epsilon_pdp
    assert votes_epsilon(Gaussian(40.0), surplus, 100, 1e-5) == pytest.approx(claim.epsilon_data_independent)


@pytest.mark.parametrize("questions", [1, 10, 100])
def test_sign_is_covered_by_its_two_binomials(rows, questions):
    """A voter who votes up on ``up`` questions and down on the rest: exact delta at the epsilon claimed."""
    row = next(
        r for r in rows if (r.mechanism, r.questions, r.margin, r.error) == ("sign", questions, 0.05, 0.01)
    )
    here, up, down = (stats.norm.cdf(-(50.0 + move) / row.sigma) for move in (0, 1, -1))
    worst = 0.0
    for ups in {0, questions // 2, questions}:
        laws = [
            np.multiply.outer(
                stats.binom.pmf(range(ups + 1), ups, first),
                stats.binom.pmf(range(questions - ups + 1), questions - ups, second),
            )
            for first, second in ((here, here), (up, down))
        ]
        for p, q in (laws, laws[::-1]):
            worst = max(worst, float(np.maximum(p - math.exp(row.epsilon) * q, 0).sum()))
    assert worst <= 1e-5 * (1 + 1e-6)
    if questions == 1:
        assert worst == pytest.approx(1e-5, rel=1e-6)  # and not a digit too large


def test_more_questions_cost_more(rows):
    for mechanism in ("Gaussian", "sign", "rectified", "truncated"):
        costs = [
            row.epsilon for row in rows if (row.mechanism, row.margin, row.error) == (mechanism, 0.05, 0.01)
        ]
        assert all(first < second for first, second in pairwise(costs))


def test_same_rows_again():
    few = replace(SMALL, questions=(1, 10), margins=(), sigma_margins=())
    seen = []
    assert list(votes(few, lambda *told: seen.append(told))) == list(votes(few))
    assert seen[-1] == ("votes", 1.0)
    assert len(seen) == 8
