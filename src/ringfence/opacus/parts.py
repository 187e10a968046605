"""What ``make_private`` of Opacus returned, looked into, and refused by name where no account holds."""

from collections.abc import Callable
from typing import Any, NamedTuple

from opacus.data_loader import CollateFnWithEmpty, DPDataLoader
from opacus.grad_sample.gsm_base import AbstractGradSampleHooks
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.uniform_sampler import UniformWithReplacementSampler
from torch import nn
from torch.utils.data import DataLoader

from ringfence import checks


class Parts(NamedTuple):
    """The pieces of an Opacus run that are looked at."""

    module: nn.Module  # the user's own, inside of what Opacus put around it
    optimizer: DPOptimizer
    loader: DataLoader[Any]
    sampler: UniformWithReplacementSampler
    collate: Callable[[list[Any]], Any]  # the user's own, inside of what Opacus put around it
    ghost: AbstractGradSampleHooks | None  # keeps the lengths of gradients where they are never formed


def checked_parts(model: object, optimizer: object, loader: object) -> Parts:
    """The pieces of a run with flat clipping, Poisson samples and one process.

    >>> import torch
    >>> checked_parts(torch.nn.Linear(2, 2), None, None)
    Traceback (most recent call last):
    TypeError: model must be what opacus.PrivacyEngine.make_private returned, got Linear
    """
    for name, value, kind in (
        ("model", model, AbstractGradSampleHooks),
        ("optimizer", optimizer, DPOptimizer),
        ("loader", loader, DataLoader),
    ):
        if not isinstance(value, kind):
            raise TypeError(
                f"{name} must be what opacus.PrivacyEngine.make_private returned, got {type(value).__name__}"
            )
    assert isinstance(model, AbstractGradSampleHooks)
    assert isinstance(optimizer, DPOptimizer)
    if type(optimizer) not in (DPOptimizer, DPOptimizerFastGradientClipping):
        raise ValueError(
            f"optimizer must clip each gradient as a whole, in one process, got {type(optimizer).__name__}: "
            "clipping 'per_layer' and 'adaptive' and distributed training are not accounted for here"
        )
    if not isinstance(loader, DPDataLoader) or not isinstance(
        loader.batch_sampler, UniformWithReplacementSampler
    ):
        raise ValueError(
            f"loader must draw Poisson samples, got {type(loader).__name__}: batches of a shuffled dataset "
            "(poisson_sampling=False) are not what any account here describes"
        )
    checks.number("noise_multiplier", optimizer.noise_multiplier, checks.positive)
    checks.number("max_grad_norm", optimizer.max_grad_norm, checks.positive)
    ghost = model if isinstance(optimizer, DPOptimizerFastGradientClipping) else None
    collate = loader.collate_fn
    if isinstance(collate, CollateFnWithEmpty):
        collate = collate.wrapped_collator_fn
    return Parts(model._module, optimizer, loader, loader.batch_sampler, collate, ghost)
