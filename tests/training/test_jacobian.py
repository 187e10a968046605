"""Recorded products against the dense matrix, and the functions they are made of."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

import ringfence as rf
from experiments.networks import small_cnn, wide_resnet_16_4
from ringfence.training import jacobian as module
from ringfence.training.jacobian import (
    CastModel,
    RecordedJacobian,
    bytes_per_example,
    jacobian_operator,
    patches,
)
from ringfence.training.kernels.clipped_sums import Window
from tests.accounting.drawing import draw
from tests.tensors import float64
from tests.training.test_information import (
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
    cast = CastModel(model, CROSS_ENTROPY)
    weights = draw(cast.size, seed=3).abs()
    operator = jacobian_operator(cast, clip, IMAGES[3:5], LABELS[3:5], weights)
    block = draw(2, 3, 16, seed=4)
    squares, back = operator.gram(block)
    torch.testing.assert_close(operator.squares(block), squares, rtol=1e-12, atol=0)
    for index, row in enumerate((3, 4)):
        dense = weights[:, None] * jacobian(model, clip, IMAGES[row], LABELS[row])
        image = block[index] @ dense.mT
        torch.testing.assert_close(squares[index], image.square().sum(1), rtol=1e-10, atol=1e-13)
        torch.testing.assert_close(back[index], image @ dense, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("make", [wide_resnet_16_4, small_cnn])
def test_whole_networks_have_the_products_of_torch(make: object, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model, x, y = make(channels=3).double(), draw(2, 3, 8, 8), torch.tensor([1, 7])
    cast = CastModel(model, CROSS_ENTROPY)
    weights, block = torch.ones(cast.size).double(), draw(2, 1, 192, seed=2)
    ours = jacobian_operator(cast, rf.Clamp(0.01), x, y, weights).gram(block)
    monkeypatch.setattr(module, "_convolution", torch.conv2d)
    theirs = jacobian_operator(cast, rf.Clamp(0.01), x, y, weights).gram(block)
    for found, truth in zip(ours, theirs, strict=True):
        torch.testing.assert_close(found, truth, rtol=1e-10, atol=1e-12 * float(truth.abs().max()))


class _Minus(nn.Module):
    """Subtracts the mean of the batch: an example alone has output 0 before the last layer."""

    def forward(self, x: Tensor) -> Tensor:
        return x - 0.5 * x.mean(0)


def test_examples_are_not_mixed_and_dropout_is_refused() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 5), _Minus(), nn.PReLU(), nn.Linear(5, 3)).double()
    found = bounds(model, kind="trace", theta=draw(104, seed=3))
    eta = rf.RectifiedGaussian(1.0, 0.5).fisher_information(draw(104, seed=3))
    for index in range(len(IMAGES)):
        dense = jacobian(model, CLIPS[0], IMAGES[index], LABELS[index])
        truth = float((eta[:, None] * dense.square()).sum() / 16)
        assert float(found.upper[index]) == pytest.approx(truth, rel=1e-9, abs=0)
    with pytest.raises(RuntimeError, match="random"):
        bounds(nn.Sequential(nn.Flatten(), nn.Linear(16, 3), nn.Dropout(0.5)))


def test_a_gradient_that_no_feature_moves_has_no_information() -> None:
    cast = CastModel(nn.Linear(2, 1), lambda output, y: output)  # the bias has gradient 1
    recorded = RecordedJacobian(cast, torch.ones(1, 2).double(), torch.zeros(1))
    assert recorded.apply(float64([[3.0, 4.0]])).tolist() == [[3.0, 4.0, 0.0]]
    assert recorded.apply_transpose(float64([[5.0, 6.0, 7.0]])).tolist() == [[5.0, 6.0]]


def test_gradients_that_do_not_depend_on_the_features_are_not_moved() -> None:
    model = nn.Linear(2, 1)
    model.weight.requires_grad_(False)
    recorded = RecordedJacobian(
        CastModel(model, lambda output, y: output), torch.ones(1, 2).double(), torch.zeros(1)
    )
    assert recorded.apply(float64([[3.0, 4.0]])).tolist() == [[0.0]]
    assert recorded.apply_transpose(float64([[5.0]])).tolist() == [[0.0, 0.0]]


def test_memory_asked_for_grows_with_the_network() -> None:
    small, large = (CastModel(nn.Linear(9, wide), CROSS_ENTROPY) for wide in (2, 200))
    x, y = torch.zeros(1, 9).double(), torch.zeros(1).long()
    needs = [bytes_per_example(one, x, y) for one in (small, large)]
    assert needs[1] - needs[0] > 5 * 8 * (large.size - small.size)


LAYERS = {
    "linear": (nn.Linear(5, 3), (5,)),
    "linear without bias, rows of rows": (nn.Linear(5, 3, bias=False), (2, 4, 5)),
    "convolution": (nn.Conv2d(4, 6, 3, padding=1), (4, 7, 6)),
    "strides, dilation, groups": (
        nn.Conv2d(4, 6, (3, 2), (2, 1), (2, 1), dilation=(1, 2), groups=2, bias=False),
        (4, 9, 8),
    ),
    "circular": (nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), (2, 5, 5)),
    "one dimension": (nn.Conv1d(4, 6, 3, stride=2, padding=2, dilation=2, groups=2), (4, 11)),
    "padding by name": (nn.Conv2d(1, 1, 3, padding="same"), (1, 4, 4)),
    "group norm": (nn.GroupNorm(2, 6, eps=0.1), (6, 3, 2)),
}


def own_weights(model: nn.Module, count: int, trained: object = None) -> dict[str, Tensor]:
    return {
        name: draw(count, *value.shape, seed=number)
        for number, (name, value) in enumerate(model.named_parameters())
        if trained is None or name in trained
    }


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("trained", [None, ("bias",), ("weight",)])
def test_layers_are_those_of_torch(name: str, trained: object) -> None:
    layer, shape = LAYERS[name]
    for key, value in layer.named_parameters():
        value.requires_grad_(trained is None or key in trained)
    if not any(value.requires_grad for value in layer.parameters()):
        return
    cast = CastModel(layer, lambda output, y: output)
    weights = own_weights(layer, 3, cast.trained)
    inputs = draw(3, *shape, seed=9)
    found = cast.losses(weights, inputs, torch.zeros(3))
    for index in range(3):
        here = {key: value[index] for key, value in weights.items()}
        truth = functional_call(layer, {**cast.fixed, **here}, (inputs[index : index + 1],)).sum()
        torch.testing.assert_close(found[index], truth, rtol=1e-12, atol=1e-12)


DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
WINDOW = Window((3, 2), (2, 1), (1, 2), (1, 2))


def walks(function: Callable[[Tensor], Tensor], device: str = "cpu") -> list[Tensor]:
    """The value, its gradient, and products with that gradient's derivative."""
    x = draw(2, 3, 6, 5).to(device).requires_grad_()
    value = function(x.sin())
    (gradient,) = torch.autograd.grad(value.pow(3).sum(), x, create_graph=True)
    u = torch.zeros_like(gradient).requires_grad_()
    (pulled,) = torch.autograd.grad(gradient, x, u, create_graph=True)
    results = [value, gradient]
    for seed in (5, 6):  # a walk may be repeated
        along = draw(2, 3, 6, 5, seed=seed).to(device)
        results += torch.autograd.grad(gradient, x, along, retain_graph=True)
        results += torch.autograd.grad(pulled, u, along, retain_graph=True)
    return results


@pytest.mark.parametrize("device", DEVICES)
def test_every_walk_through_patches_is_that_of_torch(device: str) -> None:
    ours = walks(lambda x: patches(x, WINDOW), device)
    theirs = walks(lambda x: functional.unfold(x, (3, 2), (1, 2), (1, 2), (2, 1)))
    for found, truth in zip(ours, theirs, strict=True):
        torch.testing.assert_close(found.cpu(), truth, rtol=1e-11, atol=1e-12)
