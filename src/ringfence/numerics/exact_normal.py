"""Distribution functions and quantiles to 500 bits or more, for decisions that float64 cannot make."""

import math
from collections.abc import Callable
from functools import cache
from statistics import NormalDist
from typing import Any

_BITS = 512
_FAR = 2.0**60  # from here on the square of x needs more than _BITS bits
_BITS_FAR = 6000  # enough for the square of (the largest double / the smallest double)
_SURE = 2.0**-16  # of the last bit of U
_NEWTON = 8  # the start has 9 digits, and each step doubles them: 6 steps would do


@cache
def _context(bits: int = _BITS) -> Any:
    """An mpmath context for this file alone, so that mpmath's global precision stays as it is."""
    from mpmath.ctx_mp import MPContext  # type: ignore[import-untyped]

    context = MPContext()
    context.prec = bits
    return context


def cumulative(
    x: float, centre: float, sigma: float, lower: float = -math.inf, upper: float = math.inf
) -> Any:
    """P(X <= x) of X ~ N(centre, sigma^2) conditioned on [lower, upper], with an error below 2^-400.

    Each argument stands for exactly the number that the double holds.

    >>> float(cumulative(0.0, 0.0, 1.0))
    0.5
    >>> int(_context().log(cumulative(0.0, 1e6, 1.0, -1.0, 1.0)))  # too small for a double
    -999999
    """
    far = any(abs(end - centre) > _FAR * sigma for end in (lower, x, upper) if math.isfinite(end))
    narrow = upper - lower < sigma / _FAR  # the two masses that are subtracted then hardly differ
    context = _context(_BITS_FAR if far or narrow else _BITS)
    low, here, high = ((context.mpf(end) - centre) / sigma for end in (lower, x, upper))
    return _between(context, low, min(max(here, low), high)) / _between(context, low, high)


def quantile(numerator: int, bits: int, centre: float, sigma: float) -> Any:
    """The quantile of N(centre, sigma^2) at the middle of [numerator, numerator + 1] / 2^bits.

    ``bits`` are at most 256. The error is below 2^-400 sigma.

    >>> half = quantile(2**255, 256, 1.0, 2.0) - 1  # the middle of a cell that begins at the median
    >>> int(_context().log(half, 2))
    -254
    """
    context = _context()
    share = context.ldexp(2 * numerator + 1, -bits - 1)
    upper = share > 0.5
    tail = 1 - share if upper else share  # exact: bits + 1 digits
    x = context.mpf(-NormalDist().inv_cdf(float(tail)))
    for _ in range(_NEWTON):  # on the logarithm of the tail, which is almost linear
        mass = _tail(context, x)
        x += mass * context.log(mass / tail) * context.sqrt(2 * context.pi) * context.exp(x * x / 2)
    whole = _context(_BITS_FAR)  # any two doubles and a product of two, added exactly
    return centre + sigma * whole.mpf(x if upper else -x)


def gumbel_quantile(numerator: int, bits: int, centre: float, scale: float) -> Any:
    """The same quantile of the Gumbel law: centre - scale log(-log of that middle).

    >>> round(float(gumbel_quantile(2**255, 256, 1.0, 2.0)), 6)  # 1 - 2 log(log 2)
    1.733026
    """
    context = _context()
    share = context.ldexp(2 * numerator + 1, -bits - 1)  # exact, and so is its distance from 1
    whole = _context(_BITS_FAR)
    return centre + scale * whole.mpf(-context.log(-context.log(share)))


def is_below(numerator: int, bits: int, number: Any) -> bool | None:
    """Whether all of [numerator, numerator + 1] / 2^bits lies below ``number``, or above; None if neither.

    ``number`` may be off by 2^-(bits + 32).

    >>> half = laplace_cumulative(-0.5, -0.5, 1.0, 2)  # 1 / 2
    >>> [is_below(numerator, 2, half) for numerator in (0, 1, 2, 3)]
    [True, None, None, False]
    """
    place = _context(bits + 64).ldexp(number, bits)  # exact
    if place - numerator > 1 + _SURE:
        return True
    return False if numerator - place > _SURE else None


def laplace_cumulative(x: float, theta: float, scale: float, bits: int) -> Any:
    """P(k <= x) of the whole number k with P(k) proportional to exp(-|k - theta| / scale), to bits + 32 bits.

    >>> round(float(laplace_cumulative(0.5, 0.0, 1.0, 64)), 6)  # 1 / (1 + 1/e)
    0.731059
    """
    context = _context(bits + 128 + max(0, -math.frexp(scale)[1]))
    floor, below = math.floor(theta), math.floor(x)
    both = 2 * context.cosh((0.5 + floor - context.mpf(theta)) / scale)
    away = (context.mpf(below) + 0.5 - theta) / scale
    return context.exp(away) / both if below < floor else 1 - context.exp(-away) / both


def search(holds: Callable[[int], bool], start: int, first: int, last: int) -> int:
    """The smallest number in first, ..., last for which ``holds`` is true.

    ``holds`` must be true for ``last``, and for every number above one for which it is true. The search
    begins at ``start``, in steps that double.

    >>> [search(lambda number: number >= 7, start, first=0, last=100) for start in (0, 6, 7, 100)]
    [7, 7, 7, 7]
    """
    reach = 1
    if start == last or holds(start):
        low, high = first, start
        while high - reach >= first:
            if not holds(high - reach):
                low = high - reach + 1
                break
            high, reach = high - reach, 2 * reach
    else:
        low, high = start + 1, last
        while low + reach < last:
            if holds(low + reach):
                high = low + reach
                break
            low, reach = low + reach + 1, 2 * reach
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def _between(context: Any, low: Any, high: Any) -> Any:
    """P(low <= N(0, 1) <= high), as a difference of upper tails or of lower tails, whichever are smaller."""
    low, high = (-high, -low) if high <= 0 else (low, high)
    return _tail(context, low) - _tail(context, high)


def _tail(context: Any, x: Any) -> Any:
    """P(N(0, 1) >= x)."""
    if x > 1e100 and context.isfinite(x):  # mpmath's erfc fails; this form errs by 1 / x^2
        return context.exp(-x * x / 2) / (x * context.sqrt(2 * context.pi))
    return context.erfc(x / context.sqrt(2)) / 2
