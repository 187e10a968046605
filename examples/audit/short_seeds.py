"""Noise from a short seed: whoever lists all seeds knows all noise. 16 bits here; 32 take minutes."""

import numpy as np

import ringfence as rf

RNG, SIGMA, DELTA, BITS = np.random.default_rng(0), 10.0, 1e-6, 16


def noise(seeds: np.ndarray) -> np.ndarray:
    """The first number of a generator per seed: steps of xorshift, then Box and Muller."""
    state = seeds.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(1)
    uniform = []
    for _ in range(2):
        for left, shift in ((True, 13), (False, 7), (True, 17)):
            state = state ^ (state << np.uint64(shift) if left else state >> np.uint64(shift))
        uniform.append((state >> np.uint64(11)).astype(float) * 2.0**-53 + 2.0**-54)
    return SIGMA * np.sqrt(-2 * np.log(uniform[0])) * np.cos(2 * np.pi * uniform[1])


def noisy(value: float, draws: int) -> np.ndarray:
    return value + noise(RNG.integers(2**BITS, size=draws))


known = np.sort(noise(np.arange(2**BITS)))


def log_ratio(released: np.ndarray) -> np.ndarray:
    """0 where the release is 0 and a noise that some seed gives, and 1 less for all others."""
    places = np.searchsorted(known, released).clip(max=len(known) - 1)
    return (known[places] == released) - 1.0


account = rf.PerInstanceAccountant(rf.Gaussian(SIGMA), 1.0)
account.step([0.0])
claim = account.guarantee(DELTA).epsilon
found = rf.audit(noisy, 0.0, 1.0, claim=(claim, DELTA), draws=20_000, batched=True, log_ratio=log_ratio)
print(found.statement)
