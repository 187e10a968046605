"""Recorded products against the dense matrix and against torch.func, and what is not recorded."""

import pytest
import torch
from torch import Tensor, nn

import ringfence as rf
from experiments.networks import tanh_cnn, wide_resnet_16_4
from ringfence.training.per_example.jacobian_operator import MixedDerivatives, jacobian_operator
from ringfence.training.per_example.recorded_jacobian import (
    is_recordable,
    recorded_bytes_per_example,
    recorded_operator,
)
from tests.accounting.drawing import draw
from tests.training.per_example.test_information import (
    CLIPS,
    CROSS_ENTROPY,
    IMAGES,
    LABELS,
    bounds,
    convolutions,
    jacobian,
    perceptron,
)


@pytest.mark.parametrize("clip", CLIPS, ids=repr)
@pytest.mark.parametrize("model", [perceptron(), convolutions()], ids=["perceptron", "convolutions"])
def test_products_are_those_of_the_dense_matrix(clip: rf.Clip, model: nn.Module) -> None:
    derivatives = MixedDerivatives(model, CROSS_ENTROPY, torch.float64)
    assert is_recordable(derivatives, IMAGES[:2], LABELS[:2])
    weights = draw(derivatives.size, seed=3).abs()
    operator = recorded_operator(derivatives, clip, IMAGES, LABELS, weights, 1e-12)
    rows, block = torch.tensor([4, 3]), draw(2, 3, 16, seed=4)
    squares, back = operator.gram(block, rows)
    torch.testing.assert_close(operator.squares(block, rows), squares, rtol=1e-12, atol=0)
    for index, row in enumerate(rows):
        dense = weights[:, None] * jacobian(model, clip, IMAGES[row], LABELS[row])
        image = block[index] @ dense.mT
        torch.testing.assert_close(squares[index], image.square().sum(1), rtol=1e-10, atol=1e-13)
        torch.testing.assert_close(back[index], image @ dense, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("make", [wide_resnet_16_4, tanh_cnn])
def test_whole_networks_have_the_products_of_torch_func(make: object) -> None:
    torch.manual_seed(0)
    model, x, y = make().double(), draw(2, 3, 8, 8), torch.tensor([1, 7])
    derivatives = MixedDerivatives(model, CROSS_ENTROPY, torch.float64)
    weights = torch.ones(derivatives.size).double()
    block, rows = draw(2, 1, 192, seed=2), torch.tensor([0, 1])
    ours, theirs = (
        operator(derivatives, rf.Clamp(0.01), x, y, weights, 1e-12).gram(block, rows)
        for operator in (recorded_operator, jacobian_operator)
    )
    for found, truth in zip(ours, theirs, strict=True):
        torch.testing.assert_close(found, truth, rtol=1e-10, atol=1e-12 * float(truth.abs().max()))


class _Minus(nn.Module):
    """Subtracts the mean of the batch: an example alone has output 0 before the last layer."""

    def forward(self, x: Tensor) -> Tensor:
        return x - 0.5 * x.mean(0)


def test_a_model_that_mixes_examples_goes_one_by_one_and_says_so() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 5), _Minus(), nn.Tanh(), nn.Linear(5, 3)).double()
    with pytest.warns(UserWarning, match="the model mixes the examples of a batch"):
        found = bounds(model, kind="trace")
    eta = rf.RectifiedGaussian(1.0, 0.5).fisher_information(draw(103, seed=3))
    for index in range(len(IMAGES)):
        dense = jacobian(model, CLIPS[0], IMAGES[index], LABELS[index])
        truth = float((eta[:, None] * dense.square()).sum() / 16)
        assert float(found.upper[index]) == pytest.approx(truth, rel=1e-9, abs=0)


def test_dropout_and_unknown_layers_are_left_to_torch_func() -> None:
    def recordable(model: nn.Module) -> bool:
        derivatives = MixedDerivatives(model.double(), CROSS_ENTROPY, torch.float64)
        return is_recordable(derivatives, IMAGES[:2].flatten(1), LABELS[:2])

    assert recordable(nn.Linear(16, 3))
    assert not recordable(nn.Sequential(nn.Linear(16, 3), nn.PReLU()))
    with pytest.raises(RuntimeError, match="random"):
        recordable(nn.Sequential(nn.Linear(16, 3), nn.Dropout(0.5)))


def test_memory_asked_for_grows_with_the_network() -> None:
    small, large = (MixedDerivatives(nn.Linear(9, wide), CROSS_ENTROPY, torch.float64) for wide in (2, 200))
    x, y = torch.zeros(1, 9).double(), torch.zeros(1).long()
    needs = [recorded_bytes_per_example(one, x, y) for one in (small, large)]
    assert needs[1] - needs[0] > 5 * 8 * (large.size - small.size)
