"""Margins for rounding errors, and printing that rounds up.

Bounds that are computed in float64 are raised by what rounding may have taken: by a relative ``ROUNDING``
where the error was measured, by ``gamma`` where it is proved, and by ``UNDERFLOW`` for each number that may
have become 0. What is printed is rounded up once more.
"""

import math
from decimal import ROUND_CEILING, Decimal, localcontext

import torch
from torch import Tensor

from ringfence import checks

ROUNDING = 1e-11  # relative charge on divergences and conversions; the largest error measured is 3e-13
UNIT = 2.0**-53  # u, the unit roundoff of float64
UP = 1 + 2.0**-50  # raises a float64 number by more than a few roundings took from it
UNDERFLOW = 1e-290  # a law may return 0 for a coordinate whose divergence is below this


def gamma(count: int) -> float:
    """count u / (1 - count u): bounds the relative error of a sum of ``count`` products, in any order.

    Higham 2002, section 3.1.

    >>> gamma(2) / UNIT
    2.0000000000000004
    """
    return count * UNIT / (1 - count * UNIT)


def rounded_up(value: float, digits: int = 4) -> str:
    """The value with few digits, rounded up, so that a printed upper bound still holds.

    >>> rounded_up(1.23401), rounded_up(0.5), rounded_up(12345.6)
    ('1.235', '0.5', '12350')
    """
    if not value or not math.isfinite(value):
        return f"{value:g}"
    with localcontext() as context:
        context.prec, context.rounding = digits, ROUND_CEILING
        return f"{+Decimal(value).normalize():f}"


def square_is_representable(values: Tensor) -> Tensor:
    """True where x^2 and 1/x^2 are representable.

    >>> import torch
    >>> square_is_representable(torch.tensor([1e-150, 1.0]).double()).tolist()
    [False, True]
    """
    return (values >= 1e-140) & (values <= 1e140)


def float32_at_most(name: str, value: float) -> float:
    """The largest float32 number that is not above ``value``, which must be above 0 in float32 as well.

    >>> 0.0999999 < float32_at_most("clip", 0.1) < 0.1
    True
    """
    single = torch.tensor(value, dtype=torch.float32)
    if float(single) > value:
        single = torch.nextafter(single, torch.zeros_like(single))
    return float(checks.positive(f"{name} (as torch.float32)", single))
