"""Evaluation of large tensors: in blocks that stay in cache, on threads that save time, never in TF32."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

_LARGE = 10**7  # data of this many numbers is worth several threads


def block_length(device: torch.device) -> int:
    """The number of coordinates handled at once: enough to keep every core busy, few enough for the cache.

    >>> block_length(torch.device("cpu")), block_length(torch.device("cuda"))
    (65536, 4194304)
    """
    return 1 << 16 if device.type == "cpu" else 1 << 22


def at_once(held: int, *, each: int) -> int:
    """The number of things, ``each`` numbers large, of which at most ``held`` numbers are held: at least one.

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


def row_lengths(values: Tensor) -> Tensor:
    """The L2 norm along the last dimension, in float64. NaN and infinities stay as they are.

    Guarantee: for float32 rows of up to 2^31 numbers the relative error is below 2^-22: no square leaves the
    range of float64, and a sum of n squares, in any order, is off by at most n 2^-53 of itself.

    >>> row_lengths(torch.tensor([[3e30, 4e30], [0.0, 0.0]])).tolist()
    [4.999999984567896e+30, 0.0]
    """
    if values.numel() <= block_length(values.device):
        short: Tensor = torch.linalg.vector_norm(values, dim=-1, dtype=torch.float64)
        return short
    rows = values.flatten(0, -2)
    together = at_once(block_length(values.device), each=rows.shape[1])
    return torch.cat([_lengths(some) for some in rows.split(together)]).view(values.shape[:-1])


def _lengths(rows: Tensor) -> Tensor:
    """``row_lengths`` of a few rows: long ones are cut into pieces, of whose norms the norm is taken."""
    pieces = rows.split(at_once(block_length(rows.device), each=len(rows)), dim=1)
    parts = [torch.linalg.vector_norm(piece, dim=1, dtype=torch.float64) for piece in pieces]
    whole: Tensor = parts[0] if len(parts) == 1 else torch.linalg.vector_norm(torch.stack(parts), dim=0)
    return whole


@contextmanager
def one_thread(numbers: int = 0) -> Iterator[None]:
    """Inside, torch works on one thread, unless ``numbers``, the size of the data, is very large.

    Short operations wait for threads longer than they compute; on a busy machine, many times longer.

    >>> with one_thread():
    ...     torch.get_num_threads()
    1
    """
    before = torch.get_num_threads()
    if numbers < _LARGE:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def refuse_tf32(values: Tensor) -> None:
    """Raises an error where torch may multiply matrices of float32 numbers as TF32.

    >>> refuse_tf32(torch.ones(2))
    """
    if values.is_cuda and values.dtype == torch.float32 and torch.backends.cuda.matmul.allow_tf32:
        raise ValueError(
            "torch.backends.cuda.matmul.allow_tf32 must be False in float32: its products have 3 digits, got "
            "True"
        )
