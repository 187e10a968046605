"""Two releases from one seed: their noise is the same, and their difference has none."""

import numpy as np

import ringfence as rf

RNG, SIGMA, DELTA = np.random.default_rng(0), 3.0, 1e-6


def two_tables(values: tuple[float, float]) -> tuple[float, float]:
    """Two numbers, each with noise from a generator of its own, both of which were given the same seed."""
    seed = int(RNG.integers(2**63))
    first, second = (np.random.default_rng(seed).normal(scale=SIGMA) for _ in values)
    return values[0] + first, values[1] + second


def log_ratio(released: np.ndarray) -> np.ndarray:
    return -np.abs(released[:, 0] - released[:, 1])


account = rf.PerInstanceAccountant(rf.Gaussian(SIGMA), 1.0)
account.step([0.0, 0.0])  # one person is in both
claim = account.guarantee(DELTA).epsilon
found = rf.audit(two_tables, (5.0, 5.0), (5.0, 4.0), claim=(claim, DELTA), draws=2000, log_ratio=log_ratio)
print(found.statement)
