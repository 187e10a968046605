"""Distribution functions and quantiles to as many bits as are asked for, where float64 cannot decide."""

import math
from functools import cache
from typing import Any

_MORE = 256  # bits of arithmetic beyond those of U
_FAR = 2.0**60  # from here on the square of x needs more than these
_MORE_FAR = 5744  # enough for the square of (the largest double / the smallest double)
_SURE = 2.0**-16  # of the last bit of U


@cache
def _context(bits: int) -> Any:
    """An mpmath context for this file alone, so that mpmath's global precision stays as it is."""
    from mpmath.ctx_mp import MPContext  # type: ignore[import-untyped]

    context = MPContext()
    context.prec = bits
    return context


def cumulative(
    x: float, centre: float, sigma: float, lower: float = -math.inf, upper: float = math.inf, *, bits: int
) -> Any:
    """P(X <= x) of X ~ N(centre, sigma^2) conditioned on [lower, upper], off by less than 2^-(bits + 100).

    Each argument stands for exactly the number that the double holds.

    >>> float(cumulative(0.0, 0.0, 1.0, bits=64))
    0.5
    >>> int(_context(64).log(cumulative(0.0, 1e6, 1.0, -1.0, 1.0, bits=64)))  # too small for a double
    -999999
    """
    far = any(abs(end - centre) > _FAR * sigma for end in (lower, x, upper) if math.isfinite(end))
    narrow = upper - lower < sigma / _FAR  # the two masses that are subtracted then hardly differ
    context = _context(bits + (_MORE_FAR if far or narrow else _MORE))
    low, here, high = ((context.mpf(end) - centre) / sigma for end in (lower, x, upper))
    return _between(context, low, min(max(here, low), high)) / _between(context, low, high)


def noisy_ends(numerator: int, bits: int, centre: float, scale: float, *, gumbel: bool) -> tuple[Any, Any]:
    """Bounds of centre + scale z for every quantile z at a share in [numerator, numerator + 1] / 2^bits.

    The quantiles are those of the normal law, or of the standard Gumbel law. They are off by less than
    2^-(bits + 32), by which the bounds are moved outwards.

    >>> [round(float(end), 6) for end in noisy_ends(2**63, 64, 1.0, 2.0, gumbel=True)]  # 1 - 2 log(log 2)
    [1.733026, 1.733026]
    """
    quantile = _gumbel_quantile if gumbel else _normal_quantile
    whole = _context(bits + _MORE_FAR)  # any two doubles and a product of two, added exactly
    off = whole.ldexp(1, -bits - 32)
    low, high = (whole.mpf(quantile(share, bits)) for share in (numerator, numerator + 1))
    return centre + scale * (low - off), centre + scale * (high + off)


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
    both = 2 * context.cosh((0.5 - (context.mpf(theta) - floor)) / scale)  # 0.5 + floor may round
    away = (context.mpf(below) + 0.5 - theta) / scale
    return context.exp(away) / both if below < floor else 1 - context.exp(-away) / both


def _normal_quantile(numerator: int, bits: int) -> Any:
    """The quantile of N(0, 1) at numerator / 2^bits.

    Newton's steps on the logarithm of the tail begin above the answer, because the tail at x >= 0 is at most
    exp(-x^2 / 2) / 2. They stay above it, because that logarithm is concave, and what is left of the way
    before a step is at most 1.3 (1 + x) steps, because minus its slope lies between 0.79 and 1 + x.
    """
    context = _context(bits + _MORE)
    share = context.ldexp(numerator, -bits)
    upper = share > 0.5
    tail = 1 - share if upper else share  # exact
    if not tail:
        return context.inf if upper else -context.inf
    x, step = context.sqrt(-2 * context.log(2 * tail)), context.inf
    while abs(step) > context.ldexp(1, -bits - 64):
        mass = _tail(context, x)
        step = mass * context.log(mass / tail) * context.sqrt(2 * context.pi) * context.exp(x * x / 2)
        x += step
    return x if upper else -x


def _gumbel_quantile(numerator: int, bits: int) -> Any:
    """-log(-log share) at the share numerator / 2^bits."""
    context = _context(bits + _MORE)
    return -context.log(-context.log(context.ldexp(numerator, -bits)))


def _between(context: Any, low: Any, high: Any) -> Any:
    """P(low <= N(0, 1) <= high), as a difference of upper tails or of lower tails, whichever are smaller."""
    low, high = (-high, -low) if high <= 0 else (low, high)
    return _tail(context, low) - _tail(context, high)


def _tail(context: Any, x: Any) -> Any:
    """P(N(0, 1) >= x)."""
    if x > 1e100 and context.isfinite(x):  # mpmath's erfc fails
        term = total = context.mpf(1)
        count = 0
        while abs(term) > context.eps:  # the sum alternates, so it errs by less than its next term
            count += 1
            term *= -(2 * count - 1) / (x * x)
            total += term
        return total * context.exp(-x * x / 2) / (x * context.sqrt(2 * context.pi))
    return context.erfc(x / context.sqrt(2)) / 2
