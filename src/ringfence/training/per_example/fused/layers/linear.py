"""Linear layers and convolutions: their gradients are products of what comes in and what comes back."""

import torch
from torch import Tensor, nn

from ringfence.training.kernels.window import Window
from ringfence.training.per_example.fused.contributions import Contributions, Convolutions, Products, Rows


def summed(values: Tensor, *dimensions: int) -> Tensor:
    """The sum over dimensions, of half precision in float32.

    >>> summed(torch.ones(2, 3, dtype=torch.bfloat16), 1)
    tensor([3., 3.])
    """
    half = values.dtype in (torch.bfloat16, torch.float16)
    return values.sum(dimensions, dtype=torch.float32 if half else None)


def linear(layer: nn.Module, gradient: Tensor, rows: Tensor) -> Contributions:
    """``nn.Linear`` with any number of positions."""
    left, right = gradient.flatten(1, -2), rows.flatten(1, -2).to(gradient.dtype)
    parts: Contributions = {"weight": Products(left, right)}
    if layer.bias is not None:
        parts["bias"] = Rows(summed(left, 1))
    return parts


def turned_linear(layer: nn.Module, gradient: Tensor, rows: Tensor) -> Contributions:
    """A linear layer whose weight stands as (inputs, outputs)."""
    parts = linear(layer, gradient, rows)
    weight = parts["weight"]
    assert isinstance(weight, Products)
    return {**parts, "weight": Products(weight.right, weight.left)}


def convolution(layer: nn.Module, gradient: Tensor, rows: Tensor) -> Contributions:
    """A convolution in one to three dimensions."""
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


def pads_alike(layer: nn.Module) -> bool:
    """Whether a convolution adds zeros around an image, as many on the left as on the right.

    >>> pads_alike(nn.Conv1d(1, 1, 2, padding=1)), pads_alike(nn.Conv1d(1, 1, 2, padding="same"))
    (True, False)
    """
    assert isinstance(layer, nn.modules.conv._ConvNd)
    if layer.padding_mode != "zeros":
        return False
    gaps = (d * (k - 1) for d, k in zip(layer.dilation, layer.kernel_size, strict=True))
    return layer.padding != "same" or all(gap % 2 == 0 for gap in gaps)
