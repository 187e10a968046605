"""Single voters: the exact delta of their own ballot, all outcomes summed."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats

import ringfence as rf

BALLOTS = torch.tensor(
    [[1.0, 1.0, -1.0]] * 9 + [[1.0, -1.0, 0.0]] * 5 + [[0.0, 0.0, 0.0]] + [[-1.0, 1.0, 1.0]] * 2
)


def exact_delta(ballot: list[float], sigma: float, epsilon: float) -> float:
    surplus = BALLOTS.sum(dim=0).tolist()
    p, q = np.ones(1), np.ones(1)
    for total, own in zip(surplus, ballot, strict=True):
        here, there = (stats.norm.cdf(value / sigma) for value in (total, total - own))
        p, q = np.outer(p, [here, 1 - here]).ravel(), np.outer(q, [there, 1 - there]).ravel()
    return max(float(np.maximum(0, a - math.exp(epsilon) * b).sum()) for a, b in ((p, q), (q, p)))


def test_each_epsilon_covers_its_own_ballot_and_hardly_more() -> None:
    epsilons = rf.voter_epsilons(rf.StochasticSign(6.0), BALLOTS, delta=1e-3).tolist()
    for ballot, epsilon in zip(BALLOTS.tolist(), epsilons, strict=True):
        if not any(ballot):
            assert epsilon == 0.0
            continue
        assert exact_delta(ballot, 6.0, epsilon) <= 1e-3
        assert exact_delta(ballot, 6.0, 0.93 * epsilon) > 1e-3
    assert epsilons[:9] == [epsilons[0]] * 9


def test_no_voter_costs_more_than_the_account_of_all() -> None:
    law = rf.StochasticSign(6.0)
    whole = rf.decision_profile(law, BALLOTS.sum(dim=0), neighbours="added").epsilon(1e-4)
    assert float(rf.voter_epsilons(law, BALLOTS, delta=1e-4).max()) <= whole * (1 + 1e-2)


def test_winners() -> None:
    ballots = torch.tensor([[0.0, 2.0]] * 12 + [[1.0, 2.0]] * 5 + [[2.0, -1.0]] + [[-1.0, -1.0]])
    law = rf.NoisyWinner(5.0)
    epsilons = rf.voter_epsilons(law, ballots, delta=1e-4, candidates=3)
    counts = [[12, 5, 1], [0, 0, 17]]

    def exact(moves: list[list[int]], epsilon: float) -> float:
        p, q = np.ones(1), np.ones(1)
        for row, move in zip(counts, moves, strict=True):
            there = [count + step for count, step in zip(row, move, strict=True)]
            p, q = (
                np.outer(law_, [float(law.log_prob(k, own).exp()) for k in range(3)]).ravel()
                for law_, own in ((p, row), (q, there))
            )
        return max(float(np.maximum(0, a - math.exp(epsilon) * b).sum()) for a, b in ((p, q), (q, p)))

    for voter, moves in (
        (0, [[-1, 0, 0], [0, 0, -1]]),
        (12, [[0, -1, 0], [0, 0, -1]]),
        (17, [[0, 0, -1], [0, 0, 0]]),
    ):
        epsilon = float(epsilons[voter])
        assert exact(moves, epsilon) <= 1e-4
        assert exact(moves, 0.93 * epsilon) > 1e-4
    assert float(epsilons[-1]) == 0.0


@pytest.mark.parametrize(
    ("ballots", "candidates", "message"),
    [
        ([[0.5]], None, "ballots must be 1, 0 or -1, got 0.5"),
        ([1.0, 0.0], None, "ballots must have a row per voter"),
        ([[3.0]], 3, "ballots must be candidates from -1 to 2, got 3.0"),
        ([[1.0]], None, "candidates must be given for winners"),
    ],
)
def test_ballots_that_are_none(ballots: list, candidates: int | None, message: str) -> None:
    law = rf.NoisyWinner(1.0) if candidates or "given" in message else rf.StochasticSign(1.0)
    with pytest.raises(ValueError, match=message):
        rf.voter_epsilons(law, ballots, delta=1e-5, candidates=candidates)


def test_many_voters_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    from ringfence.accounting.decisions import voter

    generator = torch.Generator().manual_seed(0)
    ballots = torch.randint(-1, 2, (40, 6), generator=generator).double()
    whole = rf.voter_epsilons(rf.StochasticSign(9.0), ballots, delta=1e-4)
    monkeypatch.setattr(voter, "_ROWS", 1 << 12)
    assert torch.equal(whole, rf.voter_epsilons(rf.StochasticSign(9.0), ballots, delta=1e-4))
    assert len(list(itertools.chain(whole))) == 40
