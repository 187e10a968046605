"""delta(epsilon) of a fixed pattern of shifts, exactly: the inverse transform of the moment function.

delta(epsilon) = 1/(2 pi) * integral of M(w) e^(-w epsilon) / (w (w + 1)), M(w) = prod_j E_P[(P_j/Q_j)^w],
Re w > 0, from closed forms with complex arguments. Shares no line with the package. And of a few
releases with two outcomes each, by enumerating everything.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, wofz

Array = NDArray[np.float64]


class ExactProfile:
    """``steps`` releases, each with P_j at theta_j and Q_j at theta_j + shift_j; sigma = 1."""

    def __init__(self, law: str, theta: Array, shift: Array, bound: float, steps: int, near: float) -> None:
        """``near`` is an epsilon around which the answer should be accurate."""
        variance = steps * float(np.sum(shift**2))
        if law == "truncated":  # its loss varies less; any contour is right, this one cancels least
            variance *= float(np.mean((np.abs(theta) < 1) * min(1.0, bound**2 / 3)) + 1e-3)
        real = max(2.0, near / variance)
        self.step = real / 8  # the rule of equal steps is off by e^-50 and less
        self.log_scale = (steps * log_moment(law, complex(real), theta, shift, bound)).real
        values: list[complex] = []
        while not values or abs(values[-1]) > 1e-13 * abs(values[0]):
            w = real + 1j * self.step * len(values)
            # relative to the first one, so that nothing overflows
            log = steps * log_moment(law, w, theta, shift, bound) - self.log_scale
            values.append(complex(np.exp(log) / (w * (w + 1))))
        self.values = np.array(values)
        self.w = real + 1j * self.step * np.arange(len(values))
        self.values[0] /= 2

    def delta(self, epsilon: float) -> float:
        terms = self.values * np.exp(self.log_scale - self.w * epsilon)
        return float(terms.real.sum()) * self.step / np.pi

    def epsilon(self, delta: float) -> float:
        low, high = 0.0, 8.0
        for _ in range(30):  # to within 1e-8
            middle = (low + high) / 2
            low, high = (middle, high) if self.delta(middle) > delta else (low, middle)
        return high


def log_moment(law: str, w: complex, theta: Array, shift: Array, bound: float) -> complex:
    """sum_j log E_P[(P_j / Q_j)^w]."""
    tilted = theta - w * shift
    middle = np.exp(w * (w + 1) * shift**2 / 2) * _between(-bound - tilted, bound - tilted)
    if law == "truncated":
        inside = [np.log(_between(-bound - where, bound - where).real) for where in (theta, theta + shift)]
        return complex(np.sum(np.log(middle) - (1 + w) * inside[0] + w * inside[1]))
    total = middle
    for side in (-1, 1):  # the mass beyond -bound, and beyond bound
        log_p, log_q = (log_ndtr(side * where - bound) for where in (theta, theta + shift))
        total = total + np.exp(log_p + w * (log_p - log_q))
    return complex(np.sum(np.log(total)))


def _between(low: NDArray[np.complex128], high: NDArray[np.complex128]) -> NDArray[np.complex128]:
    return _below(np.asarray(high, dtype=complex)) - _below(np.asarray(low, dtype=complex))


def _below(z: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """Phi(z) from the tail on its own side: erfc(x) = e^(-x^2) wofz(i x)."""
    flipped = np.where(z.real > 0, -z, z)
    tail = 0.5 * np.exp(-(flipped**2) / 2) * wofz(-1j * flipped / np.sqrt(2))
    return np.where(z.real > 0, 1 - tail, tail)


def enumerated_delta(
    masses: Callable[[float], Sequence[float]], thetas: list[float], moves: list[float], epsilon: float
) -> float:
    """The worst delta over all patterns of signs and both directions, all outcomes summed."""
    at = cache(masses)
    patterns = itertools.product(
        *((theta + move, theta - move) for theta, move in zip(thetas, moves, strict=True))
    )
    return max(
        product_delta([(at(here), at(there)) for here, there in zip(thetas, pattern, strict=True)], epsilon)
        for pattern in patterns
    )


def product_delta(pairs: Iterable[tuple[Sequence[float], Sequence[float]]], epsilon: float) -> float:
    """The larger hockey stick, of both directions, of independent pairs of laws, all outcomes summed."""
    p, q = np.ones(1), np.ones(1)
    for one, other in pairs:
        p, q = np.outer(p, one).ravel(), np.outer(q, other).ravel()
    return max(float(np.maximum(0, a - np.exp(epsilon) * b).sum()) for a, b in ((p, q), (q, p)))
