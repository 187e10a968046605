"""Quantiles of N(0, 1) conditioned on an interval, however far that is from 0: for drawing from it."""

import torch
from torch import Tensor

from ringfence.numerics.normal import cumulative, hazard, mills_ratio

TAIL = 4.0  # an interval that begins farther out is sampled as a corrected exponential
_HALF_STEP = 2.0**-54  # half the spacing of float64 uniforms: keeps them inside (0, 1)


def quantile_near(low: Tensor, high: Tensor, uniform: Tensor) -> Tensor:
    """Quantile of N(0, 1) on [low, high], for low <= 4.

    >>> low, high, half = (torch.tensor([x], dtype=torch.float64) for x in (0.0, 9.0, 0.5))
    >>> round(float(quantile_near(low, high, half)), 5)  # the median of |N(0, 1)|
    0.67449
    """
    below, above = cumulative(low), cumulative(-high)
    mass = torch.where(low > 0, cumulative(-low) - above, 1 - below - above)
    from_below = below + (uniform + _HALF_STEP) * mass
    from_above = above + ((1 - uniform) - _HALF_STEP) * mass
    return torch.where(from_below < 0.5, torch.special.ndtri(from_below), -torch.special.ndtri(from_above))


def quantile_in_tail(low: Tensor, high: Tensor, width: Tensor, uniform: Tensor) -> Tensor:
    """Distance of the quantile from ``low``, for low >= 4, where the law is almost an exponential.

    Solves log P(X > low) - log P(X > low + step) = energy by Newton's method; the derivative is
    the hazard. The start is the root with the hazard frozen, right to 1 / low^2.

    >>> low, high, width, half = (torch.tensor([x], dtype=torch.float64) for x in (50.0, 60.0, 10.0, 0.5))
    >>> round(50 * float(quantile_in_tail(low, high, width, half)), 3)  # log 2 is 0.693
    0.693
    """
    start = mills_ratio(low)
    log_survival = torch.log(mills_ratio(high) / start) - width * (low + 0.5 * width)
    below = uniform + _HALF_STEP
    left_over = ((1 - uniform) - _HALF_STEP) + below * torch.exp(log_survival)
    energy = -torch.where(uniform < 0.5, torch.log1p(below * torch.expm1(log_survival)), torch.log(left_over))
    rate = hazard(low)
    step = 2 * energy / (rate + torch.sqrt(rate * rate + 2 * energy))
    for _ in range(3):
        here = mills_ratio(low + step)
        gap = step * (low + 0.5 * step) - torch.log(here / start) - energy
        step = (step - gap * here).clamp(min=0)
    return torch.minimum(step, width)
