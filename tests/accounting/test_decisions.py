"""Decisions: the moves of a voter, Rényi sums by definition, tight profiles, and the account of steps."""

import itertools
import json
import math
from functools import cache
from statistics import NormalDist

import pytest
import torch

import ringfence as rf
from ringfence.accounting import decisions
from ringfence.accounting.conversion import gaussian_delta, zcdp_epsilon
from ringfence.accounting.decision_publication import publishable_decision_epsilon
from ringfence.accounting.decisions import (
    bounded_zcdp,
    checked_at_most,
    decision_profile,
    decision_rdp,
    loss_of_any,
    moves_of,
    number_of_queries,
    pairs,
    rdp_of_pairs,
    zcdp,
)
from ringfence.accounting.induction import Pairs
from ringfence.accounting.privacy_loss import PrivacyLoss
from ringfence.accounting.profile import PrivacyProfile
from ringfence.mechanisms.decision import Decision
from tests.accounting.exact_profile import product_delta
from tests.tensors import float64

VOTES = [[230, 12, 8], [140, 90, 20], [90, 80, 80]]
ROWS = [[30, 12, 8], [20, 18, 12], [25, 25, 0], [12, 30, 8]]
LAWS = [
    rf.NoisyWinner(5.0),
    rf.ConfidentWinner(5.0, threshold=22.0, threshold_sigma=4.0),
    rf.GumbelWinner(5.0),
]
LAW, GUMBEL = rf.NoisyWinner(4.0), rf.GumbelWinner(4.0)
TWO = [[12, 9, 3], [20, 4, 0]]


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


@pytest.mark.parametrize("at_most", [1, 2])
@pytest.mark.parametrize(
    "law", [rf.NoisyWinner(4.0), rf.GumbelWinner(3.0), rf.ConfidentWinner(4.0, 9.0, 8.0)]
)
def test_a_replaced_ballot_may_leave_queries_and_join_others(law: Decision, at_most: int) -> None:
    """Every way out of ``at_most`` queries and into as many, by enumeration of all outcomes."""
    votes = float64([[9, 8], [9, 9], [2, 7]])
    seats = list(itertools.product(range(3), range(2)))
    ballots = [
        own for own in itertools.combinations(seats, at_most) if len({query for query, _ in own}) == at_most
    ]
    here = law.pair(votes, torch.zeros_like(votes))[0]
    rdp = decision_rdp(law, votes, neighbours="replaced", at_most=at_most, orders=[2, 16])
    profile = decision_profile(law, votes, neighbours="replaced", at_most=at_most)
    epsilon = profile.epsilon(1e-3)
    worst, dearest = 0.0, torch.zeros(2, dtype=torch.float64)
    for left, entered in itertools.product(ballots, repeat=2):
        move = torch.zeros_like(votes)
        for sign, ballot in ((-1, left), (1, entered)):
            for seat in ballot:
                move[seat] += sign
        rho = law.pair(votes, move)[1]
        p = torch.cartesian_prod(*here.T).sum(dim=1).exp()
        q = torch.cartesian_prod(*(here - rho).T).sum(dim=1).exp()
        for one, other in ((p, q), (q, p)):
            worst = max(worst, float((one - math.exp(epsilon) * other).clamp(min=0).sum()))
            sums = [float((one**order * other ** (1 - order)).sum().log()) / (order - 1) for order in (2, 16)]
            dearest = torch.maximum(dearest, float64(sums))
    assert worst <= 1e-3
    assert bool((dearest <= rdp.worst * (1 + 1e-9)).all())
    assert bool((rdp.worst <= 1.6 * dearest).all())
    many = float64(
        [[20, *[8] * 99]] * 3
    )  # where leaving one query and joining another is dearer than a change
    for_all = {"orders": [2, 16], "at_most": at_most}
    twice = decision_rdp(law, many, neighbours="added", **{**for_all, "at_most": 2 * at_most}).worst
    assert bool((decision_rdp(law, many, neighbours="replaced", **for_all).worst >= twice).all())
    account = rf.DecisionAccountant(law, neighbours="replaced", at_most=at_most)
    account.step(votes)
    assert epsilon <= account.guarantee(1e-3).epsilon
    with pytest.raises(ValueError, match="at_most must be left out where a replaced voter's epsilon is publ"):
        publishable_decision_epsilon(law, votes, neighbours="replaced", at_most=at_most, delta=1e-5)
    assert [checked_at_most(2, "added", queries) for queries in (1, 2, 3, math.inf)] == [None, None, 2, 2]


