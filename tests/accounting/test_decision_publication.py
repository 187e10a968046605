"""Publishing what decisions cost: a voter changes it by e^beta at most, and it bounds what it says."""

import itertools
import math

import pytest
import torch

import ringfence as rf
from ringfence.accounting import publication
from ringfence.accounting.conversion import best_zcdp_order, epsilon_from_rdp, ex_post_epsilon
from ringfence.accounting.decisions import Pairs, decision_rdp, moves_of, pairs, zcdp
from ringfence.accounting.privacy_loss import PrivacyLoss
from ringfence.accounting.publication import (
    _least_sure,
    _sign_cost,
    _tail_cost,
    noise_for,
    smooth_cost,
    surety,
)
from tests.tensors import float64

BETA, ALPHA = 0.05, 6.0
WINNERS = [rf.NoisyWinner(6.0), rf.ConfidentWinner(6.0, threshold=25.0, threshold_sigma=8.0)]


def published_sum(law: object, votes: object, neighbours: str, at_most: int = 10**6) -> float:
    t, repeats = _least_sure(pairs(law, votes, neighbours), at_most)  # type: ignore[arg-type]
    one = zcdp(law, neighbours)  # type: ignore[arg-type]
    binary = isinstance(law, rf.StochasticSign)
    return smooth_cost(t, repeats, one=one, beta=BETA, alpha=ALPHA, binary=binary)


@pytest.mark.parametrize("law", WINNERS, ids=repr)
def test_no_voter_changes_a_sum_of_winners_by_more_than_beta(law: rf.NoisyWinner) -> None:
    counts = float64([[40, 9, 2], [42, 12, 6], [60, 1, 0]])  # sure enough that a voter matters
    here = published_sum(law, counts, "replaced")
    for pattern in itertools.islice(itertools.product(*moves_of(counts, "replaced")), 0, None, 97):
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


@pytest.mark.parametrize("law", [*WINNERS, rf.StochasticSign(6.0)], ids=repr)
def test_the_sum_is_above_what_the_votes_cost(law: rf.NoisyWinner) -> None:
    votes = (
        [15.0, -3.0, 40.0] if isinstance(law, rf.StochasticSign) else [[40, 9, 2], [22, 20, 6], [60, 1, 0]]
    )
    for neighbours in ("replaced", "added"):
        cost = decision_rdp(law, votes, neighbours=neighbours, orders=[ALPHA])  # type: ignore[arg-type]
        assert published_sum(law, votes, neighbours) >= float(cost.worst)
    one = decision_rdp(law, votes, neighbours="added", at_most=1, orders=[ALPHA])
    alone = published_sum(law, votes, "added", at_most=1)
    assert float(one.worst) <= alone < published_sum(law, votes, "added")


def test_both_ends_of_a_pair_are_covered_without_any_smoothing() -> None:
    law, votes = rf.StochasticSign(6.0), [15.0, -20.0, 40.0]
    t, repeats = _least_sure(pairs(law, votes, "replaced"), 3)
    alone = smooth_cost(t, repeats, one=zcdp(law, "replaced"), beta=50.0, alpha=ALPHA, binary=True)
    cost = decision_rdp(law, votes, neighbours="replaced", orders=[ALPHA])
    assert float(cost.forward) < float(cost.backward) <= alone <= 1.1 * float(cost.backward)


def test_no_law_costs_more_than_its_surety_says() -> None:
    """Random rows of counts with random moves: the bound of a Gaussian tail, forward, move by move."""
    generator = torch.Generator().manual_seed(0)
    for sigma, alpha in itertools.product((2.0, 8.0), (2.0, 12.0)):
        law, mu = rf.NoisyWinner(sigma), math.sqrt(2.0) / sigma
        counts = (40 * torch.rand(60, 4, generator=generator, dtype=torch.float64).pow(3)).round()
        (part,) = pairs(law, counts, "replaced")
        rows = torch.unique(counts.sort(dim=1, descending=True).values, dim=0)
        worst = law.renyi_divergence(rows.unsqueeze(1), moves_of(rows, "replaced"), alpha).amax(dim=1)
        bound = _tail_cost(surety(part.log_p[:, 0]), mu, alpha).clamp(max=alpha * mu * mu / 2)
        assert bool((worst <= bound * (1 + 1e-9)).all())
        assert float((bound / worst).median()) < 4


def test_a_sign_costs_what_its_table_says() -> None:
    t = torch.arange(1201, dtype=torch.float64) / 40
    table = _sign_cost(t, 0.4, 9.0)
    finer = torch.linspace(0, 30, 5000, dtype=torch.float64)
    law = rf.StochasticSign(1.0)
    exact = torch.maximum(law.renyi_divergence(finer, 0.4, 9.0), law.renyi_divergence(finer, -0.4, 9.0))
    below = table[(finer * 40 + 1e-9).long()]
    assert bool((exact <= below).all())
    beyond = exact.flip(0).cummax(0).values.flip(0)  # it does not fall from t = 0 on
    assert float((below / beyond)[finer < 5].max()) < 1.03


