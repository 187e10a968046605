"""Groups that are shown from a noisy threshold on, which is too low for the delta that is claimed."""

import math

import numpy as np

import ringfence as rf

RNG, EPSILON, DELTA = np.random.default_rng(0), 1.0, 1e-3
THRESHOLD = math.log(1 / (2 * DELTA)) / EPSILON  # and 1 was forgotten: a group of one person is not empty


def shown(people: int) -> str:
    """A group in which somebody is gets noise; a group that nobody is in does not exist."""
    if people == 0 or people + RNG.laplace(scale=1 / EPSILON) < THRESHOLD:
        return "not shown"
    return "shown"


print(rf.audit(shown, 1, 0, claim=(EPSILON, DELTA), draws=200_000).statement)
