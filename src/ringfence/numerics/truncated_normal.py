"""N(0, 1) conditioned on an interval: mass, moments, cumulants and quantiles, however far the interval is.

Textbook forms subtract nearly equal numbers; here every sum has positive terms. The density is
integrated by a Gauss-Legendre rule over the part of the interval that carries the mass. It is written
relative to its value at the point nearest to 0, where it is largest. The laws need two quantities:

    moments      E[(X - m)^k] for k = 2, 3, ..., m = E X
    log_mgf(k)   log E exp(k (X - m)) >= 0, the centred cumulant generating function
"""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ringfence.numerics.normal import (
    LOG_SQRT_TWO_PI,
    SQRT_HALF,
    cumulative,
    gauss_legendre,
    hazard,
    mills_ratio,
)

# The series in the moments is used up to this value of |k| times the window. Above it nothing
# cancels any more, and the difference of two log masses is used.
_SERIES_REACH = 4.0

# The number of entries of a table of nodes by coordinates. On a CPU it fits the cache of a core, and it
# is below the 32,768 entries from which torch splits an operation among threads: waking them for work
# this short costs up to twice what it saves. A GPU needs long launches.
_TABLE_ENTRIES = {"cpu": 28_000}
_TABLE_ENTRIES_ELSEWHERE = 1 << 24

TAIL = 4.0  # an interval that begins farther out is sampled as a corrected exponential
_HALF_STEP = 2.0**-54  # half the spacing of float64 uniforms: keeps them inside (0, 1)


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
        self._lower, self._upper, self._width = lower, upper, width
        # Reflected so that the mass leans towards the lower end: |low| <= high.
        self._low, self._high = torch.maximum(lower, -upper), torch.maximum(upper, -lower)
        self.edge = self._low.clamp(min=0)  # the point nearest to 0, where the density peaks

        cut = self._precision.cut
        radius = torch.full_like(self.edge, math.sqrt(2 * cut))
        reach = 2 * cut / (torch.hypot(self.edge, radius) + self.edge)  # the cut, from the edge
        self._start = torch.maximum(self._low, -radius).clamp_(max=0)
        self.window = torch.minimum(width, reach - self._start)
        self._moments: list[Tensor] = []

    @property
    def ends(self) -> tuple[Tensor, Tensor]:
        """The ends of the interval, (lower, upper)."""
        return self._lower, self._upper

    @cached_property
    def sign(self) -> Tensor:
        """-1 where the interval was reflected, and 1 elsewhere."""
        return torch.where(self._low == self._lower, 1.0, -1.0).to(self._low.dtype)

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
        ends = (self._lower, self._upper, self._width)
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
    toward, beyond = start * -SQRT_HALF, (start + 2 * edge) * SQRT_HALF
    step = window * SQRT_HALF
    nodes, weights = nodes.unsqueeze(1), weights.unsqueeze(1)

    count = window.numel()
    length = min(count, _slice_length(nodes.numel(), window))
    tables = [window.new_empty(nodes.numel(), length) for _ in range(2)]
    if length == count:  # nearly always: views of everything would take as long as the sums
        _fill_slice(rows, nodes, weights, toward, beyond, step, *tables)
    else:
        for at in range(0, count, length):
            part = slice(at, min(at + length, count))
            parts = (toward[part], beyond[part], step[part])
            _fill_slice(
                rows[:, part], nodes, weights, *parts, *(table[:, : part.stop - at] for table in tables)
            )
    if len(rows) > 2:
        rows[2:] /= rows[0]


def _fill_slice(
    rows: Tensor,
    nodes: Tensor,
    weights: Tensor,
    toward: Tensor,
    beyond: Tensor,
    step: Tensor,
    power: Tensor,
    deviation: Tensor,
) -> None:
    """Mass, mean and central moments times mass; the last two are tables to work in."""
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
