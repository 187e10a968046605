"""sum_i clamp(r_i x_i^T, -c, c) without holding n x K x p numbers; each column of r may have its own c."""

from importlib.util import find_spec

import torch
from torch import Tensor

from ringfence import checks

_HAS_TRITON, _HAS_NUMBA = (find_spec(name) is not None for name in ("triton", "numba"))
_CHUNK_ENTRIES = 1 << 22  # how many products the plain version holds at once


def clipped_outer_sum(residuals: Tensor, features: Tensor, clip: float | Tensor) -> Tensor:
    """The sum over examples of each one's outer product, every entry clamped to [-clip, clip].

    ``residuals`` is (n, K), ``features`` (n, p), the result (K, p): the clipped gradients of a linear
    model. ``clip`` is a number, or K numbers, one for each column of the residuals. A fused kernel does
    the work where there is one (numba on a CPU, Triton on a GPU, both in float32), and plain torch
    otherwise. The extra memory is a few copies of the result.

    Guarantee: every example adds to every entry a number within [-clip, clip], up to the rounding
    of the sum. NaN and infinities are refused.

    >>> clipped_outer_sum(torch.tensor([[1.0], [1.0]]), torch.tensor([[3.0, 0.1], [-3.0, 0.1]]), 0.5)
    tensor([[0.0000, 0.2000]])
    """
    residuals, features = checks.finite("residuals", residuals), checks.finite("features", features)
    for name, value in (("residuals", residuals), ("features", features)):
        if value.dim() != 2:
            raise ValueError(f"{name} must have two dimensions, got shape {list(value.shape)}")
    if len(residuals) != len(features):
        raise ValueError(f"residuals hold {len(residuals)} examples, features {len(features)}")
    if residuals.dtype != features.dtype or residuals.device != features.device:
        raise ValueError(
            f"residuals are {residuals.dtype} on {residuals.device}, features {features.dtype} on "
            f"{features.device}: they must agree"
        )
    limits = checks.positive("clip", clip)
    if limits.dim() and limits.shape != residuals.shape[1:]:
        raise ValueError(
            f"clip must be a number or {residuals.shape[1]} of them, got shape {list(limits.shape)}"
        )
    return finite_outer_sum(residuals, features, limits if limits.dim() else float(limits))


def finite_outer_sum(residuals: Tensor, features: Tensor, clip: float | Tensor) -> Tensor:
    """``clipped_outer_sum`` for arguments known to be right: it saves a pass over the features."""
    limits = _limits(clip, residuals, features)
    if features.dtype == torch.float32 and residuals.numel() and features.numel():
        if features.is_cuda and _HAS_TRITON:
            from ringfence.training.kernels.outer_sum_cuda import outer_sum_cuda

            return outer_sum_cuda(residuals, features, limits)
        if features.is_cpu and _HAS_NUMBA:
            from ringfence.training.kernels.outer_sum_cpu import outer_sum_cpu

            return outer_sum_cpu(residuals, features, limits)
    return plain_outer_sum(residuals, features, limits)


def plain_outer_sum(residuals: Tensor, features: Tensor, clip: float | Tensor) -> Tensor:
    """``clipped_outer_sum`` in chunks of plain torch: the kernels are tested against it."""
    limits = _limits(clip, residuals, features).unsqueeze(1)
    total = features.new_zeros(residuals.shape[1], features.shape[1])
    length = max(1, _CHUNK_ENTRIES // max(1, total.numel()))
    for some, others in zip(residuals.split(length), features.split(length), strict=True):
        total += (some.unsqueeze(2) * others.unsqueeze(1)).clamp_(-limits, limits).sum(dim=0)
    return total


def _limits(clip: float | Tensor, residuals: Tensor, features: Tensor) -> Tensor:
    """The clip of each column of the residuals; one number is not copied from the host to a GPU."""
    if isinstance(clip, Tensor):
        return clip.to(features).expand(residuals.shape[1])
    return features.new_full(residuals.shape[1:], clip)
