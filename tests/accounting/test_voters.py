"""Single voters: the exact delta of their own ballot, all outcomes summed."""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

import ringfence as rf
from ringfence.accounting import voters
from ringfence.accounting.conversion import DEFAULT_ORDERS
from ringfence.accounting.induction import Grid, Loss
from ringfence.accounting.voters import _block, voter_epsilons
from tests.accounting.exact_profile import product_delta
from tests.tensors import float64

BALLOTS = torch.tensor(
    [[1.0, 1.0, -1.0]] * 9 + [[1.0, -1.0, 0.0]] * 5 + [[0.0, 0.0, 0.0]] + [[-1.0, 1.0, 1.0]] * 2
)


def exact_delta(
    law: Any, outcomes: Sequence[float], queries: Iterable[tuple[Any, Any]], epsilon: float
) -> float:
    """Of decisions on these votes, with a voter and without."""
    pairs = [[[float(law.log_prob(k, at).exp()) for k in outcomes] for at in both] for both in queries]
    return product_delta([(here, there) for here, there in pairs], epsilon)


def test_each_epsilon_covers_its_own_ballot_and_hardly_more() -> None:
    law, surplus = rf.StochasticSign(6.0), BALLOTS.double().sum(dim=0)
    epsilons = voter_epsilons(law, BALLOTS, delta=1e-3).tolist()
    for ballot, epsilon in zip(BALLOTS.double(), epsilons, strict=True):
        queries = list(zip(surplus.tolist(), (surplus - ballot).tolist(), strict=True))
        assert (epsilon == 0) == (not ballot.any())
        assert exact_delta(law, (-1.0, 1.0), queries, epsilon) <= 1e-3
        assert epsilon == 0 or exact_delta(law, (-1.0, 1.0), queries, 0.93 * epsilon) > 1e-3
    assert epsilons[:9] == [epsilons[0]] * 9


