"""The equivalent information bounds every move up to the farthest, whatever its size, and hardly more."""

import math

import pytest
import torch

import ringfence as rf
from ringfence.accounting.equivalent_information import (
    _between,
    _closest,
    equivalent_information,
    natural_unit,
)
from tests.mechanisms.cases import CASES, Case
from tests.tensors import float64

ORDERS = float64([1.02, 2.0, 32.0, 1024.0])
SMALLEST = 1e-4  # alpha s


def quotients(law: rf.Mechanism, theta: torch.Tensor, farthest: float, shares: torch.Tensor) -> torch.Tensor:
    """2 D / (alpha s^2), the larger sign, forward and backward: (2, orders, moves, coordinates)."""
    moves = (farthest * shares).unsqueeze(1)
    sides = []
    for signs in (moves, -moves):
        forward = law.renyi_curve(theta, signs, ORDERS)
        sides.append(torch.stack((forward, law.renyi_curve(theta + signs, -signs, ORDERS))))
    return torch.maximum(*sides) / (0.5 * ORDERS.view(-1, 1, 1) * moves.square())


TABULATED = [case for case in CASES if not case.make(1.0, -1.0, 1.0).whole]


@pytest.mark.parametrize("case", TABULATED, ids=lambda case: case.name)
@pytest.mark.parametrize("farthest", [3.0, 0.3, 1e-3])
def test_no_move_has_more_and_one_has_hardly_less(case: Case, farthest: float) -> None:
    generator = torch.Generator().manual_seed(0)
    for low, high in ((-0.3, 0.3), (-1.0, 2.0)):
        law = case.make(1.0, low, high)
        theta = torch.cat(
            (float64([low, high]), 2 * torch.randn(4, generator=generator, dtype=torch.float64))
        )
        rho = equivalent_information(law, theta, float64(farthest), ORDERS)
        last = math.log(SMALLEST / (farthest * float(ORDERS.max())))
        shares = torch.exp(torch.linspace(0, last, 250, dtype=torch.float64))
        largest = quotients(law, theta, farthest, shares).amax(dim=2)
        assert bool((largest <= rho * (1 + 1e-9)).all())
        above = rho - 1.004 * torch.maximum(largest, law.fisher_information(theta))
        assert bool((above[0] <= 0).all())
        assert bool((above[1] <= 0.0025).all())  # backward divergences need not be convex
        assert bool((rho <= law.information_bound() * (1 + 1e-9)).all())


def test_parameters_may_differ_by_coordinate_and_shapes_are_kept() -> None:
    sigma, theta = float64([[0.5], [2.0]]), float64([-1.0, 0.2, 4.0])
    farthest = float64([0.1, 1.0, 2.0])
    both = equivalent_information(rf.RectifiedGaussian(sigma, 1.0), theta, farthest, ORDERS)
    assert both.shape == (2, len(ORDERS), 2, 3)
    for row, column in ((0, 0), (0, 2), (1, 1)):
        one = equivalent_information(
            rf.RectifiedGaussian(float(sigma[row]), 1.0), theta[column : column + 1], farthest[column], ORDERS
        )
        assert torch.allclose(both[:, :, row, column], one[:, :, 0], rtol=3e-3)


def test_no_coordinates_and_no_move() -> None:
    law = rf.StochasticSign(1.0)
    assert equivalent_information(law, torch.zeros(0).double(), float64(1.0), ORDERS).shape == (
        2,
        len(ORDERS),
        0,
    )
    still = equivalent_information(law, float64([0.5]), float64(0.0), ORDERS)
    assert bool((still >= law.fisher_information(float64([0.5]))).all())


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_a_single_number_may_have_dimensions(shape: tuple[int, ...]) -> None:
    """A table of many settings hands over laws whose parameters have the shape (1, 1)."""
    law = rf.Gaussian(torch.full(shape, 2.0, dtype=torch.float64))
    one, orders = torch.ones(7, dtype=torch.float64), torch.tensor([2.0, 64.0], dtype=torch.float64)
    assert torch.allclose(equivalent_information(law, one, one, orders), torch.tensor(0.25).double())