def test_as_many_queries_together_as_can_be_held(monkeypatch: pytest.MonkeyPatch) -> None:
    law, votes = rf.NoisyWinner(3.0), [[5, 3, 1], [1, 5, 3], [4, 4, 0], [2, 0, 0]]
    (whole,) = pairs(law, votes, "added")
    monkeypatch.setattr(decisions, "_NUMBERS", 1)
    parts = list(pairs(law, votes, "added"))
    assert [part.rho.shape[-1] for part in parts] == [1, 1, 1]
    assert torch.equal(torch.cat([part.repeats for part in parts]), whole.repeats)
    for j, part in enumerate(parts):
        known = part.rho.shape[1]  # a query alone has no moves that change nothing
        torch.testing.assert_close(part.rho, whole.rho[:, :known, j : j + 1], rtol=1e-12, atol=1e-15)
    monkeypatch.setattr(decisions, "_NUMBERS", 2 * 9 * 64)  # 64 numbers for each pair of candidates
    assert [part.rho.shape[-1] for part in pairs(law, votes, "added")] == [2, 1]


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_the_worst_of_all_moves_in_both_directions(law: rf.NoisyWinner) -> None:
    orders = [1.5, 4.0, 32.0]
    rdp = decision_rdp(law, ROWS, neighbours="replaced", orders=orders)
    sums = torch.zeros(2, 3, dtype=torch.float64)
    for row in ROWS:
        here, there = float64(row), float64(sorted(every_neighbour(row, "replaced")))
        for own, pair in zip(sums, ((here, there - here), (there, here - there)), strict=True):
            own += torch.stack([law.renyi_divergence(*pair, alpha).max() for alpha in orders])
    found = torch.stack((rdp.forward, rdp.backward))
    torch.testing.assert_close(found, sums, rtol=1e-9, atol=0)
    assert bool((found >= sums * (1 - 1e-13)).all())
    tie = decision_rdp(law, [[20, 20, 20]], neighbours="replaced", orders=orders)
    assert bool((tie.worst <= bounded_zcdp(law, "replaced") * float64(orders)).all())


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_moves_between_candidates_behind_are_bounded_and_cost_no_more_than_the_worst(law: Decision) -> None:
    """With many candidates most moves are left out; here all of them are evaluated, one by one."""
    orders = float64([1.5, 4.0, 32.0])
    row = [40.0, 33.0, 30.0, 25.0, 21.0, 18.0, 15.0, 12.0, 10.0, 8.0, 7.0, 5.0, 5.0, 3.0, 1.0]
    (part,) = pairs(law, [row], "replaced")
    assert part.others is not None
    assert part.rho.shape[1] < 100  # of 210
    few = [next(pairs(law, [range(20, 20 - count, -1)], "replaced")) for count in (12, 13)]
    assert [own.others is None for own in few] == [True, False]
    unit = torch.eye(len(row), dtype=torch.float64)
    behind_the_second = itertools.permutations(range(2, len(row)), 2)
    moves = torch.stack([unit[given] - unit[taken] for taken, given in behind_the_second])
    log_p, rho = law.pair(float64([row]).unsqueeze(1), moves.unsqueeze(0))
    log_q = log_p - rho
    behind = [(log_p, rho), (log_q, -rho)]
    known = [(part.log_p.expand_as(part.rho), part.rho), (part.log_p - part.rho, -part.rho)]
    for (p, ratio), (mass, own) in zip(behind, known, strict=True):
        for order in orders:
            moments = torch.logsumexp(mass + (order - 1) * own, dim=0)
            exact = torch.logsumexp(p + (order - 1) * ratio, dim=0).max()
            best = moments.amax(dim=0)
            bound = decisions._bound(mass, own, part.others, order, moments, best)
            assert float(exact) - 1e-12 <= float(bound) <= float(best) + 1e-12
            # where nothing else is known to be dearer, they count
            assert float(bound) > 0.3 * float(exact)


