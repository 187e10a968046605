"""What a model keeps beside its parameters: nothing that it computes from private inputs may stay there."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def unchanged_buffers(model: nn.Module) -> Iterator[None]:
    """Raises a ValueError that names the first buffer that was changed in the meantime.

    A change in place and a new tensor are both noticed. Not noticed are torch's own running statistics, which
    do not count as changed, and what a model keeps outside of its buffers.

    >>> model = nn.Linear(1, 1)
    >>> model.register_buffer("seen", torch.zeros(1))
    >>> with unchanged_buffers(model):
    ...     model.seen += 1
    Traceback (most recent call last):
    ...
    ValueError: buffer 'seen' is changed by a forward pass: what a model keeps of its inputs does \
not pass the mechanism
    """
    before = _marks(model)
    yield
    after = _marks(model)
    for name in [*before, *after]:
        if before.get(name) != after.get(name):
            raise ValueError(
                f"buffer {name!r} is changed by a forward pass: what a model keeps of its inputs does "
                "not pass the mechanism"
            )


@contextmanager
def restored_buffers(model: nn.Module) -> Iterator[None]:
    """Gives buffers the values back that they had before.

    >>> model = nn.BatchNorm1d(2)
    >>> with restored_buffers(model):
    ...     _ = model(torch.randn(3, 2) + 5)
    >>> model.running_mean
    tensor([0., 0.])
    """
    before = [
        (layer, name, buffer, buffer.clone())
        for layer in model.modules()
        for name, buffer in layer.named_buffers(recurse=False)
    ]
    try:
        yield
    finally:
        for layer, name, buffer, values in before:
            if not torch.equal(buffer, values):
                buffer.copy_(values)
            setattr(layer, name, buffer)


def _marks(model: nn.Module) -> dict[str, tuple[int, int]]:
    return {name: (id(buffer), buffer._version) for name, buffer in model.named_buffers()}
