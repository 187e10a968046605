"""What a caller gets without asking: a changed default changes published numbers.

python -m tests.test_defaults    records the defaults again, in defaults.json
"""

import importlib
import inspect
import json
import pkgutil
from collections.abc import Callable
from dataclasses import is_dataclass
from pathlib import Path

import numpy as np
import pytest

import ringfence as rf
from ringfence import accounting, mechanisms, releases, training
from ringfence.accounting.calibration import PerInstanceCalibrationWarning
from ringfence.accounting.decision_publication import publishable_decision_epsilon
from ringfence.accounting.decisions import decision_profile
from ringfence.mechanisms.decision import Decision
from ringfence.numerics.operators import BatchedOperator, spectral_bounds, trace_bounds
from tests.tensors import float64

RECORD = Path(__file__).parent / "defaults.json"
HELD = (
    "Rows",
    "Products",
    "Words",
    "Together",
    "Standardised",
    *("LinearEstimator", "LinearProbe", "LinearRegression", "Handed", "OpenStep"),
)  # a pass works in them, nothing is told by them; scikit-learn sets the arguments of an estimator


def defaults() -> dict[str, str]:
    """The defaults of all exports, of what was one, and of their public methods."""
    things = [getattr(rf, name) for name in rf.__all__]
    things += [getattr(importlib.import_module(home), name) for name, home in rf._MOVED.items()]
    found = {}
    things += [decision_profile, publishable_decision_epsilon, Decision]
    for thing in (*things, BatchedOperator, spectral_bounds, trace_bounds):
        methods = [getattr(thing, name) for name in vars(thing)] if isinstance(thing, type) else []
        for function in (thing, *methods):
            ours = callable(function) and str(function.__module__).startswith("ringfence.")
            if not ours or function.__name__.startswith("_") or function is PerInstanceCalibrationWarning:
                continue
            parameters = inspect.signature(function).parameters.items()
            own = [f"{name}={one.default!r}" for name, one in parameters if one.default is not one.empty]
            found.update({function.__qualname__: ", ".join(own)} if own else {})
    return found


def test_defaults_are_those_recorded() -> None:
    assert defaults() == json.loads(RECORD.read_text()), "meant? see the docstring above"


def test_values_do_not_change_once_made() -> None:
    seen = 0
    for package in (accounting, mechanisms, releases, training):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name.endswith("_cuda"):  # what only a GPU can import
                continue
            for name, thing in vars(importlib.import_module(module.name)).items():
                if isinstance(thing, type) and is_dataclass(thing) and name not in HELD:
                    assert thing.__dataclass_params__.frozen, thing
                    seen += 1
    assert seen > 10


def test_laws_are_what_accounts_take_them_for() -> None:
    """An exponential family is bounded by polynomials, the others by tables."""
    families = {name: law.exponential_family for name, law in rf.Mechanism.known().items()}
    assert {name for name, is_one in families.items() if is_one} == {"gaussian", "truncated"}


@pytest.mark.parametrize("make", [list, tuple, iter, float64, np.array, lambda orders: (a for a in orders)])
def test_orders_may_come_in_anything_that_lists_them(make: Callable[[list[float]], object]) -> None:
    assert rf.per_instance_rdp(rf.Gaussian(1.0), 0.0, 1.0, make([2.0, 3.5])).orders.tolist() == [2.0, 3.5]


if __name__ == "__main__":
    RECORD.write_text(json.dumps(defaults(), indent=1) + "\n")
