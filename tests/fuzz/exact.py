"""Single coordinates in multi-precision, in closed form: what no epsilon may be below.

The log ratio of two laws of a family is monotone, so the best test of P = M(theta) against
Q = M(theta + shift) is a half-line, and everything comes from masses of half-lines. Sixty digits:
differences lose half of them at worst. Shares no line with the package.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from mpmath import mp, mpf

from tests.oracle import below, between

DIGITS = 60
LAWS = ("gaussian", "rectified", "truncated", "sign", "quantized")  # whose closed forms are here


@dataclass(frozen=True)
class Setting:
    """A law by its name; ``levels`` are those of the quantised one."""

    law: str
    sigma: float
    low: float
    high: float
    levels: int = 5

    def pieces(self, theta: Any, shift: Any) -> tuple[list[tuple[Any, Any]], tuple[Any, Any, Any] | None]:
        """(P, Q) of every atom, and of a density the ends of its interval and log of its mass ratio."""
        sigma, low, high = mpf(self.sigma), mpf(self.low), mpf(self.high)
        first, second = mpf(theta), mpf(theta) + mpf(shift)

        def both(left: Any, right: Any) -> tuple[Any, Any]:
            return tuple(between((left - t) / sigma, (right - t) / sigma) for t in (first, second))

        if self.law not in LAWS:
            raise ValueError(f"law must be one of {LAWS}, got {self.law!r}")
        if self.law == "gaussian":
            return [], (-mp.inf, mp.inf, mpf(0))
        if self.law == "sign":
            return [both(-mp.inf, mpf(0)), both(mpf(0), mp.inf)], None
        if self.law == "rectified":
            return [both(-mp.inf, low), both(high, mp.inf)], (low, high, mpf(0))
        if self.law == "truncated":
            p, q = both(low, high)
            return [], (low, high, mp.log(q / p))
        step = (high - low) / (self.levels - 1)
        cuts = [-mp.inf, *(low + (i + mpf(1) / 2) * step for i in range(self.levels - 1)), mp.inf]
        return [both(*pair) for pair in pairwise(cuts)], None


def hockey_stick(setting: Setting, theta: float, shift: float, epsilon: float) -> Any:
    """The integral of the positive part of p - e^epsilon q."""
    with mp.workdps(DIGITS):
        return +_beyond(setting, mpf(theta), mpf(shift), mpf(epsilon), mp.exp(mpf(epsilon)))


def chance_of_more(setting: Setting, theta: float, shift: float, epsilon: float) -> Any:
    """P(log p/q > epsilon) under P."""
    with mp.workdps(DIGITS):
        return +_beyond(setting, mpf(theta), mpf(shift), mpf(epsilon), mpf(0))


def _beyond(setting: Setting, theta: Any, shift: Any, epsilon: Any, scale: Any) -> Any:
    """P(S) - scale Q(S) on the set S where the log ratio is above epsilon."""
    atoms, density = setting.pieces(theta, shift)
    total = mpf(0)
    for p, q in atoms:
        if p > mp.exp(epsilon) * q:
            total += p - scale * q
    if density is not None and shift != 0:
        low, high, inside = density
        sigma = mpf(setting.sigma)
        # log p/q = inside + shift^2 / (2 sigma^2) - shift (x - theta) / sigma^2
        crossing = theta + (inside - epsilon) * sigma**2 / shift + shift / 2
        left, right = (low, min(high, crossing)) if shift > 0 else (max(low, crossing), high)
        if left < right:
            normal = (
                1 if setting.law != "truncated" else between((low - theta) / sigma, (high - theta) / sigma)
            )
            p, q = (between((left - t) / sigma, (right - t) / sigma) for t in (theta, theta + shift))
            total += (p - scale * q * mp.exp(-inside)) / normal
    return total


def renyi(setting: Setting, theta: float, shift: float, alpha: float) -> Any:
    """log of the integral of p^alpha q^(1 - alpha), over alpha - 1."""
    with mp.workdps(DIGITS):
        where, move, order, sigma = mpf(theta), mpf(shift), mpf(alpha), mpf(setting.sigma)
        atoms, density = setting.pieces(where, move)
        total = sum((p**order * q ** (1 - order) for p, q in atoms if p), mpf(0))
        if density is not None:
            low, high, inside = density
            middle = where - (order - 1) * move  # p^alpha q^(1 - alpha) is a normal density around it
            normal = (
                1 if setting.law != "truncated" else between((low - where) / sigma, (high - where) / sigma)
            )
            size = mp.exp(order * (order - 1) * move**2 / (2 * sigma**2) + (order - 1) * inside) / normal
            total += size * between((low - middle) / sigma, (high - middle) / sigma)
        return mp.log(total) / (order - 1)


def gaussian_delta(mu: Any, epsilon: float) -> Any:
    """delta(epsilon) of a Gaussian with shift / sigma = mu."""
    with mp.workdps(DIGITS):
        mu, epsilon = mpf(mu), mpf(epsilon)
        return below(mu / 2 - epsilon / mu) - mp.exp(epsilon) * below(-mu / 2 - epsilon / mu)


def composed_sign(p: Any, q: Any, releases: int, epsilon: float) -> Any:
    """delta(epsilon) of independent releases of a sign: chances p of +1 under P, q under Q."""
    with mp.workdps(DIGITS):
        scale = mp.exp(mpf(epsilon))
        return sum(
            mp.binomial(releases, k)
            * max(p**k * (1 - p) ** (releases - k) - scale * q**k * (1 - q) ** (releases - k), mpf(0))
            for k in range(releases + 1)
        )
