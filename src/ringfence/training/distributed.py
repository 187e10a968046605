"""One process or many: who am I, and the sum over all."""

import torch.distributed
from torch import Tensor


def rank() -> int:
    """Of this process; 0 where there is only one.

    >>> rank(), world_size()
    (0, 1)
    """
    return torch.distributed.get_rank() if _several() else 0


def world_size() -> int:
    """How many processes train together."""
    return torch.distributed.get_world_size() if _several() else 1


def summed(values: Tensor) -> Tensor:
    """The sum over all processes, the same numbers on each.

    >>> import torch
    >>> summed(torch.ones(2))
    tensor([1., 1.])
    """
    if _several():
        torch.distributed.all_reduce(values)
    return values


def from_first(values: Tensor) -> Tensor:
    """What the first process holds."""
    if _several():
        torch.distributed.broadcast(values, src=0)
    return values


def text_from_first(text: str) -> str:
    """The same for a string."""
    values = [text]
    if _several():
        torch.distributed.broadcast_object_list(values, src=0)
    return values[0]


def wait() -> None:
    """Until every process is here."""
    if _several():
        torch.distributed.barrier()


def _several() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()
