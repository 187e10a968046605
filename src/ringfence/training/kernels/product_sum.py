"""sum_i clamp(w_i A_i^T B_i, -c, c): clipped gradients of layers and convolutions, without holding n of them.

A linear layer with T positions is a convolution whose window is one position wide, so there is one way
through this file. The plain version works in chunks; Triton does the work on a GPU where it can.
"""

import math
from importlib.util import find_spec

import torch
from torch import Tensor

from ringfence import checks
from ringfence.numerics.precision import refuse_tf32
from ringfence.numerics.rounding import float32_at_most
from ringfence.training.kernels.outer_sum import finite_outer_sum, plain_outer_sum
from ringfence.training.kernels.window import Window

_HAS_TRITON = find_spec("triton") is not None
_POINT = Window((1,), (1,), (0,), (1,))
_CHUNK_ENTRIES = {"cpu": 1 << 18, "cuda": 1 << 24}  # how many numbers the plain version holds at once
_ULP = 2.0**-52  # twice the rounding of one operation in float64


def clipped_product_sum(left: Tensor, right: Tensor, clip: float) -> Tensor:
    """The sum over examples of each one's product left_i^T right_i, every entry clamped to [-clip, clip].

    ``left`` is (n, T, p), ``right`` (n, T, q), the result (p, q): the clipped gradients of a linear layer
    that sees T positions of each example. ``clipped_outer_sum`` is the case T = 1. The extra memory is small,
    and does not grow with n.

    Guarantee: every example adds to every entry a number within [-clip, clip], up to the rounding
    of the sum. NaN and infinities are refused.

    >>> left = torch.tensor([[[1.0], [1.0]], [[1.0], [0.0]]])
    >>> right = torch.tensor([[[3.0, 0.1], [1.0, 0.1]], [[-3.0, 0.1], [9.0, 9.0]]])
    >>> clipped_product_sum(left, right, 0.5)
    tensor([[0.0000, 0.3000]])
    """
    left, right = checks.finite("left", left), checks.finite("right", right)
    for name, value in (("left", left), ("right", right)):
        if value.dim() != 3:
            raise ValueError(f"{name} must have three dimensions, got shape {list(value.shape)}")
    if left.shape[:2] != right.shape[:2]:
        raise ValueError(
            f"left holds {list(left.shape[:2])} examples and positions, right {list(right.shape[:2])}"
        )
    if left.dtype != right.dtype or left.device != right.device:
        raise ValueError(
            f"left is {left.dtype} on {left.device}, right {right.dtype} on {right.device}: they must agree"
        )
    limit = checks.number("clip", clip, checks.positive)
    return product_sum(left, right, limit if left.dtype == torch.float64 else float32_at_most("clip", limit))


def product_sum(left: Tensor, right: Tensor, limit: float | None, weights: Tensor | None = None) -> Tensor:
    """sum_i clamp(w_i left_i^T right_i, -limit, limit) for (n, T, p) and (n, T, q); nothing is checked.

    Without a limit nothing is clamped; ``weights`` are n numbers, or all 1. Factors in half precision
    give a sum in float32, of products that are accumulated in float32.

    Guarantee: every example adds to every entry a number within [-limit, limit], whatever the precision of
    the product: ``limit`` must be a number of the result's dtype. NaN in an example makes the sum NaN.

    >>> ones = torch.ones(2, 3, 1)
    >>> product_sum(ones, ones, None, torch.tensor([1.0, 0.5])), product_sum(ones, ones, 1.0)
    (tensor([[4.5000]]), tensor([[2.]]))
    """
    return convolution_sum(left.transpose(1, 2), right.transpose(1, 2), _POINT, limit, weights).squeeze(2)


def product_squares(left: Tensor, right: Tensor) -> Tensor:
    """The squared L2 length of each left_i^T right_i, from above, as ``convolution_squares``: (n,).

    >>> product_squares(torch.ones(1, 3, 1), torch.ones(1, 3, 4)).round(decimals=3)
    tensor([36.], dtype=torch.float64)
    """
    return convolution_squares(left.transpose(1, 2), right.transpose(1, 2), _POINT)