def test_the_dearest_queries_count_where_a_voter_takes_part_in_few() -> None:
    each = [decision_rdp(LAWS[0], [row], neighbours="added", orders=[4.0]).forward for row in ROWS]
    two = decision_rdp(LAWS[0], ROWS, neighbours="added", at_most=2, orders=[4.0]).forward
    assert float(two) == pytest.approx(float(torch.cat(each).topk(2)[0].sum()), rel=1e-10)
    with pytest.raises(ValueError, match="at_most must be"):
        decision_rdp(LAWS[0], ROWS, neighbours="added", at_most=0)


def test_yes_or_no_is_the_account_of_the_sign() -> None:
    surplus, law = float64([3.0, -17.0, 40.0]), rf.StochasticSign(8.0)
    own = decision_rdp(law, surplus, neighbours="added", orders=[2.0, 64.0])
    known = rf.per_instance_rdp(law, surplus, 1.0, orders=[2.0, 64.0])
    torch.testing.assert_close(own.worst, known.worst, rtol=1e-9, atol=0.0)


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
        (zcdp(LAWS[1], "added"), 0.5 / 25 + 0.5 / 16),
        (bounded_zcdp(rf.GumbelWinner(2.0), "added"), 1 / 32),
        (bounded_zcdp(rf.GumbelWinner(2.0), "replaced"), 1 / 8),
    ):
        assert bound / plain - 1 == pytest.approx(1e-12, rel=0.02)


def test_what_floats_cannot_hold_is_an_error() -> None:
    rho = float64([0.0, torch.nan]).expand(2, 3, 2)  # of one query of two
    broken = Pairs(torch.zeros(2, 1, 2).double(), rho, torch.tensor([1, 1]))
    with pytest.raises(FloatingPointError, match="Rényi divergences of decisions cannot be represented"):
        rdp_of_pairs([broken], float64([2.0]), 1.0, None)


@cache
def chances(law: Decision, row: tuple[float, ...]) -> list[float]:
    return [float(law.log_prob(k, list(row)).exp()) for k in range(3)]


def enumerated(law: Decision, epsilon: float, neighbours: str, rows: list[list[int]] = TWO) -> float:
    """The worst delta over every pair of neighbours and both directions, all nine outcomes summed."""
    return max(
        product_delta(
            [(chances(law, tuple(row)), chances(law, other)) for row, other in zip(rows, moved, strict=True)],
            epsilon,
        )
        for moved in itertools.product(*(every_neighbour(row, neighbours) for row in rows))
    )


@pytest.mark.parametrize("law", [LAW, GUMBEL])
@pytest.mark.parametrize("neighbours", ["replaced", "added"])
def test_every_voter_is_covered(neighbours: str, law: Decision) -> None:
    """These voters by the tight profile, and a tie too, which costs most, by what holds for all votes."""
    profile = decision_profile(law, TWO, neighbours=neighbours)  # type: ignore[arg-type]
    tight = profile.proofs["backward induction"]
    every = loss_of_any(law, 2, neighbours)  # type: ignore[arg-type]
    for epsilon in (0.0, 0.1, 0.3):
        exact = enumerated(law, epsilon, neighbours)
        assert exact <= tight(epsilon) <= 1.05 * exact + 1e-12
        assert tight(epsilon) <= every.delta(epsilon)
        assert enumerated(law, epsilon, neighbours, [[9, 9, 0]] * 2) <= every.delta(epsilon)


