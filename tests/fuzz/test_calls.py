"""Calls whose arguments are extreme or hostile, several at once: an answer in its range, or a refusal.

``test_arguments.py`` replaces one argument of every public function; here every argument of a job is made up.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

import ringfence as rf
from ringfence.accounting.guarantee import Guarantee
from ringfence.mechanisms.decision import Decision
from tests.fuzz import strategies as fuzz
from tests.fuzz.contract import PARTS, ContractError, calls_well
from tests.fuzz.properties import PROPERTIES, Property, fuzzed

NAMES = (
    *PARTS,
    *("levels", "step", "delta", "count", "gaussian_zcdp", "bounded_zcdp", "charged", "steps", "forward"),
    *("backward", "version", "gradients", "jacobian", "batches", "sampling_rate", "spent", "value"),
    *("failure_probability", "pure_epsilon", "settings", "dtype", "records[0]", "records[1]"),
)


@dataclass(frozen=True)
class Call:
    """A job, what its arguments are made of, and what holds of its answer."""

    job: Callable[..., Any]
    arguments: dict[str, SearchStrategy[Any]]
    holds: Callable[[Any], Any] = lambda answer: True
    few: int = 20
    share: float = 1.0


def at_least_zero(answer: Any) -> bool:
    return bool((torch.as_tensor(answer) >= 0).all())


def is_share(answer: Any) -> bool:
    return at_least_zero(answer) and bool((torch.as_tensor(answer) <= 1).all())


def rebuilt(made: Any) -> bool:
    kind = next((one for one in (Decision, rf.Mechanism) if isinstance(made, one)), type(made))
    return bool(kind.from_state_dict(made.state_dict()).state_dict() == made.state_dict())


def claimed(claim: Guarantee) -> bool:
    own = claim.per_instance
    numbers = (own.ex_post_epsilon, own.epsilon, claim.epsilon, 0.0 if claim.mu is None else claim.mu)
    return bool(claim.statement) and all(number >= 0 for number in numbers)


def of(
    known: dict[str, SearchStrategy[Any]],
    name: str,
    words: str,
    holds: Any = lambda answer: True,
    few: int = 20,
) -> Call:
    """A call of the method of this name of a law, with arguments that are known by their names."""

    def call(law: Any, **arguments: Any) -> Any:
        return getattr(law, name)(**arguments)

    return Call(call, {word: known[word] for word in ("law", *words.split())}, holds, few)


def account_of_one(law: Any, theta: Any, sensitivity: Any, orders: Any, count: Any, delta: Any) -> Any:
    account = rf.PerInstanceAccountant(law, sensitivity, orders)
    account.step(theta, count=count)
    claim = account.guarantee(delta)
    assert 1e-3 <= claim.true_positive_rate(1e-3) <= 1.000001e-3 + claim.advantage
    return claim


def account_of_samples(
    law: Any, theta: Any, sensitivity: Any, rate: Any, cut: Any, count: Any, delta: Any, few: bool
) -> Any:
    account = rf.SampledAccountant(law, sensitivity, rate, cut=cut)
    account.step_worst_case(theta, count=count)
    # the sampled Gaussian's own curve takes a while
    return account.guarantee(delta) if few else None


def account_of_examples(
    law: Any, theta: Any, gradients: Any, orders: Any, count: Any, delta: Any, kind: Any
) -> Any:
    account = rf.ExampleAccountant(law, orders)
    account.step(theta, gradients, count=count)
    return account.epsilons(delta, kind)


def account_of_information(law: Any, theta: Any, jacobian: Any, kind: Any) -> Any:
    account = rf.FisherAccountant(law)
    for _ in range(2):
        account.step(theta, jacobian)
    account.guarantee()
    return account.fisher_information_loss(kind=kind)


def profile(law: Any, theta: Any, sensitivity: Any, steps: Any, delta: Any, epsilon: Any) -> Any:
    # what composes for minutes is left out: releases of thousands, and shifts of many sigma
    size = rf.Sensitivity.of(sensitivity)
    if (isinstance(steps, int) and steps > 3) or bool((size.farthest > 1e-2).any()):
        return 0.0
    found = rf.privacy_profile(law, theta, sensitivity, steps)
    assert is_share(found.delta(epsilon))
    return found.epsilon(delta)


mostly, spread, sizes, extreme = fuzz.mostly, fuzz.spread, fuzz.sizes, fuzz.extreme_sizes()
some = mostly(extreme)
laws, theta = mostly(fuzz.mechanisms(), one_in=12), mostly(spread(fuzz.signed()))
own_law, usual_law = fuzz.mechanisms(), mostly(fuzz.usual_mechanisms(), one_in=12)
usual_theta, row = mostly(spread(st.floats(-50, 50))), mostly(spread(fuzz.signed(), shapes=((3,),)))
alpha = mostly(spread(st.one_of(sizes(1.0001, 2048.0), st.sampled_from((1e16, 1e300)))))
move = st.one_of(spread(st.one_of(extreme, st.just(0.0))), fuzz.sensitivities(extreme))
usual_move = mostly(st.one_of(sizes(1e-4, 3.0), fuzz.sensitivities(sizes(1e-4, 3.0))))
orders = mostly(st.sampled_from([[2, 8, 64], [1.5], [1.01, 2.0, 2048.0], torch.tensor([2.0, 3.0])]))
deltas, counts = mostly(fuzz.deltas), mostly(st.integers(1, 1000))
kinds = st.sampled_from(("ex_post", "per_instance", "data_independent", "spectral", "trace", "", None, 1.0))
numbers = mostly(extreme, one_in=10)
table = mostly(spread(fuzz.signed(), ((2,), (3,), (1, 3), (2, 3), (2, 1, 2), (0, 3), (3, 40))), one_in=8)
decisions = st.one_of(
    *(st.builds(law, extreme) for law in (rf.NoisyWinner, rf.GumbelWinner)),
    st.builds(rf.ConfidentWinner, extreme, fuzz.signed(), extreme),
)
PARAMETERS = {
    "sigma": mostly(spread(extreme)),
    "bound": mostly(fuzz.bounds()),
    "levels": mostly(st.integers(2, 33)),
}

OF_A_LAW = {
    **{"law": own_law, "theta": theta, "shift": theta, "epsilon": theta, "value": theta, "alpha": alpha},
    **{"orders": alpha, "secure": mostly(st.booleans(), one_in=8)},
    **{"step": st.one_of(st.none(), mostly(spread(extreme)))},
    **{"generator": st.one_of(st.none(), mostly(fuzz.generators))},
}
OF_A_DECISION = {
    **{"law": decisions, "counts": table, "move": table, "alpha": numbers, "epsilon": numbers},
    **{"winner": mostly(st.integers(-1, 3))},
}
CALLS: dict[str, Call] = {
    **{
        f"law_{law.name}": Call(law, {name: PARAMETERS[name] for name in law.fields()}, rebuilt)
        for law in fuzz.LAWS
    },
    "divergence": of(OF_A_LAW, "renyi_divergence", "theta shift alpha", at_least_zero, 40),
    "curve": of(OF_A_LAW, "renyi_curve", "theta shift orders", at_least_zero),
    "hockey_stick": of(OF_A_LAW, "hockey_stick", "theta shift epsilon", is_share, 60),
    "information": of(OF_A_LAW, "fisher_information", "theta", at_least_zero),
    "moments": of(
        *(OF_A_LAW, "loss_moments", "theta shift"),
        lambda moments: at_least_zero(moments.variance) and at_least_zero(moments.fourth),
    ),
    "density": of(OF_A_LAW, "log_prob", "value theta"),
    "sample": Call(
        lambda law, theta, generator: law.log_prob(law.sample(theta, generator=generator), theta),
        {"law": own_law, "theta": theta, "generator": mostly(fuzz.generators, one_in=8)},
    ),
    "release": of(OF_A_LAW, "release", "theta secure step generator", few=30),
    "decision_divergence": of(OF_A_DECISION, "renyi_divergence", "counts move alpha", at_least_zero),
    "decision_mass": of(OF_A_DECISION, "log_prob", "winner counts"),
    "decision_error": of(OF_A_DECISION, "chance_of_error", "counts", is_share),
    "decision": of(OF_A_DECISION, "release", "counts"),
    "account": Call(
        account_of_one,
        {
            **{"law": laws, "theta": theta, "sensitivity": mostly(move), "orders": orders, "count": counts},
            **{"delta": deltas},
        },
        claimed,
        few=25,
        share=0.4,
    ),
    "account_of_samples": Call(
        account_of_samples,
        {
            **{"law": usual_law, "theta": usual_theta, "sensitivity": usual_move, "delta": deltas},
            **{
                "rate": mostly(sizes(1e-3, 1.0)),
                "cut": mostly(st.sampled_from([0.0, 1e-9, 0.5])),
                "count": mostly(st.integers(1, 50)),
                "few": st.booleans(),
            },
        },
        lambda claim: claim is None or claimed(claim),
        few=15,
        share=0.05,
    ),
    "account_of_examples": Call(
        account_of_examples,
        {
            **{"law": laws, "theta": row, "gradients": mostly(spread(fuzz.signed(), shapes=((2, 3),)))},
            **{"orders": orders, "count": counts, "delta": deltas, "kind": kinds},
        },
        at_least_zero,
        few=15,
        share=0.5,
    ),
    "account_of_information": Call(
        account_of_information,
        {
            **{"law": laws, "theta": row, "kind": kinds},
            "jacobian": mostly(spread(fuzz.signed(), shapes=((3, 2), (2, 3, 2), (3, 1)))),
        },
        at_least_zero,
        share=0.5,
    ),
    "profile": Call(
        profile,
        {
            **{"law": usual_law, "theta": mostly(spread(st.floats(-50, 50), shapes=((), (2,))))},
            "sensitivity": mostly(st.one_of(sizes(1e-4, 1e-2), fuzz.sensitivities(sizes(1e-4, 1e-2)))),
            **{"steps": mostly(st.integers(1, 3)), "delta": deltas, "epsilon": mostly(sizes(1e-3, 50.0))},
        },
        at_least_zero,
        few=6,
        share=0.008,
    ),
}


def _property(name: str, call: Call) -> Property:
    def holds(arguments: dict[str, Any]) -> None:
        answer = calls_well(call.job, names=(*NAMES, *arguments), **arguments)
        assert answer is None or call.holds(answer), arguments

    holds.__name__ = name
    return Property("calls", holds, {"arguments": st.fixed_dictionaries(call.arguments)}, call.share)


EVERY = {name: _property(name, call) for name, call in CALLS.items()}
PROPERTIES.extend(EVERY.values())


@pytest.mark.parametrize("name", CALLS)
def test_an_answer_in_its_range_or_a_refusal_by_name(name: str) -> None:
    one = EVERY[name]
    settings(max_examples=CALLS[name].few)(given(**one.strategies)(one.function))()


def _saved() -> list[tuple[Any, dict[str, Any]]]:
    law, theta = rf.TruncatedGaussian(1.0, 2.0), torch.linspace(-2, 2, 3, dtype=torch.float64)
    accounts: list[Any] = [
        rf.PerInstanceAccountant(law, rf.Sensitivity(0.1, at_most=2, norm=0.12), [2, 8]),
        rf.SampledAccountant(law, 0.1, 0.5),
        rf.ExampleAccountant(law, [2, 8]),
    ]
    accounts[0].step(theta)
    accounts[1].step_worst_case(theta)
    accounts[2].step(theta, torch.ones(2, 3))
    saved = [(type(account), account.state_dict()) for account in accounts]
    return [
        *saved,
        *((rf.Mechanism, known.state_dict()) for known in (law, rf.QuantizedGaussian(1.0, 2.0, 5))),
    ]


SAVED = _saved()
KEYS = sorted({key for _, state in SAVED for key in state})


@fuzzed("states", share=7, few=60, which=st.integers(0, len(SAVED) - 1), state=st.data())
def test_a_saved_account_or_law_is_read_or_refused(which: int, state: Any) -> None:
    kind, saved = SAVED[which]
    changed = state.draw(fuzz.changed(copy.deepcopy(saved)))
    made = calls_well(kind.from_state_dict, changed, names=(*NAMES, *KEYS))
    assert made is None or rebuilt(made)


def test_the_contract_sees_a_nan_a_nameless_error_and_a_wrong_kind() -> None:
    def bad(theta: float) -> Any:
        if theta == 0:
            return {"epsilon": [float("nan")]}
        raise (ValueError("no good") if theta == 1 else RuntimeError("theta is bad"))

    for theta, words in ((0, "gave a NaN"), (1, "names none of theta"), (2, "neither ours nor")):
        with pytest.raises(ContractError, match=words):
            calls_well(bad, theta)
