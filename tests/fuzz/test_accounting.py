"""Accounts: opened, charged, asked and read back with anything."""

import copy
from typing import Any

import torch
from hypothesis import strategies as st

import ringfence as rf
from ringfence.accounting import conversion
from ringfence.accounting.fisher import (
    fisher_information_bounds,
    poisson_information_factor,
    reconstruction_error_bound,
)
from ringfence.accounting.privacy_loss import PrivacyLoss
from ringfence.accounting.subsampling import fixed_batch_rdp
from tests.fuzz import strategies as fuzz
from tests.fuzz.contract import calls_well
from tests.fuzz.properties import fuzzed

NAMES = (
    *("sigma", "bound", "lower", "upper", "levels", "theta", "sensitivity", "orders", "delta", "count"),
    *("gaussian_zcdp", "bounded_zcdp", "steps", "forward", "backward", "kind", "version", "state", "norm"),
    *("mechanism", "each", "at_most", "gradients", "jacobian", "batches", "sampling_rate", "generator"),
    *("failure_probability", "pure_epsilon"),
)

thetas = fuzz.mostly(fuzz.spread(fuzz.signed()))
usual_thetas = fuzz.mostly(fuzz.spread(st.floats(-50, 50)))
sensitivities = fuzz.mostly(
    st.one_of(
        fuzz.spread(st.one_of(fuzz.extreme_sizes(), st.just(0.0))), fuzz.sensitivities(fuzz.extreme_sizes())
    )
)
usual_moves = fuzz.mostly(st.one_of(fuzz.sizes(1e-4, 3.0), fuzz.sensitivities(fuzz.sizes(1e-4, 3.0))))
deltas = fuzz.mostly(fuzz.deltas)
counts = fuzz.mostly(st.integers(1, 1000))
some_orders = fuzz.mostly(st.sampled_from([[2, 8, 64], [1.5], [1.01, 2.0, 2048.0], torch.tensor([2.0, 3.0])]))
whole_orders = fuzz.mostly(st.sampled_from([[2, 8], [3], torch.tensor([2.0, 32.0])]))


def at_least_zero(*epsilons: float) -> None:
    assert all(epsilon >= 0 for epsilon in epsilons), epsilons


@fuzzed(
    "accounting",
    share=0.4,
    few=25,
    law=fuzz.mostly(fuzz.mechanisms(), one_in=12),
    theta=thetas,
    sensitivity=sensitivities,
    orders=some_orders,
    count=counts,
    delta=deltas,
    exact=fuzz.mostly(st.booleans(), one_in=12),
)
def test_per_instance_accounts(
    law: Any, theta: Any, sensitivity: Any, orders: Any, count: Any, delta: Any, exact: Any
) -> None:
    calls_well(rf.per_instance_rdp, law, theta, sensitivity, orders, exact=exact, names=NAMES)
    account = calls_well(rf.PerInstanceAccountant, law, sensitivity, orders, names=NAMES)
    if account is not None:
        calls_well(account.step, theta, count=count, exact=exact, names=NAMES)
        claim = calls_well(account.guarantee, delta, names=NAMES)
        if claim is not None:
            at_least_zero(
                claim.per_instance.ex_post_epsilon, claim.per_instance.epsilon, claim.epsilon, claim.mu
            )
            assert 1e-3 <= claim.true_positive_rate(1e-3) <= 1.000001e-3 + claim.advantage
            assert claim.statement


@fuzzed(
    "accounting",
    share=0.05,
    few=15,
    law=fuzz.mostly(fuzz.usual_mechanisms(), one_in=12),
    theta=usual_thetas,
    sensitivity=usual_moves,
    rate=fuzz.mostly(fuzz.sizes(1e-3, 1.0)),
    orders=whole_orders,
    failure=fuzz.mostly(fuzz.sizes(1e-12, 0.1)),
    delta=deltas,
    batches=st.integers(0, 4),
)
def test_sampled_accounts(
    law: Any, theta: Any, sensitivity: Any, rate: Any, orders: Any, failure: Any, delta: Any, batches: int
) -> None:
    several = [theta] * batches if batches else theta
    calls_well(fixed_batch_rdp, law, theta, sensitivity, rate, orders, names=NAMES)
    calls_well(
        rf.subsampled_rdp, law, several, sensitivity, rate, orders, failure_probability=failure, names=NAMES
    )
    account = calls_well(rf.SampledAccountant, law, sensitivity, rate, orders, failure, names=NAMES)
    if account is not None:
        calls_well(account.step, several, names=NAMES)
        calls_well(account.step_worst_case, theta, names=NAMES)
        if account.steps and batches == 2:  # the sampled Gaussian's own curve takes a while
            claim = calls_well(account.guarantee, delta, names=(*NAMES, "spent"))
            if claim is not None:
                at_least_zero(claim.per_instance.ex_post_epsilon, claim.per_instance.epsilon, claim.epsilon)


