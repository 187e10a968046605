"""The clipped outer sum on a GPU, in two instructions per element.

clamp(y, -c, c) = 2 c sat(y / 2c + 1/2) - c with sat the clamp to [0, 1], which the multiply-add
instruction does for free. Minimum and maximum would run at half the rate of a multiply-add.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

_RUN = 8  # examples summed together: a sum of so few numbers in [0, 1] loses hardly a digit
_CLASSES = 16
_WIDTH = 256
_PROGRAMS = 1056  # eight for each multiprocessor of an H200; this bounds the memory too


def outer_sum_cuda(residuals: Tensor, features: Tensor, limits: Tensor) -> Tensor:
    """The sum of partial sums over stretches of examples, in a fixed order: the same result every time.

    ``limits`` is (K,), the clip of each column of the residuals.
    """
    count, classes = residuals.shape
    width = features.shape[1]
    tiles = triton.cdiv(classes, _CLASSES) * triton.cdiv(width, _WIDTH)
    splits = max(1, min(triton.cdiv(_PROGRAMS, tiles), triton.cdiv(count, 16 * _RUN)))
    stretch = triton.cdiv(triton.cdiv(count, splits), _RUN) * _RUN
    splits = triton.cdiv(count, stretch)
    # A clip that no product reaches would only cost digits, so the column's largest product takes its
    # place. A column's result does not depend on its neighbours.
    largest = _largest(*torch.aminmax(residuals, dim=0)) * _largest(*torch.aminmax(features))
    limits = torch.minimum(largest.clamp(min=torch.finfo(torch.float32).tiny), limits)
    partial = torch.empty(splits, classes, width, dtype=torch.float32, device=features.device)
    grid = (triton.cdiv(classes, _CLASSES), triton.cdiv(width, _WIDTH), splits)
    _sum_stretch[grid](
        residuals.contiguous(), features.contiguous(), partial, limits, count, classes, width, stretch,
        RUN=_RUN, CLASSES=_CLASSES, WIDTH=_WIDTH, num_warps=4, num_stages=2,
    )  # fmt: skip
    return partial.sum(dim=0)


def _largest(low: Tensor, high: Tensor) -> Tensor:
    return torch.maximum(-low, high)


@triton.jit
def _saturated(residual, feature):  # type: ignore[no-untyped-def]
    """residual * feature + 1/2, clamped to [0, 1], in one instruction."""
    return tl.inline_asm_elementwise(
        "fma.rn.sat.f32 $0, $1, $2, 0f3F000000;",
        "=f,f,f",
        [residual, feature],
        dtype=tl.float32,
        is_pure=True,
        pack=1,
    )


@triton.jit  # type: ignore[untyped-decorator]
def _sum_stretch(  # type: ignore[no-untyped-def]
    residuals, features, partial, limits, count, classes, width, stretch,
    RUN: tl.constexpr, CLASSES: tl.constexpr, WIDTH: tl.constexpr,  # noqa: N803
):  # fmt: skip
    k = tl.program_id(0) * CLASSES + tl.arange(0, CLASSES)
    j = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    first = tl.program_id(2) * stretch
    last = tl.minimum(first + stretch, count)
    run = tl.arange(0, RUN)
    unit = 2 * tl.load(limits + k, mask=k < classes, other=1.0)
    scale = 1 / unit
    total = tl.zeros((CLASSES, WIDTH), tl.float32)
    for start in range(first, last, RUN):
        i = (start + run).to(tl.int64)[:, None]
        # examples beyond the end count as 0; their saturated value 1/2 is subtracted again
        r = tl.load(residuals + i * classes + k[None, :], mask=(i < last) & (k < classes)[None, :], other=0.0)
        x = tl.load(features + i * width + j[None, :], mask=(i < last) & (j < width)[None, :], other=0.0)
        saturated = _saturated((r * scale[None, :])[:, :, None], x[:, None, :])
        total += tl.sum(saturated, axis=0) - 0.5 * RUN
    at = (tl.program_id(2) * classes + k[:, None]) * width + j[None, :]
    tl.store(partial + at, total * unit[:, None], mask=(k < classes)[:, None] & (j < width)[None, :])
