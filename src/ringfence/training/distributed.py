"""One process or many that train together: the rank of this one, sums over all, and values of the first."""

import torch.distributed
from torch import Tensor


def rank() -> int:
    """Returns the rank of this process, which is 0 where there is only one.

    >>> rank(), world_size()
    (0, 1)
    """
    return torch.distributed.get_rank() if _several() else 0


def world_size() -> int:
    """Returns the number of processes that train together."""
    return torch.distributed.get_world_size() if _several() else 1


def summed(values: Tensor) -> Tensor:
    """Returns the sum over all processes, the same numbers on each; ``values`` is overwritten with it."""
    if _several():
        torch.distributed.all_reduce(values)
    return values


def from_first(values: Tensor) -> Tensor:
    """Returns what the first process holds, on every process; ``values`` is overwritten with it."""
    if _several():
        torch.distributed.broadcast(values, src=0)
    return values


def text_from_first(text: str) -> str:
    """Returns the string that the first process holds, on every process."""
    values = [text]
    if _several():
        torch.distributed.broadcast_object_list(values, src=0)
    return values[0]


def wait() -> None:
    """Returns when every process has called it."""
    if _several():
        torch.distributed.barrier()


def _several() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()
