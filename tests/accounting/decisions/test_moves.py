"""The moves of a voter: none is missing, and none is there that no voter can make."""

import itertools

import pytest
import torch

import ringfence as rf
from ringfence.accounting.decisions import moves
from ringfence.accounting.decisions.moves import checked_at_most, moves_of, number_of_queries, pairs
from ringfence.accounting.decisions.rdp import decision_rdp
from tests.tensors import float64


def every_neighbour(row: list[int], neighbours: str) -> set[tuple[int, ...]]:
    """Sorted counts of all neighbours, by taking voters one by one."""
    found = set()
    for taken, given in itertools.product([None, *range(len(row))], repeat=2):
        if neighbours == "added" and taken is not None and given is not None:
            continue
        moved = list(row)
        if taken is not None:
            moved[taken] -= 1
        if given is not None:
            moved[given] += 1
        if min(moved) >= 0:
            found.add(tuple(moved))
    return found - {tuple(row)}


@pytest.mark.parametrize("neighbours", ["replaced", "added"])
@pytest.mark.parametrize("row", [[5, 3, 0], [4, 4, 4], [7, 7, 0, 0], [1, 0], [0, 0, 0], [9, 2, 2, 1]])
def test_up_to_the_names_of_candidates_all_neighbours_are_there(row: list[int], neighbours: str) -> None:
    moves = moves_of(float64([row]), neighbours)[0]  # type: ignore[arg-type]
    by_value = {tuple(sorted(zip(row, moved, strict=True))) for moved in every_neighbour(row, neighbours)}
    found = {tuple(sorted(zip(row, (float64(row) + move).long().tolist(), strict=True))) for move in moves}
    assert found - {tuple(sorted(zip(row, row, strict=True)))} == by_value
    assert len(moves) == len(by_value)


def test_the_order_of_candidates_and_queries_does_not_matter() -> None:
    law = rf.NoisyWinner(3.0)
    (one,) = pairs(law, [[5, 3, 1], [1, 5, 3], [4, 4, 0]], "replaced")
    assert sorted(one.repeats.tolist()) == [1, 2]


def test_every_row_of_counts_is_a_query() -> None:
    law, votes = (
        rf.NoisyWinner(3.0),
        float64([[[5, 3, 1], [4, 4, 0]], [[1, 5, 3], [9, 0, 0]], [[7, 1, 1]] * 2]),
    )
    assert (
        number_of_queries(law, votes)
        == sum(int(part.repeats.sum()) for part in pairs(law, votes, "added"))
        == 6
    )
    assert number_of_queries(law, [5, 3, 1]) == 1
    with pytest.raises(ValueError, match="votes must hold at least one query, got none"):
        number_of_queries(law, torch.zeros(3, 0))
    assert number_of_queries(rf.StochasticSign(1.0), [[5, 3, 1], [4, 4, 0]]) == 6


def test_a_surplus_moves_by_one_or_two() -> None:
    law = rf.StochasticSign(5.0)
    for neighbours, size in (("added", 1.0), ("replaced", 2.0)):
        (part,) = pairs(law, [3.0], neighbours)  # type: ignore[arg-type]
        log_p, rho = law.pair(float64([3.0]), float64([[size], [-size]]))
        assert torch.equal(part.rho, rho)
        assert torch.equal(part.log_p, log_p)


@pytest.mark.parametrize(
    ("votes", "message"),
    [
        ([[3, -1]], "counts must be whole numbers from 0 on, got -1"),
        ([[3.5, 1.0]], "counts must be whole numbers from 0 on, got 3.5"),
        ([[3.0, float("nan")]], "counts must not be NaN"),
        ([[3.0]], "counts must have at least 2 candidates, got 1"),
    ],
)
def test_votes_that_are_none(votes: list[list[float]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        list(pairs(rf.NoisyWinner(1.0), votes, "added"))


def test_neighbours_are_named() -> None:
    with pytest.raises(ValueError, match=r"neighbours must be one of \['added', 'replaced'\], got 'removed'"):
        list(pairs(rf.NoisyWinner(1.0), [[1, 2]], "removed"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="law must have single numbers"):
        list(pairs(rf.StochasticSign(float64([1.0, 2.0])), [1.0, 2.0], "added"))


def test_a_replaced_ballot_may_leave_queries_and_join_others() -> None:
    """With 100 candidates and a lead of 12 that costs 0.0617, and the dearest single query 0.0383."""
    refused = "at_most must be left out where neighbours is 'replaced', got 2"
    for asked in (rf.decision_profile, rf.publishable_decision_epsilon, decision_rdp):
        more = {"delta": 1e-5} if asked is rf.publishable_decision_epsilon else {}
        with pytest.raises(
            ValueError, match="at_most must be left out where neighbours is 'replaced', got 2"
        ):
            asked(rf.NoisyWinner(4.0), [[20, 8, 8]] * 3, neighbours="replaced", at_most=2, **more)
    with pytest.raises(ValueError, match=refused):
        rf.DecisionAccountant(rf.NoisyWinner(4.0), neighbours="replaced", at_most=2)


def test_a_voter_who_counts_in_every_query_has_no_limit() -> None:
    assert [checked_at_most(2, "added", queries) for queries in (1, 2, 3)] == [None, None, 2]
    assert checked_at_most(2, "added") == 2


@pytest.mark.parametrize(
    ("law", "votes"),
    [
        (rf.NoisyWinner(3.0), [[5, 3, 1], [1, 5, 3], [4, 4, 0], [9, 0, 0]]),
        (rf.StochasticSign(3.0), [3.0, 5.0, -4.0]),
    ],
)
def test_as_many_queries_together_as_can_be_held(
    law: rf.NoisyWinner, votes: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    (whole,) = pairs(law, votes, "added")
    monkeypatch.setattr(moves, "_NUMBERS", 1)
    parts = list(pairs(law, votes, "added"))
    assert [part.rho.shape[-1] for part in parts] == [1, 1, 1]
    assert torch.equal(torch.cat([part.repeats for part in parts]), whole.repeats)
    for j, part in enumerate(parts):
        known = part.rho.shape[1]  # a query alone has no moves that change nothing
        torch.testing.assert_close(part.rho, whole.rho[:, :known, j : j + 1], rtol=1e-12, atol=1e-15)
    # 64 numbers for each pair of candidates, or two moves of every value
    monkeypatch.setattr(moves, "_NUMBERS", 2 * 9 * 64 if isinstance(law, rf.NoisyWinner) else 2 * 2)
    assert [part.rho.shape[-1] for part in pairs(law, votes, "added")] == [2, 1]
