"""A mean of clipped values whose noise is that of a sum, divided: one person moves it twice as far."""

import numpy as np

import ringfence as rf

RNG, SIGMA, DELTA = np.random.default_rng(0), 2.0, 1e-3


def mean(values: list[float], draws: int) -> np.ndarray:
    """Each value is within 1 of 0, so a sum moves by 1, the mean by 1 / n? Its divisor moves too."""
    clipped = np.clip(values, -1, 1)
    return clipped.mean() + SIGMA / len(clipped) * RNG.normal(size=draws)


everybody = [-1.0] * 20 + [1.0]
claimed = rf.PerInstanceAccountant(rf.Gaussian(SIGMA), 1.0)
claimed.step([0.0])
claim = claimed.guarantee(DELTA)
print(rf.audit(mean, everybody, everybody[:-1], claim=(claim.epsilon, DELTA), batched=True).statement)
