"""delta(epsilon) of many small releases: a normal law of the privacy loss, every error bounded.

For independent losses L_j = log p_j/q_j and any c0 > 0, with w = c0 + i tau,

    delta(epsilon) = 1/(2 pi) * integral of exp(log M(w) - w epsilon) / (w (w + 1)) d tau,
    log M(w) = sum_j log E exp(w L_j).

Expanding log M to the third cumulant leaves a reference that is integrated numerically and a
remainder Delta(|w|) that is bounded in the moments of L_j (the bound is written out in
docs/guarantees.md); the remainder costs at most the integral of |reference| (e^Delta - 1).

A record may push each coordinate up or down, which flips the sign of its third cumulant. All 2^d
patterns are covered at once: the sum of third cumulants lies in an interval, the interval is cut
into pieces, and each piece has a reference of its own.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ringfence.mechanisms.law import LossMoments

_PIECES = 32
_NODES_PER_C0 = 24  # trapezoid nodes per c0: the error falls like exp(-2 pi * nodes / 2)
_QUADRATURE = 1e-3  # relative margin on the integral of the remainder
_NEGLIGIBLE = 60.0  # a factor e^-60
_SHARES = (1.0, 0.7, 0.5, 0.35)  # contours tried, as shares of the saddle point


@dataclass(frozen=True)
class LossSums:
    """Sums over coordinates and releases of moments of the loss, worst over the sign of the shift.

    One direction. ``variance`` is the largest, ``variance_spread`` by how much the smallest is below.
    """

    variance: float
    variance_spread: float
    variance_cubed: float
    third: float  # sum of the largest |third central moment|
    third_times_variance: float
    fourth: float
    fourth_cumulant: float  # sum of the largest |fourth cumulant|
    fourth_times_variance: float
    largest_variance: float
    extent: float

    @classmethod
    def worst_of(cls, up: LossMoments, down: LossMoments, releases: int) -> "LossSums":
        """Sums for a shift up and the same shift down, each coordinate choosing its own sign."""

        def total(*factors: NDArray[np.float64]) -> float:
            return releases * float(np.prod(factors, axis=0).sum()) * (1 + 1e-12)

        both = (up, down)
        variances = np.stack([side.variance.double().numpy().ravel() for side in both])
        thirds = np.stack([side.third.double().numpy().ravel() for side in both])
        fourths = np.stack([side.fourth.double().numpy().ravel() for side in both])
        variance, third = variances.max(axis=0), np.abs(thirds).max(axis=0)
        fourth, cumulant = fourths.max(axis=0), np.abs(fourths - 3 * variances**2).max(axis=0)
        return cls(
            variance=total(variance),
            variance_spread=total(variance - variances.min(axis=0)),
            variance_cubed=total(variance, variance, variance),
            third=total(third),
            third_times_variance=total(third, variance),
            fourth=total(fourth),
            fourth_cumulant=total(cumulant),
            fourth_times_variance=total(fourth, variance),
            largest_variance=float(variance.max()),
            extent=max(float(side.extent.max()) for side in both),
        )

    def remainder(self, size: NDArray[np.float64], real: float) -> NDArray[np.float64]:
        """A bound of |log M(w) - V (w^2 + w) / 2 - K (w^3 - w) / 6| at |w| = size, Re w = real.

        V and K are the sums of variances and third moments of a pattern, V within half its
        spread of the middle one. Infinite where the expansion of a single loss does not converge.
        """
        growth, one = _exponential(real * self.extent), _exponential(self.extent)
        if not math.isfinite(growth) or not math.isfinite(one):
            return np.full_like(size, np.inf)
        bound = self._logarithm(size, growth)  # log E exp(w (L - E L))
        mean = self._logarithm(np.ones_like(size), one)  # E L, from M(-1) = 1
        spread = self.variance_spread / 4 * size * (size + 1)
        return bound + size * mean + spread

    def _logarithm(self, size: NDArray[np.float64], growth: float) -> NDArray[np.float64]:
        """|log(1 + u) - w^2 v / 2 - w^3 m3 / 6| summed, u = E exp(w (L - E L)) - 1, growth = e^(Re w B).

        With |u| <= a = |w|^2 v growth / 2: u to the fourth moment and u^2 / 2 to w^4 v^2 / 8 make
        the fourth cumulant; what is left is of order five and more.
        """
        a = 0.5 * size**2 * self.largest_variance * growth
        fourth = size**4 * self.fourth_cumulant / 24
        fifth = size**5 * self.extent * self.fourth * growth / 120
        # |u^2 - w^4 v^2 / 4| <= |u - w^2 v / 2| |u + w^2 v / 2|
        square = (
            size**3 * self.third_times_variance / 6 + size**4 * self.fourth_times_variance * growth / 24
        ) * (0.5 * size**2 * (growth + 1))
        cube = (0.5 * size**2 * growth) ** 3 * self.variance_cubed / (3 * (1 - np.minimum(a, 0.5)))
        return np.where(a < 0.5, fourth + fifth + 0.5 * square + cube, np.inf)

    def delta(self, epsilon: float) -> float:
        """An upper bound of delta(epsilon), over all patterns of signs; 1 where there is none."""
        middle = self.variance - self.variance_spread / 2
        if middle <= 0 or not math.isfinite(self.extent):
            return 1.0
        saddle = _saddle(middle, epsilon)
        return min(self._delta(epsilon, middle, saddle * share) for share in _SHARES)

    def _delta(self, epsilon: float, middle: float, real: float) -> float:
        """The bound from the contour Re w = ``real``: expansion near the real line, decay beyond."""
        if real * self.extent > 50:
            return 1.0
        # |E exp(w L)| <= E exp(real L) exp(-(2 / pi^2) v tau^2) while tau times the extent is at
        # most pi, v the variance under the tilted law: cos y <= 1 - 2 y^2 / pi^2 for |y| <= pi.
        decay = 2 / math.pi**2 * (self.variance - self.variance_spread) * math.exp(-2 * real * self.extent)
        if decay <= 0:  # no variance is sure
            return 1.0
        end, last = math.sqrt(_NEGLIGIBLE / decay), math.pi / self.extent
        if end > last:
            return 1.0
        step = min(real / _NODES_PER_C0, end / 64)
        tau = np.arange(0.0, end + step, step)
        w = real + 1j * tau
        size = np.abs(w)
        half_width = self.third / _PIECES
        remainder = self.remainder(size, real) + half_width * size * (size**2 + 1) / 6
        if not remainder[-1] < _NEGLIGIBLE:
            return 1.0
        centres = -self.third + half_width * (2 * np.arange(_PIECES) + 1)
        exponent = middle * (w**2 + w) / 2 - w * epsilon + np.multiply.outer(centres, w**3 - w) / 6
        reference = np.exp(exponent) / (w * (w + 1))
        charged = np.abs(reference) * np.expm1(remainder)
        weights = np.full(tau.shape, step / math.pi)
        weights[0] /= 2
        near = reference.real @ weights + (1 + _QUADRATURE) * (charged @ weights)
        # beyond the expansion: first the decay, then no more than |M(w)| <= M(real)
        peak = np.exp(exponent[:, 0].real + remainder[0])
        far = peak * (math.exp(-_NEGLIGIBLE) / end + 1 / last) / math.pi
        return min(1.0, float((near + far).max()) * (1 + 1e-9))


def _exponential(x: float) -> float:
    return math.exp(x) if x < 600 else math.inf


def _saddle(variance: float, epsilon: float) -> float:
    """Where the integrand of the normal law is smallest on the real line: the best c0."""
    low, high = 1e-3, 1.0 + 2 * epsilon / variance + 4 / math.sqrt(variance)
    for _ in range(60):
        c0 = (low + high) / 2
        if variance * (c0 + 0.5) - epsilon - 1 / c0 - 1 / (c0 + 1) > 0:
            high = c0
        else:
            low = c0
    return high
