"""delta(epsilon) of many small releases: a normal law of the privacy loss, every error bounded.

For independent losses L_j = log p_j/q_j and any c0 > 0, with w = c0 + i tau,

    delta(epsilon) = 1/(2 pi) * integral of exp(log M(w) - w epsilon) / (w (w + 1)) d tau,
    log M(w) = sum_j log E exp(w L_j).

log M is expanded to the third cumulant. The expansion is the reference, which is integrated numerically.
What it leaves out is a remainder Delta(|w|), bounded in the moments of L_j (docs/guarantees.md derives the
bound). The remainder costs at most the integral of |reference| (e^Delta - 1).

A record may push each coordinate up or down, which flips the sign of its third cumulant. All 2^d
patterns of signs are covered at once: the sum of third cumulants lies in an interval, the interval is cut
into pieces, and each piece has a reference of its own.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ringfence.mechanisms.base import LossMoments
from ringfence.numerics.bisection import smallest

_PIECES = 32
_NODES_PER_C0 = 24  # trapezoid nodes per c0: the error falls like exp(-2 pi * nodes / 2)
_QUADRATURE = 1e-3  # relative margin on the integral of the remainder
_NEGLIGIBLE = 60.0  # a factor e^-60
_SHARES = (1.0, 0.7, 0.5, 0.35)  # contours tried, as shares of the saddle point


@dataclass(frozen=True)
class LossSums:
    """Sums over coordinates and releases of moments of the loss, worst over the sign of the shift.

    They are those of one direction. ``variance`` sums the larger variance of each coordinate, and
    ``variance_spread`` by how much the smaller variance is below it.

    >>> import torch
    >>> from ringfence.mechanisms.sign import StochasticSign
    >>> law, theta = StochasticSign(1.0), torch.zeros(10_000, dtype=torch.float64)
    >>> both = (law.loss_moments(theta, shift) for shift in (0.01, -0.01))
    >>> sums = LossSums.worst_of(*both, releases=1)
    >>> round(sums.variance, 2), round(sums.delta(1.0), 2)
    (0.64, 0.06)
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
        """The sums for a shift up and the same shift down, where each coordinate chooses its own sign."""

        def total(*factors: NDArray[np.float64]) -> float:
            return releases * float(np.prod(factors, axis=0).sum()) * (1 + 1e-12)

        both = (up, down)
        variances = np.stack([side.variance.double().numpy().ravel() for side in both])
        thirds = np.stack([side.third.double().numpy().ravel() for side in both])
        fourths = np.stack([side.fourth.double().numpy().ravel() for side in both])
        variance, third = variances.max(axis=0), np.abs(thirds).max(axis=0)
        try:
            with np.errstate(over="raise", invalid="raise"):
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
        except FloatingPointError as error:
            raise FloatingPointError("products of the moments of the loss are beyond float64") from error

    def remainder(self, size: NDArray[np.float64], real: float) -> NDArray[np.float64]:
        """A bound of |log M(w) - V (w^2 + w) / 2 - K (w^3 - w) / 6| at |w| = size, Re w = real.

        V and K are the sums of variances and third moments of a pattern, where V lies within half the
        spread of the middle one. The bound is infinite where the expansion of a single loss does not
        converge.
        """
        growth, one = _exponential(real * self.extent), _exponential(self.extent)
        if not math.isfinite(growth) or not math.isfinite(one):
            return np.full_like(size, np.inf)
        centred = self._beyond_third(size, growth)  # of log E exp(w (L - E L))
        mean = self._beyond_third(np.ones_like(size), one)  # of E L, which M(-1) = 1 determines
        spread = self.variance_spread / 4 * size * (size + 1)
        return centred + size * mean + spread

    def _beyond_third(self, size: NDArray[np.float64], growth: float) -> NDArray[np.float64]:
        """An upper bound of log E exp(w (L - E L)) beyond its third cumulant, summed over coordinates.

        Write v, m3, m4 for the central moments of one loss, B for its extent, growth = e^(Re w B) and
        u = E exp(w (L - E L)) - 1 = w^2 v / 2 + w^3 m3 / 6 + w^4 m4 / 24 + ..., so that
        |u| <= a = |w|^2 v growth / 2. Then log(1 + u) = u - u^2 / 2 + (cube and beyond), and

            |log(1 + u) - w^2 v / 2 - w^3 m3 / 6| <= fourth + fifth + square / 2 + cube.
        """
        # w^4 m4 / 24 of u less w^4 v^2 / 8 of u^2 / 2 is w^4 / 24 times the fourth cumulant
        fourth = size**4 * self.fourth_cumulant / 24
        # the rest of u, by Taylor's theorem: |L - E L|^5 <= B |L - E L|^4
        fifth = size**5 * self.extent * self.fourth * growth / 120
        # the rest of u^2: |u^2 - w^4 v^2 / 4| = |u - w^2 v / 2| |u + w^2 v / 2|, the v of the second in off
        off = size**3 * self.third_times_variance / 6 + size**4 * self.fourth_times_variance * growth / 24
        square = off * (0.5 * size**2 * (growth + 1))
        # |log(1 + u) - u + u^2 / 2| <= |u|^3 / (3 (1 - |u|)), for |u| < 1/2 here
        a = 0.5 * size**2 * self.largest_variance * growth
        cube = (0.5 * size**2 * growth) ** 3 * self.variance_cubed / (3 * (1 - np.minimum(a, 0.5)))
        return np.where(a < 0.5, fourth + fifth + 0.5 * square + cube, np.inf)

    def delta(self, epsilon: float) -> float:
        """An upper bound of delta(epsilon) over all patterns of signs; 1 where no smaller one is proved."""
        middle = self.variance - self.variance_spread / 2
        if middle <= 0 or not math.isfinite(self.extent):
            return 1.0
        saddle = _saddle(middle, epsilon)
        return min(self._delta(epsilon, middle, saddle * share) for share in _SHARES)

    def _delta(self, epsilon: float, middle: float, real: float) -> float:
        """The bound from the contour Re w = ``real``, for sums of variances around ``middle``.

        The integral has three parts: |tau| <= end, where the expansion serves; end < |tau| <= last, where
        |M(w)| has decayed to e^-60 of its peak; and the rest, where |M(w)| is at most the peak.
        """
        ends = self._ends_of_the_expansion(real)
        if ends is None:
            return 1.0
        end, last = ends
        step = min(real / _NODES_PER_C0, end / 64)
        tau = np.arange(0.0, end + step, step)
        w = real + 1j * tau
        size = np.abs(w)
        # a pattern's sum of third moments lies within half_width of the centre of its piece
        half_width = self.third / _PIECES
        centres = -self.third + half_width * (2 * np.arange(_PIECES) + 1)
        remainder = self.remainder(size, real) + half_width * size * (size**2 + 1) / 6
        if not remainder[-1] < _NEGLIGIBLE:
            return 1.0
        exponent = middle * (w**2 + w) / 2 - w * epsilon + np.multiply.outer(centres, w**3 - w) / 6
        reference = np.exp(exponent) / (w * (w + 1))
        charged = np.abs(reference) * np.expm1(remainder)
        # the trapezoid rule over both signs of tau, for which the real part is the same
        weights = np.full(tau.shape, step / math.pi)
        weights[0] /= 2
        near = reference.real @ weights + (1 + _QUADRATURE) * (charged @ weights)
        # 1 / |w (w + 1)| <= 1 / tau^2, whose integral beyond x is 1 / x
        peak = np.exp(exponent[:, 0].real + remainder[0])
        far = peak * (math.exp(-_NEGLIGIBLE) / end + 1 / last) / math.pi
        return min(1.0, float((near + far).max()) * (1 + 1e-9))

    def _ends_of_the_expansion(self, real: float) -> tuple[float, float] | None:
        """The tau at which |M(w)| has decayed to e^-60 of its peak, and the last tau of that decay.

        cos y <= 1 - 2 y^2 / pi^2 for |y| <= pi, so while tau times the extent B of a loss is at most pi,
        |E exp(w L)| <= E exp(real L) exp(-(2 / pi^2) v tau^2), where v is the variance under the law tilted
        by exp(real L), at least the variance times e^(-2 real B). None where that is not enough to decay.
        """
        decay = 2 / math.pi**2 * (self.variance - self.variance_spread) * math.exp(-2 * real * self.extent)
        if decay <= 0:  # no variance is sure, or floats do not hold what is left of it
            return None
        end, last = math.sqrt(_NEGLIGIBLE / decay), math.pi / self.extent
        return (end, last) if end <= last else None


def _exponential(x: float) -> float:
    return math.exp(x) if x < 600 else math.inf


def _saddle(variance: float, epsilon: float) -> float:
    """Where the integrand of the normal law is smallest on the real line: the best c0."""

    def grows(c0: float) -> bool:
        return variance * (c0 + 0.5) - epsilon - 1 / c0 - 1 / (c0 + 1) > 0

    return smallest(grows, 1e-3, 1.0 + 2 * epsilon / variance + 4 / math.sqrt(variance))
