"""Rényi divergences of decisions: the definition, move by move and query by query."""

import itertools

import pytest
import torch

import ringfence as rf
from ringfence.accounting.decisions.moves import Pairs, pairs
from ringfence.accounting.decisions.rdp import decision_rdp, rdp_of_pairs, zcdp
from tests.tensors import float64

COUNTS = [[30, 12, 8], [20, 18, 12], [25, 25, 0], [12, 30, 8]]
LAWS = [rf.NoisyWinner(5.0), rf.ConfidentWinner(5.0, threshold=22.0, threshold_sigma=4.0)]


def worst_by_definition(law: rf.NoisyWinner, row: list[int], alpha: float) -> tuple[float, float]:
    moves = []
    for taken, given in itertools.product([None, 0, 1, 2], repeat=2):
        move = [0.0, 0.0, 0.0]
        if taken is not None:
            move[taken] -= 1
        if given is not None:
            move[given] += 1
        if min(count + step for count, step in zip(row, move, strict=True)) >= 0:
            moves.append(move)
    here, move = float64(row), float64(moves)
    both = law.renyi_divergence(here, move, alpha), law.renyi_divergence(here + move, -move, alpha)
    return float(both[0].max()), float(both[1].max())


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_the_worst_of_all_moves_in_both_directions(law: rf.NoisyWinner) -> None:
    orders = [1.5, 4.0, 32.0]
    rdp = decision_rdp(law, COUNTS, neighbours="replaced", orders=orders)
    for at, alpha in enumerate(orders):
        forward, backward = zip(*(worst_by_definition(law, row, alpha) for row in COUNTS), strict=True)
        assert float(rdp.forward[at]) == pytest.approx(sum(forward), rel=1e-9)
        assert float(rdp.backward[at]) == pytest.approx(sum(backward), rel=1e-9)
        assert float(rdp.forward[at]) >= sum(forward) * (1 - 1e-13)


def test_the_dearest_queries_count_where_a_voter_takes_part_in_few() -> None:
    each = [decision_rdp(LAWS[0], [row], neighbours="added", orders=[4.0]).forward for row in COUNTS]
    two = decision_rdp(LAWS[0], COUNTS, neighbours="added", at_most=2, orders=[4.0]).forward
    assert float(two) == pytest.approx(float(torch.cat(each).topk(2)[0].sum()), rel=1e-10)
    with pytest.raises(ValueError, match="at_most must be"):
        decision_rdp(LAWS[0], COUNTS, neighbours="added", at_most=0)


def test_yes_or_no_is_the_account_of_the_sign() -> None:
    surplus, law = float64([3.0, -17.0, 40.0]), rf.StochasticSign(8.0)
    own = decision_rdp(law, surplus, neighbours="added", orders=[2.0, 64.0])
    known = rf.per_instance_rdp(law, surplus, 1.0, orders=[2.0, 64.0], exact=True)
    torch.testing.assert_close(own.worst, known.worst, rtol=1e-9, atol=0.0)


def test_two_candidates_are_a_sign() -> None:
    """The difference of two counts has noise of deviation sigma sqrt 2; one ballot moves it by two."""
    winner = decision_rdp(rf.NoisyWinner(4.0), [[20, 13]], neighbours="replaced", orders=[2.0, 16.0])
    sign = decision_rdp(rf.StochasticSign(4.0 * 2**0.5), [7.0], neighbours="replaced", orders=[2.0, 16.0])
    torch.testing.assert_close(winner.worst, sign.worst, rtol=1e-9, atol=2e-12)


def test_never_above_what_holds_for_all_votes() -> None:
    orders = float64([2.0, 300.0])
    for law in LAWS:
        tie = decision_rdp(law, [[20, 20, 20]], neighbours="replaced", orders=orders)
        assert bool((tie.worst <= zcdp(law, "replaced") * orders).all())
    assert zcdp(LAWS[1], "added") == pytest.approx(0.5 / 25 + 0.5 / 16)


@pytest.mark.parametrize(("moves", "lost"), [(2, 0.0), (3, 1e-12 / 2)])
def test_where_nothing_moves_only_the_margins_are_left(moves: int, lost: float) -> None:
    """More than two moves are evaluated with cancellation, for which (alpha - 1) D is charged 1e-12 each."""
    still = Pairs(
        float64([0.5, 0.5]).log().view(2, 1, 1), torch.zeros(2, moves, 1).double(), torch.tensor([4])
    )
    for at_most, queries in ((None, 4), (3, 3), (9, 4)):
        rdp = rdp_of_pairs([still], float64([3.0]), 1.0, at_most)
        expected = float64([queries * (lost * (1 + 1e-11) + 1e-290)])
        torch.testing.assert_close(
            torch.cat((rdp.forward, rdp.backward)), expected.expand(2), rtol=1e-13, atol=0
        )
    least = rdp_of_pairs([still], float64([3.0]), 1e-300, None)
    assert least.worst.tolist() == pytest.approx([4 * 3e-300], rel=1e-13, abs=0)


def test_sums_of_few_moves_and_the_bound_for_all_votes_are_raised_by_their_rounding() -> None:
    law = rf.StochasticSign(2.0)
    (part,) = pairs(law, [3.0, 3.0], "added")
    exact = max(float(law.renyi_divergence(float64(3.0), float64(move), 4.0)) for move in (1.0, -1.0))
    found = float(rdp_of_pairs([part], float64([4.0]), 1.0, None).forward)
    assert found / (2 * exact) - 1 == pytest.approx(1e-11, rel=0.02)
    for bound, plain in (
        (zcdp(law, "added"), 0.125),
        (zcdp(law, "replaced"), 0.5),
        (zcdp(rf.NoisyWinner(2.0), "added"), 0.125),
        (zcdp(rf.NoisyWinner(2.0), "replaced"), 0.25),
    ):
        assert bound / plain - 1 == pytest.approx(1e-12, rel=0.02)


def test_what_floats_cannot_hold_is_an_error() -> None:
    rho = float64([0.0, torch.nan]).expand(2, 3, 2)  # of one query of two
    broken = Pairs(torch.zeros(2, 1, 2).double(), rho, torch.tensor([1, 1]))
    with pytest.raises(FloatingPointError, match="Rényi divergences of decisions cannot be represented"):
        rdp_of_pairs([broken], float64([2.0]), 1.0, None)
