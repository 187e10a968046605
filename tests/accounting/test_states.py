"""Saved accounts at their smallest: nothing stepped, one record, one attribute; and one below that."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch

import ringfence as rf
from tests.accounting.accountants import ACCOUNTANTS, Accountant

LAW = rf.RectifiedGaussian(1.0, 2.0)
ONE = torch.ones(1, dtype=torch.float64)


def per_instance() -> rf.PerInstanceAccountant:
    account = rf.PerInstanceAccountant(LAW, 0.1, [2.0])
    account.step(0.0)
    return account


def sampled() -> rf.SampledAccountant:
    account = rf.SampledAccountant(LAW, 0.1, 0.5, [2])
    account.step_worst_case(0.0)
    return account


def examples() -> rf.ExampleAccountant:
    account = rf.ExampleAccountant(LAW, [2.0])
    account.step(0 * ONE, ONE[None] / 8)
    return account


def fisher(records: int | None = None, *, gram_limit: int = 1) -> rf.FisherAccountant:
    account = rf.FisherAccountant(LAW, gram_limit=gram_limit)
    account.step(0 * ONE, ONE[None] if records is None else ONE.expand(records, 1, 1))
    return account


def decisions() -> rf.DecisionAccountant:
    return rf.DecisionAccountant(rf.NoisyWinner(2.0), neighbours="replaced", orders=[2.0])


SMALLEST: dict[str, Callable[[], Any]] = {
    "per instance": per_instance,
    "sampled": sampled,
    "examples": examples,
    "one record": fisher,
    "one of many": lambda: fisher(1),
    "two records": lambda: fisher(2),
    "no Gram matrix": lambda: fisher(gram_limit=0),
    "decisions, no step": decisions,
    **{f"{kind.name}, no step": lambda kind=kind: kind.open(LAW) for kind in ACCOUNTANTS},
}


@pytest.mark.parametrize("name", SMALLEST)
def test_the_smallest_account_round_trips(name: str) -> None:
    account = SMALLEST[name]()
    state = json.loads(json.dumps(account.state_dict()))
    again = type(account).from_state_dict(state)
    assert json.loads(json.dumps(again.state_dict())) == state
    assert repr(again) == repr(account)
    if isinstance(account, rf.FisherAccountant):
        assert torch.equal(again.fisher_information_loss(), account.fisher_information_loss())


@pytest.mark.parametrize("kind", ACCOUNTANTS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("steps", [-1, 1.5, "1", True, None])
def test_steps_that_are_no_count_are_refused(kind: Accountant, steps: object) -> None:
    account = kind.open(LAW)
    with pytest.raises((ValueError, TypeError), match=r"steps must"):
        type(account).from_state_dict({**account.state_dict(), "steps": steps})


@pytest.mark.parametrize(
    ("make", "change", "message"),
    [
        (fisher, {"records": [0, 1]}, r"records\[0\] must"),
        (fisher, {"records": [1, 0]}, r"records\[1\] must"),
        (fisher, {"records": [1]}, r"records must"),
        (lambda: fisher(gram_limit=0), {"squares": [-1.0]}, r"squares must"),
        (lambda: fisher(gram_limit=0), {"trace": [1.0, 1.0]}, r"trace must have shape \[1\]"),
        (fisher, {"gram": None}, r"gram must"),
        (fisher, {"gram_error": [-1.0]}, r"gram_error must"),
        (sampled, {"settings": [[0.1, 0.5, 0]]}, r"settings must"),
        (sampled, {"settings": [[-0.1, 0.5, 1]]}, r"settings must"),
        (sampled, {"settings": [[0.1, 0.0, 1]]}, r"settings must"),
        (sampled, {"settings": [[0.1, 0.5, 2]]}, r"settings must count 1 steps"),
        (sampled, {"spent": -1e-9}, r"spent must"),
        (examples, {"examples": 0}, r"examples must"),
        (decisions, {"steps": -1}, r"steps must"),
        (decisions, {"at_most": 0}, r"at_most must"),
        (decisions, {"gaussian_zcdp": -1e-9}, r"gaussian_zcdp must"),
        (examples, {"examples": 2}, r"sums must hold 64 bytes, got 32"),
        (per_instance, {"bounded_zcdp": -1.0}, r"bounded_zcdp must"),
        (per_instance, {"forward": [-1.0]}, r"forward must"),
    ],
)
def test_a_number_below_the_smallest_is_refused(
    make: Callable[[], Any], change: dict[str, object], message: str
) -> None:
    account = make()
    with pytest.raises((ValueError, TypeError), match=message):
        type(account).from_state_dict({**account.state_dict(), **change})
