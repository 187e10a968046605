"""Both sides of every limit on an argument: the last value that is taken, and the first that is not."""

import math
from collections.abc import Callable

import pytest
import torch

import ringfence as rf
from ringfence.accounting import examples as example_accounts
from ringfence.mechanisms.secure import SecureRelease
from ringfence.numerics.operators import BatchedOperator
from tests.tensors import float64

GAUSSIAN = rf.Gaussian(1.0)
INFINITY = math.inf


def examples(theta: float = 0.0, sigma: float = 1.0) -> None:
    rf.ExampleAccountant(rf.Gaussian(sigma), [2.0]).step(float64([theta]), float64([[sigma]]))


def information(jacobian: float = 1.0, sigma: float = 1.0) -> None:
    rf.fisher_information_loss(rf.Gaussian(sigma), float64([0.0]), float64([[jacobian * sigma]]))


def batched(count: int = 1, rounding: float = 0.0) -> None:
    BatchedOperator(count, (1, 1), lambda v: v, lambda v: v, rounding)


def secure(step: float, sigma: float = 1.0, bound: float = 1024.0) -> None:
    SecureRelease(rf.RectifiedGaussian(sigma, bound), step=step)


# a call, the last value it takes, and towards where the next one is refused
LIMITS: dict[str, tuple[Callable[[float], object], float, float]] = {
    "smallest sigma of an example": (lambda x: examples(sigma=x), 1e-140, 0.0),
    "largest sigma of an example": (lambda x: examples(sigma=x), 1e140, INFINITY),
    "largest theta of an example": (lambda x: examples(theta=x), 1e100, INFINITY),
    "smallest theta of an example": (lambda x: examples(theta=x), -1e100, -INFINITY),
    "smallest sigma of an information": (lambda x: information(sigma=x), 1e-140, 0.0),
    "largest sigma of an information": (lambda x: information(sigma=x), 1e140, INFINITY),
    "rounding of many operators": (lambda x: batched(rounding=x), 0.1, INFINITY),
    "no rounding of many operators": (lambda x: batched(rounding=x), 0.0, -INFINITY),
    "finest step of sigma": (secure, 2.0**-20, 0.0),
    "finest step of the width": (lambda x: secure(x, sigma=9.0, bound=0.5), 2.0**-20, 0.0),
    "largest step": (lambda x: secure(x, bound=2.0), 4.0, INFINITY),
    "farthest bound": (lambda x: secure(2.0**-20, bound=x), math.nextafter(2.0**31, 0.0), INFINITY),
    "largest sigma of a secure release": (lambda x: SecureRelease(rf.Gaussian(x)), 1e290, INFINITY),
    "smallest order": (lambda x: rf.per_instance_rdp(GAUSSIAN, 0.0, 1.0, [x]), math.nextafter(1.0, 2.0), 0.0),
    "sampling rate": (lambda x: rf.SampledAccountant(GAUSSIAN, 1.0, x), 1.0, INFINITY),
    "smallest sensitivity": (lambda x: rf.per_instance_rdp(GAUSSIAN, 0.0, x), 0.0, -INFINITY),
    "smallest sigma": (rf.Gaussian, math.ulp(0.0), 0.0),
    "largest delta": (lambda x: rf.PerInstanceAccountant(GAUSSIAN, 1.0).guarantee(x), 1 - 2.0**-53, INFINITY),
}
COUNTS: dict[str, tuple[Callable[[int], object], int, int]] = {
    "fewest levels": (lambda n: rf.QuantizedGaussian(1.0, 1.0, levels=n), 2, -1),
    "most levels": (lambda n: rf.QuantizedGaussian(1.0, 1.0, levels=n), 65_536, 1),
    "fewest operators": (lambda n: batched(count=n), 1, -1),
    "fewest steps": (lambda n: rf.privacy_profile(GAUSSIAN, 0.0, 0.0, steps=n), 1, -1),
}


@pytest.mark.parametrize("name", LIMITS)
def test_the_last_number_and_the_next(name: str) -> None:
    call, last, beyond = LIMITS[name]
    call(last)
    with pytest.raises((ValueError, FloatingPointError)):
        call(math.nextafter(last, beyond))


@pytest.mark.parametrize("name", COUNTS)
def test_the_last_count_and_the_next(name: str) -> None:
    call, last, step = COUNTS[name]
    call(last)
    with pytest.raises(ValueError, match=r"must"):
        call(last + step)


@pytest.mark.parametrize(("taken", "refused"), [(1e150, 1.1e150), (1e-150, 0.9e-150)])
def test_jacobians_whose_squares_floats_hold(taken: float, refused: float) -> None:
    information(jacobian=taken * (1 - 1e-14 if taken > 1 else 1 + 1e-14))
    with pytest.raises(ValueError, match=r"must be in \[1e-150, 1e150\]"):
        information(jacobian=refused)
    information(jacobian=0.0)


def test_a_delta_is_at_most_one() -> None:
    profile = rf.privacy_profile(GAUSSIAN, 0.0, 1000.0)
    assert profile.delta(0.0) == 1.0


def test_tables_of_examples_are_dropped_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(example_accounts, "_SETTINGS", 2)
    account = rf.ExampleAccountant(rf.StochasticSign(1.0), [2.0])
    for sigma in (1.0, 2.0, 3.0):
        account.step(torch.zeros(1), torch.ones(1, 1) / 8, mechanism=rf.StochasticSign(sigma))
    assert len(account._tables) == 2
