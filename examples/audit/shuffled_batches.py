"""Batches of a shuffled epoch, accounted for as if every batch were a Poisson sample (Chua et al. 2024)."""

import numpy as np

import ringfence as rf
from ringfence.accounting.conversion import sampled_gaussian_epsilon

RNG, SIGMA, DELTA, BATCHES = np.random.default_rng(0), 0.5, 1e-5, 20


def epoch(values: list[float], count: int) -> np.ndarray:
    """The noisy sums of batches of one, in an order that is shuffled afresh."""
    orders = RNG.permuted(np.tile(values, (count, 1)), axis=1)
    return orders + SIGMA * RNG.normal(size=orders.shape)


def log_ratio(released: np.ndarray) -> np.ndarray:
    """One of them is 1 among -1s, or 0: where it is nobody knows."""
    likelihoods = [
        np.logaddexp.reduce(((released + 1) ** 2 - (released - value) ** 2) / (2 * SIGMA**2), axis=1)
        for value in (1.0, 0.0)
    ]
    return likelihoods[0] - likelihoods[1]


claim = sampled_gaussian_epsilon(((1 / SIGMA, 1 / BATCHES, BATCHES),), DELTA)
found = rf.audit(
    epoch,
    [-1.0] * (BATCHES - 1) + [1.0],
    [-1.0] * (BATCHES - 1) + [0.0],
    claim=(claim, DELTA),
    log_ratio=log_ratio,
    batched=True,
)
print(found.statement)
