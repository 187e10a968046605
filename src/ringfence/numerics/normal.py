"""Tails of the standard normal law, to full relative accuracy where the textbook forms lose all digits.

Integrals are sums over Gauss-Legendre rules, whose nodes and weights are correctly rounded doubles.
Notation: phi and Phi are the density and the distribution function of N(0, 1).
``torch.special.ndtr`` is exactly zero below about -8.3 in float64 and is not used anywhere.
"""

import math
from collections.abc import Iterable
from decimal import Decimal, localcontext
from functools import lru_cache

import torch
from torch import Tensor

SQRT_HALF = math.sqrt(0.5)
LOG_SQRT_TWO_PI = 0.5 * math.log(2 * math.pi)
_INVERSE_SQRT_TWO_PI = 1 / math.sqrt(2 * math.pi)
# Up to this many numbers a call costs more than its arithmetic: one call then handles all nodes of a rule.
_SHORT = 28_000

# (x + 1) m(x), m the Mills ratio, is almost constant on [0, inf]. These are the coefficients of
# t^0, t^1, ... of its Chebyshev interpolant in t = (x - 5.5) / (x + 5.5), formed in 40 digits.
# Compared with torch.special.erfcx it is twice as accurate, and it is a run of multiply-adds, which
# vectorises where erfcx is scalar code (CPU) or slow (GPU). tests/numerics/test_normal.py compares it
# with 60 digits.
_CENTRE = 5.5
_MILLS = {
    torch.float64: (
        1.1460994074211677,
        -0.22143300769123153,
        0.09070616930557789,
        0.005552244606805859,
        -0.05367602187009625,
        0.060923796901142156,
        -0.04569574901989783,
        0.025621454186090444,
        -0.010659188425455858,
        0.0029044639666216134,
        -0.0002042168504936606,
        -0.00022699942416754202,
        9.740333325520406e-05,
        -1.2147736012067964e-06,
        -1.1762365151414693e-05,
        2.655442423397426e-06,
        1.1176923370106162e-06,
        -5.393680981316797e-07,
        -9.870072679634209e-08,
        8.972830104490199e-08,
        8.930897791136526e-09,
        -1.3926280016877459e-08,
        -8.562791815756461e-10,
        1.840407958338363e-09,
        6.261563649217205e-11,
        -1.4616415554901527e-10,
    ),
    torch.float32: (
        1.146099406408873,
        -0.22143300662594348,
        0.09070626924022421,
        0.005552204066997049,
        -0.05367763658438765,
        0.060924246081454074,
        -0.04568592624939469,
        0.025619237120014935,
        -0.010687842110097222,
        0.0029101823086295562,
        -0.00016070945619507264,
        -0.00023517729637931897,
        6.350837451818762e-05,
        5.245624723897975e-06,
    ),
}


def density(x: Tensor) -> Tensor:
    """phi(x).

    >>> round(float(density(torch.zeros(1, dtype=torch.float64)) ** -2), 12)  # 2 pi
    6.28318530718
    """
    return torch.square(x).mul_(-0.5).exp_().mul_(_INVERSE_SQRT_TWO_PI)


def cumulative(x: Tensor) -> Tensor:
    """Phi(x) with full relative accuracy in the lower tail, down to about -37 in float64.

    >>> float(cumulative(torch.zeros(1, dtype=torch.float64)))
    0.5
    """
    return 0.5 * torch.erfc(-SQRT_HALF * x)


def mills_ratio(x: Tensor) -> Tensor:
    """m(x) = Phi(-x) / phi(x) for x >= 0, to a few units in the last place.

    >>> round(float(mills_ratio(torch.zeros(1, dtype=torch.float64)) ** 2), 14)  # pi / 2
    1.5707963267949
    """
    t = (x - _CENTRE).div_(x + _CENTRE)
    last, *coefficients = _mills_coefficients(x.dtype, x.device)
    result = last.expand_as(t).clone()
    for coefficient in coefficients:
        torch.addcmul(coefficient, result, t, out=result)
    return result.div_(x + 1)


@lru_cache(maxsize=32)
def _mills_coefficients(dtype: torch.dtype, device: torch.device) -> tuple[Tensor, ...]:
    """The coefficients from the highest power of t down, each a tensor, so that a step is one operation."""
    return torch.tensor(_MILLS[dtype][::-1], dtype=dtype, device=device).unbind()


def hazard(x: Tensor) -> Tensor:
    """The hazard phi(x) / Phi(-x): it increases, and is close to x far above 0.

    >>> round(float(hazard(torch.full((1,), 1e6, dtype=torch.float64))), 3)
    1000000.0
    """
    size = x.abs()
    tail = mills_ratio(size)
    peak = density(size)
    return torch.where(x < 0, peak / (1 - peak * tail), 1 / tail)


