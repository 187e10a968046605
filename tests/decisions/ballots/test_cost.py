"""The account of decisions, and the sentences that nobody else may read."""

import torch

import ringfence as rf
from ringfence.accounting.decisions.publication import publishing_cost
from ringfence.decisions.ballots.ballots import Ballots
from ringfence.decisions.ballots.cost import decision_account, sensitive_sentences
from tests.tensors import float64


def test_the_smallest_proof_counts_and_covers_every_voter() -> None:
    marks = torch.tensor([[0, 0]] * 30 + [[1, -1]] * 10)
    ballots = Ballots(["a", "b"], ("yes", "no"), marks, list(range(40)))
    law, surplus = rf.StochasticSign(10.0), float64([20, 30])
    account = decision_account(
        law,
        surplus,
        neighbours="added",
        at_most=None,
        delta=1e-6,
        ballots=ballots,
        chances=[0.02, 0.001],
        publish=False,
    )
    profile = rf.decision_profile(law, surplus, neighbours="added")
    assert account.epsilon_tight == min(profile.epsilon(1e-6), account.guarantee.per_instance.epsilon)
    assert max(account.details["voter_epsilons"]) <= account.epsilon_tight < account.epsilon
    said = sensitive_sentences(account, ["a", "b"])
    assert "largest at a, 0.02001; 0.02101 of 2 decisions" in said[2]
    assert "plus or minus any one person" in said[0]
    replaced = decision_account(
        law,
        surplus,
        neighbours="replaced",
        at_most=None,
        delta=1e-6,
        ballots=None,
        chances=[0.02, 0.001],
        publish=False,
    )
    assert "the values of any one person replaced" in replaced.per_instance
    assert replaced.epsilon_tight > account.epsilon_tight


def test_publishing_is_in_the_sums_of_both_directions() -> None:
    how = {"neighbours": "added", "at_most": None, "delta": 1e-6, "ballots": None, "chances": [0.4]}
    plain, more = (
        decision_account(rf.StochasticSign(10.0), float64([3]), publish=flag, **how) for flag in (False, True)
    )
    orders = rf.DecisionAccountant(rf.StochasticSign(10.0), neighbours="added").orders
    added = publishing_cost(0.5 / 10**2) * orders
    for name in ("forward", "backward"):
        before, after = (float64(getattr(account.cost, name)) for account in (plain, more))
        assert torch.allclose(after - before, added, rtol=1e-9, atol=0)
    assert more.cost.numbers == plain.cost.numbers + 1
