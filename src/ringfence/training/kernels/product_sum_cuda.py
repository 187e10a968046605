"""Clamped sums of weight gradients on a GPU: each example's product stays in registers, where it is clamped.

A program owns a tile of the weight and a stretch of examples. For every example it multiplies both factors on
the tensor cores, place by place and row by row, with the patches of a convolution gathered on the way; then
it clamps the tile and adds it to its sum. The sums of the stretches are added at the end, so the order never
changes.

Factors of 16 bits are multiplied as they are: their products are exact, and summed in float32. A factor in
float32 is split into two of bfloat16, high + low, which leaves at most 2^-18 of it: high high + high low +
low high is off by at most 2^-16 of |left| |right|.
"""

import math
from functools import cache, lru_cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

_LEAST_CHANNELS = 16  # tensor cores multiply no narrower tiles


class Geometry(NamedTuple):
    """A convolution in two dimensions; a ``point`` has a window of one place, in any number of them."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int
    point: bool


class Tile(NamedTuple):
    """How the work is cut: rows and columns of the weight, places at a time; warps, loads ahead, programs."""

    rows: int
    columns: int
    places: int
    warps: int
    stages: int
    programs: int


_H200 = 227 * 1024  # bytes of shared memory that a program may use there


def choose_tile(
    rows: int, columns: int, places: int, *, split: bool, point: bool, shared: int = _H200
) -> Tile:
    """The fastest tile on an H200, within a tenth, for layers of a WRN-16-4, a ViT-S/16 and a small BERT.

    ``split`` says that factors are in float32, ``point`` that the window is one place wide. Where
    there is less ``shared`` memory, fewer loads are under way, of fewer places.

    >>> choose_tile(64, 576, 1024, split=False, point=False)
    Tile(rows=64, columns=64, places=64, warps=4, stages=4, programs=264)
    """
    tile = _fastest(rows, columns, places, split=split, point=point)
    while bytes_held(tile, split=split) > shared:
        fewer = {"stages": tile.stages - 1} if tile.stages > 2 else {"places": tile.places // 2}
        tile = tile._replace(**fewer)
    return tile


def bytes_held(tile: Tile, *, split: bool) -> int:
    """The shared memory of one program: two bytes for each number that is loaded ahead."""
    return 2 * (tile.rows + tile.columns) * tile.places * tile.stages * (2 if split else 1)


def _fastest(rows: int, columns: int, places: int, *, split: bool, point: bool) -> Tile:
    high, wide = (max(16, 1 << (side - 1).bit_length()) for side in (rows, columns))
    if split:
        if high >= 128 and wide >= 128 and not point:
            return Tile(128, 128, 64, 8, 3, 264)
        return Tile(min(64, high), min(128, wide), 32, 4, 4, 528)
    if high < 64 or wide < 64:
        return Tile(min(64, high), min(64, wide), 128, 4, 3, 264)
    if high < 128 or rows * columns <= 2**16:
        return Tile(64, 64, 64, 4, 4, 264)
    if places >= 128 and rows * columns > 2**18:
        return Tile(128, 128, 128, 8, 3, 264)
    return Tile(128, 64, 64, 4, 4, 528 if rows * columns > 2**19 else 264)


def is_fused(output_gradient: Tensor, x: Tensor, groups: int) -> bool:
    """True where these kernels do the work, of convolutions in one or two dimensions."""
    narrowest = min(output_gradient.shape[1], x.shape[1]) // groups
    return (
        torch.cuda.get_device_capability(x.device) >= (8, 0)  # tensor cores that take bfloat16
        and x.dtype != torch.float64
        and (groups == 1 or narrowest >= _LEAST_CHANNELS)
        and max(part[0].numel() for part in (output_gradient, x)) < 2**31
    )


def convolution_sum_cuda(
    output_gradient: Tensor,
    x: Tensor,
    window: Geometry,
    limit: float | None,
    weights: Tensor | None,
    per_unit: int = 1,
    standard: tuple[Tensor, Tensor, Tensor] | None = None,
) -> Tensor:
    """``Products.sum`` where ``is_fused``: (O, C / groups, \\*kernel) in float32.

    With ``standard``, the directions u and rates of standardised filters and (n, 2, O) numbers a and b, the
    gradient of a filter is rate (G - a - b u) before it is weighted and clamped.
    """
    work = _Work(output_gradient, x, window, per_unit)
    splits = work.cut.splits
    shape = (splits, output_gradient.shape[1], work.cut.columns)
    partial = torch.empty(shape, dtype=torch.float32, device=x.device)
    weights = None if weights is None else weights.to(torch.float32).contiguous()
    work.launch(partial, limit, weights, standard=standard)
    total = partial[0] if splits == 1 else partial.sum(dim=0)
    return total.view(-1, *window.kernel[4 - x.dim() :], x.shape[1] // window.groups).movedim(-1, 1)


def convolution_squares_cuda(
    output_gradient: Tensor, x: Tensor, window: Geometry, per_unit: int = 1
) -> Tensor:
    """The squared L2 norm of what ``convolution_sum_cuda`` adds for each example, from above: (n,).

    Both multiply in the same order, so that the rounding of the product is in both. The squares of a tile are
    summed along its rows and then along their sums, which costs 2^-23 of the sum for each number at most;
    squares below 2^-126 vanish.
    """
    work = _Work(output_gradient, x, window, per_unit)
    cut = work.cut
    partial = torch.empty(cut.tiles, cut.examples, dtype=torch.float32, device=x.device)
    work.launch(partial, None, None, squares=True)
    margin = (cut.tile.rows + cut.tile.columns) * 2.0**-23
    lost = output_gradient.shape[1] * cut.columns * 2.0**-126
    return partial.sum(dim=0, dtype=torch.float64) * (1 + margin) + lost


def statistics_cuda(
    output_gradient: Tensor, x: Tensor, window: Geometry, per_unit: int, directions: Tensor
) -> Tensor:
    """|G|^2, the sum of G and its product with a direction, of each example and filter: (n, 3, O), float64.

    G is what ``convolution_sum_cuda`` adds for the example, multiplied in the same order.
    """
    work = _Work(output_gradient, x, window, per_unit)
    cut, filters = work.cut, output_gradient.shape[1]
    partial = torch.empty(cut.tiles_across, cut.examples, 3, filters, dtype=torch.float32, device=x.device)
    rates = directions.new_empty(0)
    work.launch(partial, None, None, squares=True, standard=(directions, rates, rates))
    return partial.sum(dim=0, dtype=torch.float64)


class _Cut(NamedTuple):
    """How the work of a layer is cut into programs: tiles of its weight, and stretches of examples."""

    rows: int  # of the weight in each group
    columns: int
    channels: int  # of the input in each group
    places: int
    tile: Tile
    tiles_down: int
    tiles_across: int
    tiles: int
    examples: int
    stretch: int
    splits: int


@lru_cache(1024)  # layers have the same shapes in every step
def _cut(
    outputs: torch.Size, inputs: torch.Size, window: Geometry, per_unit: int, split: bool, shared: int
) -> _Cut:
    channels, rows = inputs[1] // window.groups, outputs[1] // window.groups
    columns, places = channels * math.prod(window.kernel), outputs[2:].numel()
    tile = choose_tile(rows, columns, places, split=split, point=window.point, shared=shared)
    down, across = triton.cdiv(rows, tile.rows), triton.cdiv(columns, tile.columns)
    tiles = window.groups * down * across
    count = inputs[0] // per_unit
    stretch = triton.cdiv(count, max(1, min(count, tile.programs // tiles)))
    splits = triton.cdiv(count, stretch)
    return _Cut(rows, columns, channels, places, tile, down, across, tiles, count, stretch, splits)


@cache
def _shared_memory(device: torch.device) -> int:
    index = torch.cuda.current_device() if device.index is None else device.index
    return int(triton.runtime.driver.active.utils.get_device_properties(index)["max_shared_mem"])


class _Work:
    """One layer's factors, channels last, and how they are cut."""

    def __init__(self, output_gradient: Tensor, x: Tensor, window: Geometry, per_unit: int) -> None:
        self.split, self.window, self.per_unit = x.dtype == torch.float32, window, per_unit
        shapes = output_gradient.shape, x.shape
        self.cut = _cut(*shapes, window, per_unit, self.split, _shared_memory(x.device))
        if window.point:
            output_gradient, x = output_gradient.flatten(2), x.flatten(2)
        left, right = _channels_last(output_gradient).flatten(1, -2), _channels_last(x)
        right = right.unsqueeze(1) if right.dim() == 3 else right
        self.across = output_gradient.shape[-1]
        self.left, self.right = (_split(left), _split(right)) if self.split else (left, right)

    def launch(
        self,
        out: Tensor,
        limit: float | None,
        weights: Tensor | None,
        *,
        squares: bool = False,
        standard: tuple[Tensor, Tensor, Tensor] | None = None,
    ) -> None:
        cut, tile, window, left, right = self.cut, self.cut.tile, self.window, self.left, self.right
        numbers = [out, out, out]
        if standard is not None:
            directions, rates, shifts = standard
            ordered = (directions.movedim(1, -1), rates, shifts)
            numbers = [each.to(torch.float32).contiguous() for each in ordered]
        _sum_stretch[(cut.tiles, cut.splits)](
            left, right, left.numel(), right.numel(),
            out if weights is None else weights, out, *numbers,
            0.0 if limit is None else limit,
            cut.examples, cut.stretch, cut.rows, cut.columns, cut.channels,
            cut.tiles_down, cut.tiles_across, window.groups * cut.rows,
            *left.stride()[:2], *right.stride()[:3], *right.shape[1:3],
            window.kernel[1], *window.stride, *window.padding, *window.dilation,
            PLACES=cut.places, ACROSS=self.across, POINT=window.point,
            ONE_OFFSET=window.point or cut.channels % tile.columns == 0,
            EVEN=cut.rows % tile.rows == 0 and cut.columns % tile.columns == 0,
            SPLIT=self.split, CLAMP=limit is not None,
            WEIGHTED=weights is not None, SQUARES=squares,
            STANDARD=standard is not None, PER_UNIT=self.per_unit,
            ROWS=tile.rows, COLUMNS=tile.columns, ALONG=tile.places, STAGES=tile.stages,
            num_warps=tile.warps,
        )  # fmt: skip


