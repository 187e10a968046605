"""What recorded second derivatives do most, on a GPU: every number is read once and written once."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ringfence.training.kernels.clipped_sums import Window

_WIDEST = 4096  # the longest row that one program holds
_BLOCK = 1024  # how many pixels one program adds up


def is_held(rows: Tensor) -> bool:
    """True where one program holds a row of (rows, width)."""
    return rows.numel() > 0 and rows.shape[1] <= _WIDEST


def slope_cuda(a: Tensor, z: Tensor, rate: Tensor) -> Tensor:
    """P(a) of ``recorded_functions``."""
    return _launched(a, None, None, None, z, rate)[0]


def curve_and_slope_cuda(
    a: Tensor, b: Tensor, of_b: tuple[Tensor, Tensor], z: Tensor, rate: Tensor
) -> tuple[Tensor, Tensor]:
    """D(a, b) and P(a)."""
    slope, curve = _launched(a, b, of_b, None, z, rate)
    return curve, slope


def curve_plus_slope_cuda(
    a: Tensor, b: Tensor, of_b: tuple[Tensor, Tensor], c: Tensor, z: Tensor, rate: Tensor
) -> Tensor:
    """D(a, b) + P(c)."""
    return _launched(a, b, of_b, c, z, rate)[0]


def patch_sums_cuda(patches: Tensor, window: Window, size: tuple[int, int]) -> Tensor:
    """``functional.fold`` of (n, C kernel, places) to (n, C, \\*size): every pixel adds up what saw it."""
    count, channels = len(patches), patches.shape[1] // (window.kernel[0] * window.kernel[1])
    images = patches.new_empty(count, channels, *size)
    if not images.numel():
        return images
    pixels = channels * size[0] * size[1]
    _patch_sums[(triton.cdiv(pixels, _BLOCK), count)](
        patches.contiguous(), images, pixels, *size, *window.positions(size),
        *window.kernel, *window.stride, *window.padding, *window.dilation, BLOCK=_BLOCK, num_warps=4,
    )  # fmt: skip
    return images


def _launched(
    a: Tensor, b: Tensor | None, of_b: tuple[Tensor, Tensor] | None, c: Tensor | None, z: Tensor, rate: Tensor
) -> tuple[Tensor, Tensor]:
    """P(a) alone; or (P(a), D(a, b)); or D(a, b) + P(c) alone."""
    a = a.contiguous()
    first = torch.empty_like(a)
    second = first if b is None or c is not None else torch.empty_like(a)
    block = triton.next_power_of_2(a.shape[1])
    mean, along = (rate, rate) if of_b is None else of_b
    _normalisation[(len(a),)](
        a, a if b is None else b.contiguous(), a if c is None else c.contiguous(), z.contiguous(),
        rate.contiguous(), mean.contiguous(), along.contiguous(), first, second, a.shape[1],
        CURVE=b is not None, OTHER=c is not None, BLOCK=block, num_warps=8 if block > 1024 else 4,
    )  # fmt: skip
    return first, second


@triton.jit  # type: ignore[untyped-decorator]
def _normalisation(  # type: ignore[no-untyped-def]
    a_from, b_from, c_from, z_from, rates, means, alongs, first, second, width,
    CURVE: tl.constexpr, OTHER: tl.constexpr, BLOCK: tl.constexpr,  # noqa: N803
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, BLOCK)
    held = place < width
    at = row * width + place
    a = tl.load(a_from + at, mask=held, other=0.0)
    z = tl.load(z_from + at, mask=held, other=0.0)
    rate = tl.load(rates + row)
    mean_a = tl.sum(a, axis=0) / width
    along_a = tl.sum(a * z, axis=0) / width
    slope = rate * (a - mean_a - z * along_a)
    if CURVE:
        b = tl.load(b_from + at, mask=held, other=0.0)
        mean_b = tl.load(means + row)
        along_b = tl.load(alongs + row)
        both = tl.sum(a * b, axis=0) / width - mean_a * mean_b - 3 * along_a * along_b
        level = along_b * mean_a + along_a * mean_b
        curve = rate * rate * (level - z * both - a * along_b - b * along_a)
        if OTHER:
            c = tl.load(c_from + at, mask=held, other=0.0)
            other = rate * (c - tl.sum(c, axis=0) / width - z * (tl.sum(c * z, axis=0) / width))
            tl.store(first + at, curve + other, mask=held)
        else:
            tl.store(first + at, slope, mask=held)
            tl.store(second + at, curve, mask=held)
    else:
        tl.store(first + at, slope, mask=held)


@triton.jit  # type: ignore[untyped-decorator]
def _patch_sums(  # type: ignore[no-untyped-def]
    patches, images, pixels, height, width, rows, columns,
    KERNEL_Y: tl.constexpr, KERNEL_X: tl.constexpr, STRIDE_Y: tl.constexpr, STRIDE_X: tl.constexpr,  # noqa: N803
    PADDING_Y: tl.constexpr, PADDING_X: tl.constexpr, DILATION_Y: tl.constexpr, DILATION_X: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):  # fmt: skip
    i = tl.program_id(1).to(tl.int64)
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    known = pixel < pixels
    channel = pixel // (height * width)
    y = pixel // width % height + PADDING_Y
    x = pixel % width + PADDING_X
    kernel = KERNEL_Y * KERNEL_X
    start = patches + i * (pixels // (height * width)) * kernel * (rows * columns)
    total = tl.zeros((BLOCK,), patches.dtype.element_ty)
    for k in tl.static_range(KERNEL_Y * KERNEL_X):
        up = y - k // KERNEL_X * DILATION_Y
        left = x - k % KERNEL_X * DILATION_X
        row = up // STRIDE_Y
        column = left // STRIDE_X
        seen = known & (up >= 0) & (left >= 0) & (row < rows) & (column < columns)
        seen = seen & (row * STRIDE_Y == up) & (column * STRIDE_X == left)
        at = ((channel * kernel + k) * rows + row) * columns + column
        total += tl.load(start + at, mask=seen, other=0.0)
    tl.store(images + i * pixels + pixel, total, mask=known)
