"""sum_i clamp(w_i A_i^T B_i, -c, c): clipped gradients of layers and convolutions, without holding n of them.

A linear layer with T positions is a convolution whose window is one position wide, so there is one way
through this file. The plain version works in chunks; Triton does the work on a GPU where it can.
"""

import math
from collections.abc import Iterator
from importlib.util import find_spec

import torch
from torch import Tensor

from ringfence.numerics.blocks import refuse_tf32, row_lengths
from ringfence.training.kernels.outer_sum import finite_outer_sum, plain_outer_sum
from ringfence.training.kernels.window import Window

_HAS_TRITON = find_spec("triton") is not None
_CHUNK_ENTRIES = 1 << 20  # how many numbers the plain version holds at once, and 16 times that on a GPU
_SLACK = 2.0**-40  # more than a few roundings in float64 take


def convolution_sum(
    output_gradient: Tensor, x: Tensor, window: Window, limit: float | None, weights: Tensor | None = None
) -> Tensor:
    """sum_i clamp(w_i G_i, -limit, limit) of weight gradients of a convolution: (O, C / groups, \\*kernel).

    ``output_gradient`` is (n, O, \\*places), ``x`` (n, C, \\*size). Without a limit nothing is clamped;
    ``weights`` are n numbers, or all 1. Factors in half precision give a sum in float32, of products that are
    accumulated in float32. The extra memory is small, and does not grow with n.

    Guarantee: every example adds to every entry a number within [-limit, limit], whatever the precision of
    the product: ``limit`` must be a number of the result's dtype. NaN in an example makes the sum NaN.

    >>> window = Window((2,), (1,), (0,), (1,))
    >>> convolution_sum(torch.ones(1, 1, 2), torch.tensor([[[1.0, 2.0, 5.0]]]), window, 4.0)
    tensor([[[3., 4.]]])
    """
    output_gradient, x, dtype = _agreed(output_gradient, x)
    shape = (output_gradient.shape[1], x.shape[1] // window.groups, *window.kernel)
    if not output_gradient.numel() or not x.numel():
        return torch.zeros(shape, dtype=dtype, device=x.device)
    if _is_fused(output_gradient, x, window):
        from ringfence.training.kernels.product_sum_cuda import convolution_sum_cuda

        return convolution_sum_cuda(output_gradient, x, window, limit, weights)
    scales = None if weights is None else weights.to(dtype).view(-1, *(1,) * (x.dim() - 1))
    gradients = output_gradient if scales is None else output_gradient * scales
    if _is_outer(output_gradient, window):
        right = window.patches(x.to(dtype)).flatten(1)
        return _outer(gradients.to(dtype).flatten(1), right, limit).view(shape)
    total = torch.zeros(math.prod(shape), dtype=dtype, device=x.device)
    if limit is None:
        refuse_tf32(total)
        if x.is_cpu or window.is_point:  # cudnn would multiply as TF32
            return _unclamped(gradients.to(dtype), x.to(dtype), window, shape)
    for left, patches in _chunks(gradients, x, window):
        products = (left @ patches.mT).flatten(1)
        total += (products if limit is None else products.clamp_(-limit, limit)).sum(dim=0)
    return total.view(shape)


def convolution_rows(output_gradient: Tensor, x: Tensor, window: Window) -> Tensor:
    """Each example's weight gradient of a convolution, held in memory: (n, O, C / groups, \\*kernel).

    >>> window = Window((2,), (1,), (0,), (1,))
    >>> convolution_rows(torch.ones(1, 1, 2), torch.tensor([[[1.0, 2.0, 5.0]]]), window)
    tensor([[[[3., 7.]]]])
    """
    rows = torch.cat([left @ patches.mT for left, patches in _chunks(output_gradient, x, window)])
    return rows.view(len(x), output_gradient.shape[1], x.shape[1] // window.groups, *window.kernel)


def convolution_squares(output_gradient: Tensor, x: Tensor, window: Window) -> Tensor:
    """The squared L2 norm of each example's weight gradient of a convolution, from above: (n,) in float64.

    Guarantee: at least the squared norm of what ``convolution_sum`` adds for the example with weight 1 and
    no limit, up to the rounding of the sum and the last one of each entry. In plain torch that is the exact
    product: what may have been lost to rounding is added, with L places L 2^-23 (float64: L 2^-52) times the
    norms of both factors. On a GPU sum and squares multiply in the same order, so what was computed is
    what is measured. Matrix products of float32 numbers with fewer bits are refused.

    >>> window = Window((2,), (1,), (0,), (1,))
    >>> convolution_squares(torch.ones(1, 1, 2), torch.ones(1, 1, 3), window).round(decimals=3)
    tensor([8.], dtype=torch.float64)
    """
    output_gradient, x, dtype = _agreed(output_gradient, x)
    if not output_gradient.numel() or not x.numel():
        return torch.zeros(len(x), dtype=torch.float64, device=x.device)
    if _is_fused(output_gradient, x, window):
        from ringfence.training.kernels.product_sum_cuda import convolution_squares_cuda

        return convolution_squares_cuda(output_gradient, x, window)
    if _is_outer(output_gradient, window):  # an outer product is as long as its two vectors, multiplied
        norms = row_lengths(output_gradient.flatten(1)) * row_lengths(window.patches(x).flatten(1))
        return norms.square() * (1 + 2.0**-19)  # each norm is good to 2^-22
    places, kernel = output_gradient.shape[2:].numel(), math.prod(window.kernel)
    rows, columns = output_gradient.shape[1] // window.groups, x.shape[1] // window.groups * kernel
    # each number of x is in so many patches at most
    scales = _group_lengths(output_gradient, window) * _group_lengths(x, window) * math.sqrt(window.overlap)
    scale: Tensor = torch.linalg.vector_norm(scales, dim=1)
    by_grams = 3 * places * (rows + columns) <= rows * columns  # in float64, which takes thrice the time
    measure = _gram_squares if by_grams else _product_lengths
    measured = torch.cat([measure(*factors) for factors in _chunks(output_gradient, x, window)])
    if by_grams:  # off by at most so many ulps of |left|^2 |right|^2
        ulps = rows + columns + window.groups * places**2
        return (measured + ulps * torch.finfo(torch.float64).eps * scale.square()) * (1 + _SLACK)
    # Entry (a, b) of a product is off by at most g sum_t |left_ta| |right_tb| with g = L u / (1 - L u) and u
    # half an ulp of 1, in any order of the additions (Higham, Accuracy and Stability of Numerical
    # Algorithms, 3.5); the matrix of these sums is no longer than |left| |right|.
    return (measured + places * torch.finfo(dtype).eps * scale).square() * (1 + _SLACK)


def _gram_squares(left: Tensor, right: Tensor) -> Tensor:
    """|left right^T|^2 for (m, groups, o, L) and (m, groups, k, L), by both Gram matrices."""
    left, right = left.double(), right.double()
    return ((left.mT @ left) * (right.mT @ right)).sum(dim=(1, 2, 3))


def _product_lengths(left: Tensor, right: Tensor) -> Tensor:
    """|left right^T|, from above as far as the product is exact."""
    refuse_tf32(left)
    length: Tensor = torch.linalg.vector_norm(_length(left @ right.mT), dim=1)
    return length


def _group_lengths(values: Tensor, window: Window) -> Tensor:
    """The L2 lengths of each example's groups of channels, from above: (n, groups)."""
    grouped = values.flatten(2).unflatten(1, (window.groups, -1))
    return _length(grouped if grouped.stride(3) == 1 else grouped.mT)


def _length(values: Tensor) -> Tensor:
    """The L2 length of the last two dimensions, in float64 and from above: (n, groups).

    Rows are summed in float32, where this takes a tenth of the time, and their lengths in float64.
    """
    dtype = torch.promote_types(values.dtype, torch.float32)
    numbers, settings = values.shape[2:].numel(), torch.finfo(dtype)
    rows = torch.linalg.vector_norm(values, dim=3, dtype=dtype)
    length: Tensor = torch.linalg.vector_norm(rows, dim=2, dtype=torch.float64)
    margin = settings.eps * values.shape[3] + torch.finfo(torch.float64).eps * values.shape[2]
    return length * (1 + margin) + 2 * math.sqrt(numbers * settings.tiny)


def _agreed(output_gradient: Tensor, x: Tensor) -> tuple[Tensor, Tensor, torch.dtype]:
    """Both factors in one dtype, and the dtype of their sum."""
    if output_gradient.dtype != x.dtype:
        dtype = torch.promote_types(output_gradient.dtype, x.dtype)
        output_gradient, x = output_gradient.to(dtype), x.to(dtype)
    return output_gradient, x, torch.promote_types(x.dtype, torch.float32)


def _is_outer(output_gradient: Tensor, window: Window) -> bool:
    """True where an example's gradient is one outer product, because the window takes one place."""
    return window.groups == 1 and output_gradient.shape[2:].numel() == 1


def _is_fused(output_gradient: Tensor, x: Tensor, window: Window) -> bool:
    if not x.is_cuda or not _HAS_TRITON or output_gradient.shape[2:].numel() == 1:
        return False
    from ringfence.training.kernels.product_sum_cuda import is_fused

    return is_fused(output_gradient, x, window)


def _chunks(gradients: Tensor, x: Tensor, window: Window) -> Iterator[tuple[Tensor, Tensor]]:
    """The factors of a few examples at a time: (m, groups, O / groups, L) and (m, groups, k, L)."""
    rows, places, kernel = gradients.shape[1], gradients.shape[2:].numel(), math.prod(window.kernel)
    entries = rows * x.shape[1] // window.groups * kernel + places * (rows + x.shape[1] * kernel)
    length = max(1, _CHUNK_ENTRIES * (1 if x.is_cpu else 16) // entries)
    dtype = torch.promote_types(x.dtype, torch.float32)
    for some, others in zip(gradients.split(length), x.split(length), strict=True):
        left = some.to(dtype).reshape(len(some), window.groups, rows // window.groups, places)
        yield left, window.patches(others.to(dtype))


def _unclamped(gradients: Tensor, x: Tensor, window: Window, shape: tuple[int, ...]) -> Tensor:
    """One ordinary weight gradient."""
    if window.is_point and window.groups == 1:
        left, right = (part.movedim(1, -1).flatten(0, -2) for part in (gradients, x))
        return (left.T @ right).view(shape)
    settings = (window.stride, window.padding, window.dilation, False, [0] * len(window.kernel))
    gradient: Tensor = torch.ops.aten.convolution_backward(
        gradients, x, x.new_empty(shape), None, *settings, window.groups, [False, True, False]
    )[1]
    return gradient


def _outer(left: Tensor, right: Tensor, limit: float | None) -> Tensor:
    """One place: the outer sum, which may lose a NaN on a CPU, and the infinities that make one."""
    if limit is None:
        refuse_tf32(left)
        return left.T @ right
    if not left.is_cpu:
        return finite_outer_sum(left + 0 * left, right + 0 * right, limit)  # infinity + 0 infinity is NaN
    finite = bool(torch.isfinite(left.sum() + right.sum()))
    return (finite_outer_sum if finite else plain_outer_sum)(left, right, limit)