def _channels_last(values: Tensor) -> Tensor:
    """(n, \\*places, channels) with neighbouring channels side by side and evenly spaced places."""
    moved = values.movedim(1, -1)
    even = moved.stride(-1) == 1 and all(
        moved.stride(d) == moved.stride(d + 1) * moved.shape[d + 1] for d in range(1, moved.dim() - 2)
    )
    return moved if even else moved.contiguous()


def _split(values: Tensor) -> Tensor:
    """The high parts in bfloat16; the low parts follow in memory. NaN and infinities are NaN there."""
    values = values.contiguous()
    both = torch.empty(2, *values.shape, dtype=torch.bfloat16, device=values.device)
    size = values.numel()
    _split_block[(triton.cdiv(size, 4096),)](values, both[0], both[1], size, BLOCK=4096, num_warps=8)
    return both[0]


@triton.jit  # type: ignore[untyped-decorator]
def _split_block(values, high, low, size, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(values + at, mask=at < size, other=0.0)
    above = value.to(tl.bfloat16)
    tl.store(high + at, above, mask=at < size)
    tl.store(low + at, (value - above.to(tl.float32)).to(tl.bfloat16), mask=at < size)


# a kernel that was compiled for one value of these serves all others
_FREE = ["count", "stretch", "tiles_down", "tiles_across", "height", "width", "kernel_across"]
_FREE += [f"{name}_{way}" for name in ("stride", "padding", "dilation") for way in ("down", "across")]


@triton.jit(do_not_specialize=_FREE)  # type: ignore[untyped-decorator]
def _sum_stretch(  # type: ignore[no-untyped-def]
    left, right, left_low, right_low, weights, out, directions, rates, shifts, limit,
    count, stretch, rows, columns, channels, tiles_down, tiles_across, all_rows,
    left_example, left_place, right_example, right_row, right_place, height, width,
    kernel_across, stride_down, stride_across, padding_down, padding_across, dilation_down, dilation_across,
    PLACES: tl.constexpr, ACROSS: tl.constexpr, POINT: tl.constexpr, ONE_OFFSET: tl.constexpr,  # noqa: N803
    EVEN: tl.constexpr, SPLIT: tl.constexpr, CLAMP: tl.constexpr, WEIGHTED: tl.constexpr,  # noqa: N803
    SQUARES: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, ALONG: tl.constexpr,  # noqa: N803
    STAGES: tl.constexpr, STANDARD: tl.constexpr, PER_UNIT: tl.constexpr,  # noqa: N803
):  # fmt: skip
    tile = tl.program_id(0)
    across, rest = tile % tiles_across, tile // tiles_across
    down, group = rest % tiles_down, rest // tiles_down
    o = down * ROWS + tl.arange(0, ROWS)
    k = across * COLUMNS + tl.arange(0, COLUMNS)
    first = tl.program_id(1) * stretch
    last = tl.minimum(first + stretch, count)
    left_at = group * rows + o
    if ONE_OFFSET:  # the whole tile belongs to one number of the kernel
        offset = across * COLUMNS // channels
        if POINT:
            offset = 0
        right_at = group * channels + k - offset * channels
    else:
        offset = (k // channels)[None, :]
        right_at = group * channels + k % channels
    reach_down = offset // kernel_across * dilation_down - padding_down
    reach_across = offset % kernel_across * dilation_across - padding_across
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    product = tl.zeros((ROWS, COLUMNS), tl.float32)
    blocks: tl.constexpr = (PLACES + ALONG - 1) // ALONG
    left_inside_tile = tl.full((1, ROWS), 1, tl.int1)
    right_inside_tile = tl.full((1, COLUMNS), 1, tl.int1)
    if not EVEN:
        left_inside_tile = (o < rows)[None, :]
        right_inside_tile = (k < columns)[None, :]
    each: tl.constexpr = blocks * PER_UNIT
    for step in tl.range(0, (last - first) * each, num_stages=STAGES):
        row = first * PER_UNIT + step // blocks
        block = step % blocks
        place = block * ALONG + tl.arange(0, ALONG)
        left_from = (place * left_place)[:, None] + left_at[None, :]
        left_inside = left_inside_tile
        right_inside = right_inside_tile
        if POINT:
            right_from = (place * right_place)[:, None] + right_at[None, :]
        else:
            y = (place // ACROSS * stride_down)[:, None] + reach_down
            z = (place % ACROSS * stride_across)[:, None] + reach_across
            right_from = y * right_row + z * right_place + right_at[None, :]
            right_inside = right_inside & (y >= 0) & (y < height) & (z >= 0) & (z < width)
        if PLACES % ALONG:
            left_inside = left_inside & (place < PLACES)[:, None]
            right_inside = right_inside & (place < PLACES)[:, None]
        left_i, right_i = left + row.to(tl.int64) * left_example, right + row.to(tl.int64) * right_example
        a = tl.load(left_i + left_from, mask=left_inside, other=0.0)
        b = tl.load(right_i + right_from, mask=right_inside, other=0.0)
        if SPLIT:
            a_low = tl.load(left_i + left_low + left_from, mask=left_inside, other=0.0)
            b_low = tl.load(right_i + right_low + right_from, mask=right_inside, other=0.0)
            product = tl.dot(tl.trans(a_low), b, product)
            product = tl.dot(tl.trans(a), b_low, product)
        product = tl.dot(tl.trans(a), b, product)
        if step % each == each - 1:
            i = first + step // each
            if STANDARD:
                inside = (o < rows)[:, None] & (k < columns)[None, :]
                direction = tl.load(directions + left_at[:, None] * columns + k[None, :], inside, 0.0)
            if SQUARES and STANDARD:
                at = (across * count + i).to(tl.int64) * 3 * all_rows + left_at
                tl.store(out + at, tl.sum(product * product, axis=1), mask=o < rows)
                tl.store(out + at + all_rows, tl.sum(product, axis=1), mask=o < rows)
                tl.store(out + at + 2 * all_rows, tl.sum(product * direction, axis=1), mask=o < rows)
            elif SQUARES:
                square = tl.sum(tl.sum(product * product, axis=1), axis=0)
                tl.store(out + tile * count + i, square)
            else:
                if STANDARD:
                    at = i.to(tl.int64) * 2 * all_rows + left_at
                    shift = tl.load(shifts + at, o < rows, 0.0)
                    along = tl.load(shifts + at + all_rows, o < rows, 0.0)
                    rate = tl.load(rates + left_at, o < rows, 0.0)
                    product = rate[:, None] * (product - shift[:, None] - along[:, None] * direction)
                if WEIGHTED:
                    product = product * tl.load(weights + i)
                if CLAMP:  # NaN stays NaN
                    product = tl.clamp(product, -limit, limit, propagate_nan=tl.PropagateNan.ALL)
                total += product
            product = tl.zeros((ROWS, COLUMNS), tl.float32)
    if not SQUARES:
        at = (tl.program_id(1) * all_rows + group * rows + o[:, None]) * columns + k[None, :]
        tl.store(out + at, total, mask=(o < rows)[:, None] & (k < columns)[None, :])
