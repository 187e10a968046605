"""Noise from a seed of 32 bits: drand48 has a state of 48, and its first number tells if a seed fits."""

import numpy as np

import ringfence as rf

RNG, SCALE, STEP, BITS, LOW = np.random.default_rng(0), 10.0, 0x5DEECE66D, 48, 0x330E
BACK, WHOLE = pow(STEP, -1, 2**BITS), np.uint64(2**BITS - 1)


def noisy(value: float, draws: int) -> np.ndarray:
    """Laplace noise of scale 10 from the first number of drand48 after a fresh srand48(seed)."""
    seeds = RNG.integers(2**32, size=draws, dtype=np.uint64)
    state = ((seeds << np.uint64(16)) + np.uint64(LOW)) * np.uint64(STEP) + np.uint64(11) & WHOLE
    uniform = (state.astype(float) + 0.5) / 2**BITS - 0.5
    return value - SCALE * np.sign(uniform) * np.log1p(-2 * np.abs(uniform))


def log_ratio(released: np.ndarray) -> np.ndarray:
    """1 where some seed gives exactly this release of 0: the state, one step back, must end as seeds do."""
    uniform = 0.5 - np.sign(released) * np.expm1(-np.abs(released) / SCALE) / -2
    fits = np.zeros(len(released), dtype=bool)
    for near in range(-8, 9):  # rounding moved it by a few
        state = np.floor((1 - uniform) * 2**BITS).astype(np.int64) + near
        before = (state.astype(np.uint64) - np.uint64(11)) * np.uint64(BACK) & WHOLE
        fits |= before & np.uint64(0xFFFF) == LOW
    return fits * 1.0


print(
    rf.audit(
        noisy, 0.0, 1.0, claim=(1 / SCALE, 1e-9), draws=20_000, batched=True, log_ratio=log_ratio
    ).statement
)
