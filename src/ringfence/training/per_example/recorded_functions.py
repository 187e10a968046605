"""Parts of a network's layers, with derivatives that are made for two recorded walks and fast repetitions.

A first walk back through the graph makes gradients, a second one J^T u, a linear function of u. Both are
recorded. Later walks repeat the second one for other u, or go back through it to u, which gives J v. So what
a function records in its second walk needs a derivative by the direction alone. torch's own functions give
the same numbers; what they would compute beside them, and in other layouts, takes longer.
"""

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from ringfence.training.kernels.window import Window

_HAS_TRITON = find_spec("triton") is not None


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
        return _curve_and_slope(direction, grad, (mean, along), result, rate)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_curve: Tensor, by_slope: Tensor) -> Any:
        grad, mean, along, result, rate = ctx.saved_tensors
        total = _curve_plus_slope(by_curve, grad, (mean, along), by_slope, result, rate)
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


def _curve_and_slope(a: Tensor, b: Tensor, of_b: _Moments, z: Tensor, rate: Tensor) -> tuple[Tensor, Tensor]:
    """D(a, b) and P(a)."""
    kernels = _kernels_of_rows(a)
    if kernels is not None:
        both: tuple[Tensor, Tensor] = kernels.curve_and_slope_cuda(a, b, of_b, z, rate)
        return both
    return _curve(a, b, of_b, z, rate), _slope(a, z, rate)


def _curve_plus_slope(a: Tensor, b: Tensor, of_b: _Moments, c: Tensor, z: Tensor, rate: Tensor) -> Tensor:
    """D(a, b) + P(c)."""
    kernels = _kernels_of_rows(a)
    if kernels is not None:
        total: Tensor = kernels.curve_plus_slope_cuda(a, b, of_b, c, z, rate)
        return total
    return _curve(a, b, of_b, z, rate) + _slope(c, z, rate)
