"""The derivative of examples' clipped gradients by their features, recorded once and applied many times.

Every example gets its own copy of the weights. Ordinary autograd then gives each example its own gradient, to
any order: a first walk back through the graph makes gradients g, a second one J^T u with J = dg / dx, linear
in u. Both are recorded. Later walks repeat the second one for other u, or go back through it to u,
which gives J v.

Dense layers, convolutions, group and layer normalisation become batched products of all examples, with
derivatives made for these walks and nothing else (torch's own give the same numbers and compute more beside
them). A model with other layers, or one that mixes its examples, runs under vmap, several times slower.
"""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.func import functional_call, jvp, vjp, vmap
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from ringfence.numerics.blocks import row_lengths
from ringfence.numerics.operators import BatchedOperator
from ringfence.training.clipping import Clip, Norm
from ringfence.training.kernels.clipped_sums import Window
from ringfence.training.per_example.gradients import bytes_kept

Loss = Callable[[Tensor, Tensor], Tensor]

_HAS_TRITON = find_spec("triton") is not None
_TINY = torch.finfo(torch.float64).tiny
_AGREEMENT = 1e-8  # relative, in float64
_COPIES = 6  # of an example's gradient, in float64, that a product holds


class UnknownUseError(Exception):
    """A weight is used by a function that is not known here."""


