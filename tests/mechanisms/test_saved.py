"""Laws as plain data: what a saved law may not be, and whose name is whose."""

import copy
import math
from typing import Any

import pytest

import ringfence as rf


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        (("law",), [], "law must be one of"),
        (("parameters",), 1.0, "parameters must be a dict"),
        (("settings",), None, "settings must be a dict"),
        (("settings",), {}, "parameters and settings has missing keys"),
        (("parameters", "lower"), None, "parameter lower must be a dict"),
        (("parameters", "sigma", "dtype"), "int8", "dtype of sigma must be one of"),
        (("parameters", "sigma", "value"), "1", "parameter sigma must be a number"),
        (("parameters", "sigma", "value"), math.nan, "parameter sigma must not be NaN"),
    ],
)
def test_a_saved_law_is_refused_by_name(path: tuple[str, ...], value: Any, complaint: str) -> None:
    state = copy.deepcopy(rf.QuantizedGaussian(1.0, 2.0, 3).state_dict())
    part = state
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    with pytest.raises((TypeError, ValueError), match=complaint):
        rf.Mechanism.from_state_dict(state)


def test_no_later_class_takes_over_the_name_of_a_law() -> None:
    """A law is looked up by name where it is saved, swept or asked for on the command line."""

    class Gaussian(rf.Gaussian):  # the same class name, and the inherited name "gaussian"
        pass

    class Other(rf.StochasticSign):
        name = "sign"

    assert type(rf.Mechanism.by_name("gaussian", sigma=1.0)) is rf.Gaussian
    assert type(rf.Mechanism.by_name("sign", sigma=1.0)) is rf.StochasticSign
    assert type(rf.Mechanism.from_state_dict(rf.Gaussian(1.0).state_dict())) is rf.Gaussian
    assert type(Gaussian(1.0)) is not type(Other(1.0))