def log_tail(x: Tensor) -> Tensor:
    """log Phi(-x), the logarithm of the mass above x.

    >>> round(float(log_tail(torch.full((1,), 40.0, dtype=torch.float64))), 6)
    -804.608442
    """
    size = x.abs()
    tail = mills_ratio(size)
    above = torch.log(tail).sub_(0.5 * size * size).sub_(LOG_SQRT_TWO_PI)
    return torch.where(x < 0, torch.log1p(-density(size) * tail), above)


def log_tail_ratio(x: Tensor, shift: Tensor) -> Tensor:
    """log [Phi(-x) / Phi(-(x + shift))], with relative accuracy however small the shift.

    It is the integral of the hazard from x to x + shift. Subtracting two logarithms instead would lose
    every digit at shift = 1e-16; that form is used only where |shift| > 1 and nothing cancels.

    >>> shift = torch.tensor([1e-9, 2.0], dtype=torch.float64)
    >>> [float(f"{value:.9g}") for value in log_tail_ratio(torch.full_like(shift, 5.0), shift)]
    [5.18650397e-09, 12.3193091]
    """
    size = shift.abs()
    small = size <= 1
    largest = float(size.amax()) if size.numel() else 0.0
    result = _integrated_hazard(x, torch.where(small, shift, 0.0), min(largest, 1.0))
    if largest > 1:
        end = x + shift
        above = (x > 0) & (end > 0)
        # Where both ends are above 0 the parts that grow like x^2 are cancelled on paper, not in floats.
        scaled = shift * (x + 0.5 * shift)
        scaled = scaled + torch.log(mills_ratio(x.clamp(min=0)) / mills_ratio(end.clamp(min=0)))
        difference = torch.where(above, scaled, log_tail(x) - log_tail(end))
        result = torch.where(small, result, difference)
    return result


def _integrated_hazard(x: Tensor, shift: Tensor, largest: float) -> Tensor:
    """Integral of the hazard from x to x + shift for |shift| <= largest <= 1."""
    # The hazard is analytic to a distance of 2.8 around the real line: few nodes suffice.
    count = 3 if largest <= 0.01 else 6 if largest <= 0.2 else 14
    nodes, weights = gauss_legendre(count, x)
    total = torch.zeros_like(x * shift)
    points = (torch.add(x, shift, alpha=node) for node in nodes.tolist())
    if count * total.numel() <= _SHORT:
        hazards: Iterable[Tensor] = hazard(torch.stack(list(points)))
    else:
        hazards = map(hazard, points)
    for value, weight in zip(hazards, weights.tolist(), strict=True):
        total.add_(value, alpha=weight)
    return total.mul_(shift)


@lru_cache(maxsize=64)
def _rule(count: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Nodes and weights on [0, 1], by Newton's method in 40 digits.

    The usual double-precision routines have errors near 1e-14, which would be the largest error of this
    package.
    """
    nodes, weights = [], []
    with localcontext() as context:
        context.prec = 40
        for index in range(count):
            # The usual starting point: its three digits are enough for Newton's method to converge
            # quadratically.
            root = Decimal(math.cos(math.pi * (index + 0.75) / (count + 0.5)))
            for _ in range(6):
                before, value = Decimal(1), root
                for degree in range(2, count + 1):
                    before, value = (
                        value,
                        ((2 * degree - 1) * root * value - (degree - 1) * before) / degree,
                    )
                slope = count * (root * value - before) / (root * root - 1)
                root -= value / slope
            nodes.append(float((1 - root) / 2))
            weights.append(float(1 / ((1 - root * root) * slope * slope)))
    return tuple(nodes), tuple(weights)


def gauss_legendre(count: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes in (0, 1), ascending, and weights that sum to 1, as tensors like ``like``, not to be changed.

    >>> nodes, weights = gauss_legendre(8, torch.zeros(1, dtype=torch.float64))
    >>> round(float((weights * nodes**15).sum()) * 16, 14)  # exact up to degree 15
    1.0
    """
    if count < 2:
        raise ValueError(f"count must be at least 2, got {count}")
    return _tensors(count, like.dtype, like.device)


@lru_cache(maxsize=256)
def _tensors(count: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """The rule as tensors, which are made once: a GPU would wait for them at every call."""
    nodes, weights = (torch.tensor(numbers, dtype=dtype, device=device) for numbers in _rule(count))
    return nodes, weights
