"""Elementwise evaluation in blocks, so that temporaries stay in cache and memory stays small."""

import math
from collections.abc import Callable

import torch
from torch import Tensor


def block_length(device: torch.device) -> int:
    """How many coordinates are handled at once: enough to keep every core busy, few enough for the cache.

    >>> block_length(torch.device("cpu")), block_length(torch.device("cuda"))
    (65536, 4194304)
    """
    return 1 << 16 if device.type == "cpu" else 1 << 22


def at_once(held: int, *, each: int) -> int:
    """How many things that take ``each`` numbers are handled at once, if ``held`` numbers may be held: at
    least one.

    >>> at_once(1000, each=300), at_once(1000, each=3000), at_once(1000, each=0)
    (3, 1, 1000)
    """
    return max(1, held // max(1, each))


def blockwise(
    kernel: Callable[..., Tensor], *arguments: Tensor, values_per_coordinate: int = 1, rows: int | None = None
) -> Tensor:
    """``kernel`` applied to the broadcast arguments, block by block.

    The kernel gets vectors of one common length. An argument with a single number stays a vector of
    length 1, which broadcasts. The result has the broadcast shape; where the kernel returns ``rows``
    rows, it has a first dimension of that size. ``values_per_coordinate`` is how many numbers the
    kernel holds for each coordinate at once.

    >>> blockwise(torch.add, torch.zeros(2, 1), torch.ones(3)).shape
    torch.Size([2, 3])
    """
    shape = torch.broadcast_tensors(*arguments)[0].shape
    count = math.prod(shape)
    first = arguments[0]
    leading = () if rows is None else (rows,)
    result = torch.empty(*leading, count, dtype=first.dtype, device=first.device)
    vectors = [
        argument.reshape(1) if argument.numel() == 1 else argument.expand(shape).reshape(-1)
        for argument in arguments
    ]
    length = at_once(block_length(first.device), each=values_per_coordinate)
    for start in range(0, count, length):
        stop = min(start + length, count)
        result[..., start:stop] = kernel(
            *(vector if vector.numel() == 1 else vector[start:stop] for vector in vectors)
        )
    return result.reshape((*leading, *shape))
