"""Batches of a shuffled epoch, accounted for as if every batch were a Poisson sample (Chua et al. 2024)."""

import numpy as np

import ringfence as rf
from ringfence.accounting.gaussian_releases import GaussianRelease, sampled_gaussian_epsilon

RNG, SIGMA, DELTA, BATCHES = np.random.default_rng(0), 0.5, 1e-3, 100


def largest(value: float, draws: int) -> np.ndarray:
    """The largest of the noisy sums of one epoch: everybody is -1, in a batch alone, and one is ``value``.

    Shuffled, she is in exactly one batch, and the others are elsewhere: they do not hide her.
    """
    sums = SIGMA * RNG.normal(size=(draws, BATCHES)) - 1
    sums[:, 0] += value + 1  # where she is does not matter to the largest
    return sums.max(axis=1)


releases = GaussianRelease(1 / SIGMA, rate=1 / BATCHES, count=BATCHES)
claim = sampled_gaussian_epsilon((releases,), DELTA)
found = rf.audit(largest, 1.0, 0.0, claim=(claim, DELTA), draws=20_000, batched=True, floating_point=False)
print(found.statement)
