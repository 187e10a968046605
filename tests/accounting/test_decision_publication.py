"""Publishing what decisions cost: a voter changes it by e^beta at most, and it bounds what it says."""

import itertools
import math

import pytest
import torch
from torch import Tensor

import ringfence as rf
from ringfence.accounting import decision_publication
from ringfence.accounting.conversion import best_zcdp_order, epsilon_from_rdp, ex_post_epsilon
from ringfence.accounting.decision_publication import (
    _SHIFTS,
    Costs,
    Plan,
    _cell,
    _chance_of_answer,
    _costs,
    _question_cost,
    _scores_of,
    _sign_table,
    _tables,
    publishable_decision_epsilon,
    publishing_cost,
    scores,
    smooth_cost,
)
from ringfence.accounting.decisions import DecisionLaw, Neighbours, decision_rdp, loss_of_any, moves_of, zcdp
from ringfence.accounting.publication import noise_for
from tests.tensors import float64

BETA, ALPHA = 0.05, 6.0
WINNERS = [rf.NoisyWinner(6.0), rf.ConfidentWinner(6.0, threshold=25.0, threshold_sigma=8.0)]
SIGN = rf.StochasticSign(6.0)
COUNTS = [[40, 9, 2], [42, 12, 6], [60, 1, 0]]  # sure enough that a voter matters


def votes_of(law: DecisionLaw, generator: torch.Generator, queries: int = 3) -> Tensor:
    """Random votes of which some are sure and some are near a tie."""
    if isinstance(law, rf.Mechanism):
        return (40 * torch.randn(queries, generator=generator, dtype=torch.float64)).round()
    return (60 * torch.rand(queries, 4, generator=generator, dtype=torch.float64).pow(3)).round()


def costs_of(law: DecisionLaw, votes: object, neighbours: Neighbours, order: float) -> Costs:
    return _costs(law, _scores_of(law, votes), neighbours, order)  # type: ignore[arg-type]


def published_sum(law: DecisionLaw, votes: object, neighbours: Neighbours, moved: int = 10**6) -> float:
    return smooth_cost(costs_of(law, votes, neighbours, ALPHA), moved, BETA, math.inf)


def moved_by_one(
    law: DecisionLaw, votes: Tensor, neighbours: Neighbours, generator: torch.Generator
) -> Tensor:
    """Votes in which one voter is another one at every query, at random."""
    if isinstance(law, rf.Mechanism):
        far = 2 if neighbours == "replaced" else 1
        return votes + torch.randint(-far, far + 1, votes.shape, generator=generator)
    moves = moves_of(votes, neighbours)
    chosen = torch.randint(moves.shape[1], (len(votes),), generator=generator)
    return votes + moves[torch.arange(len(votes)), chosen]


@pytest.mark.parametrize(
    ("law", "every"), [(WINNERS[0], 97), (WINNERS[1], 197), (rf.ConfidentWinner(6.0, 120.0, 12.0), 397)]
)
def test_no_voter_changes_a_sum_of_winners_by_more_than_beta(law: rf.NoisyWinner, every: int) -> None:
    counts = float64(COUNTS)
    here = published_sum(law, counts, "replaced")
    for pattern in itertools.islice(itertools.product(*moves_of(counts, "replaced")), 0, None, every):
        there = published_sum(law, counts + torch.stack(pattern), "replaced")
        assert abs(math.log(there / here)) <= BETA * (1 + 1e-9)


def test_no_voter_changes_a_sum_of_yes_and_no_by_more_than_beta() -> None:
    surplus, law = float64([28.0, -35.0, 50.0, 80.0]), rf.StochasticSign(10.0)
    largest, here = 0.0, published_sum(law, surplus, "added")
    for ballot in itertools.product((-1.0, 0.0, 1.0), repeat=4):
        change = math.log(published_sum(law, surplus + float64(ballot), "added") / here)
        assert abs(change) <= BETA * (1 + 1e-9)
        largest = max(largest, abs(change))
    assert largest > 0.5 * BETA  # less would be noise for nothing