class CastModel:
    """A model and a loss with their numbers in ``dtype``: ``trained`` parameters, and what is ``fixed``.

    >>> CastModel(nn.Linear(2, 1), lambda output, y: output, torch.float64).size
    3
    """

    def __init__(self, model: nn.Module, loss: Loss, dtype: torch.dtype) -> None:
        def cast(tensor: Tensor) -> Tensor:
            # a copy: a layer may write to its buffers
            return tensor.detach().to(dtype if tensor.is_floating_point() else tensor.dtype, copy=True)

        parameters = dict(model.named_parameters())
        self.model, self.loss = model, loss
        self.trained = {name: cast(value) for name, value in parameters.items() if value.requires_grad}
        self.fixed = {name: cast(value) for name, value in parameters.items() if not value.requires_grad}
        self.fixed |= {name: cast(value) for name, value in model.named_buffers()}
        self.size = sum(value.numel() for value in self.trained.values())
        if not self.size:
            raise ValueError("model must have a parameter that requires a gradient, got none")

    def losses(self, weights: Mapping[str, Tensor], x: Tensor, y: Tensor, *, batched: bool) -> Tensor:
        """The loss of each example with its own ``weights``, (n, *shape): as one batch, or under vmap."""
        if batched:
            outputs = output_with_example_weights(self.model, weights, self.fixed, x)
            return vmap(lambda output, y: self.loss(output[None], y[None]).sum())(outputs, y)

        def one(weights: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            output = functional_call(self.model, {**weights, **self.fixed}, (x[None],))
            return self.loss(output, y[None]).sum()

        return vmap(one)(dict(weights), x, y)


class RecordedJacobian:
    """J = d gradient / d x of a few examples, as two graphs of autograd.

    Each walk takes four batched products per layer, and nothing that does not depend on the direction is
    computed again.

    >>> model = CastModel(nn.Linear(2, 1, bias=False), lambda output, y: output, torch.float64)
    >>> one = RecordedJacobian(model, torch.ones(1, 2).double(), torch.zeros(1))
    >>> one.apply(torch.tensor([[3.0, 4.0]])).tolist()  # the gradient of w . x is x
    [[3.0, 4.0]]
    """

    def __init__(self, model: CastModel, x: Tensor, y: Tensor, *, batched: bool = True) -> None:
        """Raises ``UnknownUseError`` where ``batched`` and a weight is used in a way that is not known."""
        with torch.enable_grad():
            self._x = x.detach().clone().requires_grad_()
            own = {
                name: value.detach().expand(len(x), *value.shape).requires_grad_()
                for name, value in model.trained.items()
            }
            losses = model.losses(own, self._x, y, batched=batched)
            # apart, not as one vector: autograd would fill and add whole vectors for each of the parts
            self._parts = torch.autograd.grad(
                losses.sum(), list(own.values()), create_graph=True, materialize_grads=True
            )
            self._directions = [torch.zeros_like(part).requires_grad_() for part in self._parts]
            self._pulled = self._walk(self._directions, record=True)

    def _walk(self, directions: Sequence[Tensor], *, record: bool = False) -> Tensor:
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
        along = direction.reshape(self._x.shape).to(self._x.dtype)
        moved = torch.autograd.grad(
            self._pulled, self._directions, along, retain_graph=True, materialize_grads=True
        )
        return _flat(moved)

    def apply_transpose(self, direction: Tensor) -> Tensor:
        """J^T u, (n, d) to (n, p), in float64."""
        pieces = direction.to(self._x.dtype).split([part[0].numel() for part in self._parts], dim=1)
        shaped = [piece.view(part.shape) for piece, part in zip(pieces, self._parts, strict=True)]
        return self._walk(shaped).flatten(1).double()


def _flat(parts: Sequence[Tensor]) -> Tensor:
    return torch.cat([part.flatten(1) for part in parts], dim=1)


def runs_as_one_batch(model: CastModel, x: Tensor, y: Tensor) -> bool:
    """Whether every use of a weight is known, and examples have the same derivatives together and alone.

    Warns where they have others: something in the model mixes the examples of a batch. This is seen in
    float64, because in float32 rounding may turn a ReLU on or off.
    """
    x, y = x.double(), y.double() if y.is_floating_point() else y
    model = CastModel(model.model, model.loss, torch.float64)
    try:
        together = RecordedJacobian(model, x, y)
    except UnknownUseError:
        return False
    alone = RecordedJacobian(model, x, y, batched=False)
    direction = (
        torch.linspace(-1, 1, model.size, dtype=torch.float64, device=x.device).cos().expand(len(x), -1)
    )
    for ours, theirs in (
        (together.gradients, alone.gradients),
        (together.apply_transpose(direction), alone.apply_transpose(direction)),
    ):
        # a NaN agrees: it is refused later, by name
        if bool(((ours - theirs).norm(dim=1) > _AGREEMENT * theirs.norm(dim=1)).any()):
            warnings.warn(
                "the model mixes the examples of a batch: each goes through it alone, which is slower",
                stacklevel=3,
            )
            return False
    return True


def bytes_per_example(model: CastModel, x: Tensor, y: Tensor, *, batched: bool) -> int:
    """Memory that one example takes, roughly: what the graphs keep, and copies of the gradient."""
    kept = bytes_kept(lambda: RecordedJacobian(model, x[:1], y[:1], batched=batched))
    return kept + _COPIES * 8 * model.size


def jacobian_operator(
    model: CastModel, clip: Clip, x: Tensor, y: Tensor, weights: Tensor, rounding: float, *, batched: bool
) -> BatchedOperator:
    """diag(weights) d clip(gradient) / d x of a few examples, one matrix per example."""
    recorded = RecordedJacobian(model, x, y, batched=batched)
    gradients = recorded.gradients
    if not bool(torch.isfinite(gradients).all()):
        raise ValueError("model and loss must give finite gradients, got NaN or infinity")
    forward, backward = _weighted_clip(clip, gradients, weights)
    count, width = len(x), math.prod(x.shape[1:])

    def image(vectors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(diag(weights) J v / |v|, its norm, |v|)."""
        lengths = _lengths(vectors)
        seen = forward(recorded.apply(vectors / lengths))  # unit vectors cannot leave the range of float32
        return seen, _lengths(seen), lengths

    def squares(block: Tensor) -> Tensor:
        sizes = [image(vectors)[1:] for vectors in block.unbind(1)]
        return torch.cat([size * length for size, length in sizes], dim=1).square()

    def gram(block: Tensor) -> tuple[Tensor, Tensor]:
        sizes, backs = [], []
        for seen, size, length in map(image, block.unbind(1)):
            sizes.append(size * length)
            backs.append(recorded.apply_transpose(backward(seen.div_(size))) * sizes[-1])
        return torch.cat(sizes, dim=1).square(), torch.stack(backs, dim=1)

    return BatchedOperator(count, (model.size, width), squares, gram, rounding, x.device)


def _weighted_clip(
    clip: Clip, gradients: Tensor, weights: Tensor
) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
    """diag(weights) C and its transpose, where C is the derivative of the clip at these gradients, (n, d)."""
    if isinstance(clip, Norm):
        return _weighted_norm(clip, gradients, weights)
    back = vjp(clip, gradients)[1]
    if clip.looks_at == "coordinate":  # C is a diagonal, and a product with it takes one pass
        diagonal = back(torch.ones_like(gradients))[0] * weights
        return lambda moved: moved * diagonal, lambda seen: seen.mul_(diagonal)
    return (
        lambda moved: jvp(clip, (gradients,), (moved,))[1].double() * weights,
        lambda seen: back(seen.mul_(weights).to(gradients.dtype))[0],
    )


def _weighted_norm(
    clip: Norm, gradients: Tensor, weights: Tensor
) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
    """The same for ``Norm``: of m it leaves f (m - u <u, m>), and 0 where a coordinate is clamped afterwards.

    f is the factor that makes a gradient shorter, and u its direction, or 0 where it is short enough.
    """
    lengths = row_lengths(gradients).unsqueeze(1)
    factors = clip.factors(lengths, gradients.dtype)
    units = (gradients / lengths.clamp(min=_TINY) * (lengths > clip.aim)).to(gradients.dtype)
    scale = factors * weights
    if clip.limit is not None:
        scale = scale * ((gradients * factors).abs() <= clip.limit)

    def across(moved: Tensor) -> Tensor:
        along = (units * moved).sum(1, keepdim=True, dtype=torch.float64).to(moved.dtype)
        return torch.addcmul(moved, units, along, value=-1)

    return lambda moved: across(moved) * scale, lambda seen: across(seen.mul_(scale).to(gradients.dtype))


def _lengths(vectors: Tensor) -> Tensor:
    """(n, 1), and a tiny number in place of 0."""
    lengths: Tensor = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    return lengths.clamp(min=_TINY)


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


def patches(images: Tensor, window: Window) -> Tensor:
    """(n, C, H, W) to (n, C kernel, places), as ``unfold``, which on a GPU takes one image after the other.

    >>> patches(torch.arange(4.0).view(1, 1, 2, 2), Window((1, 2), (1, 1), (0, 0), (1, 1))).tolist()
    [[[0.0, 2.0], [1.0, 3.0]]]
    """
    result: Tensor = _Patches.apply(images, window)  # type: ignore[no-untyped-call]
    return result


def product(weight: Tensor, columns: Tensor) -> Tensor:
    """weight @ columns, one pair of matrices per example.

    >>> product(torch.ones(1, 1, 2), torch.tensor([[[3.0], [4.0]]])).tolist()
    [[[7.0]]]
    """
    result: Tensor = _Product.apply(weight, columns)  # type: ignore[no-untyped-call]
    return result


def normalised(rows: Tensor, eps: float) -> Tensor:
    """z = (x - mean) / sqrt(variance + eps) of every row x.

    With r = 1 / sqrt(variance + eps) and m numbers in a row, the derivative of z along a is
    P(a) = r (a - mean(a) - z <a, z> / m). P is symmetric, and so is its own derivative D(a, b) (``_curve``).

    >>> normalised(torch.tensor([[1.0, 3.0]]), 0.0).tolist()
    [[-1.0, 1.0]]
    """
    result: Tensor = _Normalised.apply(rows, eps)  # type: ignore[no-untyped-call]
    return result


class _Product(torch.autograd.Function):
    """weight @ columns, with derivatives that are made for two walks through the graph, and only for these.

    Columns and weights are the largest tensors of a network. torch's own derivatives of derivatives are
    transposed, and adding or copying tensors of different layouts takes several times as long.
    """

    @staticmethod
    def forward(ctx: Any, weight: Tensor, columns: Tensor) -> Tensor:
        ctx.save_for_backward(weight, columns)
        return weight @ columns

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        weight, columns = ctx.saved_tensors
        # where no graph is recorded the derivative by the weight is there already
        if not torch.is_grad_enabled():
            return None, weight.mT @ grad
        return _ByWeight.apply(grad, columns), weight.mT @ grad  # type: ignore[no-untyped-call]


class _ByWeight(torch.autograd.Function):
    """The derivative of ``_Product`` by the weight."""

    @staticmethod
    def forward(ctx: Any, grad: Tensor, columns: Tensor) -> Tensor:
        ctx.save_for_backward(grad, columns)
        return grad @ columns.mT

    @staticmethod
    def backward(ctx: Any, direction: Tensor) -> Any:
        grad, columns = ctx.saved_tensors
        return _Along.apply(direction, grad, columns)  # type: ignore[no-untyped-call]


class _Along(torch.autograd.Function):
    """direction @ columns and direction^T @ grad, as linear functions of the direction alone."""

    @staticmethod
    def forward(ctx: Any, direction: Tensor, grad: Tensor, columns: Tensor) -> Any:
        ctx.save_for_backward(grad, columns)
        return direction @ columns, direction.mT @ grad

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_grad: Tensor, by_columns: Tensor) -> Any:
        grad, columns = ctx.saved_tensors
        matrices = (part.flatten(0, -3) for part in (by_grad, columns, grad, by_columns))
        first, second, third, fourth = matrices
        total = torch.baddbmm(first @ second.mT, third, fourth.mT)  # added by the product itself
        return total.view(*grad.shape[:-1], -1), None, None


class _Patches(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, images: Tensor, window: Window) -> Tensor:
        ctx.window, ctx.size = window, images.shape[-2:]
        return window.patches(images).flatten(1, 2)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return _Sums.apply(grad, ctx.window, ctx.size), None  # type: ignore[no-untyped-call]


class _Sums(torch.autograd.Function):
    """The transpose of ``_Patches``: every place is added back to the image."""

    @staticmethod
    def forward(ctx: Any, patches: Tensor, window: Window, size: Any) -> Tensor:
        ctx.window = window
        kernels = _kernels(patches)
        if kernels is not None:  # torch's own is several times slower
            summed: Tensor = kernels.patch_sums_cuda(patches, window, tuple(size))
            return summed
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


class _Normalised(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, eps: float) -> Tensor:
        centred = rows - rows.mean(1, keepdim=True)
        rate = (centred.square().mean(1, keepdim=True) + eps).rsqrt()
        result = centred * rate
        ctx.save_for_backward(rows, result, rate)
        ctx.walks = 0
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        rows, result, rate = ctx.saved_tensors
        if not torch.is_grad_enabled():
            return _slope(grad, result, rate), None
        ctx.walks += 1
        made = _Slope if ctx.walks == 1 else _SlopeAlong
        return made.apply(rows, grad, result.detach(), rate), None  # type: ignore[no-untyped-call]


class _Slope(torch.autograd.Function):
    """P(grad), as a function of the rows and of grad."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, grad: Tensor, result: Tensor, rate: Tensor) -> Tensor:
        ctx.save_for_backward(grad, *_moments(grad, result), result, rate)
        return _slope(grad, result, rate)

    @staticmethod
    def backward(ctx: Any, direction: Tensor) -> Any:
        by_rows, by_grad = _CurveAndSlopeAlong.apply(direction, *ctx.saved_tensors)  # type: ignore[no-untyped-call]
        return by_rows, by_grad, None, None


class _SlopeAlong(torch.autograd.Function):
    """P(direction), as a linear function of the direction alone."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, direction: Tensor, result: Tensor, rate: Tensor) -> Tensor:
        ctx.save_for_backward(result, rate)
        return _slope(direction, result, rate)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        result, rate = ctx.saved_tensors
        return None, _slope(grad, result, rate), None, None


class _CurveAndSlopeAlong(torch.autograd.Function):
    """D(direction, grad) and P(direction), as linear functions of the direction alone."""

    @staticmethod
    def forward(
        ctx: Any, direction: Tensor, grad: Tensor, mean: Tensor, along: Tensor, result: Tensor, rate: Tensor
    ) -> Any:
        ctx.save_for_backward(grad, mean, along, result, rate)
        kernels, of_grad = _kernels_of_rows(direction), (mean, along)
        if kernels is not None:
            return kernels.curve_and_slope_cuda(direction, grad, of_grad, result, rate)
        return _curve(direction, grad, of_grad, result, rate), _slope(direction, result, rate)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_curve: Tensor, by_slope: Tensor) -> Any:
        grad, mean, along, result, rate = ctx.saved_tensors
        kernels, of_grad = _kernels_of_rows(by_curve), (mean, along)
        if kernels is not None:
            total = kernels.curve_plus_slope_cuda(by_curve, grad, of_grad, by_slope, result, rate)
        else:
            total = _curve(by_curve, grad, of_grad, result, rate) + _slope(by_slope, result, rate)
        return total, None, None, None, None, None


def _kernels(values: Tensor) -> Any:
    """The module of kernels for a GPU, or None where plain torch does the work."""
    if not (values.is_cuda and _HAS_TRITON):
        return None
    from ringfence.training.kernels import recorded_cuda  # imported here, because it needs Triton

    return recorded_cuda


def _kernels_of_rows(rows: Tensor) -> Any:
    """The kernels, or None; also None where a row is too long for them."""
    kernels = _kernels(rows)
    return kernels if kernels is not None and kernels.is_held(rows) else None


_Moments = tuple[Tensor, Tensor]


def _moments(a: Tensor, z: Tensor) -> _Moments:
    """(mean(a), <a, z> / m) of every row."""
    return a.mean(1, keepdim=True), (a * z).mean(1, keepdim=True)


def _slope(a: Tensor, z: Tensor, rate: Tensor) -> Tensor:
    """P(a)."""
    kernels = _kernels_of_rows(a)
    if kernels is not None:
        slope: Tensor = kernels.slope_cuda(a, z, rate)
        return slope
    mean, along = _moments(a, z)
    return torch.addcmul(-rate * mean, z, -rate * along).addcmul_(a, rate)


def _curve(a: Tensor, b: Tensor, of_b: _Moments, z: Tensor, rate: Tensor) -> Tensor:
    """D(a, b), the derivative of <a, P(b)> = r (<a, b> - m mean(a) mean(b) - <a, z> <b, z> / m) by x."""
    (mean_a, along_a), (mean_b, along_b), square = _moments(a, z), of_b, rate.square()
    both = (a * b).mean(1, keepdim=True) - mean_a * mean_b - 3 * along_a * along_b
    result = torch.addcmul(square * (along_b * mean_a + along_a * mean_b), z, -square * both)
    return result.addcmul_(a, -square * along_b).addcmul_(b, -square * along_a)