@fuzzed(
    "accounting",
    share=0.5,
    few=15,
    law=fuzz.mostly(fuzz.mechanisms(), one_in=12),
    theta=fuzz.mostly(fuzz.spread(fuzz.signed(), shapes=((3,),))),
    gradients=fuzz.mostly(fuzz.spread(fuzz.signed(), shapes=((2, 3),))),
    orders=some_orders,
    count=counts,
    delta=deltas,
    kind=st.sampled_from(("ex_post", "per_instance", "", None, 1.0)),
)
def test_examples_accounts(
    law: Any, theta: Any, gradients: Any, orders: Any, count: Any, delta: Any, kind: Any
) -> None:
    account = calls_well(rf.ExampleAccountant, law, orders, names=NAMES)
    if account is not None:
        calls_well(account.step, theta, gradients, count=count, names=NAMES)
        epsilons = calls_well(account.epsilons, delta, kind, names=NAMES)
        assert epsilons is None or bool((epsilons >= 0).all())


@fuzzed(
    "accounting",
    share=0.5,
    few=20,
    law=fuzz.mostly(fuzz.mechanisms(), one_in=12),
    theta=fuzz.mostly(fuzz.spread(fuzz.signed(), shapes=((3,),))),
    jacobian=fuzz.mostly(fuzz.spread(fuzz.signed(), shapes=((3, 2), (2, 3, 2), (3, 1)))),
    kind=st.sampled_from(("spectral", "trace", "", None, 1.0)),
    rate=fuzz.mostly(st.just(1.0)),
    pure_epsilon=st.one_of(st.none(), fuzz.mostly(fuzz.extreme_sizes())),
)
def test_information_accounts(
    law: Any, theta: Any, jacobian: Any, kind: Any, rate: Any, pure_epsilon: Any
) -> None:
    loss = calls_well(rf.fisher_information_loss, law, theta, jacobian, kind=kind, names=NAMES)
    assert loss is None or bool((loss >= 0).all())
    ends = calls_well(fisher_information_bounds, law, theta, jacobian, names=NAMES)
    assert ends is None or bool((ends.lower <= ends.upper).all())
    calls_well(poisson_information_factor, rate, pure_epsilon)
    calls_well(reconstruction_error_bound, theta)
    account = calls_well(rf.FisherAccountant, law, names=NAMES)
    if account is not None:
        for _ in range(2):
            calls_well(
                account.step, theta, jacobian, sampling_rate=rate, pure_epsilon=pure_epsilon, names=NAMES
            )
        calls_well(account.guarantee, names=NAMES)
        calls_well(account.fisher_information_loss, kind=kind, names=NAMES)


def _saved() -> list[tuple[Any, dict[str, Any]]]:
    law, theta = rf.TruncatedGaussian(1.0, 2.0), torch.linspace(-2, 2, 3, dtype=torch.float64)
    accounts: list[Any] = [
        rf.PerInstanceAccountant(law, rf.Sensitivity(0.1, at_most=2, norm=0.12), [2, 8]),
        rf.SampledAccountant(law, 0.1, 0.5, [2, 3]),
        rf.ExampleAccountant(law, [2, 8]),
        rf.FisherAccountant(law),
    ]
    accounts[0].step(theta)
    accounts[1].step(torch.stack((theta, theta)))
    accounts[2].step(theta, torch.ones(2, 3))
    accounts[3].step(theta, torch.ones(3, 2))
    return [(type(account), account.state_dict()) for account in accounts]


SAVED = _saved()
KEYS = sorted({key for _, state in SAVED for key in state})


@fuzzed("accounting", share=7, few=40, which=st.integers(0, len(SAVED) - 1), state=st.data())
def test_a_saved_account_is_read_or_refused(which: int, state: Any) -> None:
    kind, saved = SAVED[which]
    changed = state.draw(fuzz.changed(copy.deepcopy(saved)))
    names = ("law", "parameters", "settings", "dtype", "value", "parameter", "records[0]", "records[1]")
    account = calls_well(kind.from_state_dict, changed, names=(*NAMES, *KEYS, *names))
    if account is not None:
        assert kind.from_state_dict(account.state_dict()).state_dict() == account.state_dict()


