"""Everything seen from theta in units of sigma, where all the mathematics lives."""

import torch
from torch import Tensor


def far(like: Tensor) -> float:
    """So far out that whatever is there is exactly zero, yet its square is finite."""
    return 1e100 if like.dtype == torch.float64 else 1e18


def interval(theta: Tensor, sigma: Tensor, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(lower, upper, width) relative to theta; an infinite end becomes a far one.

    The width is formed from the bounds themselves: from the relative ends it would have lost
    the digits that matter when the interval is narrow and far away.
    """
    limit = far(theta)
    return (
        ((lower - theta) / sigma).clamp(-limit, limit),
        ((upper - theta) / sigma).clamp(-limit, limit),
        ((upper - lower) / sigma).clamp(max=2 * limit),
    )


def upward(shift: Tensor, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """|shift| and the interval, reflected where the shift was down."""
    down = shift < 0
    return shift.abs(), torch.where(down, -upper, lower), torch.where(down, -lower, upper)
