"""Normalisations on a GPU: each example's gradients, and a group normalisation of channels that are last."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

_WIDEST = 4096  # the longest row that one program of the layer normalisation holds
_PROGRAMS = 1056  # eight for each multiprocessor of an H200


def is_fused_group(x: Tensor, groups: int) -> bool:
    """True where ``group_norm_rows_cuda`` does the work: groups of 1, 2, 4, ... 128 channels."""
    members = x.shape[1] // groups
    return x.dtype != torch.float64 and x.numel() > 0 and members <= 128 and members & (members - 1) == 0


def is_fused_layer(x: Tensor, width: int) -> bool:
    """True where ``layer_norm_rows_cuda`` does the work."""
    return x.dtype != torch.float64 and x.numel() > 0 and width <= _WIDEST


def group_norm_rows_cuda(
    output_gradient: Tensor, x: Tensor, groups: int, eps: float
) -> tuple[Tensor, Tensor]:
    """``group_norm_rows`` where ``is_fused_group``: a program for each example and a few whole groups."""
    x, slope = (part.reshape(*x.shape[:2], -1) for part in (x, output_gradient))
    count, channels, places = x.shape
    members = channels // groups
    block = max(members, min(64 if channels >= 128 else 32, triton.next_power_of_2(channels)))
    along = min(triton.next_power_of_2(places), 2048 // block)
    rows = torch.empty(2, count, channels, dtype=torch.float32, device=x.device)
    _group_rows[(count, triton.cdiv(channels, block))](
        slope, x, rows[0], rows[1], *slope.stride(), *x.stride(), channels, places, float(eps),
        MEMBERS=members, CHANNELS=block, ALONG=along, num_warps=4,
    )  # fmt: skip
    return rows[0], rows[1]


def layer_norm_rows_cuda(
    output_gradient: Tensor, x: Tensor, width: int, eps: float, *, centred: bool
) -> tuple[Tensor, Tensor]:
    """``layer_norm_rows`` where ``is_fused_layer``: a program for each example and stretch of its rows."""
    x, slope = x.flatten(1, -2), output_gradient.flatten(1, -2)
    count, places = x.shape[:2]
    block = triton.next_power_of_2(width)
    along = max(1, min(triton.next_power_of_2(places), 4096 // block))
    splits = max(1, min(_PROGRAMS // count, places // (2 * along)))
    stretch = triton.cdiv(places, splits)
    rows = torch.empty(2, splits, count, width, dtype=torch.float32, device=x.device)
    _layer_rows[(count, splits)](
        slope, x, rows[0], rows[1], *slope.stride(), *x.stride(), count, width, places, stretch, float(eps),
        CENTRED=centred, WIDTH=block, ALONG=along, num_warps=8,
    )  # fmt: skip
    weight, bias = rows[:, 0] if splits == 1 else rows.sum(dim=1)
    return weight, bias


@triton.jit  # type: ignore[untyped-decorator]
def _over_group(values, MEMBERS: tl.constexpr, CHANNELS: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """The mean over the channels of each group, for each of its channels."""
    mean = tl.sum(tl.reshape(values, (CHANNELS // MEMBERS, MEMBERS)), axis=1) / MEMBERS
    return tl.reshape(tl.broadcast_to(mean[:, None], (CHANNELS // MEMBERS, MEMBERS)), (CHANNELS,))


@triton.jit  # type: ignore[untyped-decorator]
def _group_rows(  # type: ignore[no-untyped-def]
    slopes, inputs, weight, bias, slope_example, slope_channel, slope_place,
    input_example, input_channel, input_place, channels, places, eps,
    MEMBERS: tl.constexpr, CHANNELS: tl.constexpr, ALONG: tl.constexpr,  # noqa: N803
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    known = channel < channels
    inputs += i * input_example
    slopes += i * slope_example
    # Sums of squares about a channel's first number: about 0 they would lose the digits of a large mean.
    pivot = tl.load(inputs + channel * input_channel, mask=known, other=0.0).to(tl.float32)
    inside = (channel * input_channel)[None, :]
    outside = (channel * slope_channel)[None, :]
    first = tl.zeros((ALONG, CHANNELS), tl.float32)
    second = tl.zeros((ALONG, CHANNELS), tl.float32)
    plain = tl.zeros((ALONG, CHANNELS), tl.float32)
    mixed = tl.zeros((ALONG, CHANNELS), tl.float32)
    for start in tl.range(0, places, ALONG, num_stages=3):
        place = start + tl.arange(0, ALONG)
        held = (place < places)[:, None] & known[None, :]
        x = tl.load(inputs + (place * input_place)[:, None] + inside, mask=held, other=0.0).to(tl.float32)
        slope = tl.load(slopes + (place * slope_place)[:, None] + outside, mask=held, other=0.0)
        slope = slope.to(tl.float32)
        x = tl.where(held, x - pivot[None, :], 0.0)
        first += x
        second += x * x
        plain += slope
        mixed += slope * x
    sums, totals = tl.sum(first, axis=0), tl.sum(plain, axis=0)
    own = sums / places  # the mean of a channel, from its pivot
    spread = tl.sum(second, axis=0) - sums * own
    level = pivot + own
    mean = _over_group(level, MEMBERS, CHANNELS)
    variance = _over_group(spread / places + (level - mean) * (level - mean), MEMBERS, CHANNELS)
    scale = 1 / tl.sqrt(variance + eps)
    at = i * channels + channel
    tl.store(weight + at, (tl.sum(mixed, axis=0) - (mean - pivot) * totals) * scale, mask=known)
    tl.store(bias + at, totals, mask=known)


@triton.jit  # type: ignore[untyped-decorator]
def _layer_rows(  # type: ignore[no-untyped-def]
    slopes, inputs, weight, bias, slope_example, slope_place, slope_channel,
    input_example, input_place, input_channel, count, width, places, stretch, eps,
    CENTRED: tl.constexpr, WIDTH: tl.constexpr, ALONG: tl.constexpr,  # noqa: N803
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64)
    channel = tl.arange(0, WIDTH)
    known = (channel < width)[None, :]
    inputs += i * input_example
    slopes += i * slope_example
    weights = tl.zeros((ALONG, WIDTH), tl.float32)
    biases = tl.zeros((ALONG, WIDTH), tl.float32)
    end = tl.minimum((tl.program_id(1) + 1) * stretch, places)
    for start in tl.range(tl.program_id(1) * stretch, end, ALONG, num_stages=3):
        place = start + tl.arange(0, ALONG)
        held = (place < end)[:, None] & known
        x_from = (place * input_place)[:, None] + (channel * input_channel)[None, :]
        slope_from = (place * slope_place)[:, None] + (channel * slope_channel)[None, :]
        x = tl.load(inputs + x_from, mask=held, other=0.0).to(tl.float32)
        slope = tl.load(slopes + slope_from, mask=held, other=0.0).to(tl.float32)
        if CENTRED:
            x = tl.where(held, x - tl.sum(x, axis=1, keep_dims=True) / width, 0.0)
        scale = 1 / tl.sqrt(tl.sum(x * x, axis=1, keep_dims=True) / width + eps)
        weights += tl.where(held, slope * (x * scale), 0.0)
        biases += slope
    at = (tl.program_id(1) * count + i) * width + channel
    tl.store(weight + at, tl.sum(weights, axis=0), mask=channel < width)
    tl.store(bias + at, tl.sum(biases, axis=0), mask=channel < width)


def is_channels_last(x: Tensor, groups: int) -> bool:
    """True where ``group_norm_cuda`` does the work: images whose channels are last in memory."""
    last = x.dim() > 2 and x.shape[1] > 1 and x.movedim(1, -1).is_contiguous()
    return last and is_fused_group(x, groups)


def group_norm_cuda(x: Tensor, groups: int, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    """``group_norm`` where ``is_channels_last``; in float32 under autocast, as torch's own."""
    dtype = torch.float32 if torch.is_autocast_enabled("cuda") else x.dtype
    result: Tensor = _GroupNorm.apply(x, groups, weight, bias, eps, dtype)  # type: ignore[no-untyped-call]
    return result


