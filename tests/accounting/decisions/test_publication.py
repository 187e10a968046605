"""Publishing what decisions cost: a voter changes it by e^beta at most, and it bounds what it says."""

import itertools
import math

import pytest
import torch

import ringfence as rf
from ringfence.accounting.decisions.moves import moves_of, pairs
from ringfence.accounting.decisions.publication import (
    _least_sure,
    _sign_cost,
    _tail_cost,
    smooth_cost,
    surety,
)
from ringfence.accounting.decisions.rdp import decision_rdp, zcdp
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
    assert len({number.epsilon for number in numbers}) > 15  # fresh noise every time, on a grid
    assert all(number.epsilon_data_independent > claim.epsilon_data_independent for number in numbers)
    assert min(number.epsilon_pdp for number in numbers) < 0.75 * claim.epsilon_data_independent
    assert sum(number.epsilon_pdp < claim.epsilon_renyi for number in numbers) <= 12


def test_bad_input_is_named() -> None:
    law = rf.StochasticSign(20.0)
    for name, value in (("publishing_zcdp", 0.0), ("smoothness", -1.0), ("order", 1.0), ("at_most", 0)):
        with pytest.raises(ValueError, match=f"{name} must be"):
            rf.publishable_decision_epsilon(law, [3.0], neighbours="added", delta=1e-5, **{name: value})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="delta must be larger"):
        rf.publishable_decision_epsilon(rf.StochasticSign(0.01), [3.0], neighbours="added", delta=1e-5)
