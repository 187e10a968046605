"""The standard normal law, on the line and conditioned on an interval, however far that is from 0.

Textbook forms subtract nearly equal numbers; here every sum has positive terms, and every result has full
relative accuracy. Integrals are sums over Gauss-Legendre rules, whose nodes and weights are correctly rounded
doubles. Notation: phi and Phi are the density and the distribution function of N(0, 1).
``torch.special.ndtr`` is exactly zero below about -8.3 in float64 and is not used anywhere.

``TruncatedNormal`` integrates the density over the part of the interval that carries the mass, relative to
its value at the point nearest to 0, where it is largest. The laws need two quantities:

    moments      E[(X - m)^k] for k = 2, 3, ..., m = E X
    log_mgf(k)   log E exp(k (X - m)) >= 0, the centred cumulant generating function
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cached_property, lru_cache

import torch
from torch import Tensor

SQRT_HALF = math.sqrt(0.5)
LOG_SQRT_TWO_PI = 0.5 * math.log(2 * math.pi)
_INVERSE_SQRT_TWO_PI = 1 / math.sqrt(2 * math.pi)
# Up to this many numbers a call costs more than its arithmetic: one call then handles all nodes of a rule.
_SHORT = 28_000

# The series in the moments is used up to this value of |k| times the window. Above it nothing
# cancels any more, and the difference of two log masses is used.
_SERIES_REACH = 4.0

# The number of entries of a table of nodes by coordinates. On a CPU it fits the cache of a core, and it
# is below the 32,768 entries from which torch splits an operation among threads: waking them for work
# this short costs up to twice what it saves. A GPU needs long launches.
_TABLE_ENTRIES = {"cpu": 28_000}
_TABLE_ENTRIES_ELSEWHERE = 1 << 24

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
                    higher = ((2 * degree - 1) * root * value - (degree - 1) * before) / degree
                    before, value = value, higher
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
    return _tensors(count, like.dtype, like.device)


@lru_cache(maxsize=256)
def _tensors(count: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """The rule as tensors, which are made once: a GPU would wait for them at every call."""
    nodes, weights = (torch.tensor(numbers, dtype=dtype, device=device) for numbers in _rule(count))
    return nodes, weights


@dataclass(frozen=True)
class _Precision:
    """The accuracy a dtype needs: where the density may be cut, how many nodes, where a series may end."""

    cut: float  # the window ends where the density is exp(-cut) of its peak
    nodes_base: float
    nodes_slope: float  # nodes = base + slope * sqrt(drop of the log density over the window)
    negligible: float

    def nodes(self, drop: float) -> int:
        # The drop is at most the cut. Where it left the range of floats it may be NaN; so is the result.
        count = self.nodes_base + self.nodes_slope * math.sqrt(drop if drop <= 2 * self.cut else self.cut)
        return 2 * math.ceil(count / 2)  # even numbers only: few distinct rules, each made once

    def series_order(self, largest: float) -> int:
        """The first k from which on 2 largest^(k - 2) / k! is negligible."""
        term, order = 1.0, 2
        while term > self.negligible:
            order += 1
            term *= largest / order
        return order


_PRECISIONS = {
    torch.float64: _Precision(cut=46.0, nodes_base=7.0, nodes_slope=6.2, negligible=1e-18),
    torch.float32: _Precision(cut=21.0, nodes_base=4.0, nodes_slope=3.8, negligible=1e-9),
}


class TruncatedNormal:
    """The law of X ~ N(0, 1) given lower <= X <= upper, for vectors of intervals.

    ``width`` is passed beside the two ends because upper - lower, formed from rounded ends far
    from 0, has lost the digits that matter for a narrow interval.

    >>> one = torch.ones(1, dtype=torch.float64)
    >>> round(float(TruncatedNormal(-one, one, 2 * one).variance()), 12)
    0.291125094773
    """

    def __init__(self, lower: Tensor, upper: Tensor, width: Tensor) -> None:
        self._precision = _PRECISIONS[lower.dtype]
        self.lower, self.upper, self._width = lower, upper, width
        # Reflected so that the mass leans towards the lower end: |low| <= high.
        self._low, self._high = torch.maximum(lower, -upper), torch.maximum(upper, -lower)
        self.edge = self._low.clamp(min=0)  # the point nearest to 0, where the density peaks

        cut = self._precision.cut
        radius = torch.full_like(self.edge, math.sqrt(2 * cut))
        reach = 2 * cut / (torch.hypot(self.edge, radius) + self.edge)  # the cut, from the edge
        self._start = torch.maximum(self._low, -radius).clamp_(max=0)
        self.window = torch.minimum(width, reach - self._start)
        self._moments: list[Tensor] = []

    @cached_property
    def sign(self) -> Tensor:
        """-1 where the interval was reflected, and 1 elsewhere."""
        return torch.where(self._low == self.lower, 1.0, -1.0).to(self._low.dtype)

    def log_partition(self) -> Tensor:
        """The logarithm of (the integral of the density / its value at the point nearest to 0)."""
        return torch.log(self.window * self._central_moments(1)[0])

    def log_mass(self) -> Tensor:
        """log P(lower <= N(0, 1) <= upper)."""
        return self.log_partition() - 0.5 * self.edge * self.edge - LOG_SQRT_TWO_PI

    def mean(self) -> Tensor:
        """E X, a difference of densities divided by the mass: accurate even where it is nearly 0."""
        fall = -torch.expm1(-0.5 * self._width * (self._low + self._high))
        inside = torch.exp(-0.5 * self._low.clamp(max=0).square())
        return self.sign * inside * fall * torch.exp(-self.log_partition())

    def mean_from_edge(self) -> Tensor:
        """E X minus the point of the interval nearest to 0, accurate where they nearly agree."""
        return self.sign * (self._start + self.window * self._central_moments(1)[1])

    def variance(self) -> Tensor:
        """Var X, which is also the Fisher information of the location, as in every exponential family."""
        return self.window * self.window * self._central_moments(2)[2]

    def central_moments(self) -> tuple[Tensor, Tensor, Tensor]:
        """E (X - E X)^k for k = 2, 3, 4."""
        second, third, fourth = self._central_moments(4)[2:]
        squared = self.window * self.window
        return squared * second, self.sign * squared * self.window * third, squared * squared * fourth

    def log_mgf(self, *tilts: Tensor) -> list[Tensor]:
        """log E exp(k (X - E X)) for each tilt k. The tilts share one pass over the nodes."""
        scaled = [self.sign * tilt * self.window for tilt in tilts]
        series = [value.abs() <= _SERIES_REACH for value in scaled]
        inside = [torch.where(use, value, 0.0) for use, value in zip(series, scaled, strict=True)]
        largest = max(float(value.abs().amax()) for value in inside)
        order, results = self._precision.series_order(largest), []
        for tilt, use, value in zip(tilts, series, inside, strict=True):
            count = int(use.sum())
            if count == 0:
                results.append(self._log_mgf_by_masses(tilt))
                continue
            result = self._log_mgf_by_series(value, self._central_moments(order))
            if count < use.numel():
                far = ~use
                result[far] = self._select(far)._log_mgf_by_masses(tilt.expand_as(far)[far])
            results.append(result)
        return results

    def shortfall(self, ceiling: Tensor, rate: Tensor) -> Tensor:
        """E[1 - exp(-rate (ceiling - X))] for rate > 0 and a ceiling at or above the interval's upper end."""
        below = ceiling - self.sign * self.edge - self.mean_from_edge()
        return -torch.expm1(self.log_mgf(rate)[0] - rate * below)

    def _log_mgf_by_series(self, scaled: Tensor, moments: list[Tensor]) -> Tensor:
        """log1p of E[e^y - 1 - y] with y = k (X - m): the linear term is zero and is left out."""
        order = len(moments) - 1
        total = moments[order] / order
        for k in range(order - 1, 1, -1):
            # Horner: ((mu_K y / K + mu_{K-1}) y / (K-1) + ...)
            total = (scaled * total).add_(moments[k]).div_(k)
        return torch.log1p(total * scaled * scaled)

    def _log_mgf_by_masses(self, tilt: Tensor) -> Tensor:
        """log E exp(k (X - m)) as a difference of log masses, relative to the peaks of both laws."""
        tilt = self.sign * tilt
        tilted = TruncatedNormal(self._low - tilt, self._high - tilt, self._width)
        peak = torch.minimum(torch.maximum(tilt, self._low), self._high)
        across = (self._low >= 0) & (tilt >= self._high)  # from one end to the other
        moved = torch.where(across, self._width, peak - self.edge)
        return (
            tilted.log_partition()
            - self.log_partition()
            - tilt * self.sign * self.mean_from_edge()
            + moved * (tilt - self.edge - 0.5 * moved)
        )

    def _select(self, chosen: Tensor) -> "TruncatedNormal":
        """The law of the chosen intervals; mass and mean come along, and need not be integrated again."""
        ends = (self.lower, self.upper, self._width)
        selected = TruncatedNormal(*(end.expand_as(chosen)[chosen] for end in ends))
        selected._moments = [moment.expand_as(chosen)[chosen] for moment in self._central_moments(1)]
        return selected

    def _central_moments(self, order: int) -> list[Tensor]:
        """[mass, mean, mu_2, ..., mu_order] of u = (X - window start) / window, u in [0, 1].

        The mass is relative to the density at the edge. The list is kept, because callers ask repeatedly.
        """
        if len(self._moments) <= order:
            window, start, edge = torch.broadcast_tensors(self.window, self._start, self.edge)
            nodes, weights = gauss_legendre(self._precision.nodes(self._largest_drop()), window)
            rows = window.new_empty(order + 1, window.numel())
            flat = (part.reshape(-1) for part in (window, start, edge))
            _fill_moments(rows, nodes, weights, *flat)
            self._moments = list(rows.view(order + 1, *window.shape).unbind(0))
        return self._moments[: order + 1]

    def _largest_drop(self) -> float:
        """The largest fall of the log density from its peak to an end of a window."""
        end = self._start + self.window
        drop = torch.maximum(self._start.square(), end * (2 * self.edge + end)).amax()
        return float(drop) / 2