@pytest.mark.parametrize("law", [*WINNERS, SIGN], ids=repr)
@pytest.mark.parametrize("neighbours", ["replaced", "added"])
def test_costs_bound_all_votes_that_differ_in_few_voters(law: DecisionLaw, neighbours: Neighbours) -> None:
    """100 votes up to four voters away for each law, by brute force, in both directions."""
    generator = torch.Generator().manual_seed(0)
    tightest = math.inf
    for order in (2.0, 12.0):
        question = _question_cost(law, order)
        for _ in range(5):
            votes = there = votes_of(law, generator)
            costs = costs_of(law, votes, neighbours, order)
            for voters in range(5):
                most = float(costs.at(voters) @ costs.repeats.double()) + 3 * question
                for _ in range(2):
                    exact = float(decision_rdp(law, there, neighbours=neighbours, orders=[order]).worst)
                    assert exact <= most
                    if voters == 0:
                        tightest = min(tightest, most / exact)
                    there = votes
                    for _ in range(voters):
                        there = moved_by_one(law, there, neighbours, generator)
    assert tightest < 2


def test_costs_bound_votes_of_which_two_left_a_leader_near_the_threshold() -> None:
    """Each of them lowers the largest count by one, which makes an answer rarer and each answer dearer."""
    law, votes = rf.ConfidentWinner(1.0, threshold=10.0, threshold_sigma=8.0), float64([14, 3, 1])
    moves = {(0, 0, 0), *itertools.permutations((1, -1, 0))}
    near = {tuple(a + b for a, b in zip(*pair, strict=True)) for pair in itertools.product(moves, repeat=2)}
    others = torch.stack([votes + float64(move) for move in near])
    costs = decision_rdp(
        law, others[(others >= 0).all(dim=1)], neighbours="replaced", at_most=1, orders=[2.0]
    )
    bound = _question_cost(law, 2.0) + float(costs_of(law, votes.unsqueeze(0), "replaced", 2.0).at(2).sum())
    assert 0.05 < float(costs.worst) <= bound


def test_where_another_may_lead_a_winner_counts_as_what_it_costs_any_votes() -> None:
    for law, order in ((rf.NoisyWinner(6.0), ALPHA), (rf.NoisyWinner(2.0), 12.0)):
        found = float(costs_of(law, [[12] + [11] * 9], "replaced", order).at(0))
        assert found == pytest.approx(order * zcdp(law, "replaced"), rel=1e-9)


@pytest.mark.parametrize("threshold", [1499.0, 9e3])
def test_no_bound_grows_with_more_voters_than_a_sum_looks_at(threshold: float) -> None:
    """Little noise on the threshold: voters who leave the leader make answers rare, and others bring them."""
    law = rf.ConfidentWinner(40.0, threshold, threshold_sigma=1.0)
    costs = costs_of(law, [[1500, 10, 0]], "replaced", 1.5)
    assert float(costs.at(costs.voters)) == float(costs.at(costs.voters + 9999))


def test_only_so_many_queries_count_as_a_person_takes_part_in() -> None:
    for law in (SIGN, WINNERS[0]):
        votes = float64([15.0, -3.0, 40.0]) if law is SIGN else float64(COUNTS)
        one = decision_rdp(law, votes, neighbours="added", at_most=1, orders=[ALPHA])
        alone = published_sum(law, votes, "added", moved=1)
        assert float(one.worst) <= alone < published_sum(law, votes, "added")


@pytest.mark.parametrize("neighbours", ["replaced", "added"])
def test_a_voter_moves_scores_no_farther_than_it_is_charged(neighbours: Neighbours) -> None:
    generator, law = torch.Generator().manual_seed(1), rf.NoisyWinner(6.0)
    mu = {"replaced": math.sqrt(2), "added": 1.0}[neighbours] / 6
    own, other, own_behind, other_behind = (mu * share for share in _SHIFTS[neighbours])
    counts = votes_of(law, generator, queries=200).clamp(min=1)
    counts[:100, 0] = counts[:100, 1] + 2  # two that lead
    moves = moves_of(counts, neighbours)
    log_p, rho = law.pair(counts.unsqueeze(1), moves)
    masses = torch.stack((log_p.expand_as(rho), log_p - rho)).exp().clamp(1e-15, 1 - 1e-15)
    before, after = torch.special.ndtri(masses)
    change = (after - before).abs().where((masses > 1e-12).all(dim=0), 0.0)
    untouched = moves.movedim(-1, 0) == 0
    assert 0.7 * own < float(change.max()) <= own * (1 + 1e-6)
    assert 0.8 * other < float(change[untouched].max()) <= other * (1 + 1e-6)
    # behind a leader who stays the same and whose count does not move; outcomes are (candidate, query, move)
    leader = counts.argmax(dim=1)
    clear = counts.topk(2, dim=1).values.diff(dim=1)[:, 0] <= -2
    aside = clear.unsqueeze(1) & (moves[torch.arange(200), :, leader] == 0)
    behind = aside & (torch.arange(4).view(4, 1, 1) != leader.view(1, -1, 1))
    assert 0.6 * own_behind < float(change[behind].max()) <= own_behind * (1 + 1e-6)
    assert 0.8 * other_behind < float(change[behind & untouched].max()) <= other_behind * (1 + 1e-6)