def convolution_sum(
    output_gradient: Tensor, x: Tensor, window: Window, limit: float | None, weights: Tensor | None = None
) -> Tensor:
    """The clamped sum of the weight gradients of a convolution: (O, C / groups, \\*kernel).

    ``output_gradient`` is (n, O, \\*places), ``x`` (n, C, \\*size). For the rest, and for
    the guarantee, see ``product_sum``.

    >>> window = Window((2,), (1,), (0,), (1,))
    >>> convolution_sum(torch.ones(1, 1, 2), torch.tensor([[[1.0, 2.0, 5.0]]]), window, 4.0)
    tensor([[[3., 4.]]])
    """
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    shape = (output_gradient.shape[1], x.shape[1] // window.groups, *window.kernel)
    if not output_gradient.numel() or not x.numel():
        return torch.zeros(shape, dtype=dtype, device=x.device)
    scales = None if weights is None else weights.to(dtype).view(-1, *(1,) * (x.dim() - 1))
    gradients = output_gradient if scales is None else output_gradient * scales
    if limit is None:
        return _unclamped(gradients.to(dtype), x.to(dtype), window, shape)
    if window.groups == 1 and output_gradient.shape[2:].numel() == 1:
        return _outer(gradients.to(dtype).flatten(1), window.patches(x).to(dtype).flatten(1), limit).view(
            shape
        )
    total = torch.zeros(math.prod(shape), dtype=dtype, device=x.device)
    length = _chunk(output_gradient, x, window)
    for some, others in zip(gradients.split(length), x.split(length), strict=True):
        left, patches = _factors(some.to(dtype), others.to(dtype), window)
        total += (left @ patches.mT).flatten(1).clamp_(-limit, limit).sum(dim=0)
    return total.view(shape)


def convolution_squares(output_gradient: Tensor, x: Tensor, window: Window) -> Tensor:
    """The squared L2 length of each example's weight gradient of a convolution, from above: (n,) in float64.

    Guarantee: at least the square of the exact length, where that is above 1e-30. What was rounded is
    added: with L places, the length gets L 2^-23 (float64: L 2^-52) times the lengths of both factors.
    Matrix products of fewer bits are refused.

    >>> window = Window((2,), (1,), (0,), (1,))
    >>> convolution_squares(torch.ones(1, 1, 2), torch.ones(1, 1, 3), window).round(decimals=3)
    tensor([8.], dtype=torch.float64)
    """
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    if not output_gradient.numel() or not x.numel():
        return torch.zeros(len(x), dtype=torch.float64, device=x.device)
    refuse_tf32(x)
    length = _chunk(output_gradient, x, window)
    parts = []
    for some, others in zip(output_gradient.split(length), x.split(length), strict=True):
        left, patches = _factors(some.to(dtype), others.to(dtype), window)
        parts.append(_squares(left, patches))
    return torch.cat(parts)


def _squares(left: Tensor, right: Tensor) -> Tensor:
    """Upper bounds of |left right^T|^2 for (m, groups, o, L) and (m, groups, k, L), in float64.

    Entry (a, b) of the product is off by at most g_L sum_t |left_at| |right_bt| with g_L = L u / (1 - L u)
    and u half an ulp of 1 (Higham, Accuracy and Stability, 3.5), in any order of the additions; the matrix
    of these sums is no longer than |left| |right|. The product of both Gram matrices is |left right^T|^2; in
    float64 it is off by at most (o + k + L^2) ulps of |left|^2 |right|^2.
    """
    (rows, places), columns = left.shape[2:], right.shape[2]
    scale = _length(_length(left, (2, 3)) * _length(right, (2, 3)), (1,))
    if 2 * places * (rows + columns) <= rows * columns + rows + columns:
        left, right = left.double(), right.double()
        grams = (left.mT @ left) * (right.mT @ right)
        slack = _ULP * (rows + columns + left.shape[1] * places**2)
        return (grams.sum(dim=(1, 2, 3)) + slack * scale**2) * (1 + _ULP)
    computed = _length(left @ right.mT, (1, 2, 3))
    slack = places * torch.finfo(left.dtype).eps
    numbers = left.shape[1] * (rows * columns + places * (rows + columns))
    return ((computed + slack * scale) * (1 + _ULP * numbers)) ** 2


def _length(values: Tensor, dimensions: tuple[int, ...]) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(values, dim=dimensions, dtype=torch.float64)
    return length


def _factors(gradients: Tensor, x: Tensor, window: Window) -> tuple[Tensor, Tensor]:
    """The factors of a few examples' weight gradients: (m, groups, O / groups, L) and (m, groups, k, L)."""
    return gradients.reshape(len(x), window.groups, -1, gradients.shape[2:].numel()), window.patches(x)


def _chunk(gradients: Tensor, x: Tensor, window: Window) -> int:
    """How many examples the plain version takes at once."""
    rows, places, kernel = gradients.shape[1], gradients.shape[2:].numel(), math.prod(window.kernel)
    entries = rows * x.shape[1] // window.groups * kernel + places * (rows + x.shape[1] * kernel)
    return max(1, _CHUNK_ENTRIES[x.device.type] // entries)


def _unclamped(gradients: Tensor, x: Tensor, window: Window, shape: tuple[int, ...]) -> Tensor:
    """One ordinary weight gradient."""
    refuse_tf32(x, convolutions=True)
    if window.is_point and window.groups == 1:
        left, right = (part.movedim(1, -1).flatten(0, -2) for part in (gradients, x))
        return (left.T @ right).view(shape)
    settings = (
        window.stride,
        window.padding,
        window.dilation,
        False,
        [0] * len(window.kernel),
        window.groups,
    )
    mask = [False, True, False]
    gradient: Tensor = torch.ops.aten.convolution_backward(
        gradients, x, x.new_empty(shape), None, *settings, mask
    )[1]
    return gradient


def _outer(left: Tensor, right: Tensor, limit: float) -> Tensor:
    """One place: the outer sum, which may lose a NaN on a CPU, and the infinities that make one."""
    if not left.is_cpu:
        return finite_outer_sum(left + 0 * left, right + 0 * right, limit)  # infinity + 0 infinity is NaN
    finite = bool(torch.isfinite(left.sum() + right.sum()))
    return (finite_outer_sum if finite else plain_outer_sum)(left, right, limit)
