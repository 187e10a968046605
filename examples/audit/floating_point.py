"""Laplace noise of floating-point numbers: sums have digits that tell the true value (Mironov 2012)."""

import numpy as np

import ringfence as rf

RNG = np.random.default_rng(0)


def noisy(count: float, draws: int) -> np.ndarray:
    """The textbook: the inverse of the distribution function, at a uniform number."""
    uniform = RNG.random(draws) - 0.5
    return count - np.sign(uniform) * np.log1p(-2 * np.abs(uniform))


print(rf.audit(noisy, 0.0, 1.0, claim=(1.0, 1e-9), draws=20_000, batched=True).statement)
