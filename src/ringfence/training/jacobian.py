"""The derivative of examples' clipped gradients by their features, recorded once and applied many times.

Every example gets its own copy of the weights. Ordinary autograd then gives each example its own gradient, to
any order: a first backward pass makes gradients g, a second one J^T u with J = dg / dx, linear in u. Both are
recorded. Later passes repeat the second one for other u, or go back through it to u, which gives J v.

The model runs under vmap, so that its code sees one example. Convolutions of images become batched products
of all examples: those of torch, which has one weight for all, take several times as long with a weight each.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from ringfence.numerics.blocks import row_lengths
from ringfence.numerics.operators import BatchedOperator
from ringfence.training.clipping import Clip, Norm
from ringfence.training.kernels.clipped_sums import Window
from ringfence.training.per_example.gradients import bytes_kept

Loss = Callable[[Tensor, Tensor], Tensor]

# The premise of the bounds, relative to norm times norm. Measured on this package's networks: 2e-15.
_ROUNDING = 1e-13
_COPIES = 6  # of an example's gradient, in float64, that a product holds


class CastModel:
    """A model and a loss with their numbers in float64: ``trained`` parameters, and what is ``fixed``.

    >>> CastModel(nn.Linear(2, 1), lambda output, y: output).size
    3
    """

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        def cast(tensor: Tensor) -> Tensor:
            # a copy: a layer may write to its buffers
            return tensor.detach().to(torch.float64 if tensor.is_floating_point() else None, copy=True)

        parameters = dict(model.named_parameters())
        self.model, self.loss = model, loss
        self.trained = {name: cast(value) for name, value in parameters.items() if value.requires_grad}
        self.fixed = {name: cast(value) for name, value in parameters.items() if not value.requires_grad}
        self.fixed |= {name: cast(value) for name, value in model.named_buffers()}
        self.size = sum(value.numel() for value in self.trained.values())
        if not self.size:
            raise ValueError("model must have a parameter that requires a gradient, got none")

    def losses(self, weights: Mapping[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        """The loss of each example with its own ``weights``, (n, *shape)."""

        def one(weights: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            with _FastConvolutions():
                output = functional_call(self.model, {**weights, **self.fixed}, (x[None],))
            return self.loss(output, y[None]).sum()

        return vmap(one)(dict(weights), x, y)


class RecordedJacobian:
    """J = d gradient / d x of a few examples, as two graphs of autograd.

    Each product with J or its transpose takes four batched products per layer, and nothing that does not
    depend on the direction is computed again.

    >>> model = CastModel(nn.Linear(2, 1, bias=False), lambda output, y: output)
    >>> one = RecordedJacobian(model, torch.ones(1, 2).double(), torch.zeros(1))
    >>> one.apply(torch.tensor([[3.0, 4.0]])).tolist()  # the gradient of w . x is x
    [[3.0, 4.0]]
    """

    def __init__(self, model: CastModel, x: Tensor, y: Tensor) -> None:
        with torch.enable_grad():
            self._x = x.detach().clone().requires_grad_()
            own = {
                name: value.detach().expand(len(x), *value.shape).requires_grad_()
                for name, value in model.trained.items()
            }
            losses = model.losses(own, self._x, y)
            # apart, not as one vector: autograd would fill and add whole vectors for each of the parts
            self._parts = torch.autograd.grad(
                losses.sum(), list(own.values()), create_graph=True, materialize_grads=True
            )
            self._directions = [torch.zeros_like(part).requires_grad_() for part in self._parts]
            self._pulled = self._pull_back(self._directions, record=True)

    def _pull_back(self, directions: Sequence[Tensor], *, record: bool = False) -> Tensor:
        """J^T u in the shape of x."""
        moving = [pair for pair in zip(self._parts, directions, strict=True) if pair[0].requires_grad]
        if not moving:  # no gradient depends on x
            return torch.zeros_like(self._x)
        parts, along = zip(*moving, strict=True)
        (pulled,) = torch.autograd.grad(
            parts, self._x, along, create_graph=record, retain_graph=True, materialize_grads=True
        )
        return pulled

    @property
    def gradients(self) -> Tensor:
        """The gradients of the examples, (n, d)."""
        return _flat(self._parts).detach()

    def apply(self, direction: Tensor) -> Tensor:
        """J v, (n, p) to (n, d)."""
        if not self._pulled.requires_grad:
            return torch.zeros_like(self.gradients)
        along = direction.reshape(self._x.shape)
        moved = torch.autograd.grad(
            self._pulled, self._directions, along, retain_graph=True, materialize_grads=True
        )
        return _flat(moved)

    def apply_transpose(self, direction: Tensor) -> Tensor:
        """J^T u, (n, d) to (n, p)."""
        pieces = direction.split([part[0].numel() for part in self._parts], dim=1)
        shaped = [piece.view(part.shape) for piece, part in zip(pieces, self._parts, strict=True)]
        return self._pull_back(shaped).flatten(1)


def _flat(parts: Sequence[Tensor]) -> Tensor:
    return torch.cat([part.flatten(1) for part in parts], dim=1)


def bytes_per_example(model: CastModel, x: Tensor, y: Tensor) -> int:
    """Memory that one example takes, roughly: what the graphs keep, and copies of the gradient."""
    return bytes_kept(lambda: RecordedJacobian(model, x[:1], y[:1])) + _COPIES * 8 * model.size


def jacobian_operator(model: CastModel, clip: Clip, x: Tensor, y: Tensor, weights: Tensor) -> BatchedOperator:
    """diag(weights) d clip(gradient) / d x of a few examples, one matrix per example."""
    recorded = RecordedJacobian(model, x, y)
    gradients = recorded.gradients
    if not bool(torch.isfinite(gradients).all()):
        raise ValueError("model and loss must give finite gradients, got NaN or infinity")
    forward, backward = _weighted_clip(clip, gradients, weights)
    return BatchedOperator(
        len(x),
        (model.size, math.prod(x.shape[1:])),
        lambda vectors: forward(recorded.apply(vectors)),
        lambda seen: recorded.apply_transpose(backward(seen)),
        _ROUNDING,
        x.device,
    )


def _weighted_clip(
    clip: Clip, gradients: Tensor, weights: Tensor
) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
    """diag(weights) C and its transpose, where C is the derivative of the clip at these gradients, (n, d).

    ``Norm`` leaves f (m - u <u, m>) of m, and 0 where a coordinate is clamped afterwards. f is the factor
    that makes a gradient shorter, and u its direction, or 0 where it is short enough.
    """
    if not isinstance(clip, Norm):
        diagonal = (gradients.abs() <= clip.largest) * weights  # a product with it takes one pass
        return lambda moved: moved * diagonal, lambda seen: seen.mul_(diagonal)
    lengths = row_lengths(gradients).unsqueeze(1)
    units = torch.where(lengths > clip.aim, gradients / lengths, 0.0)
    factors = clip.factors(lengths, gradients.dtype)
    scale = factors * weights
    if clip.limit is not None:
        scale = scale * ((gradients * factors).abs() <= clip.limit)

    def across(moved: Tensor) -> Tensor:
        return torch.addcmul(moved, units, (units * moved).sum(1, keepdim=True), value=-1)

    return lambda moved: across(moved) * scale, lambda seen: across(seen.mul_(scale))


class _FastConvolutions(TorchFunctionMode):
    """Under vmap over examples, convolutions in two dimensions as batched products."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return (_convolution if func is torch.conv2d else func)(*args, **(kwargs or {}))


