"""Votes as they are read and bounded, the account of decisions, and the sentences for their owner."""

from functools import partial

import numpy as np
import pandas
import pytest
import torch

import ringfence as rf
from ringfence.accounting.decision_publication import publishing_cost
from ringfence.accounting.decisions import decision_profile
from ringfence.noise import Noise
from ringfence.releases.ballots import keep_few, read_ballots, read_counts
from ringfence.releases.decisions import account_of, expected_wrong, publishing_loss
from ringfence.releases.reader import code_values, public_values
from tests.tensors import float64


def test_the_smallest_proof_counts_and_covers_every_voter() -> None:
    law, surplus = rf.StochasticSign(10.0), float64([20, 30])
    account = account_of(law, surplus, neighbours="added", at_most=None, delta=1e-6)
    profile = decision_profile(law, surplus, neighbours="added")
    assert account.per_instance.epsilon == min(profile.epsilon(1e-6), account.per_instance.renyi_epsilon)
    assert account.per_instance.epsilon < account.epsilon
    assert "plus or minus any one person" in account.statement
    wrong = expected_wrong(account.details["chances_of_error"], ["a", "b"])
    assert "largest at a, 0.02276; 0.02411 of 2 decisions" in wrong
    replaced = account_of(law, surplus, neighbours="replaced", at_most=None, delta=1e-6)
    assert "the values of any one person replaced" in replaced.statement
    assert replaced.per_instance.epsilon > account.per_instance.epsilon


def test_publishing_is_in_the_sums_of_both_directions() -> None:
    how = {"neighbours": "added", "at_most": None, "delta": 1e-6}
    plain = account_of(rf.StochasticSign(10.0), float64([3]), **how)
    more = plain.plus(publishing_loss(publishing_cost(0.5 / 10**2, binary=True), plain.promised.change))
    orders = rf.DecisionAccountant(rf.StochasticSign(10.0), neighbours="added").orders
    added = publishing_cost(0.5 / 10**2, binary=True) * orders
    for name in ("forward", "backward"):
        before, after = (float64(getattr(account.cost.own, name)) for account in (plain, more))
        assert torch.allclose(after - before, added, rtol=1e-9, atol=0)
    assert more.per_instance.epsilon > plain.per_instance.epsilon  # the tight proof knows no published number


def test_an_adaptive_account_proves_the_ex_post_number_and_what_holds_for_every_dataset() -> None:
    how = {"neighbours": "replaced", "at_most": None, "delta": 1e-6}
    law, counts = rf.NoisyWinner(10.0), float64([[90, 3, 7], [50, 40, 10]])
    fixed, adaptive = (account_of(law, counts, adaptive=flag, **how) for flag in (False, True))
    assert fixed.per_instance.epsilon < adaptive.per_instance.epsilon == adaptive.epsilon == fixed.epsilon
    assert fixed.per_instance.ex_post_epsilon == adaptive.per_instance.ex_post_epsilon
    assert "may depend on earlier answers" in adaptive.statement.splitlines()[1]


def test_counts_and_ballots_agree() -> None:
    ballots = pandas.DataFrame({"id": [4, 5, 6], "x": ["a", "b", "a"], "y": [None, "b", "b"]})
    how = {"queries": None, "argument": "queries", "person": "id", "ignore": ()}
    codes_of = partial(code_values, code={"a": 0, "b": 1}.get, rule="must hold a or b")
    counted = read_ballots(ballots, ("a", "b"), codes_of, **how)
    as_is = read_counts(np.array([[2, 1], [0, 2]]), None, ())
    assert np.array_equal(counted.counts, as_is.counts)
    assert (counted.queries, counted.choices, counted.rows_are) == (["x", "y"], ("a", "b"), "persons")
    assert (as_is.queries, as_is.choices, as_is.rows_are) == ([1, 2], ("0", "1"), "aggregated")


def test_which_marks_count_depends_on_the_person_alone_and_is_fair() -> None:
    marks = torch.randint(-1, 2, (4000, 5), generator=torch.Generator().manual_seed(0))
    kept = keep_few(marks, 2, Noise(seed=1).at("ballots"))
    assert bool(((kept == marks) | (kept == -1)).all())
    assert torch.equal((kept >= 0).sum(dim=1), (marks >= 0).sum(dim=1).clamp(max=2))
    fewer = keep_few(marks[:-1], 2, Noise(seed=1).at("ballots"))
    assert torch.equal(fewer, kept[:-1])
    full = (marks >= 0).all(dim=1)
    shares = (kept[full] >= 0).double().mean(dim=0)  # of 2 in 5
    assert float((shares - 0.4).abs().max()) < 4 * (0.24 / int(full.sum())) ** 0.5


def test_values_in_files_are_text() -> None:
    assert public_values("candidates", range(2), text=True) == {"0": 0, "1": 1}
    with pytest.raises(ValueError, match="candidates must hold each value once"):
        public_values("candidates", [1, "1"], text=True)
