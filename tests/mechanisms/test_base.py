"""Every law: what it says of itself, how it is saved, and its arguments at the ends of what floats hold."""

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import ringfence as rf
from tests.audit.releases import example

ENDS = {"bound": ["lower", "upper"]}


class Quiet(rf.StochasticSign):
    """A law that only has a name."""

    name = "sign"  # a name that is taken: this class is in no list of laws


def test_what_a_law_leaves_out_has_a_default() -> None:
    assert (Quiet.label, Quiet.fields()) == ("sign", ("sigma",))
    assert not Quiet.exponential_family
    assert Quiet(2.0).settings() == {}
    assert float(Quiet(2.0).information_bound()) == 0.25
    assert rf.Gaussian(1.0).turning_points() == ()
    assert [float(end) for end in rf.RectifiedGaussian(1.0, (-1.0, 3.0)).turning_points()] == [-1.0, 3.0]


@pytest.mark.parametrize(
    ("law", "interval", "atoms"),
    [
        (rf.Gaussian(1.0), [-math.inf, math.inf], []),
        (rf.RectifiedGaussian(1.0, (-1.0, 3.0)), [-1.0, 3.0], [-1.0, 3.0]),
        (rf.TruncatedGaussian(1.0, (-1.0, 3.0)), [-1.0, 3.0], []),
        (rf.StochasticSign(1.0), None, [-1.0, 1.0]),
        (rf.Laplace(1.0), [-math.inf, math.inf], []),
        (rf.Laplace(sigma=1.0, bound=(0.0, 2.5)), None, [0.0, 1.0, 2.0, 2.5]),
    ],
)
def test_a_support_is_an_interval_and_atoms(
    law: rf.Mechanism, interval: list[float] | None, atoms: list[float]
) -> None:
    found = law.support.interval
    assert (None if found is None else [float(end) for end in found]) == interval
    assert [float(atom) for atom in law.support.atoms] == atoms


def test_known_laws_are_in_alphabetical_order_and_can_be_built_from_their_fields() -> None:
    known = rf.Mechanism.known()
    assert list(known) == sorted(known)
    for law in known.values():
        built = example(law, 1.0, 2.0)
        assert type(built) is law
        names = [*built.parameters(), *built.settings()]
        assert names == [end for name in law.fields() for end in ENDS.get(name, [name])]
        assert all(isinstance(point, torch.Tensor) for point in built.turning_points())


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


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: rf.QuantizedGaussian(1.0, 1.0, 4).renyi_curve(1.0, 1.0, []),
            "orders must hold at least one order",
        ),
        (lambda: rf.Mechanism.by_name([], sigma=1.0), "mechanism must be one of"),
        (lambda: rf.Mechanism.by_name(torch.ones(3), sigma=1.0), "mechanism must be one of"),
        (lambda: rf.QuantizedGaussian(1.0, 1.0, 2**31), "levels must be at most 65536"),
        (
            lambda: rf.QuantizedGaussian(1.0, 1.7e308, 3),
            "bound must have a finite width",
        ),  # its levels were NaN
        (lambda: rf.Gaussian(1.0).release(0.0, secure=torch.ones(2)), "secure must be True or False"),
    ],
)
def test_refusals_say_what_is_wrong(call: Callable[[], object], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        call()


@pytest.mark.parametrize("shift", [1e3, 1e12, 1e14, 1e18, 1e50, 1e160])
def test_a_hockey_stick_does_not_vanish_where_the_shift_is_enormous(shift: float) -> None:
    """That of the truncated law was 0 from 1e18 sigma on: the threshold had lost its digits."""
    law = rf.TruncatedGaussian(1.0, 1.0)
    for move in (shift, -shift):
        assert float(law.hockey_stick(0.0, move, 1.0)) > 0.99
        assert float(law.hockey_stick(torch.tensor(0.0), min(max(move, -1e30), 1e30), 1.0)) > 0.99


@pytest.mark.parametrize("bound", [0.25, 4.0])
@pytest.mark.parametrize("shift", [1e15, 1e30])
def test_an_enormous_shift_loses_at_most_the_width_of_the_support(bound: float, shift: float) -> None:
    """The loss of a truncated law is linear, with slope shift: beyond shift times width nothing is lost."""
    law, most = rf.TruncatedGaussian(1.0, bound), 2 * bound * shift
    for move in (shift, -shift):
        assert float(law.hockey_stick(0.0, move, 0.99 * most)) == 1.0
        assert float(law.hockey_stick(0.0, move, 1.01 * most)) == 0.0


def test_a_hockey_stick_is_at_most_1() -> None:
    """Rounding made it 1 + 7e-16."""
    assert float(rf.RectifiedGaussian(1.0, math.inf).hockey_stick(-0.0, -8.8861e6, 0.0)) <= 1


@pytest.mark.parametrize("method", ["fisher_information", "renyi_divergence", "hockey_stick", "loss_moments"])
def test_what_cannot_be_represented_says_so(method: str) -> None:
    """Was a ValueError: cannot convert float NaN to integer."""
    law = rf.QuantizedGaussian(0.3, (-1.0, -0.97), 4)
    arguments = {"renyi_divergence": (1.0, 2.0), "hockey_stick": (1.0, 0.5), "loss_moments": (1.0,)}
    with pytest.raises(FloatingPointError, match=f"QuantizedGaussian.{method} cannot be represented"):
        getattr(law, method)(1.7976931348623157e308, *arguments.get(method, ()))
