"""Group normalisation on a GPU of images whose channels are last in memory, and its derivative by them."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from ringfence.training.kernels.normalisation_cuda import is_fused_group, over_group


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
        grid, sizes = _programs(x, groups)
        _forward[grid](x, weight, bias, result, mean, rate, x[0, 0].numel(), channels, float(eps), **sizes)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, weight, mean, rate = ctx.saved_tensors
        slopes = gradient.movedim(1, -1).contiguous()  # a copy only where channels are not last
        result = torch.empty_like(x)
        grid, sizes = _programs(x, ctx.groups)
        _backward[grid](slopes, x, weight, mean, rate, result, x[0, 0].numel(), x.shape[1], **sizes)
        return result, None, None, None, None, None


def _programs(x: Tensor, groups: int) -> tuple[tuple[int, int], dict[str, int]]:
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
def _forward(  # type: ignore[no-untyped-def]
    inputs, weights, biases, results, means, rates, places, channels, eps,
    MEMBERS: tl.constexpr, CHANNELS: tl.constexpr, ALONG: tl.constexpr,  # noqa: N803
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    known = channel < channels
    inputs += i * places * channels
    results += i * places * channels
    pivot = _loaded(inputs + channel, known)  # as in group_norm_rows_cuda
    first = tl.zeros((ALONG, CHANNELS), tl.float32)
    second = tl.zeros((ALONG, CHANNELS), tl.float32)
    for start in tl.range(0, places, ALONG, num_stages=3):
        at, held = _block(start, channel, places, channels, ALONG)
        x = tl.where(held, _loaded(inputs + at, held) - pivot[None, :], 0.0)
        first += x
        second += x * x
    own = tl.sum(first, axis=0) / places  # the mean of a channel, from its pivot
    spread = tl.sum(second, axis=0) / places - own * own
    mean = over_group(pivot + own, MEMBERS, CHANNELS)
    apart = pivot + own - mean
    rate = 1 / tl.sqrt(over_group(spread + apart * apart, MEMBERS, CHANNELS) + eps)
    tl.store(means + i * channels + channel, mean, mask=known)
    tl.store(rates + i * channels + channel, rate, mask=known)
    scale = _loaded(weights + channel, known) * rate
    bias = _loaded(biases + channel, known)
    for start in tl.range(0, places, ALONG, num_stages=3):
        at, held = _block(start, channel, places, channels, ALONG)
        y = (_loaded(inputs + at, held) - mean[None, :]) * scale[None, :] + bias[None, :]
        tl.store(results + at, y, mask=held)


@triton.jit  # type: ignore[untyped-decorator]
def _backward(  # type: ignore[no-untyped-def]
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
    level = over_group(weight * tl.sum(plain, axis=0) / places, MEMBERS, CHANNELS)
    along = over_group(weight * tl.sum(mixed, axis=0) / places, MEMBERS, CHANNELS)
    for start in tl.range(0, places, ALONG, num_stages=3):
        at, held = _block(start, channel, places, channels, ALONG)
        slope = _loaded(slopes + at, held)
        z = (_loaded(inputs + at, held) - mean[None, :]) * rate[None, :]
        result = rate[None, :] * (weight[None, :] * slope - level[None, :] - z * along[None, :])
        tl.store(results + at, result, mask=held)