def _fill_moments(
    rows: Tensor, nodes: Tensor, weights: Tensor, window: Tensor, start: Tensor, edge: Tensor
) -> None:
    """Writes mass, mean and central moments of every window into ``rows``, one row per moment.

    It works on tables of nodes by coordinates, slice by slice. The tables are the only large
    temporaries, so they stay in cache and are allocated once.
    """
    # At distance x from the edge the log density is -x (x + 2 edge) / 2; each factor takes sqrt(1/2).
    columns = start * -SQRT_HALF, (start + 2 * edge) * SQRT_HALF, window * SQRT_HALF
    nodes, weights = nodes.unsqueeze(1), weights.unsqueeze(1)

    count = window.numel()
    length = min(count, _slice_length(nodes.numel(), window))
    tables = [window.new_empty(nodes.numel(), length) for _ in range(2)]
    if length == count:  # nearly always: views of everything would take as long as the sums
        _fill_slice(rows, nodes, weights, columns, tables)
    else:
        for at in range(0, count, length):
            part = slice(at, min(at + length, count))
            some = [column[part] for column in columns]
            _fill_slice(rows[:, part], nodes, weights, some, [table[:, : part.stop - at] for table in tables])
    if len(rows) > 2:
        rows[2:] /= rows[0]


def _fill_slice(
    rows: Tensor, nodes: Tensor, weights: Tensor, columns: Sequence[Tensor], tables: Sequence[Tensor]
) -> None:
    """Mass, mean and central moments times mass; the tables are there to work in."""
    (toward, beyond, step), (power, deviation) = columns, tables
    mass, mean, *moments = rows.unbind(0)
    torch.addcmul(toward, nodes, step, value=-1, out=deviation)
    torch.addcmul(beyond, nodes, step, out=power)
    power.mul_(deviation).exp_().mul_(weights)
    torch.sum(power, dim=0, out=mass)
    torch.sum(torch.mul(power, nodes, out=deviation), dim=0, out=mean)
    mean.div_(mass)
    if moments:
        torch.sub(nodes, mean, out=deviation)
        power.mul_(deviation)
    for moment in moments:
        torch.sum(power.mul_(deviation), dim=0, out=moment)


def _slice_length(nodes: int, like: Tensor) -> int:
    """The number of coordinates of a slice: an odd multiple of 16, so that rows do not alias in the cache."""
    entries = _TABLE_ENTRIES.get(like.device.type, _TABLE_ENTRIES_ELSEWHERE)
    return 16 * (entries // (nodes * 16) | 1)