class _GroupNorm(torch.autograd.Function):
    """A program for each example and a few whole groups goes over their numbers twice."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        groups: int,
        weight: Tensor | None,
        bias: Tensor | None,
        eps: float,
        dtype: torch.dtype,
    ) -> Tensor:
        count, channels = x.shape[:2]
        weight = torch.ones(channels, device=x.device) if weight is None else weight.detach()
        bias = torch.zeros(channels, device=x.device) if bias is None else bias.detach()
        result = torch.empty_like(x, dtype=dtype)
        mean, rate = torch.empty(2, count, channels, dtype=torch.float32, device=x.device)
        ctx.groups = groups
        ctx.save_for_backward(x, weight, mean, rate)
        grid, sizes = _group_programs(x, groups)
        _group_forward[grid](
            x, weight, bias, result, mean, rate, x[0, 0].numel(), channels, float(eps), **sizes
        )
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, weight, mean, rate = ctx.saved_tensors
        slopes = gradient.movedim(1, -1).contiguous()  # a copy only where channels are not last
        result = torch.empty_like(x)
        grid, sizes = _group_programs(x, ctx.groups)
        _group_backward[grid](slopes, x, weight, mean, rate, result, x[0, 0].numel(), x.shape[1], **sizes)
        return result, None, None, None, None, None


def _group_programs(x: Tensor, groups: int) -> tuple[tuple[int, int], dict[str, int]]:
    """The grid of programs, and their sizes: 16 channels or more, which fill a sector of memory."""
    count, channels = x.shape[:2]
    members = channels // groups
    block = max(members, min(16, triton.next_power_of_2(channels)))
    along = min(triton.next_power_of_2(x[0, 0].numel()), 2048 // block)
    sizes = {"MEMBERS": members, "CHANNELS": block, "ALONG": along, "num_warps": 4}
    return (count, triton.cdiv(channels, block)), sizes


@triton.jit  # type: ignore[untyped-decorator]
def _block(start, channel, places, channels, ALONG: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Where the numbers of these channels are at some places of an example, and which of them exist."""
    place = start + tl.arange(0, ALONG)
    at = (place * channels)[:, None] + channel[None, :]
    return at, (place < places)[:, None] & (channel < channels)[None, :]


