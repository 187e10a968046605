"""Every example with its own weights: as the model itself, one example after the other."""

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from ringfence.training.per_example.example_weights import UnknownUseError, output_with_example_weights
from tests.accounting.drawing import draw

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
    "group norm": (nn.GroupNorm(2, 6, eps=0.1), (6, 3, 2)),
    "layer norm": (nn.LayerNorm((3, 2), eps=0.1), (4, 3, 2)),
    "layer norm without bias": (nn.LayerNorm(5, bias=False), (2, 5)),
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
    layer = layer.double()
    weights, inputs = own_weights(layer, 3, trained), draw(3, *shape, seed=9)
    fixed = {key: value.detach() for key, value in layer.named_parameters() if key not in weights}
    found = output_with_example_weights(layer, weights, fixed, inputs)
    for index in range(3):
        here = {key: value[index] for key, value in weights.items()}
        truth = functional_call(layer, {**fixed, **here}, (inputs[index : index + 1],))
        torch.testing.assert_close(found[index : index + 1], truth, rtol=1e-12, atol=1e-13)


class _Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([x.to(self.scale.dtype), x * self.scale]).sum(0)


@pytest.mark.parametrize(
    ("model", "shape", "what"),
    [
        (_Scaled(), (3,), "mul"),
        (nn.Conv2d(1, 1, 3, padding="same"), (1, 4, 4), "padding 'same'"),
        (nn.BatchNorm1d(3), (3,), "batch_norm"),
        (nn.LSTM(3, 3), (2, 3), ""),
        (nn.MultiheadAttention(4, 1), (2, 4), ""),
        (nn.Flatten(0), (3,), "as many rows"),
    ],
)
def test_other_uses_of_a_weight_are_named(model: nn.Module, shape: tuple[int, ...], what: str) -> None:
    call = model
    if isinstance(model, nn.MultiheadAttention):
        call = _Attention(model)
    with pytest.raises(UnknownUseError, match=what or None):
        output_with_example_weights(call.double(), own_weights(call, 2), {}, draw(2, *shape))


class _Attention(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x, x, x)[0]
