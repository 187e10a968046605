"""The account of decisions: sums over steps, the statement, and what survives being saved."""

import json
import math

import pytest
import torch

import ringfence as rf

COUNTS = [[230, 12, 8], [140, 90, 20], [90, 80, 80]]


def test_steps_add_up_and_come_back_from_json() -> None:
    for law, votes in ((rf.NoisyWinner(10.0), COUNTS), (rf.StochasticSign(10.0), torch.tensor([4, 70, -30]))):
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
        account.step(COUNTS)
        claim = account.guarantee(1e-5)
        assert claim.mu == pytest.approx(math.sqrt(3 * square) / 10, rel=1e-9)
        assert claim.per_instance.epsilon < claim.epsilon
        assert claim.per_instance.ex_post_epsilon > claim.per_instance.epsilon
    few = rf.DecisionAccountant(rf.NoisyWinner(10.0), neighbours="added", at_most=1)
    few.step(COUNTS)
    assert few.guarantee(1e-5).mu == pytest.approx(0.1, rel=1e-9)


def test_the_statement_names_the_neighbours() -> None:
    for neighbours, words in (("replaced", "replaced by another one"), ("added", "added or removed")):
        account = rf.DecisionAccountant(rf.NoisyWinner(10.0), neighbours=neighbours)  # type: ignore[arg-type]
        account.step(COUNTS)
        claim = account.guarantee(1e-5)
        statement = f"{claim.statement} {claim.per_instance.statement}"
        assert f"every single record {words}" in statement
        assert ("added or removed" in statement) == (neighbours == "added")
        assert ("plus or minus" in statement) == (neighbours == "added")


def test_bad_input_is_named_and_nothing_is_added() -> None:
    account = rf.DecisionAccountant(rf.NoisyWinner(10.0), neighbours="added")
    for bad in ([[1, -1]], [], [[0.5, 1]]):
        with pytest.raises(ValueError, match=r"counts|votes"):
            account.step(bad)
    assert account.steps == 0
    with pytest.raises(TypeError, match="law must be a law of decisions"):
        rf.DecisionAccountant(rf.Gaussian(1.0), neighbours="added")
    with pytest.raises(ValueError, match="neighbours must be one of"):
        rf.DecisionAccountant(rf.NoisyWinner(1.0), neighbours="other")  # type: ignore[arg-type]