def _convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """In two dimensions."""
    if isinstance(padding, str) or x.dim() != 4:
        return torch.conv2d(x, weight, bias, stride, padding, dilation, groups)
    window = Window(tuple(weight.shape[-2:]), _pair(stride), _pair(padding), _pair(dilation), groups)
    columns = patches(x, window).unflatten(1, (groups, -1))
    result: Tensor = weight.flatten(1).unflatten(0, (groups, -1)) @ columns
    result = result.reshape(len(x), len(weight), *window.positions(tuple(x.shape[-2:])))
    return result if bias is None else result + bias[:, None, None]


def _pair(value: Any) -> tuple[int, int]:
    """(rows, columns) of what a convolution was given: a number, or one or two of them."""
    numbers = (value,) if isinstance(value, int) else tuple(value)
    return numbers[0], numbers[-1]


def patches(images: Tensor, window: Window) -> Tensor:
    """(n, C, H, W) to (n, C kernel, places), as ``unfold``, which on a GPU takes one image after the other.

    >>> patches(torch.arange(4.0).view(1, 1, 2, 2), Window((1, 2), (1, 1), (0, 0), (1, 1))).tolist()
    [[[0.0, 2.0], [1.0, 3.0]]]
    """
    result: Tensor = _Patches.apply(images, window)  # type: ignore[no-untyped-call]
    return result


class _Patches(torch.autograd.Function):
    @staticmethod
    def forward(images: Tensor, window: Window) -> Tensor:
        return window.patches(images).flatten(1, 2)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Window], output: Tensor) -> None:
        images, ctx.window = inputs
        ctx.size = images.shape[-2:]

    @staticmethod
    def vmap(info: Any, dimensions: tuple[int, None], images: Tensor, window: Window) -> tuple[Tensor, int]:
        """Those of all examples at once."""
        images = images.movedim(dimensions[0], 0)
        return patches(images.flatten(0, 1), window).unflatten(0, images.shape[:2]), 0

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return _Sums.apply(grad, ctx.window, ctx.size), None  # type: ignore[no-untyped-call]


class _Sums(torch.autograd.Function):
    """The transpose of ``_Patches``: every place is added back to the image."""

    @staticmethod
    def forward(ctx: Any, patches: Tensor, window: Window, size: Any) -> Tensor:
        ctx.window = window
        size = tuple(size)
        return functional.fold(patches, size, window.kernel, window.dilation, window.padding, window.stride)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return _Patches.apply(grad, ctx.window), None, None  # type: ignore[no-untyped-call]