@pytest.mark.parametrize("sigma", [1.0, 4.0])
def test_small_moves_are_taken_from_both_ends(sigma: float) -> None:
    """Where alpha s is at most a tenth: 1.001 times the larger of the quotient at c and at 0."""
    law, theta, orders = rf.StochasticSign(sigma), sigma * float64([0.3, -2.0]), float64([1.02, 2.0, 8.0])
    move = sigma * 0.012
    rho = equivalent_information(law, theta, float64(move), orders)
    ends = [law.fisher_information(theta).expand(3, 2)] * 2
    for side in (move, -move):
        forward, backward = (
            law.renyi_curve(start, shift, orders) / (0.5 * orders.unsqueeze(1) * move**2)
            for start, shift in ((theta, float64(side)), (theta + side, float64(-side)))
        )
        ends = [torch.maximum(ends[0], forward), torch.maximum(ends[1], backward)]
    torch.testing.assert_close(rho, 1.001 * torch.stack(ends), rtol=3e-11, atol=0)


@pytest.mark.parametrize("ratio", [1.1, 2.0])
def test_between_two_moves_the_chord_counts_and_what_may_lie_above_it(ratio: float) -> None:
    """D is at most a chord from 1 to r, and backward by alpha (s - 1)(r - s) / (2 (alpha - 1)) above it."""
    orders = float64([1.5, 32.0])
    low = float64([1.0, 1.0, 1.0, 0.1, 0.0])
    high = low.new_tensor([0.5, 0.9, 1.0, 2.0, 1.0]) + 0 * low
    moves = torch.linspace(1, ratio, 2001, dtype=torch.float64).unsqueeze(1)
    chord = low + (high * ratio**2 - low) * (moves - 1) / (ratio - 1)
    largest = torch.minimum((chord / moves.square()).amax(dim=0), high * ratio**2)
    forward, backward = (
        _between(high.expand(2, -1), low.expand(2, -1), 0.5 * orders.unsqueeze(1), ratio, direction)
        for direction in (False, True)
    )
    torch.testing.assert_close(forward, largest.expand(2, -1), rtol=1e-6, atol=0)
    # the largest of (s - 1)(r - s) / s^2 is (r - 1)^2 / (4 r)
    above = ((moves - 1) * (ratio - moves) / moves.square()).max() / (orders - 1)
    expected = torch.minimum(
        (chord / moves.square()).amax(dim=0) + above.unsqueeze(1), (high * ratio**2).expand(2, -1)
    )
    torch.testing.assert_close(backward, expected, rtol=1e-6, atol=0)
    unknown = _between(
        float64([[torch.nan], [torch.inf]]), float64([[1.0], [1.0]]), 0.5 * orders.unsqueeze(1), ratio, False
    )
    assert unknown.tolist() == [[torch.inf], [torch.inf]]


def test_how_close_moves_are() -> None:
    """The closest are 10 % apart; below order 2 both bounds are to be raised equally, down to order 1.02."""
    for order, share in ((64.0, 1.0), (2.0, 1.0), (1.5, 0.5), (1.02, 0.02), (1.001, 0.02)):
        ratio = _closest(float64([order, 100.0]))
        assert (ratio - 1) ** 2 / ratio == pytest.approx(share * 0.01 / 1.1, rel=1e-9)


def test_the_natural_unit_is_the_laws_where_its_information_is_known() -> None:
    class Told(rf.Gaussian):
        told = 0.2

        def information_bound(self) -> torch.Tensor:
            return float64(self.told)

    for told, most in ((0.2, 0.2), (0.3, 0.25), (1e-291, 0.25), (1e-289, 1e-289), (math.nan, 0.25)):
        law = Told(2.0)
        law.told = told
        assert float(natural_unit(law)) == pytest.approx(most**-0.5, rel=1e-15)
