"""What a model and its optimizer must be to be trained privately."""

import torch
from torch import nn
from torch.optim import LBFGS, Optimizer

from ringfence.training.example_gradients import ExampleGradients

# What a layer does to the others in the batch, and what to use instead.
_MIXING: dict[type[nn.Module], str] = {nn.modules.batchnorm._BatchNorm: "GroupNorm or LayerNorm"}


def refuse_mixing_layers(model: nn.Module) -> None:
    """ValueError with the name of the first layer whose output for one example depends on others.

    Under such a layer no example's gradient is bounded by its own clipping, and no account holds.

    >>> refuse_mixing_layers(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    Traceback (most recent call last):
    ...
    ValueError: layer '1' (BatchNorm1d) mixes the examples of a batch: use GroupNorm or LayerNorm
    """
    for name, layer in model.named_modules():
        kind = type(layer).__name__
        for mixing, instead in _MIXING.items():
            if isinstance(layer, mixing):
                raise ValueError(f"layer {name!r} ({kind}) mixes the examples of a batch: use {instead}")
        if getattr(layer, "track_running_stats", False):
            raise ValueError(
                f"layer {name!r} ({kind}) keeps running statistics of private data: "
                "use it with track_running_stats=False"
            )


def refuse_random_layers(model: nn.Module) -> None:
    """ValueError with the name of the first layer that draws random numbers in training.

    >>> refuse_random_layers(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1)))
    Traceback (most recent call last):
    ...
    ValueError: layer '1' (Dropout) draws at random: Fisher information loss is not known for it
    """
    for name, layer in model.named_modules():
        if isinstance(layer, nn.modules.dropout._DropoutNd) and layer.p > 0:
            raise ValueError(
                f"layer {name!r} ({type(layer).__name__}) draws at random: "
                "Fisher information loss is not known for it"
            )


def checked_model(gradients: ExampleGradients, optimizer: Optimizer) -> tuple[torch.device, torch.dtype]:
    """Device and dtype of the trained parameters; refuses what cannot be trained privately by name."""
    refuse_mixing_layers(gradients.model)
    parameters = gradients.parameters
    if not parameters:
        raise ValueError("model must have parameters that require a gradient, got none")
    kinds = {(p.device, p.dtype) for p in parameters.values()}
    if len(kinds) > 1:
        raise ValueError(f"model must have one device and dtype, got {sorted(map(str, kinds))}")
    device, dtype = kinds.pop()
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(f"model must be float32 or float64, got {dtype}")
    if isinstance(optimizer, LBFGS):
        raise ValueError("LBFGS asks for several gradients a step, of which each would be a release: use SGD")
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"optimizer must be a torch optimizer, got {type(optimizer).__name__}")
    names = {id(p): name for name, p in parameters.items()}
    held = {id(p) for group in optimizer.param_groups for p in group["params"] if p.requires_grad}
    missing = [name for key, name in names.items() if key not in held]
    if missing:
        raise ValueError(
            f"optimizer must hold every trained parameter of the model, {missing[0]!r} is missing"
        )
    if held - set(names):
        raise ValueError(f"optimizer holds {len(held - set(names))} parameters that are not the model's")
    return device, dtype