def test_the_published_number_fails_as_rarely_as_it_says() -> None:
    surplus, law = torch.arange(40, dtype=torch.float64) * 9, rf.StochasticSign(20.0)
    account = rf.DecisionAccountant(law, neighbours="added")
    account.step(surplus)
    claim = account.guarantee(1e-5)
    numbers = [
        rf.publishable_decision_epsilon(law, surplus, neighbours="added", delta=1e-5, failure_probability=0.2)
        for _ in range(20)
    ]
    assert len({number.ex_post_epsilon for number in numbers}) > 15  # fresh noise every time, on a grid
    assert all(number.epsilon > claim.epsilon for number in numbers)
    assert min(number.per_instance_epsilon for number in numbers) < 0.75 * claim.epsilon
    assert sum(number.per_instance_epsilon < claim.per_instance.renyi_epsilon for number in numbers) <= 12


def test_bad_input_is_named() -> None:
    law = rf.StochasticSign(20.0)
    for name, value in (("publishing_zcdp", 0.0), ("smoothness", -1.0), ("order", 1.0), ("at_most", 0)):
        with pytest.raises(ValueError, match=f"{name} must be"):
            rf.publishable_decision_epsilon(law, [3.0], neighbours="added", delta=1e-5, **{name: value})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="the noise is too small for 256-bit randomness"):
        rf.publishable_decision_epsilon(rf.StochasticSign(0.01), [3.0], neighbours="added", delta=1e-5)


def test_a_sure_decision_is_rounded_towards_less_sure() -> None:
    quarter = float(surety(float64([[0.25], [0.75]]).log()))
    exact = -float(torch.special.ndtri(float64(0.25)))
    density = math.exp(-exact * exact / 2) / math.sqrt(2 * math.pi)
    assert exact - quarter == pytest.approx(1e-11 + 0.25e-11 / density, rel=0.02)
    assert surety(float64([[0.5, 0.4, 0.0], [0.5, 0.3, 1.0], [0.0, 0.3, 0.0]]).log()).tolist() == [0, 0, 30]


def test_the_least_sure_queries_come_first_and_as_often_as_they_count() -> None:
    log_p = float64([[0.9, 0.6, 0.8], [0.1, 0.4, 0.2]]).log().unsqueeze(1)
    parts = [
        Pairs(log_p[..., :2], log_p[..., :2], torch.tensor([5, 2])),
        Pairs(log_p[..., 2:], log_p[..., 2:], torch.tensor([4])),
    ]
    for moved, counted in ((1, [1, 0, 0]), (3, [2, 1, 0]), (7, [2, 4, 1]), (99, [2, 4, 5])):
        t, repeats = _least_sure(parts, moved)
        assert torch.equal(t, surety(log_p[:, 0]).sort().values)
        assert repeats.tolist() == counted


@pytest.mark.parametrize("alpha", [1.5, 6.0])
def test_the_table_of_the_sign_is_what_its_docstring_says(alpha: float) -> None:
    """Coarse nodes: 1 - K h^2 / 6 with h = 1/4 is far from 1, and the last value is that of a tail."""
    t, mu, law = torch.arange(9, dtype=torch.float64) / 4, 0.8, rf.StochasticSign(1.0)
    values = [
        max(float(law.renyi_divergence(at, float64(move), alpha)) for move in (mu, -mu)) for at in t.tolist()
    ]
    values.append(float(_tail_cost(t[-1:], mu, alpha)))
    curved = 1 - (4 + max(0.0, 2 - alpha) * mu**2 / 4) / 16 / 6
    expected = [max(values[i:]) / curved * (1 + 1e-11) for i in range(9)]
    torch.testing.assert_close(_sign_cost(t, mu, alpha), float64(expected), rtol=1e-13, atol=0)
    assert [bool(_sign_cost(t + 28, move, 1.5).isinf().any()) for move in (32.0, 32.1)] == [False, True]
    assert _tail_cost(float64([mu / 2 - 1e-9, mu / 2]), mu, alpha).isinf().tolist() == [True, False]


