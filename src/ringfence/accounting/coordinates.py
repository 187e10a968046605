"""The coordinates of a release: how many there are, and which of them have the same numbers."""

import torch
from torch import Tensor

from ringfence import checks
from ringfence.mechanisms.base import Mechanism


def released_shape(law: Mechanism, theta: Tensor, sensitivity: Tensor) -> torch.Size:
    """The shape of what is released: theta's, after sensitivity and parameters have spread it out.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> released_shape(Gaussian(1.0), torch.zeros(2, 1), torch.ones(3))
    torch.Size([2, 3])
    """
    values = {"theta": theta, "sensitivity": sensitivity, **law.parameters()}
    return checks.broadcast(tuple(values), tuple(values.values()))


def number_of_coordinates(law: Mechanism, theta: Tensor, sensitivity: Tensor) -> int:
    """How many numbers are released.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> number_of_coordinates(Gaussian(torch.ones(4)), torch.zeros(1), torch.tensor(0.1))
    4
    """
    return released_shape(law, theta, sensitivity).numel()


def distinct(*columns: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct rows of these numbers, and for each coordinate the index of its row.

    The columns broadcast against each other; the index has their common shape. Both are on the CPU.

    >>> rows, index = distinct(torch.tensor([1.0, 2.0, 1.0]), torch.tensor(5.0))
    >>> rows.tolist(), index.tolist()
    ([[1.0, 5.0], [2.0, 5.0]], [0, 1, 0])
    """
    table = torch.stack(torch.broadcast_tensors(*(column.double().cpu() for column in columns)), dim=-1)
    if all(column.numel() == 1 for column in columns):
        return table.reshape(1, -1), torch.zeros(table.shape[:-1], dtype=torch.int64)
    rows, index = torch.unique(table.reshape(-1, table.shape[-1]), dim=0, return_inverse=True)
    return rows, index.reshape(table.shape[:-1])


def with_numbers(law: Mechanism, numbers: Tensor) -> Mechanism:
    """The law with single numbers for parameters, in the order of ``law.parameters()``.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> with_numbers(Gaussian(torch.ones(3)), torch.tensor([2.0]))
    Gaussian(sigma=2.0)
    """
    return law.with_parameters(dict(zip(law.parameters(), numbers.unbind(), strict=True)))