@pytest.mark.parametrize("alpha", [1.5, 8.0])
def test_an_outcome_adds_no_more_than_its_table_says(alpha: float) -> None:
    own, spacing = 0.3, 0.3 / 32
    (likeliest, untouched, more), behind = _tables((own, 0.1, own, 0.1), alpha, spacing)
    assert torch.equal(behind[1], untouched)
    assert torch.equal(behind[2], more)
    others = untouched + more
    t = torch.linspace(0.0, 6.0, 997, dtype=torch.float64)

    def excess(p: Tensor, q: Tensor) -> Tensor:
        return q * ((p / q) ** alpha - 1 - alpha * (p / q - 1))

    for table, sign, sharp in ((others, 1.0, 3.0), (likeliest, -1.0, spacing)):
        p, bound = torch.special.ndtr(-sign * t), table[(t / spacing).long()]
        exact = torch.zeros_like(t)
        for move in torch.linspace(-own, own, 21).tolist():
            q = torch.special.ndtr(-sign * t - move)
            exact = torch.maximum(exact, torch.maximum(excess(p, q), excess(q, p)))
        assert bool((exact <= bound * (1 + 1e-9) + 1e-14).all())  # differences of numbers near 1
        falling = exact.flip(0).cummax(0).values.flip(0)
        assert float((bound / falling)[(t >= sharp) & (exact > 1e-9)].max()) < 1.1
    # with a score of 0 the likeliest of many outcomes may have a small chance
    assert float(others[0]) >= float(likeliest[0]) > 1.01 * float(likeliest[1])
    for convex in (untouched, more):
        assert bool((convex.diff().diff() >= -1e-12 * convex[0]).all() and (convex.diff() <= 0).all())
    assert bool(_cell(t, t, 20.0, 8.0).isinf().all())


def test_the_chance_of_an_answer_bounds_the_tilted_one_and_grows() -> None:
    law, alpha = rf.ConfidentWinner(6.0, threshold=25.0, threshold_sigma=8.0), 9.0
    top = torch.arange(0.0, 80.0).double()
    bound = _chance_of_answer(law, top, alpha)
    assert bool((bound.diff() >= 0).all())
    for here, there in ((top, top + 1), (top, top - 1), (top + 1, top), (top - 1, top)):
        a, b = (torch.special.ndtr((count - 25.0) / 8.0) for count in (here, there))
        yes, no = a**alpha * b ** (1 - alpha), (1 - a) ** alpha * (1 - b) ** (1 - alpha)
        assert bool((yes / (yes + no) <= bound * (1 + 1e-12)).all())
    assert bool((_chance_of_answer(law, top, 1 + 1.6 * 8.0) == 1).all())
    steep = rf.ConfidentWinner(1.0, 25.0, 0.5)  # (alpha - 1) / threshold_sigma decides, not alpha - 1
    assert bool((_chance_of_answer(steep, top, 1 + 1.6 * 0.5) == 1).all())
    assert float(_chance_of_answer(steep, top, 1 + 1.58 * 0.5)[0]) < 1


