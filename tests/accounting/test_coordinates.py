"""How many coordinates a release has, and which of them have the same numbers."""

import pytest
import torch

import ringfence as rf
from ringfence.accounting.coordinates import distinct, number_of_coordinates, released_shape, with_numbers
from tests.tensors import float64


@pytest.mark.parametrize(
    ("sigma", "theta", "sensitivity", "shape"),
    [
        (1.0, torch.zeros(()), float64(0.1), []),
        (1.0, torch.zeros(3), float64([[0.1]]), [1, 3]),
        (torch.ones(4), torch.zeros(1), float64(0.1), [4]),
        (torch.ones(2, 1), torch.zeros(3), torch.ones(5, 1, 1), [5, 2, 3]),
        (1.0, torch.zeros(0, 2), float64(0.1), [0, 2]),
    ],
)
def test_parameters_and_sensitivity_spread_theta_out(
    sigma: object, theta: torch.Tensor, sensitivity: torch.Tensor, shape: list[int]
) -> None:
    law = rf.Gaussian(sigma)
    assert list(released_shape(law, theta, sensitivity)) == shape
    assert number_of_coordinates(law, theta, sensitivity) == torch.empty(shape).numel()


def test_every_coordinate_finds_its_row() -> None:
    columns = (float64([[1.0], [2.0]]), torch.tensor([3.0, 4.0, 3.0]), float64(7.0))
    rows, index = distinct(*columns)
    assert rows.shape == (4, 3)
    assert torch.equal(rows[index], torch.stack(torch.broadcast_tensors(*columns), dim=-1))


def test_single_numbers_are_one_row() -> None:
    rows, index = distinct(float64([1.0]), float64(2.0))
    assert rows.tolist() == [[1.0, 2.0]]
    assert index.tolist() == [0]


def test_a_law_gets_its_numbers_in_the_order_of_its_parameters() -> None:
    law = with_numbers(rf.TruncatedGaussian(torch.ones(3), (-1.0, 1.0)), float64([2.0, -3.0, 4.0]))
    assert repr(law) == "TruncatedGaussian(sigma=2.0, bound=(-3.0, 4.0))"
