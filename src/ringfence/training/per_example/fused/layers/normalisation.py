"""Normalisations that look at one example: layer, group, instance and root mean square, and frozen ones."""

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from ringfence.training.kernels import normalisation
from ringfence.training.kernels.normalisation import group_norm_rows, layer_norm_rows
from ringfence.training.per_example.fused.contributions import Contributions, Rows
from ringfence.training.per_example.fused.layers.linear import summed


def layer_norm(layer: nn.Module, gradient: Tensor, x: Tensor) -> Contributions:
    """``nn.LayerNorm`` and ``nn.RMSNorm``, over any number of last dimensions."""
    assert isinstance(layer, nn.LayerNorm | nn.RMSNorm)
    shape = tuple(layer.normalized_shape)
    eps = torch.finfo(x.dtype).eps if layer.eps is None else layer.eps
    slope, rows = (value.flatten(-len(shape)).flatten(1, -2) for value in (gradient, x))
    centred = isinstance(layer, nn.LayerNorm)
    weight, bias = layer_norm_rows(slope, rows, rows.shape[2], eps, centred=centred)
    return {"weight": Rows(weight.view(-1, *shape)), "bias": Rows(bias.view(-1, *shape))}


def group_norm_output(layer: nn.GroupNorm, input: Tensor) -> Tensor:
    """What ``nn.GroupNorm`` computes, by a kernel that takes channels last as they are."""
    return normalisation.group_norm(input, layer.num_groups, layer.weight, layer.bias, layer.eps)


def group_norm(layer: nn.Module, gradient: Tensor, x: Tensor) -> Contributions:
    """``nn.GroupNorm``, and ``nn.InstanceNorm`` as one group per channel."""
    assert isinstance(layer, nn.GroupNorm | _NormBase)
    groups = layer.num_groups if isinstance(layer, nn.GroupNorm) else layer.num_features
    each = group_norm_rows(gradient.flatten(0, 1), x.flatten(0, 1), groups, layer.eps)
    weight, bias = (value.unflatten(0, x.shape[:2]).sum(dim=1) for value in each)
    return {"weight": Rows(weight), "bias": Rows(bias)}


def frozen(layer: nn.Module, gradient: Tensor, x: Tensor) -> Contributions:
    """A normalisation by running statistics as they stand."""
    assert isinstance(layer, _NormBase)
    assert layer.running_mean is not None
    assert layer.running_var is not None
    positions = (1, *range(3, x.dim()))
    shape = (-1, *(1,) * (x.dim() - 3))
    scale = (layer.running_var + layer.eps).rsqrt().view(shape)
    normalised = (x - layer.running_mean.view(shape)) * scale
    return {
        "weight": Rows(summed(gradient * normalised, *positions)),
        "bias": Rows(summed(gradient, *positions)),
    }


def is_frozen(layer: nn.Module) -> bool:
    """True for a normalisation that uses its running statistics as they stand and does not mix examples.

    >>> is_frozen(nn.BatchNorm1d(2).eval()), is_frozen(nn.BatchNorm1d(2))
    (True, False)
    """
    return isinstance(layer, _NormBase) and not layer.training and layer.running_mean is not None


def looks_at_one(layer: nn.Module) -> bool:
    """Whether an instance normalisation computes its statistics from the example at hand and keeps none."""
    return isinstance(layer, _NormBase) and layer.running_mean is None