def test_a_sign_costs_what_its_table_says() -> None:
    table = _sign_table(0.4, 9.0, 1 / 40)
    finer = torch.linspace(0, 30, 5000, dtype=torch.float64)
    law = rf.StochasticSign(1.0)
    exact = torch.maximum(law.renyi_divergence(finer, 0.4, 9.0), law.renyi_divergence(finer, -0.4, 9.0))
    below = table[(finer * 40 + 1e-9).long()]
    assert bool((exact <= below).all())
    beyond = exact.flip(0).cummax(0).values.flip(0)  # it does not fall from t = 0 on
    assert float((below / beyond)[finer < 5].max()) < 1.03


@pytest.mark.parametrize("alpha", [1.5, 6.0])
def test_the_table_of_the_sign_is_what_its_docstring_says(alpha: float) -> None:
    """Coarse nodes: 1 - K h^2 / 6 with h = 1/4 is far from 1."""
    mu, law = 0.8, rf.StochasticSign(1.0)
    table = _sign_table(mu, alpha, 0.25)
    at = torch.arange(121, dtype=torch.float64) / 4
    values = torch.maximum(*(law.renyi_divergence(at, float64(move), alpha) for move in (mu, -mu)))
    curved = 1 - (4 + max(0.0, 2 - alpha) * mu**2 / 4) / 16 / 6
    expected = values.flip(0).cummax(0).values.flip(0) / curved * (1 + 1e-11)
    torch.testing.assert_close(table[:100], expected[:100], rtol=1e-13, atol=1e-280)


def test_scores_are_rounded_towards_less_sure() -> None:
    quarter = float(scores(float64([0.25])))
    exact = -float(torch.special.ndtri(float64(0.25)))
    density = math.exp(-exact * exact / 2) / math.sqrt(2 * math.pi)
    assert exact - quarter == pytest.approx(1e-11 + 0.25e-11 / density, rel=0.02)
    assert scores(float64([0.6, 0.5, 0.0])).tolist() == [0, 0, 30]
    (sure,), _, _ = _scores_of(rf.StochasticSign(4.0), [-3.0, 10.0, 1e9])
    assert sure.tolist() == [pytest.approx(score, rel=2e-11) for score in (0.75, 2.5, 30.0)]
    assert float(sure[0]) < 0.75


def test_the_smooth_sum_by_hand() -> None:
    falling = float64([0.9, 0.5, 0.2])

    def at(voters: int) -> Tensor:
        return falling * (1 + voters) ** 0.5

    costs = Costs(at, torch.tensor([2, 1, 3]), 30)
    for beta, moved, whole in itertools.product((0.01, 0.2, 5.0), (6, 3), (2.9, 2.3)):
        if (moved == 6) == (whole == 2.9):
            sums = [math.exp(-beta * k) * whole * (1 + k) ** 0.5 for k in range(31)]
            assert smooth_cost(costs, moved, beta, 100.0) == pytest.approx(max(sums), rel=1e-12)
    assert smooth_cost(costs, 6, 0.01, 4.0) == pytest.approx(
        max(math.exp(-0.01 * k) * min(4.0, 2.9 * (1 + k) ** 0.5) for k in range(31)), rel=1e-12
    )


def test_the_published_number_fails_as_rarely_as_it_says() -> None:
    surplus, law = torch.arange(40, dtype=torch.float64) * 9, rf.StochasticSign(20.0)
    account = rf.DecisionAccountant(law, neighbours="added")
    account.step(surplus)
    claim = account.guarantee(1e-5)
    numbers = [
        publishable_decision_epsilon(law, surplus, neighbours="added", delta=1e-5, failure_probability=0.2)
        for _ in range(20)
    ]
    assert len({number.ex_post_epsilon for number in numbers}) > 15  # fresh noise every time, on a grid
    assert all(number.epsilon > claim.epsilon for number in numbers)
    assert min(number.per_instance_epsilon for number in numbers) < 0.75 * claim.epsilon
    assert sum(number.per_instance_epsilon < claim.per_instance.renyi_epsilon for number in numbers) <= 12


