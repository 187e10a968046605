"""Products with the derivative of clipped gradients: against the dense matrix by reverse mode."""

import pytest
import torch
from torch import nn

import ringfence as rf
from ringfence.training.per_example.jacobian_operator import MixedDerivatives, jacobian_operator
from tests.accounting.drawing import draw
from tests.training.per_example.test_information import (
    CLIPS,
    CROSS_ENTROPY,
    IMAGES,
    LABELS,
    jacobian,
    perceptron,
)


@pytest.mark.parametrize("clip", CLIPS, ids=repr)
def test_products_are_those_of_the_dense_matrix(clip: rf.Clip) -> None:
    model = perceptron()
    derivatives = MixedDerivatives(model, CROSS_ENTROPY, torch.float64)
    weights = draw(derivatives.size, seed=3).abs()
    operator = jacobian_operator(derivatives, clip, IMAGES, LABELS, weights, 1e-12)
    rows, block = torch.tensor([4, 1]), draw(2, 3, 16, seed=4)
    squares, back = operator.gram(block, rows)
    torch.testing.assert_close(operator.squares(block, rows), squares)
    for index, row in enumerate(rows):
        dense = weights[:, None] * jacobian(model, clip, IMAGES[row], LABELS[row])
        image = block[index] @ dense.mT
        torch.testing.assert_close(squares[index], image.square().sum(1))
        torch.testing.assert_close(back[index], image @ dense)


def test_memory_asked_for_grows_with_the_network_and_the_probes() -> None:
    small, large = (MixedDerivatives(nn.Linear(9, wide), CROSS_ENTROPY, torch.float64) for wide in (2, 200))
    x = torch.zeros(1, 9).double()
    assert small.bytes_per_example(x, 4) < small.bytes_per_example(x, 8) < large.bytes_per_example(x, 4)
