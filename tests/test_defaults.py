"""What a caller gets without asking: a changed default changes published numbers."""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import is_dataclass
from inspect import Parameter, signature

import numpy as np
import pytest

import ringfence as rf
from ringfence import accounting, mechanisms
from ringfence.accounting.fisher import fisher_information_bounds
from ringfence.accounting.subsampling import fixed_batch_rdp
from ringfence.mechanisms.base import Support
from ringfence.mechanisms.secure import SecureRelease
from ringfence.numerics.operators import (
    BatchedOperator,
    LinearOperator,
    probable_bounds_of_many,
    probable_traces,
)
from ringfence.numerics.singular_values import SingularValueBounds
from tests.tensors import float64


def steps(first: float, last: float, by: float) -> list[float]:
    return [first + by * k for k in range(round((last - first) / by) + 1)]


ORDERS = [
    *(1.1, *steps(1.25, 3, 0.25), *steps(3.5, 8, 0.5), *steps(9, 16, 1), *steps(18, 24, 2)),
    *(*steps(28, 40, 4), *steps(48, 80, 8), *steps(96, 160, 16), *steps(192, 256, 32)),
    *(*steps(320, 512, 64), *steps(640, 1024, 128), *steps(1280, 2048, 256)),
]
INTEGERS = [order for order in ORDERS if order in range(33, 257)]
INTEGERS = [*range(2, 33), *sorted({44, *INTEGERS})]
BOUNDS = {"generator": None, "failure_probability": 1e-6}
CALIBRATED = {"kind": "data_independent", "coordinates": None, "sampling_rate": 1.0}
SAMPLED = {"mechanism": None, "sensitivity": None, "sampling_rate": None, "count": 1}

