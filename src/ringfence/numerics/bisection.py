"""The smallest number for which something holds, by bisection."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

Number = TypeVar("Number", float, Tensor)


def smallest(
    holds: Callable[[Number], Any],
    failing: Number,
    passing: Number,
    *,
    halvings: int = 60,
    relative: float = 0.0,
) -> Number:
    """A number just above where ``holds`` begins to be true, between one at which it is false and one at
    which it is true; elements of a tensor are searched side by side.

    A single number is known once it is within this ``relative`` distance of one at which ``holds`` is false.

    Guarantee: ``holds`` was true of what is returned, or it is ``passing``.

    >>> round(smallest(lambda x: x * x >= 2, 0.0, 2.0), 12)
    1.414213562373
    >>> ends = torch.zeros(2), torch.full((2,), 4.0)
    >>> smallest(lambda x: x >= torch.tensor([1.0, 3.0]), *ends).tolist()
    [1.0, 3.0]
    """
    for _ in range(halvings):
        middle = (failing + passing) / 2
        found = holds(middle)
        if isinstance(middle, float):
            passing, failing = (middle, failing) if found else (passing, middle)
            if passing - failing < relative * passing:
                break
        else:
            passing, failing = torch.where(found, middle, passing), torch.where(found, failing, middle)
    return passing