def test_bad_input_is_named() -> None:
    law, many = rf.StochasticSign(20.0), torch.zeros(200)
    with pytest.raises(ValueError, match="at_most must be"):
        publishable_decision_epsilon(law, many, neighbours="added", delta=1e-5, at_most=0)
    with pytest.raises(ValueError, match=r"law must have Gaussian noise .* got GumbelWinner"):
        publishable_decision_epsilon(rf.GumbelWinner(40.0), [[3, 1]] * 640, neighbours="added", delta=1e-5)
    for sigma, delta in ((1e-200, 1e-5), (1e-60, 1e-5), (0.0624, 1e-5), (0.1, 1e-300)):
        with pytest.raises(ValueError, match="law must have more noise"):
            Plan(rf.StochasticSign(sigma), 1, "added", delta)
    plan = Plan(rf.StochasticSign(0.0626), 10**6, "added", 1e-5)
    assert plan.total(_scores_of(plan.law, [0.0, 5.0])) > 0  # was below 0 with less noise


def test_what_gains_nothing_is_refused_by_public_numbers() -> None:
    """Whatever the votes are, and before noise is drawn."""
    for votes in ([[40, 0]], [[20, 20]]):
        with pytest.raises(ValueError, match="would gain nothing for 1 decisions of NoisyWinner"):
            publishable_decision_epsilon(rf.NoisyWinner(40.0), votes, neighbours="replaced", delta=1e-5)
    pate = rf.Pate(sigma=40.0, adaptive=False)
    pate.label([[40, 0]])
    before = pate.guarantee(1e-5).epsilon
    with pytest.raises(ValueError, match="would gain nothing"):
        pate.publish(1e-5)
    assert pate.guarantee(1e-5).epsilon == before


@pytest.mark.parametrize(
    ("law", "at_most"), [(rf.StochasticSign(20.0), None), (rf.ConfidentWinner(20.0, 12.0, 90.0), 70)]
)
def test_what_is_public_decides_on_the_defaults(
    law: DecisionLaw, at_most: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the share of what all votes may cost is what is released, on a log scale."""
    delta, binary = 1e-5, isinstance(law, rf.StochasticSign)
    votes = (
        torch.arange(90) * 3.0
        if binary
        else torch.stack((torch.arange(90) * 2.0, torch.full((90,), 30.0)), 1)
    )
    released = []

    def noise(change: float, zcdp: float) -> object:
        released.append((change, zcdp))
        return noise_for(change, zcdp)

    def bound(_: object, share: float, failure_probability: float) -> float:
        released.append((share, failure_probability))
        return share

    monkeypatch.setattr(decision_publication, "noise_for", noise)
    monkeypatch.setattr(decision_publication, "upper_bound", bound)
    number = publishable_decision_epsilon(law, votes, neighbours="added", delta=delta, at_most=at_most)
    moved = at_most or 90
    every = moved * zcdp(law, "added")
    cost, alpha = publishing_cost(every, binary=binary), best_zcdp_order(0.2 * every**0.7, delta)
    beta = (0.13 if binary else 0.19) * math.sqrt(2 * cost)
    winner = zcdp(law if binary else rf.NoisyWinner(20.0), "added")
    most = alpha * moved * winner
    total = smooth_cost(costs_of(law, votes, "added", alpha), moved, beta, most)
    assert released[0] == pytest.approx((beta + 1e-9, cost), rel=1e-13)
    assert released[1] == (pytest.approx(math.log(total / most), rel=1e-12), 1e-3)
    assert (number.order, number.publishing_zcdp, number.delta) == (alpha, cost, delta)
    question = moved * _question_cost(law, alpha)
    assert question == 0 if binary else 0.6 < question / (alpha * moved / (2 * 90.0**2)) < 0.66
    orders, sums = float64([alpha]), float64([question + total + alpha * cost])
    assert number.ex_post_epsilon == pytest.approx(float(ex_post_epsilon(orders, sums, delta)), rel=1e-9)
    assert number.per_instance_epsilon == pytest.approx(
        float(epsilon_from_rdp(orders, sums, delta)), rel=1e-9
    )
    whole = loss_of_any(law, moved, "added") + rf.PrivacyLoss.of_zcdp(cost, cost, steps=0)
    assert number.epsilon == pytest.approx(whole.epsilon(delta), rel=1e-9)
    monkeypatch.setattr(decision_publication, "upper_bound", lambda *_: 5.0)
    largest = publishable_decision_epsilon(law, votes, neighbours="added", delta=delta, at_most=at_most)
    assert largest.per_instance_epsilon <= largest.epsilon  # the share is never above 1