@pytest.mark.parametrize(("sigma", "delta"), [(1e4, 1e-5), (1e7, 1e-8)])
def test_no_voters_own_epsilon_is_above_what_is_promised_to_everybody(
    sigma: float, delta: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the Gaussian's exact epsilon is next to 0, Rényi sums still say more."""
    monkeypatch.setattr(voters, "_MOST_COMPOSED", 0)
    law, ballots = rf.StochasticSign(sigma), torch.tensor([[1.0, 1.0], [-1.0, 0.0]])
    account = rf.DecisionAccountant(law, neighbours="added", at_most=1)
    account.step(torch.zeros(1))
    promised = account.guarantee(delta).epsilon
    assert float(voter_epsilons(law, ballots, delta=delta)[1]) <= promised
    assert float(voters._by_renyi(voters._ballots(law, ballots, None), delta)[1]) > promised


@pytest.mark.parametrize("law", [rf.NoisyWinner(5.0), rf.GumbelWinner(5.0)], ids=repr)
def test_winners(law: rf.NoisyWinner | rf.GumbelWinner) -> None:
    ballots = torch.tensor([[0.0, 2.0]] * 12 + [[1.0, 2.0]] * 5 + [[2.0, -1.0]] + [[-1.0, -1.0]])
    counts = ([12, 5, 1], [0, 0, 17])
    epsilons = voter_epsilons(law, ballots, delta=1e-4, candidates=3).tolist()
    without = {0: ([11, 5, 1], [0, 0, 16]), 12: ([12, 4, 1], [0, 0, 16]), 17: ([12, 5, 0], [0, 0, 17])}
    for who, there in without.items():
        queries = list(zip(counts, there, strict=True))
        assert exact_delta(law, range(3), queries, epsilons[who]) <= 1e-4
        assert exact_delta(law, range(3), queries, 0.93 * epsilons[who]) > 1e-4
    assert epsilons[-1] == 0.0


@pytest.mark.parametrize(
    ("ballots", "candidates", "message"),
    [
        ([[0.5]], None, "ballots must be 1, 0 or -1, got 0.5"),
        ([1.0, 0.0], None, "ballots must have a row per voter"),
        ([[3.0]], 3, "ballots must be candidates from -1 to 2, got 3.0"),
        ([[-2.0]], 2, "ballots must be candidates from -1 to 1"),
        ([[0.5]], 2, "ballots must be candidates from -1 to 1"),
        ([[0.0]], 1, "candidates must be"),
        ([[1.0]], None, "candidates must be given for winners"),
    ],
)
def test_ballots_that_are_none(ballots: list, candidates: int | None, message: str) -> None:
    law = rf.NoisyWinner(1.0) if candidates or "given" in message else rf.StochasticSign(1.0)
    with pytest.raises(ValueError, match=message):
        voter_epsilons(law, ballots, delta=1e-5, candidates=candidates)


def test_many_voters_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    ballots = torch.randint(-1, 2, (40, 6), generator=generator).double()
    whole = voter_epsilons(rf.StochasticSign(9.0), ballots, delta=1e-4)
    monkeypatch.setattr(voters, "_ROWS", 1 << 12)
    held = []

    def block(choices: np.ndarray, losses: list[list[Loss]], grid: Grid, delta: float) -> np.ndarray:
        held.append(len(choices) * (2 * grid.reach + 1))
        return _block(choices, losses, grid, delta)

    monkeypatch.setattr(voters, "_block", block)
    assert torch.equal(whole, voter_epsilons(rf.StochasticSign(9.0), ballots, delta=1e-4))
    assert len(held) > 2
    assert max(held) <= 1 << 12
    assert len(list(itertools.chain(whole))) == 40


def test_every_point_of_the_grid_by_hand_with_losses_beyond_it() -> None:
    """On a grid from -1 to 1 a loss of 1.5, and nothing but the margin is added to the exact delta."""
    grid, voters = Grid(0.1, 10), np.array([[1], [0], [2]])
    losses = [[Loss(np.array([place]), np.array([0.25]), 1e-3) for place in (0, 15, 8)]]
    for k in range(10):
        delta = 1e-3 + 0.25 * -math.expm1(k / 10 - 1.5)
        below, above = (_block(voters, losses, grid, delta * (1 + margin)) for margin in (1.9e-11, 2.1e-11))
        assert below[:2].tolist() == [pytest.approx((k + 1) / 10), 0.0]
        assert above[:2].tolist() == [pytest.approx(k / 10), 0.0]
        assert below[2] == pytest.approx(max(0, k - 6) / 10)  # this loss is 0.7 smaller
    assert math.isinf(_block(voters, losses, grid, 0.25 * -math.expm1(-0.5))[0])  # beyond the grid
    nothing = [[Loss(np.array([0]), np.array([1.0]), 0.0)] * 3]
    assert _block(voters, nothing, grid, 0.9e-290).tolist() == [math.inf] * 3
    assert _block(voters, nothing, grid, 1.1e-290).tolist() == [0.0] * 3


@pytest.mark.parametrize("law", [rf.StochasticSign(4.0), rf.NoisyWinner(6.0)], ids=repr)
def test_where_ballots_are_too_many_to_compose_the_renyi_sums_count(
    law: rf.NoisyWinner | rf.StochasticSign, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By definition, order by order (Canonne, Kamath and Steinke 2020, proposition 12), with its margins."""
    monkeypatch.setattr(voters, "_MOST_COMPOSED", 0)
    signs, delta, orders = isinstance(law, rf.StochasticSign), 1e-3, float64(DEFAULT_ORDERS)
    own = torch.tensor([[1.0, 1.0, 1.0], [-1.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    others = torch.tensor([[1.0, 1.0, -1.0]] * 9)
    if signs:
        epsilons = voter_epsilons(law, torch.cat((own, others)), delta=delta)[:3]
        totals = torch.cat((own, others)).sum(dim=0).double()
    else:  # -1 leaves a query out
        own, others = torch.where(own == 0, -1.0, (own + 1) / 2), (others + 1) / 2
        epsilons = voter_epsilons(law, torch.cat((own, others)), delta=delta, candidates=2)[:3]
        every = torch.cat((own, others))
        totals = torch.stack([(every == k).sum(dim=0) for k in range(2)], dim=1).double()
    for ballot, epsilon in zip(own, epsilons.tolist(), strict=True):
        cast = [j for j in range(3) if float(ballot[j]) != (0 if signs else -1)]
        if not cast:
            assert epsilon == 0.0
            continue
        sums = torch.zeros(2, len(orders)).double()
        for j in cast:
            move = -ballot[j].double() if signs else -torch.eye(2).double()[int(ballot[j])]
            sums[0] += law.renyi_divergence(totals[j], move, orders)
            sums[1] += law.renyi_divergence(totals[j] + move, -move, orders)
        slack = torch.log1p(-1 / orders) - (math.log(delta) + orders.log()) / (orders - 1)
        # of ratios and of sums, which are most of it, and of the epsilon itself
        assert 2.5e-11 < epsilon / float((sums.amax(dim=0) + slack).min()) - 1 < 3e-11


def test_nobody_who_votes_costs_nothing() -> None:
    assert voter_epsilons(rf.StochasticSign(5.0), torch.zeros(2, 3), delta=1e-5).tolist() == [0.0, 0.0]
    sure = voter_epsilons(rf.StochasticSign(1.0), torch.ones(300, 1), delta=1e-5)
    assert sure.tolist() == [0.0] * 300  # the other answer has a chance that floats do not hold


def test_losses_whose_squares_floats_do_not_hold() -> None:
    """Was NaN, or an error about integers. A ballot that decides costs 1 / (2 sigma^2), the others little."""
    ballots = torch.tensor([[1.0, 1.0], [1.0, 0.0], [-1.0, 0.0], [1.0, 0.0]])
    for sigma in (1e-60, 1e-77, 1e-100):
        first, *others = voter_epsilons(rf.StochasticSign(sigma), ballots, delta=1e-5).tolist()
        assert first == pytest.approx(0.5 / sigma**2, rel=1e-3)
        assert max(others) < 50
    with pytest.raises(FloatingPointError, match="cannot be represented"):
        voter_epsilons(rf.StochasticSign(1e-155), ballots, delta=1e-5)


def test_the_grid_is_fitted_to_the_costliest_voter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its variance, twice the largest loss of a likely outcome, and step^2 / 16 a query for rounding."""
    seen = []

    def fitted(variance: float, farthest: float, releases: float, added: Callable[[float], float]) -> Grid:
        seen.extend((variance, farthest, releases, added(0.5)))
        return Grid(0.1, 20)

    monkeypatch.setattr(voters.Grid, "fitted", fitted)
    mass = float64([[0.5, 0.6, 0.7], [0.5, 0.4, 0.3], [1e-17, 1e-17, 1e-17]]).unsqueeze(2).expand(-1, -1, 2)
    rho = float64([[0.0, 0.1, 0.2], [0.0, -0.3, -0.4], [0.0, 5.0, 6.0]]).unsqueeze(2).expand(-1, -1, 2)
    voters._composed(np.array([[0, 1], [2, 1]]), mass.log(), rho, 1e-3)
    of_one, of_other = (float((mass * rho.square())[:, choice, 0].sum()) for choice in (1, 2))
    assert seen == pytest.approx([of_one + of_other, 0.4, 2, 2 * 0.25 / 16], rel=1e-12)