def test_the_smooth_sum_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes half apart: 33 of them are a voter, one is taken off at once, and more for e^-beta each."""
    costs = torch.linspace(1.0, 0.01, 400, dtype=torch.float64).square()
    monkeypatch.setattr(publication, "_table", lambda *_: (0.5, costs))
    t, repeats, places = float64([16.9, 75.0, 180.2]), torch.tensor([2, 1, 3]), [33, 150, 360]
    for beta in (0.01, 0.2, 5.0):
        found = smooth_cost(t, repeats, one=1.0, beta=beta, alpha=2.0, binary=True)
        sums = [
            math.exp(-beta * k)
            * sum(
                many * float(costs[max(0, place - 33 * (k + 1))])
                for many, place in zip((2, 1, 3), places, strict=True)
            )
            for k in range(20)
        ]
        assert found == pytest.approx(max(sums), rel=1e-13)


def test_a_voter_is_33_nodes_of_which_one_is_for_rounding() -> None:
    spacing, costs = publication._table(0.02, 4.0, True)
    assert spacing == pytest.approx(0.2 / 32, rel=1e-13)
    assert len(costs) == int(30 / spacing) + 1
    assert float(costs.max()) < float(publication._table(0.02, 4.0, False)[1].max()) == 4.0 * 0.02


@pytest.mark.parametrize("at_most", [None, 2, 9])
def test_what_is_public_decides_on_the_defaults(at_most: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the share of what all votes may cost is what is released, on a log scale."""
    law, votes, delta = rf.StochasticSign(20.0), [15.0, -30.0, 75.0], 1e-5
    released = []

    def noise(change: float, zcdp: float) -> object:
        released.append((change, zcdp))
        return noise_for(change, zcdp)

    def bound(_: object, share: float, failure_probability: float) -> float:
        released.append((share, failure_probability))
        return share

    monkeypatch.setattr(publication, "noise_for", noise)
    monkeypatch.setattr(publication, "upper_bound", bound)
    number = rf.publishable_decision_epsilon(law, votes, neighbours="added", delta=delta, at_most=at_most)
    moved = min(3, at_most or 3)
    every = moved * zcdp(law, "added")
    cost, alpha = 0.02 * every**0.75, best_zcdp_order(0.2 * every**0.7, delta)
    beta = 0.13 * math.sqrt(2 * cost)
    total = smooth_cost(
        *_least_sure(pairs(law, votes, "added"), moved),
        one=zcdp(law, "added"),
        beta=beta,
        alpha=alpha,
        binary=True,
    )
    assert released[0] == pytest.approx((beta + 1e-9, cost), rel=1e-13)
    assert released[1] == (pytest.approx(math.log(total / (alpha * every)), rel=1e-12), 1e-3)
    assert (number.order, number.publishing_zcdp, number.delta) == (alpha, cost, delta)
    # finite randomness takes next to nothing of delta
    orders, sums = float64([alpha]), float64([total + alpha * cost])
    assert number.ex_post_epsilon == pytest.approx(float(ex_post_epsilon(orders, sums, delta)), rel=1e-9)
    assert number.per_instance_epsilon == pytest.approx(
        float(epsilon_from_rdp(orders, sums, delta)), rel=1e-9
    )
    whole = PrivacyLoss.of_zcdp(every + cost, every + cost).epsilon(delta)
    assert number.epsilon == pytest.approx(whole, rel=1e-9)
    monkeypatch.setattr(publication, "upper_bound", lambda *_: 5.0)
    most = rf.publishable_decision_epsilon(law, votes, neighbours="added", delta=delta, at_most=at_most)
    assert most.per_instance_epsilon <= most.epsilon  # the share is never above 1
    assert most.ex_post_epsilon == pytest.approx(
        float(ex_post_epsilon(orders, float64([alpha * (every + cost)]), delta)), rel=1e-9
    )


@pytest.mark.parametrize("alpha", [1.5, 8.0])
def test_every_split_of_a_tail_is_looked_at(alpha: float) -> None:
    """Of 16 equal parts of the tail some are likelier under A, the others under B; one is counted twice."""
    mu, law = 0.5, rf.RectifiedGaussian(1.0, (0.0, math.inf))
    for t in (0.3, 1.0, 6.0):
        q = float(torch.special.ndtr(float64(-t)))

        def excess(parts: int, move: float, q: float = q) -> float:
            where = torch.special.ndtri(float64(q * parts / 16)) + 1e-11
            return math.expm1((alpha - 1) * float(law.renyi_divergence(where, float64(move), alpha)))

        rest = max(excess(i, -mu) + excess(17 - i, mu) for i in range(1, 17))
        ratios = [(1 - q) / float(torch.special.ndtr(float64(t + move))) for move in (mu, -mu)]
        likeliest = max(ratio**alpha - 1 - alpha * (ratio - 1) for ratio in ratios)
        expected = math.log1p(rest + likeliest) / (alpha - 1)
        found = float(_tail_cost(float64([t]), mu, alpha))
        precise = 2e-12 if t < 1 else 1e-7  # how many digits the differences here keep
        assert found == pytest.approx(expected * (1 + 1e-11), rel=precise, abs=0)
