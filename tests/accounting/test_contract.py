"""What every accountant promises, run for each row of accountants.py and each law."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch

import ringfence as rf
from ringfence.accounting.subsampling import accountant_from_state_dict
from tests.accounting.accountants import ACCOUNTANTS, SENSITIVITY, THETA, Accountant
from tests.mechanisms.cases import Case, every_case

every_accountant = pytest.mark.parametrize("kind", ACCOUNTANTS, ids=lambda kind: kind.name)
with_epsilon = pytest.mark.parametrize(
    "kind", [kind for kind in ACCOUNTANTS if kind.epsilon], ids=lambda kind: kind.name
)

with_state = pytest.mark.parametrize(
    "kind", [one for one in ACCOUNTANTS if one.saved], ids=lambda one: one.name
)
with_sensitivity = pytest.mark.parametrize(
    "kind", [one for one in ACCOUNTANTS if one.takes_sensitivity], ids=lambda one: one.name
)


def after(kind: Accountant, law: rf.Mechanism, steps: int) -> Any:
    account = kind.open(law)
    for _ in range(steps):
        kind.step(account)
    return account


@dataclass(frozen=True)
class Step:
    """What was read after a step of a run that several tests look at."""

    sums: torch.Tensor
    epsilons: list[float]  # at the deltas below
    state: Any


@cache
def run(kind: Accountant, case: Case) -> tuple[Any, list[Step]]:
    """An account after three steps, and what was read after each of them."""
    account, seen = kind.open(case.make(1.0, -1.0, 1.5)), []
    for _ in range(3):
        kind.step(account)
        epsilons = [kind.epsilon(account, delta) for delta in (1e-7, 1e-5, 1e-2)] if kind.epsilon else []
        state = json.loads(json.dumps(account.state_dict())) if kind.saved else None
        seen.append(Step(kind.sums(account).clone(), epsilons, state))
    return account, seen


@every_accountant
@every_case
def test_n_steps_are_n_times_one_step(kind: Accountant, case: Case) -> None:
    _, (one, _, three) = run(kind, case)
    assert torch.allclose(three.sums, 3 * one.sums, rtol=1e-10, atol=0)
    assert bool((one.sums > 0).all())


@with_epsilon
@every_case
def test_epsilon_falls_with_delta_and_grows_with_steps(kind: Accountant, case: Case) -> None:
    _, (one, two, _) = run(kind, case)
    assert one.epsilons == sorted(one.epsilons, reverse=True)
    assert len(set(one.epsilons)) == 3
    assert two.epsilons[1] > one.epsilons[1]


@cache
def gaussian(kind: Accountant, sigma: float) -> tuple[torch.Tensor, float]:
    """What two steps of the plain Gaussian come to, and its epsilon if there is one."""
    account = after(kind, rf.Gaussian(sigma), 2)
    return (kind.compared or kind.sums)(account), kind.epsilon(account, 1e-5) if kind.epsilon else math.nan


@every_accountant
@every_case
def test_never_above_the_gaussian(kind: Accountant, case: Case) -> None:
    for sigma, bound in ((1.0, 0.3), (0.5, 2.0), (2.0, 40.0)):
        bounded = after(kind, case.make(sigma, -bound, bound), 2)
        sums, epsilon = gaussian(kind, sigma)
        assert bool(((kind.compared or kind.sums)(bounded) <= sums * (1 + 1e-9)).all())
        if kind.epsilon:
            assert kind.epsilon(bounded, 1e-5) <= epsilon * (1 + 1e-9)


@with_state
@every_case
def test_state_is_plain_data_and_round_trips_exactly(kind: Accountant, case: Case) -> None:
    account, (_, two, three) = run(kind, case)
    load = type(account).from_state_dict if kind.name == "examples" else accountant_from_state_dict
    again = load(two.state)
    assert type(again) is type(account)
    assert json.loads(json.dumps(again.state_dict())) == two.state
    kind.step(again)
    assert torch.equal(kind.sums(again), three.sums)
    assert again.steps == account.steps == 3


@with_state
@pytest.mark.parametrize("change", [{"version": 99}, {"surprise": 1}])
def test_a_state_it_does_not_understand_is_refused(kind: Accountant, change: dict[str, int]) -> None:
    account = after(kind, rf.Gaussian(1.0), 1)
    with pytest.raises(ValueError, match=r"version|unknown keys"):
        type(account).from_state_dict({**account.state_dict(), **change})
    state = account.state_dict()
    state.pop("steps")
    with pytest.raises(ValueError, match=r"missing keys \['steps'\]"):
        type(account).from_state_dict(state)


@pytest.mark.parametrize("kind", [one for one in ACCOUNTANTS if one.bad_theta], ids=lambda one: one.name)
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_theta_that_is_not_a_number_is_refused_and_costs_nothing(kind: Accountant, value: float) -> None:
    account = after(kind, rf.RectifiedGaussian(1.0, 1.0), 1)
    before = kind.sums(account).clone()
    theta = THETA.clone()
    theta[3] = value
    with pytest.raises(ValueError, match=r"theta must (not be NaN|be finite)"):
        kind.bad_theta(account, theta)
    assert torch.equal(kind.sums(account), before)
    assert account.steps == 1


@with_sensitivity
@pytest.mark.parametrize(
    ("value", "message"),
    [(-0.1, r"sensitivity must be >= 0, got -0\.1"), (math.nan, "sensitivity must not be NaN")],
)
def test_a_negative_sensitivity_is_refused(kind: Accountant, value: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind.open(rf.Gaussian(1.0), sensitivity=value)


@with_sensitivity
@every_case
def test_a_number_is_the_largest_move_of_each_coordinate(kind: Accountant, case: Case) -> None:
    """And so is any bound that the moves of single coordinates imply."""
    law = case.make(1.0, -1.0, 1.0)
    plain = kind.open(law)
    kind.step(plain)
    for size in (
        rf.Sensitivity(each=SENSITIVITY),
        rf.Sensitivity(SENSITIVITY, at_most=len(THETA)),
        rf.Sensitivity(SENSITIVITY, norm=1.001 * SENSITIVITY * math.sqrt(len(THETA))),
    ):
        account = kind.open(law, sensitivity=size)
        kind.step(account)
        assert torch.equal(kind.sums(account), kind.sums(plain))
        assert account.guarantee(1e-5) == plain.guarantee(1e-5)


def moved(kind: Accountant, law: rf.Mechanism) -> list[torch.Tensor]:
    """What a step costs where all coordinates may move, five of them, as far as five, and one."""
    sums = []
    for size in (
        rf.Sensitivity(SENSITIVITY),
        rf.Sensitivity(SENSITIVITY, at_most=5),
        rf.Sensitivity(SENSITIVITY, norm=SENSITIVITY * math.sqrt(5)),
        rf.Sensitivity(SENSITIVITY, at_most=1),
    ):
        account = kind.open(law, sensitivity=size)
        kind.step(account)
        sums.append((kind.compared or kind.sums)(account))
    return sums


@cache
def moved_gaussian(kind: Accountant) -> list[torch.Tensor]:
    return moved(kind, rf.Gaussian(1.0))


@with_sensitivity
@every_case
def test_fewer_moves_cost_less_and_never_more_than_the_gaussian(kind: Accountant, case: Case) -> None:
    sums = moved(kind, case.make(1.0, -1.0, 1.0))
    for own, gaussian in zip(sums, moved_gaussian(kind), strict=True):
        assert bool((own <= gaussian * (1 + 1e-9)).all())
    for few in sums[1:]:
        assert bool((few <= sums[0] * (1 + 1e-9)).all())
    assert bool((sums[3] <= sums[1] * (1 + 1e-9)).all())


@with_sensitivity
def test_what_does_not_fit_theta_is_refused(kind: Accountant) -> None:
    account = kind.open(rf.RectifiedGaussian(1.0, 1.0), sensitivity=rf.Sensitivity([1.0, 2.0], at_most=1))
    with pytest.raises(ValueError, match="sensitivity"):
        kind.step(account)
    assert account.steps == 0


@pytest.mark.parametrize("kind", [one for one in ACCOUNTANTS if one.takes_orders], ids=lambda one: one.name)
def test_empty_orders_are_refused(kind: Accountant) -> None:
    with pytest.raises(ValueError, match="orders must hold at least one order, got none"):
        kind.open(rf.Gaussian(1.0), orders=[])


@with_epsilon
@pytest.mark.parametrize("delta", [0.0, 1.0, -1.0, 2.0, math.nan])
def test_delta_outside_its_range_is_refused(kind: Accountant, delta: float) -> None:
    with pytest.raises(ValueError, match="delta must"):
        kind.epsilon(after(kind, rf.Gaussian(1.0), 1), delta)


@every_accountant
def test_its_name_and_steps_are_shown(kind: Accountant) -> None:
    account = after(kind, rf.Gaussian(1.0), 2)
    assert type(account).__name__ in repr(account)
    assert "Gaussian(sigma=1.0)" in repr(account)


LAW = rf.RectifiedGaussian(1.0, 2.0)
ONE = torch.ones(1, dtype=torch.float64)


def per_instance() -> rf.PerInstanceAccountant:
    account = rf.PerInstanceAccountant(LAW, 0.1, [2.0])
    account.step(0.0)
    return account


def sampled() -> rf.SampledAccountant:
    account = rf.SampledAccountant(LAW, 0.1, 0.5)
    account.step_worst_case(0.0)
    return account


def examples() -> rf.ExampleAccountant:
    account = rf.ExampleAccountant(LAW, [2.0])
    account.step(0 * ONE, ONE[None] / 8)
    return account


def decisions() -> rf.DecisionAccountant:
    return rf.DecisionAccountant(rf.NoisyWinner(2.0), neighbours="replaced", orders=[2.0])


SMALLEST: dict[str, Callable[[], Any]] = {
    "per instance": per_instance,
    "sampled": sampled,
    "examples": examples,
    "decisions, no step": decisions,
    **{f"{kind.name}, no step": lambda kind=kind: kind.open(LAW) for kind in ACCOUNTANTS if kind.saved},
}


@pytest.mark.parametrize("name", SMALLEST)
def test_the_smallest_account_round_trips(name: str) -> None:
    account = SMALLEST[name]()
    state = json.loads(json.dumps(account.state_dict()))
    again = type(account).from_state_dict(state)
    assert json.loads(json.dumps(again.state_dict())) == state
    assert repr(again) == repr(account)


@with_state
@pytest.mark.parametrize("steps", [-1, 1.5, "1", True, None])
def test_steps_that_are_no_count_are_refused(kind: Accountant, steps: object) -> None:
    account = kind.open(LAW)
    with pytest.raises((ValueError, TypeError), match=r"steps must"):
        type(account).from_state_dict({**account.state_dict(), "steps": steps})


@pytest.mark.parametrize(
    ("make", "change", "message"),
    [
        (sampled, {"releases": [[0.1, 1.0, 0.5, 0.0, 1, 0]]}, r"count must"),
        (sampled, {"releases": [[-0.1, 1.0, 0.5, 0.0, 1, 1]]}, r"mu=-0.1"),
        (sampled, {"releases": [[0.1, 1.0, 0.0, 0.0, 1, 1]]}, r"rate must"),
        (sampled, {"releases": [[0.1, 1.0, 0.5, 0.0, 1, 2]]}, r"releases must count 1 steps"),
        (sampled, {"releases": [["0.1", 1.0, 0.5, 0.0, 1, 1]]}, r"'>=' not supported"),
        (sampled, {"sampling_rate": 2.0}, "sampling_rate must be in"),
        (sampled, {"kind": "PerInstanceAccountant"}, "kind must be 'SampledAccountant'"),
        (examples, {"examples": 0}, r"examples must"),
        (decisions, {"steps": -1}, r"steps must"),
        (decisions, {"at_most": 0}, r"at_most must"),
        (decisions, {"charged": -1e-9}, r"charged must"),
        (examples, {"examples": 2}, r"sums must hold 64 bytes, got 32"),
        (examples, {"kind": "PerInstanceAccountant"}, "kind must be 'ExampleAccountant'"),
        (examples, {"zcdps": [0.0, math.nan]}, "zcdps must not be NaN"),
        *((examples, {"sums": bad}, "sums must be base64 text") for bad in ("not base64!", "!!!!", 3)),
        (examples, {"sums": "/" * 42 + "8="}, "sums must not be NaN"),
        (per_instance, {"bounded_zcdp": -1.0}, r"bounded_zcdp must"),
        (per_instance, {"forward": [-1.0]}, r"forward must"),
        (per_instance, {"forward": [1.0, 1.0]}, "forward must hold 1 sums"),
        (per_instance, {"backward": [math.nan]}, "backward must not be NaN"),
        (per_instance, {"kind": "Other"}, "kind must be 'PerInstanceAccountant', got 'Other'"),
    ],
)
def test_a_state_that_no_account_has_is_refused(
    make: Callable[[], Any], change: dict[str, object], message: str
) -> None:
    account = make()
    with pytest.raises((ValueError, TypeError), match=message):
        type(account).from_state_dict({**account.state_dict(), **change})