@triton.jit
def _loaded(pointers, held):  # type: ignore[no-untyped-def]
    return tl.load(pointers, mask=held, other=0.0).to(tl.float32)


@triton.jit  # type: ignore[untyped-decorator]
def _group_forward(  # type: ignore[no-untyped-def]
    inputs, weights, biases, results, means, rates, places, channels, eps,
    MEMBERS: tl.constexpr, CHANNELS: tl.constexpr, ALONG: tl.constexpr,  # noqa: N803
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    known = channel < channels
    inputs += i * places * channels
    results += i * places * channels
    pivot = _loaded(inputs + channel, known)  # as in _group_rows
    first = tl.zeros((ALONG, CHANNELS), tl.float32)
    second = tl.zeros((ALONG, CHANNELS), tl.float32)
    for start in tl.range(0, places, ALONG, num_stages=3):
        at, held = _block(start, channel, places, channels, ALONG)
        x = tl.where(held, _loaded(inputs + at, held) - pivot[None, :], 0.0)
        first += x
        second += x * x
    own = tl.sum(first, axis=0) / places  # the mean of a channel, from its pivot
    spread = tl.sum(second, axis=0) / places - own * own
    mean = _over_group(pivot + own, MEMBERS, CHANNELS)
    apart = pivot + own - mean
    rate = 1 / tl.sqrt(_over_group(spread + apart * apart, MEMBERS, CHANNELS) + eps)
    tl.store(means + i * channels + channel, mean, mask=known)
    tl.store(rates + i * channels + channel, rate, mask=known)
    scale = _loaded(weights + channel, known) * rate
    bias = _loaded(biases + channel, known)
    for start in tl.range(0, places, ALONG, num_stages=3):
        at, held = _block(start, channel, places, channels, ALONG)
        y = (_loaded(inputs + at, held) - mean[None, :]) * scale[None, :] + bias[None, :]
        tl.store(results + at, y, mask=held)


@triton.jit  # type: ignore[untyped-decorator]
def _group_backward(  # type: ignore[no-untyped-def]
    slopes, inputs, weights, means, rates, results, places, channels,
    MEMBERS: tl.constexpr, CHANNELS: tl.constexpr, ALONG: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """rate (w s - mean(w s) - z mean(w s z)) of every group, s being the slope and z the normalised input."""
    i = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    known = channel < channels
    inputs += i * places * channels
    slopes += i * places * channels
    results += i * places * channels
    weight = _loaded(weights + channel, known)
    mean = _loaded(means + i * channels + channel, known)
    rate = _loaded(rates + i * channels + channel, known)
    plain = tl.zeros((ALONG, CHANNELS), tl.float32)
    mixed = tl.zeros((ALONG, CHANNELS), tl.float32)
    for start in tl.range(0, places, ALONG, num_stages=3):
        at, held = _block(start, channel, places, channels, ALONG)
        slope = _loaded(slopes + at, held)
        z = (_loaded(inputs + at, held) - mean[None, :]) * rate[None, :]
        plain += slope
        mixed += slope * z
    level = _over_group(weight * tl.sum(plain, axis=0) / places, MEMBERS, CHANNELS)
    along = _over_group(weight * tl.sum(mixed, axis=0) / places, MEMBERS, CHANNELS)
    for start in tl.range(0, places, ALONG, num_stages=3):
        at, held = _block(start, channel, places, channels, ALONG)
        slope = _loaded(slopes + at, held)
        z = (_loaded(inputs + at, held) - mean[None, :]) * rate[None, :]
        result = rate[None, :] * (weight[None, :] * slope - level[None, :] - z * along[None, :])
        tl.store(results + at, result, mask=held)