@fuzzed(
    "accounting",
    share=0.008,
    few=6,
    law=fuzz.mostly(fuzz.usual_mechanisms(), one_in=12),
    theta=fuzz.mostly(fuzz.spread(st.floats(-50, 50), shapes=((), (2,)))),
    sensitivity=fuzz.mostly(st.one_of(fuzz.sizes(1e-4, 1e-2), fuzz.sensitivities(fuzz.sizes(1e-4, 1e-2)))),
    steps=fuzz.mostly(st.integers(1, 3)),
    delta=deltas,
    epsilon=fuzz.mostly(fuzz.sizes(1e-3, 50.0)),
)
def test_profiles(law: Any, theta: Any, sensitivity: Any, steps: Any, delta: Any, epsilon: Any) -> None:
    # what composes for minutes is left out: releases of thousands, and shifts of many sigma
    size = calls_well(rf.Sensitivity.of, sensitivity, names=NAMES)
    if size is not None and ((isinstance(steps, int) and steps > 3) or bool((size.farthest > 1e-2).any())):
        return
    profile = calls_well(rf.privacy_profile, law, theta, sensitivity, steps, names=NAMES)
    if profile is not None:
        cost = calls_well(profile.delta, epsilon, names=NAMES)
        assert cost is None or 0 <= cost <= 1
        cost = calls_well(profile.epsilon, delta, names=NAMES)
        assert cost is None or cost >= 0


@fuzzed(
    "accounting",
    share=0.05,
    few=3,
    law=fuzz.mostly(fuzz.usual_mechanisms(), one_in=12),
    theta=usual_thetas,
    sensitivity=usual_moves,
    target=st.fixed_dictionaries(
        {
            "epsilon": fuzz.mostly(fuzz.sizes(1e-2, 10.0)),
            "delta": fuzz.mostly(fuzz.sizes(1e-9, 1e-2)),
            "kind": st.sampled_from(("ex_post", "per_instance", "data_independent", "", None, [])),
            "coordinates": st.one_of(st.none(), fuzz.mostly(st.integers(1, 10**6))),
            "sampling_rate": st.sampled_from(
                (1.0, 1.0, 1.0, 1, 0.0, -0.5, 2.0, float("nan"), None, "half", [])
            ),
        }
    ),
    steps=fuzz.mostly(st.integers(1, 100)),
    which=st.integers(0, 2),
)
def test_calibration(
    law: Any, theta: Any, sensitivity: Any, target: dict[str, Any], steps: Any, which: int
) -> None:
    if which == 0:
        calls_well(rf.calibrate_steps, law, theta, sensitivity, **target, names=NAMES)
    else:
        function = rf.calibrate_sigma if which == 1 else rf.calibrate_bound
        calls_well(function, law, theta, sensitivity, steps=steps, **target, names=NAMES)


@fuzzed(
    "accounting", share=0.4, few=20, zcdp=fuzz.extreme_sizes(), delta=deltas, epsilon=fuzz.extreme_sizes()
)
def test_conversions(zcdp: Any, delta: Any, epsilon: Any) -> None:
    calls_well(conversion.gaussian_epsilon, zcdp, delta)
    calls_well(conversion.gaussian_delta, zcdp, epsilon)
    calls_well(lambda zcdp, delta: PrivacyLoss.of_zcdp(zcdp, zcdp).epsilon(delta), zcdp, delta)


@fuzzed(
    "accounting",
    share=0.05,
    few=2,
    law=fuzz.mostly(fuzz.usual_mechanisms(), one_in=12),
    theta=fuzz.mostly(fuzz.spread(st.floats(-50, 50), shapes=((3,),))),
    sensitivity=usual_moves,
    delta=deltas,
    zcdp=fuzz.mostly(fuzz.sizes(1e-6, 1.0)),
    failure=fuzz.mostly(fuzz.sizes(1e-9, 0.1)),
    order=st.one_of(st.none(), fuzz.mostly(fuzz.sizes(1.01, 100.0))),
)
def test_publication(
    law: Any, theta: Any, sensitivity: Any, delta: Any, zcdp: Any, failure: Any, order: Any
) -> None:
    number = calls_well(
        rf.publishable_epsilon,
        law,
        theta,
        sensitivity,
        delta=delta,
        publishing_zcdp=zcdp,
        failure_probability=failure,
        order=order,
        names=NAMES,
    )
    if number is not None:
        at_least_zero(number.epsilon, number.per_instance_epsilon, number.ex_post_epsilon)
