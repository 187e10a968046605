"""The equivalent information bounds every move up to the farthest, whatever its size, and hardly more."""

import math

import pytest
import torch

import ringfence as rf
from ringfence.accounting.per_instance.equivalent_information import equivalent_information
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


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
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