def test_the_gaussian_and_the_ceiling_of_a_bounded_range_are_two_numbers() -> None:
    """eta is 2 / 4 replaced, 1 / 4 added; pure differential privacy, zCDP and mu have each their formula."""
    for neighbours, eta in (("replaced", 0.5), ("added", 0.25)):
        account = rf.DecisionAccountant(GUMBEL, neighbours=neighbours)  # type: ignore[arg-type]
        account.step(TWO)
        loss = rf.DecisionAccountant.from_state_dict(account.state_dict()).privacy_loss()
        assert loss.zcdp == pytest.approx(2 * eta**2 / 8, rel=1e-11)
        mu = 2 * NormalDist().inv_cdf(1 / (1 + math.exp(-eta / 2)))
        assert loss.mu == pytest.approx(math.sqrt(2) * mu, rel=1e-9)
        assert loss.dominating == (("range", pytest.approx(eta, rel=1e-11), 2),)
        assert loss.epsilon(0.0) == pytest.approx(2 * eta, rel=1e-10)
        assert loss.epsilon(1e-5) < 2 * eta < zcdp_epsilon(2 * eta**2 / 8, 1e-5)


def test_yes_or_no_costs_less_than_the_gaussian_for_every_dataset() -> None:
    """Where nothing else is released but signs, and each question moves by the same; else as the Gaussian."""
    loss, twice = (loss_of_any(rf.StochasticSign(10.0), 20, who) for who in ("added", "replaced"))
    assert loss.dominating == (("sign", pytest.approx(0.1, rel=1e-11), 20),)
    assert twice.dominating == loss.of_replaced().dominating == (("sign", pytest.approx(0.2, rel=1e-11), 20),)
    gaussian = rf.PrivacyLoss(loss.releases, change=loss.change)
    assert loss.epsilon(1e-6) < 0.84 * gaussian.epsilon(1e-6)
    assert loss.delta(0.5) < gaussian.delta(0.5)
    assert (loss + loss).dominating == (("sign", pytest.approx(0.1, rel=1e-11), 40),)
    assert (loss + gaussian).epsilon(1e-6) == pytest.approx((gaussian + gaussian).epsilon(1e-6), rel=1e-9)
    pure = PrivacyLoss.of_zcdp(0.02, 0.02, dominating=(("pure", 0.2, 1),))
    assert (loss + pure).epsilon(1e-6) == pytest.approx((gaussian + pure).epsilon(1e-6), rel=1e-9)
    few = rf.DecisionAccountant(rf.StochasticSign(10.0), neighbours="added", at_most=2)
    few.step(torch.zeros(20))
    assert few.privacy_loss().dominating == (("sign", pytest.approx(0.1, rel=1e-11), 2),)
    assert loss_of_any(rf.StochasticSign(10.0), 2, "replaced", 2).dominating == ()


def test_sharper_than_renyi_and_the_gaussian() -> None:
    generator = torch.Generator().manual_seed(0)
    shares = torch.rand(24, 10, generator=generator).pow(6)
    counts = torch.stack(
        [torch.multinomial(row, 250, True, generator=generator).bincount(minlength=10) for row in shares]
    )
    for sigma in (20.0, 60.0):
        profile = decision_profile(rf.NoisyWinner(sigma), counts, neighbours="replaced")
        alone = {name: PrivacyProfile({name: proof}).epsilon(1e-5) for name, proof in profile.proofs.items()}
        assert alone["backward induction"] < 0.97 * alone["Rényi"]
        assert alone["backward induction"] < 0.95 * alone["Gaussian"]


def test_a_voter_who_takes_part_in_one_query_costs_the_dearest() -> None:
    each = [decision_profile(LAW, [row], neighbours="added") for row in TWO]
    one = decision_profile(LAW, TWO, neighbours="added", at_most=1)
    for epsilon in (0.0, 0.2):
        assert one.delta(epsilon) == pytest.approx(max(single.delta(epsilon) for single in each), rel=1e-9)
    two = decision_profile(LAW, TWO, neighbours="added", at_most=5)
    assert one.delta(0.1) < two.delta(0.1)


