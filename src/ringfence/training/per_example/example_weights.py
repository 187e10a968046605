"""A model applied to a batch in which every example has its own copy of the weights.

Ordinary autograd then gives each example its own gradient, to any order, without ``torch.func`` and
without grouped convolutions: layers become batched matrix products.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional
from torch.overrides import TorchFunctionMode


class UnknownUse(Exception):
    """A weight is used by a function that is not known here."""


def output_with_example_weights(
    model: nn.Module, weights: Mapping[str, Tensor], fixed: Mapping[str, Tensor], inputs: Tensor
) -> Tensor:
    """The model's output for (n, ...) inputs; ``weights`` are (n, *shape), one copy per example.

    Known are dense layers, convolutions of one and two dimensions, group and layer normalisation. A weight
    that is used in any other way raises ``UnknownUse``. Whatever else the model does, it does to the whole
    batch: that examples are not mixed is for the caller to check.

    >>> layer = nn.Linear(2, 1, bias=False)
    >>> weights = {"weight": torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])}
    >>> output_with_example_weights(layer, weights, {}, torch.tensor([[3.0, 4.0], [5.0, 6.0]])).tolist()
    [[3.0], [6.0]]
    """
    with _ExampleWeights(weights):
        output = functional_call(model, {**weights, **fixed}, (inputs,))
    if not isinstance(output, Tensor) or len(output) != len(inputs):
        raise UnknownUse("the output is not one tensor of as many rows as examples")
    return output


class _ExampleWeights(TorchFunctionMode):
    """Takes calls of torch's functions with weights of single examples, and refuses those it does not know."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._own = {id(weight) for weight in weights.values()}

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if not self._has_own((args, kwargs)):
            return func(*args, **kwargs)
        if func not in _KNOWN:
            raise UnknownUse(getattr(func, "__name__", str(func)))
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


def _conv1d(
    mode: _ExampleWeights,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    each = mode.each(weight, len(x)).unsqueeze(3)
    window = _Window((1, each.shape[-1]), *(_pair(*one) for one in ((stride, 1), (padding, 0), (dilation, 1))))
    result = _convolved(x.unsqueeze(2), each, window, groups).squeeze(2)
    return result if bias is None else result + mode.each(bias, len(x))[:, :, None]


def _conv2d(
    mode: _ExampleWeights,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    each = mode.each(weight, len(x))
    window = _Window(each.shape[-2:], *(_pair(one) for one in (stride, padding, dilation)))
    result = _convolved(x, each, window, groups)
    return result if bias is None else result + mode.each(bias, len(x))[:, :, None, None]


def _pair(value: Any, first: int | None = None) -> tuple[int, int]:
    """(rows, columns) of what a convolution was given: a number or numbers; not the name of a padding."""
    if isinstance(value, str):
        raise UnknownUse(f"a convolution with padding {value!r}")
    numbers = (value,) if isinstance(value, int) else tuple(value)
    return (numbers[0] if first is None else first), numbers[-1]


def _convolved(x: Tensor, weight: Tensor, window: "_Window", groups: int) -> Tensor:
    """Convolutions of (n, C, H, W) with (n, O, C / groups, h, w)."""
    if x.dim() != 4:
        raise UnknownUse("a convolution of an example without a batch")
    columns: Tensor = _Patches.apply(x, window)  # type: ignore[no-untyped-call]
    matrix = weight.flatten(2).unflatten(1, (groups, -1))
    result: Tensor = _Product.apply(matrix, columns.unflatten(1, (groups, -1)))  # type: ignore[no-untyped-call]
    return result.reshape(*weight.shape[:2], *window.places(x.shape[-2:]))


def _group_norm(
    mode: _ExampleWeights,
    x: Tensor,
    groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    shape = (len(x), -1, *(1,) * (x.dim() - 2))
    return _scaled(mode, functional.group_norm(x, groups, None, None, eps), weight, bias, shape)


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
    return _scaled(mode, functional.layer_norm(x, own, None, None, eps), weight, bias, shape)


def _scaled(
    mode: _ExampleWeights, x: Tensor, weight: Tensor | None, bias: Tensor | None, shape: tuple[int, ...]
) -> Tensor:
    if weight is not None:
        x = x * mode.each(weight, len(x)).reshape(shape)
    return x if bias is None else x + mode.each(bias, len(x)).reshape(shape)


_KNOWN: dict[Callable[..., Any], Callable[..., Tensor]] = {
    functional.linear: _linear,
    torch.conv1d: _conv1d,
    torch.conv2d: _conv2d,
    functional.group_norm: _group_norm,
    functional.layer_norm: _layer_norm,
}


class _Window(NamedTuple):
    """The places of a convolution's kernel on an image, (rows, columns) each."""

    kernel: Sequence[int]
    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]

    def places(self, size: Sequence[int]) -> list[int]:
        """How many places there are in each direction."""
        return [
            (length + 2 * pad - gap * (kernel - 1) - 1) // step + 1
            for length, kernel, step, pad, gap in zip(size, *self, strict=True)
        ]


class _Product(torch.autograd.Function):
    """weight @ columns, whose derivatives by the columns keep their layout: torch's own are transposed.

    Columns are the largest tensors of a network, and adding two of different layouts takes several times as long.
    """

    @staticmethod
    def forward(ctx: Any, weight: Tensor, columns: Tensor) -> Tensor:
        ctx.save_for_backward(weight, columns)
        return weight @ columns

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        weight, columns = ctx.saved_tensors
        # without a graph to record, this is a later walk: derivatives by the weight are known by then
        by_weight = (columns @ grad.mT).mT if torch.is_grad_enabled() else None
        return by_weight, weight.mT @ grad


class _Patches(torch.autograd.Function):
    """(n, C, H, W) to (n, C kernel, places), as ``unfold``, which on a GPU takes one image after the other."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, window: _Window) -> Tensor:
        ctx.window, ctx.size = window, images.shape[-2:]
        (top, left), (down, right) = window.padding, window.dilation
        padded = functional.pad(images, (left, left, top, top))
        height, width = window.places(ctx.size)
        n, channels, row, column = padded.stride()
        steps = (row * window.stride[0], column * window.stride[1])
        shape = (*images.shape[:2], *window.kernel, height, width)
        patches = padded.as_strided(shape, (n, channels, row * down, column * right, *steps))
        return patches.reshape(len(images), -1, height * width)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return _Sums.apply(grad, ctx.window, ctx.size), None  # type: ignore[no-untyped-call]


class _Sums(torch.autograd.Function):
    """The transpose of ``_Patches``: every place is added back to the image."""

    @staticmethod
    def forward(ctx: Any, patches: Tensor, window: _Window, size: Any) -> Tensor:
        ctx.window = window
        return functional.fold(
            patches,
            tuple(size),
            window.kernel,
            dilation=window.dilation,
            padding=window.padding,
            stride=window.stride,
        )

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return _Patches.apply(grad, ctx.window), None, None  # type: ignore[no-untyped-call]

