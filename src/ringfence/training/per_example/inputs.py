"""The inputs and the outputs of a model: tensors, whose first dimension counts examples."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_structure, tree_unflatten

Inputs = tuple[tuple[Tensor, ...], dict[str, Tensor]]  # positional and named; dimension 0 counts examples


def mapped(change: Callable[[Tensor], Tensor], inputs: Inputs) -> Any:
    """The inputs with every tensor changed.

    >>> mapped(torch.numel, ((torch.ones(2, 3),), {"mask": torch.ones(2)}))
    ((6,), {'mask': 2})
    """
    args, kwargs = inputs
    return tuple(map(change, args)), {name: change(value) for name, value in kwargs.items()}


def example_count(inputs: Inputs) -> int:
    """How many examples the inputs hold.

    >>> example_count(((torch.ones(2, 3),), {}))
    2
    """
    args, kwargs = inputs
    return len(next(iter((*args, *kwargs.values()))))


def device_of(inputs: Inputs) -> torch.device:
    """Where the inputs are.

    >>> device_of(((torch.ones(2, 3),), {}))
    device(type='cpu')
    """
    args, kwargs = inputs
    return next(iter((*args, *kwargs.values()))).device


def joined(outputs: list[Any]) -> Any:
    """Outputs of several passes as if there had been one.

    >>> joined([{"a": torch.zeros(1)}, {"a": torch.ones(2)}])
    {'a': tensor([0., 1., 1.])}
    """
    if len(outputs) == 1:
        return outputs[0]
    leaves = zip(*map(tree_leaves, outputs), strict=True)
    return tree_unflatten([torch.cat(parts) for parts in leaves], tree_structure(outputs[0]))


def same_draws(inputs: Inputs) -> AbstractContextManager[None]:
    """What is drawn in the meantime does not count: torch's generators stand where they stood before."""
    device = device_of(inputs)
    forked: AbstractContextManager[None] = torch.random.fork_rng([device] if device.type == "cuda" else [])
    return forked
