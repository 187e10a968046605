"""Distribution functions in float64 against multi-precision, over all the branches and their edges."""

import itertools

import pytest
import torch
from mpmath import mp, mpf

from ringfence.mechanisms.secure import inversion
from ringfence.mechanisms.secure.inversion import Conditioned, Normal
from tests import oracle
from tests.tensors import float64

SIGMA = 0.5
SHARES = [0.0, 0.01, 0.3, 0.7, 1.0]
# in units of sigma: where flat intervals begin (1 / 64), where theta enters, where the tail begins
WIDTHS = [1e-9, 1e-4, 0.015, 0.17, 0.18, 1.0, 6.0]
NEAREST = [-3.0, -0.1, 0.0, 0.05, 3.99, 4.0, 4.01, 30.0, 1e4]


def intervals() -> list[tuple[float, float]]:
    """(distance of the nearer end, negative if theta is inside; width), which may be at most half inside."""
    return [(near, width) for near, width in itertools.product(NEAREST, WIDTHS) if near >= -width / 2]


@pytest.mark.parametrize("side", [1, -1])
def test_conditioned_to_a_trillionth(side: int) -> None:
    for near, width in intervals():
        ends = sorted((side * SIGMA * near, side * SIGMA * (near + width)))
        law = Conditioned(*(float64([value]) for value in (0.0, SIGMA, *ends)))
        low, high = (mpf(end) / SIGMA for end in ends)
        points = [min(max(ends[0] + share * (ends[1] - ends[0]), ends[0]), ends[1]) for share in SHARES]
        with mp.workdps(60):
            whole = oracle.between(low, high)
            truth = [oracle.between(low, mpf(x) / SIGMA) / whole for x in points]
        for x, expected in zip(points, truth, strict=True):
            got = float(law.below(float64([x])))
            assert abs(got - expected) < 2.0**-41, (near, width, x)


@pytest.mark.parametrize("side", [1, -1])
def test_guesses_are_quantiles(side: int) -> None:
    uniform = float64([0.001, 0.2, 0.5, 0.8, 0.999])
    for near, width in intervals():
        if width < 0.01:
            continue
        ends = sorted((side * SIGMA * near, side * SIGMA * (near + width)))
        law = Conditioned(*(float64([value]) for value in (0.0, SIGMA, *ends)))
        assert torch.allclose(law.below(law.guess(uniform)), uniform, rtol=0, atol=1e-8), (near, width)


def test_normal() -> None:
    law = Normal(float64([1.0]), float64([SIGMA]))
    x = float64([-1.0, 0.9, 1.0, 2.5])
    assert law.below(x).tolist() == pytest.approx(
        [float(oracle.below((mpf(v) - 1) / SIGMA)) for v in x.tolist()]
    )
    uniform = float64([1e-9, 0.3, 0.999])
    assert torch.allclose(law.below(law.guess(uniform)), uniform, rtol=1e-9, atol=0)


def test_a_parameter_of_one_number_holds_for_every_coordinate() -> None:
    one, two = torch.tensor([7.0]), torch.tensor([5.0, 6.0])
    assert inversion._entries(1, one, two) == [7.0, 6.0]