DEFAULTS = [
    (rf.DecisionAccountant, {"at_most": None, "orders": ORDERS}),
    (rf.decision_profile, {"at_most": None}),
    (
        rf.publishable_decision_epsilon,
        {
            "at_most": None, "failure_probability": 1e-3,
            "publishing_zcdp": None, "smoothness": None, "order": None,
        },
    ),
    (rf.voter_epsilons, {"candidates": None}),
    (rf.ExampleAccountant, {"orders": ORDERS}),
    (rf.ExampleAccountant.step, {"mechanism": None, "count": 1, "exact": False}),
    (rf.ExampleAccountant.epsilons, {"kind": "ex_post"}),
    (rf.FisherAccountant, {"gram_limit": 2048}),
    (rf.FisherAccountant.step, {"mechanism": None, "sampling_rate": 1.0, "pure_epsilon": None}),
    (rf.FisherAccountant.fisher_information_loss, {"kind": "spectral"}),
    (
        rf.Guarantee,
        {"assumptions": [], "change": "added or removed"},
    ),
    (rf.Ledger, dict.fromkeys(("url", "epsilon", "delta", "neighbours", "planned", "path"))),
    (LinearOperator, {"rounding": 1e-12}),
    (BatchedOperator, {"rounding": 1e-12, "device": "cpu"}),
    (
        probable_bounds_of_many,
        {"failure_probability": 1e-6, "probes": None, "tolerance": 0.05, "maximum_degree": 32},
    ),
    (probable_traces, {"failure_probability": 1e-6, "probes": 64}),
    (rf.Mechanism.release, {"secure": True, "step": None, "generator": None}),
    (rf.PerInstanceAccountant, {"orders": ORDERS}),
    (rf.PerInstanceAccountant.step, {"mechanism": None, "sensitivity": None, "count": 1, "exact": False}),
    (rf.PerInstanceAccountant.step_worst_case, {"mechanism": None, "sensitivity": None, "count": 1}),
    (rf.SampledAccountant, {"orders": INTEGERS, "failure_probability": 1e-9}),
    (rf.SampledAccountant.step, SAMPLED),
    (rf.SampledAccountant.step_worst_case, SAMPLED),
    (SecureRelease, {"step": None}),
    (SingularValueBounds, {"failure_probability": 0.0}),
    (Support, {"atoms": []}),
    (rf.calibrate_bound, {"steps": 1, **CALIBRATED}),
    (rf.calibrate_sigma, {"steps": 1, **CALIBRATED}),
    (rf.calibrate_steps, CALIBRATED),
    (fisher_information_bounds, {**BOUNDS, "tolerance": 0.01, "maximum_degree": 256}),
    (rf.fisher_information_loss, {"kind": "spectral"}),
    (fixed_batch_rdp, {"orders": INTEGERS, "record": "added"}),
    (rf.per_instance_rdp, {"orders": ORDERS, "exact": False}),
    (rf.privacy_profile, {"steps": 1}),
    (rf.publishable_epsilon, {"order": None}),
    (
        rf.release_votes,
        {
            **{"questions": None, "epsilon": None, "delta": 1e-6, "sigma": None, "at_most": None},
            **{"person": None, "ignore": [], "neighbours": "added", "publish_epsilon": False, "seed": None},
            "ledger": None, "what": None,
        },
    ),
    (
        rf.release_winners,
        {
            **{"queries": None, "epsilon": None, "delta": 1e-6, "sigma": None, "candidates": None},
            **{"confident_above": None, "threshold_sigma": None, "neighbours": "replaced", "at_most": None},
            **{"person": None, "query": None, "ignore": [], "publish_epsilon": False, "seed": None},
            **{"ledger": None, "what": None, "noise": "auto"},
        },
    ),
    (
        rf.Pate,
        {
            **{"sigma": None, "threshold": None, "threshold_sigma": None, "epsilon": None, "delta": 1e-6},
            **{"queries": None, "classes": None, "adaptive": True, "publish_epsilon": False, "seed": None},
            "ledger": None, "what": None,
        },
    ),
    (
        rf.release_counts,
        {
            "by": None, "epsilon": None, "delta": 1e-6, "sigma": None, "noise": "auto",
            "suppress_below": None, "domain": None, "bins": None, "person": None,
            "at_most": 1, "counts": None, "seed": None, "ledger": None, "what": None,
        },
    ),
    (
        rf.release_means,
        {
            "by": None, "epsilon": None, "delta": 1e-6, "sigma": None, "noise": "auto",
            "suppress_below": None, "domain": None, "bins": None, "person": None,
            "at_most": 1, "coverage": 0.95, "seed": None, "ledger": None, "what": None,
        },
    ),
    (rf.subsampled_rdp, {"orders": INTEGERS}),
]  # fmt: skip


@pytest.mark.parametrize(("function", "defaults"), DEFAULTS, ids=lambda value: getattr(value, "__name__", ""))
def test_defaults(function: object, defaults: dict[str, object]) -> None:
    found = {
        name: list(parameter.default) if isinstance(parameter.default, tuple) else parameter.default
        for name, parameter in signature(function).parameters.items()
        if parameter.default is not Parameter.empty
    }
    assert found == defaults


def test_values_do_not_change_once_made() -> None:
    seen = 0
    for package in (accounting, mechanisms):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            for thing in vars(importlib.import_module(module.name)).values():
                if isinstance(thing, type) and is_dataclass(thing):
                    assert thing.__dataclass_params__.frozen, thing
                    seen += 1
    assert seen > 10


def test_laws_are_what_accounts_take_them_for() -> None:
    """An exponential family is bounded by polynomials, the others by tables."""
    laws = (rf.Gaussian, rf.TruncatedGaussian, rf.RectifiedGaussian, rf.StochasticSign, rf.QuantizedGaussian)
    assert [(law.name, law.exponential_family) for law in laws] == [
        ("gaussian", True),
        ("truncated", True),
        ("rectified", False),
        ("sign", False),
        ("quantized", False),
    ]


@pytest.mark.parametrize("make", [list, tuple, iter, float64, np.array, lambda orders: (a for a in orders)])
def test_orders_may_come_in_anything_that_lists_them(make: Callable[[list[float]], object]) -> None:
    assert rf.per_instance_rdp(rf.Gaussian(1.0), 0.0, 1.0, make([2.0, 3.5])).orders.tolist() == [2.0, 3.5]
