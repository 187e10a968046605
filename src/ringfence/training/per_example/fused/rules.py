"""Which layers are known, and what the gradients of their parameters are made of.

A rule holds for a layer that treats the rows of its input alike and apart, so that the output of an example
depends on that example alone. A layer of another class, or of one that changes ``forward``, is not known.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ringfence.training.kernels.window import Window
from ringfence.training.per_example.fused.contributions import Contribution, Convolutions, Products, Rows

Contributions = dict[str, Contribution]  # by the name of the parameter in its layer


@dataclass(frozen=True)
class Rule:
    """``contributions(layer, gradient, input)`` for tensors (n, k, ...): k rows of the batch per example.

    ``suits`` says whether the rule holds for a layer with its options, and ``several`` whether for k > 1.
    ``multiplies`` says that the layer is a matrix product, which autocast takes in half precision.
    """

    contributions: Callable[[nn.Module, Tensor, Tensor], Contributions]
    suits: Callable[[nn.Module], bool] = lambda layer: True
    several: bool = True
    multiplies: bool = False


def rule_of(layer: nn.Module) -> Rule | None:
    """Returns the rule for a layer, or None for one that is not known.

    >>> rule_of(nn.Linear(2, 1)) is not None, rule_of(nn.Bilinear(2, 2, 1)) is None
    (True, True)
    """
    for kind, rule in RULES.items():
        if isinstance(layer, kind) and type(layer).forward is kind.forward and rule.suits(layer):
            return rule
    return None


def summed(values: Tensor, *dimensions: int) -> Tensor:
    """The sum over dimensions, of half precision in float32.

    >>> summed(torch.ones(2, 3, dtype=torch.bfloat16), 1)
    tensor([3., 3.])
    """
    half = values.dtype in (torch.bfloat16, torch.float16)
    return values.sum(dimensions, dtype=torch.float32 if half else None)


def _linear(layer: nn.Module, gradient: Tensor, rows: Tensor) -> Contributions:
    left, right = gradient.flatten(1, -2), rows.flatten(1, -2).to(gradient.dtype)
    parts: Contributions = {"weight": Products(left, right)}
    if layer.bias is not None:
        parts["bias"] = Rows(summed(left, 1))
    return parts


def _convolution(layer: nn.Module, gradient: Tensor, rows: Tensor) -> Contributions:
    assert isinstance(layer, nn.modules.conv._ConvNd)
    gradient, images = gradient.squeeze(1), rows.squeeze(1).to(gradient.dtype)
    padding = (0,) * len(layer.kernel_size) if layer.padding == "valid" else layer.padding
    if padding == "same":
        padding = tuple(d * (k - 1) // 2 for d, k in zip(layer.dilation, layer.kernel_size, strict=True))
    assert isinstance(padding, tuple)
    window = Window(layer.kernel_size, layer.stride, padding, layer.dilation, layer.groups)
    parts: Contributions = {"weight": Convolutions(gradient, images, window)}
    if layer.bias is not None:
        parts["bias"] = Rows(summed(gradient, *range(2, gradient.dim())))
    return parts


def _is_symmetric(layer: nn.Module) -> bool:
    """Whether zeros are added around an image, as many on the left as on the right."""
    assert isinstance(layer, nn.modules.conv._ConvNd)
    if layer.padding_mode != "zeros":
        return False
    gaps = (d * (k - 1) for d, k in zip(layer.dilation, layer.kernel_size, strict=True))
    return layer.padding != "same" or all(gap % 2 == 0 for gap in gaps)


_CONVOLUTION = Rule(_convolution, _is_symmetric, several=False, multiplies=True)
RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: Rule(_linear, multiplies=True),
    nn.Conv1d: _CONVOLUTION,
    nn.Conv2d: _CONVOLUTION,
    nn.Conv3d: _CONVOLUTION,
}
