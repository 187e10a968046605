"""Normalisations in a pass that clips: their outputs, and each example's gradients by weight and bias."""

from importlib.util import find_spec

import torch
from torch import Tensor
from torch.nn import functional

_HAS_TRITON = find_spec("triton") is not None


def group_norm(x: Tensor, groups: int, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    """torch's ``group_norm``; on a GPU without a change of layout where channels are last in memory.

    There torch's own brings its input and its gradients into another order, which takes most of its time.
    The derivative by ``x`` alone is known then: weight and bias must need no gradient.

    >>> group_norm(torch.tensor([[[1.0], [3.0]]]), 1, None, None, 0.0).flatten()
    tensor([-1.,  1.])
    """
    if x.is_cuda and _HAS_TRITON:
        from ringfence.training.kernels.normalisation_cuda import group_norm_cuda, is_channels_last

        if is_channels_last(x, groups):
            return group_norm_cuda(x, groups, weight, bias, eps)
    return functional.group_norm(x, groups, weight, bias, eps)


def group_norm_rows(output_gradient: Tensor, x: Tensor, groups: int, eps: float) -> tuple[Tensor, Tensor]:
    """Each example's gradients of the weight and the bias of a group normalisation: (n, C) and (n, C).

    ``x`` is the input (n, C, \\*positions), in any order in memory. The gradient of the weight is the sum
    over positions of the output's gradient times the normalised input. Results are float32, or float64 for
    factors in float64.

    >>> weight, bias = group_norm_rows(torch.ones(1, 2, 2), torch.tensor([[[1.0, 1.0], [3.0, 3.0]]]), 1, 0.0)
    >>> weight, bias
    (tensor([[-2.,  2.]]), tensor([[2., 2.]]))
    """
    if x.is_cuda and _HAS_TRITON:
        from ringfence.training.kernels.normalisation_cuda import group_norm_rows_cuda, is_fused_group

        if is_fused_group(x, groups):
            return group_norm_rows_cuda(output_gradient, x, groups, eps)
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    grouped = (len(x), groups, x.shape[1] // groups, x.shape[2:].numel())
    x, slope = (part.to(dtype).reshape(grouped) for part in (x, output_gradient))
    centred = x - x.mean(dim=(2, 3), keepdim=True)
    scale = (centred.square().mean(dim=(2, 3)) + eps).rsqrt().unsqueeze(2)
    weight = (slope * centred).sum(dim=3) * scale
    return weight.flatten(1), slope.sum(dim=3).flatten(1)


def layer_norm_rows(
    output_gradient: Tensor, x: Tensor, width: int, eps: float, *, centred: bool = True
) -> tuple[Tensor, Tensor]:
    """Each example's gradients of the weight and the bias of a layer normalisation: (n, width), twice.

    ``x`` is the input (n, T, width), each of whose rows is normalised by itself; where it is not ``centred``
    no mean is subtracted, as in an RMSNorm. Results are float32, or float64 for factors in float64.

    >>> weight, bias = layer_norm_rows(torch.ones(1, 1, 2), torch.tensor([[[1.0, 3.0]]]), 2, 0.0)
    >>> weight, bias
    (tensor([[-1.,  1.]]), tensor([[1., 1.]]))
    """
    if x.is_cuda and _HAS_TRITON:
        from ringfence.training.kernels.normalisation_cuda import is_fused_layer, layer_norm_rows_cuda

        if is_fused_layer(x, width):
            return layer_norm_rows_cuda(output_gradient, x, width, eps, centred=centred)
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    x, slope = (part.to(dtype).flatten(1, -2) for part in (x, output_gradient))
    if centred:
        x = x - x.mean(dim=2, keepdim=True)
    scale = (x.square().mean(dim=2, keepdim=True) + eps).rsqrt()
    return (slope * (x * scale)).sum(dim=1), slope.sum(dim=1)
