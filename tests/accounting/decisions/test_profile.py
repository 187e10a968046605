"""Tight profiles of decisions: every voter enumerated, and never worse than the Gaussian or Rényi."""

import itertools
import math
from functools import cache

import numpy as np
import pytest
import torch

import ringfence as rf
from ringfence.accounting.claim.conversion import gaussian_delta
from ringfence.accounting.decisions.moves import moves_of, pairs
from ringfence.accounting.decisions.profile import joined
from tests.tensors import float64

LAW = rf.NoisyWinner(4.0)
COUNTS = [[12, 9, 3], [20, 4, 0]]


@cache
def chances(row: tuple[float, ...]) -> list[float]:
    return [float(LAW.log_prob(k, list(row)).exp()) for k in range(3)]


def enumerated(epsilon: float, neighbours: str) -> float:
    """The worst delta over every pair of moves and both directions, all nine outcomes summed."""
    worst = 0.0
    moves = [moves_of(float64([row]), neighbours)[0] for row in COUNTS]  # type: ignore[arg-type]
    for pattern in itertools.product(*moves):
        p, q = np.ones(1), np.ones(1)
        for row, move in zip(COUNTS, pattern, strict=True):
            p = np.outer(p, chances(tuple(row))).ravel()
            q = np.outer(q, chances(tuple((float64(row) + move).tolist()))).ravel()
        for first, second in ((p, q), (q, p)):
            worst = max(worst, float(np.maximum(0, first - math.exp(epsilon) * second).sum()))
    return worst


@pytest.mark.parametrize("neighbours", ["replaced", "added"])
def test_every_voter_is_covered(neighbours: str) -> None:
    profile = rf.decision_profile(LAW, COUNTS, neighbours=neighbours)  # type: ignore[arg-type]
    tight = profile.proofs["backward induction"]
    for epsilon in (0.0, 0.1, 0.3):
        exact = enumerated(epsilon, neighbours)
        assert exact <= tight(epsilon) <= 1.05 * exact + 1e-12


def test_sharper_than_renyi_and_the_gaussian() -> None:
    generator = torch.Generator().manual_seed(0)
    shares = torch.rand(24, 10, generator=generator).pow(6)
    counts = torch.stack(
        [torch.multinomial(row, 250, True, generator=generator).bincount(minlength=10) for row in shares]
    )
    for sigma in (20.0, 60.0):
        profile = rf.decision_profile(rf.NoisyWinner(sigma), counts, neighbours="replaced")
        alone = {
            name: rf.PrivacyProfile({name: proof}).epsilon(1e-5) for name, proof in profile.proofs.items()
        }
        assert alone["backward induction"] < 0.97 * alone["Rényi"]
        assert alone["backward induction"] < 0.95 * alone["Gaussian"]


def test_a_voter_who_takes_part_in_one_query_costs_the_dearest() -> None:
    each = [rf.decision_profile(LAW, [row], neighbours="added") for row in COUNTS]
    one = rf.decision_profile(LAW, COUNTS, neighbours="added", at_most=1)
    for epsilon in (0.0, 0.2):
        assert one.delta(epsilon) == pytest.approx(max(single.delta(epsilon) for single in each), rel=1e-9)
    two = rf.decision_profile(LAW, COUNTS, neighbours="added", at_most=5)
    assert one.delta(0.1) < two.delta(0.1)


def test_yes_or_no_agrees_with_the_profile_of_the_sign() -> None:
    surplus, law = float64([3.0, 11.0, -25.0]), rf.StochasticSign(10.0)
    own = rf.decision_profile(law, surplus, neighbours="added")
    known = rf.privacy_profile(law, surplus, 1.0)
    assert own.epsilon(1e-4) == pytest.approx(known.epsilon(1e-4), rel=1e-6)


def test_every_outcome_of_every_query_is_charged_what_may_underflow() -> None:
    """A single move has its exact curve, which is 0 at a large epsilon."""
    law = rf.StochasticSign(10.0)
    alone = rf.decision_profile(law, [3.0], neighbours="added").proofs["backward induction"]
    assert alone(50.0) == pytest.approx(2e-290, rel=1e-12, abs=0)
    one = rf.decision_profile(law, [3.0, 5.0, 5.0], neighbours="added", at_most=1)
    assert one.proofs["backward induction"](50.0) == pytest.approx(6e-290, rel=1e-12, abs=0)
    winners = rf.decision_profile(LAW, [[12, 9, 3]], neighbours="added").proofs["backward induction"]
    assert winners(50.0) == pytest.approx(3e-290, rel=1e-12, abs=0)


def test_the_gaussian_curve_is_that_of_the_queries_that_a_voter_takes_part_in() -> None:
    for at_most, queries in ((None, 3), (2, 2), (3, 3), (7, 3)):
        profile = rf.decision_profile(LAW, [*COUNTS, [9, 9, 9]], neighbours="added", at_most=at_most)
        expected = gaussian_delta(math.sqrt(queries) / 4, 0.2)
        assert profile.proofs["Gaussian"](0.2) == pytest.approx(expected, rel=1e-10)


def test_moves_that_change_nothing_are_added_where_there_are_fewer() -> None:
    short, long = (next(pairs(LAW, row, "added")) for row in ([[5.0, 0.0]], [[5.0, 3.0], [6.0, 3.0]]))
    whole = joined([short, long])
    assert torch.equal(whole.rho[:, :, 1:], long.rho)
    assert torch.equal(whole.log_p[:, :, 1:], long.log_p.expand_as(long.rho))
    assert torch.equal(whole.rho[:, :3, :1], short.rho)
    assert whole.rho[:, 3:, :1].tolist() == [[[0.0]], [[0.0]]]
    assert torch.equal(whole.log_p[:, :, :1], short.log_p[:, :1].expand(-1, 4, -1))
    assert whole.repeats.tolist() == [1, 1, 1]