def test_every_outcome_of_every_query_is_charged_what_may_underflow() -> None:
    """A single move has its exact curve, which is 0 at a large epsilon."""
    law = rf.StochasticSign(10.0)
    alone = decision_profile(law, [3.0], neighbours="added").proofs["backward induction"]
    assert alone(50.0) == pytest.approx(2e-290, rel=1e-12, abs=0)
    one = decision_profile(law, [3.0, 5.0, 5.0], neighbours="added", at_most=1)
    assert one.proofs["backward induction"](50.0) == pytest.approx(6e-290, rel=1e-12, abs=0)
    winners = decision_profile(LAW, [[12, 9, 3]], neighbours="added").proofs["backward induction"]
    assert winners(50.0) == pytest.approx(3e-290, rel=1e-12, abs=0)


def test_the_gaussian_curve_is_that_of_the_queries_that_a_voter_takes_part_in() -> None:
    for at_most, queries in ((None, 3), (2, 2), (3, 3), (7, 3)):
        profile = decision_profile(LAW, [*TWO, [9, 9, 9]], neighbours="added", at_most=at_most)
        expected = gaussian_delta(math.sqrt(queries) / 4, 0.2)
        assert profile.proofs["Gaussian"](0.2) == pytest.approx(expected, rel=1e-10)


def test_steps_add_up_and_come_back_from_json() -> None:
    for law, votes in ((rf.NoisyWinner(10.0), VOTES), (rf.StochasticSign(10.0), torch.tensor([4, 70, -30]))):
        account = rf.DecisionAccountant(law, neighbours="added", at_most=2)
        account.step(votes)
        once = account.worst
        assert torch.equal(once, torch.stack((account.forward, account.backward)).amax(dim=0))
        assert bool((account.forward != account.backward).any())
        account.step(votes)
        torch.testing.assert_close(account.worst, 2 * once, rtol=1e-14, atol=0.0)
        again = rf.DecisionAccountant.from_state_dict(json.loads(json.dumps(account.state_dict())))
        assert again.guarantee(1e-5) == account.guarantee(1e-5)
        again.step(votes)
        assert again.steps == 9
        state = account.state_dict()
        with pytest.raises(ValueError, match="version"):
            rf.DecisionAccountant.from_state_dict({**state, "version": 2})


def test_what_holds_for_all_votes() -> None:
    for neighbours, square in (("replaced", 2.0), ("added", 1.0)):
        account = rf.DecisionAccountant(rf.NoisyWinner(10.0), neighbours=neighbours)  # type: ignore[arg-type]
        account.step(VOTES)
        claim = account.guarantee(1e-5)
        assert claim.mu == pytest.approx(math.sqrt(3 * square) / 10, rel=1e-9)
        assert claim.per_instance.epsilon < claim.epsilon
        assert claim.per_instance.ex_post_epsilon > claim.per_instance.epsilon
    few = rf.DecisionAccountant(rf.NoisyWinner(10.0), neighbours="added", at_most=1)
    few.step(VOTES)
    assert few.guarantee(1e-5).mu == pytest.approx(0.1, rel=1e-9)


def test_the_statement_names_the_neighbours() -> None:
    for neighbours, words in (("replaced", "replaced by another one"), ("added", "added or removed")):
        account = rf.DecisionAccountant(rf.NoisyWinner(10.0), neighbours=neighbours)  # type: ignore[arg-type]
        account.step(VOTES)
        claim = account.guarantee(1e-5)
        statement = f"{claim.statement} {claim.per_instance.statement}"
        assert f"every single record {words}" in statement
        assert ("added or removed" in statement) == (neighbours == "added")
        assert ("plus or minus" in statement) == (neighbours == "added")


def test_bad_votes_are_named_and_nothing_is_added() -> None:
    account = rf.DecisionAccountant(rf.NoisyWinner(10.0), neighbours="added")
    for bad in ([[1, -1]], [], [[0.5, 1]]):
        with pytest.raises(ValueError, match=r"counts|votes"):
            account.step(bad)
    assert account.steps == 0
    with pytest.raises(TypeError, match="law must be a law of decisions"):
        rf.DecisionAccountant(rf.Gaussian(1.0), neighbours="added")
    with pytest.raises(ValueError, match="neighbours must be one of"):
        rf.DecisionAccountant(rf.NoisyWinner(1.0), neighbours="other")  # type: ignore[arg-type]
