"""A model applied to a batch in which every example has its own copy of the weights.

Ordinary autograd then gives each example its own gradient, to any order, without ``torch.func`` and
without grouped convolutions: layers become batched matrix products.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from ringfence.training.kernels.window import Window
from ringfence.training.per_example.recorded_functions import normalised, patches, product


class UnknownUseError(Exception):
    """A weight is used by a function that is not known here."""


def output_with_example_weights(
    model: nn.Module, weights: Mapping[str, Tensor], fixed: Mapping[str, Tensor], inputs: Tensor
) -> Tensor:
    """The model's output for (n, ...) inputs; ``weights`` are (n, *shape), one copy per example.

    Known are dense layers, convolutions of one and two dimensions, group and layer normalisation. A weight
    that is used in any other way raises ``UnknownUseError``. Whatever else the model does, it does to the
    whole batch: that examples are not mixed is for the caller to check.

    >>> layer = nn.Linear(2, 1, bias=False)
    >>> weights = {"weight": torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])}
    >>> output_with_example_weights(layer, weights, {}, torch.tensor([[3.0, 4.0], [5.0, 6.0]])).tolist()
    [[3.0], [6.0]]
    """
    with _ExampleWeights(weights):
        output = functional_call(model, {**weights, **fixed}, (inputs,))
    if not isinstance(output, Tensor) or len(output) != len(inputs):
        raise UnknownUseError("the output is not one tensor of as many rows as examples")
    return output


class _ExampleWeights(TorchFunctionMode):
    """Takes calls of torch's functions with weights of single examples, and refuses unknown ones."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._own = {id(weight) for weight in weights.values()}

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _HARMLESS or not self._has_own((args, kwargs)):
            return func(*args, **kwargs)
        if func not in _KNOWN:
            raise UnknownUseError(getattr(func, "__name__", str(func)))
        return _KNOWN[func](self, *args, **kwargs)

    def _has_own(self, value: Any) -> bool:
        if isinstance(value, dict):
            value = tuple(value.values())
        if isinstance(value, (tuple, list)):
            return any(map(self._has_own, value))
        return isinstance(value, Tensor) and id(value) in self._own

    def each(self, weight: Tensor, count: int) -> Tensor:
        """One copy per example; a frozen weight is the same for all of them."""
        return weight if id(weight) in self._own else weight.expand(count, *weight.shape)


def _linear(mode: _ExampleWeights, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    rows = x.reshape(len(x), -1, x.shape[-1])
    result = rows @ mode.each(weight, len(x)).mT
    if bias is not None:
        result = result + mode.each(bias, len(x))[:, None]
    return result.reshape(*x.shape[:-1], result.shape[-1])


def _convolution(
    mode: _ExampleWeights,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """In one dimension, which is an image of one row, or in two."""
    each = mode.each(weight, len(x))
    if flat := each.dim() == 4:
        x, each = x.unsqueeze(2), each.unsqueeze(3)
    rows = (1, 0, 1) if flat else (None, None, None)
    steps, sides, gaps = map(_pair, (stride, padding, dilation), rows)
    result = _convolved(x, each, Window(tuple(each.shape[-2:]), steps, sides, gaps, groups))
    if bias is not None:
        result = result + mode.each(bias, len(x))[:, :, None, None]
    return result.squeeze(2) if flat else result


def _pair(value: Any, first: int | None = None) -> tuple[int, int]:
    """(rows, columns) of what a convolution was given: a number or numbers; not the name of a padding."""
    if isinstance(value, str):
        raise UnknownUseError(f"a convolution with padding {value!r}")
    numbers = (value,) if isinstance(value, int) else tuple(value)
    return (numbers[0] if first is None else first), numbers[-1]


def _convolved(x: Tensor, weight: Tensor, window: Window) -> Tensor:
    """Convolutions of (n, C, H, W) with (n, O, C / groups, h, w)."""
    if x.dim() != 4:
        raise UnknownUseError("a convolution of an example without a batch")
    columns = patches(x, window).unflatten(1, (window.groups, -1))
    result = product(weight.flatten(2).unflatten(1, (window.groups, -1)), columns)
    return result.reshape(*weight.shape[:2], *window.positions(tuple(x.shape[-2:])))


def _group_norm(
    mode: _ExampleWeights,
    x: Tensor,
    groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    shape = (len(x), -1, *(1,) * (x.dim() - 2))
    rows = x.reshape(len(x) * groups, -1)
    return _scaled(mode, normalised(rows, eps).view_as(x), weight, bias, shape)


def _layer_norm(
    mode: _ExampleWeights,
    x: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    own = tuple(normalized_shape)
    shape = (len(x), *(1,) * (x.dim() - 1 - len(own)), *own)
    rows = x.reshape(-1, math.prod(own))
    return _scaled(mode, normalised(rows, eps).view_as(x), weight, bias, shape)


def _scaled(
    mode: _ExampleWeights, x: Tensor, weight: Tensor | None, bias: Tensor | None, shape: tuple[int, ...]
) -> Tensor:
    if weight is not None:
        x = x * mode.each(weight, len(x)).reshape(shape)
    return x if bias is None else x + mode.each(bias, len(x)).reshape(shape)


_HARMLESS = {torch.Tensor.dtype.__get__, torch.Tensor.device.__get__, torch.Tensor.is_cuda.__get__}  # type: ignore[attr-defined]
_KNOWN: dict[Callable[..., Any], Callable[..., Tensor]] = {
    functional.linear: _linear,
    torch.conv1d: _convolution,
    torch.conv2d: _convolution,
    functional.group_norm: _group_norm,
    functional.layer_norm: _layer_norm,
}
