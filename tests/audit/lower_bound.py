"""A lower bound of epsilon from independent draws, which every attack of ``make audit`` ends with."""

import numpy as np

from ringfence import checks
from ringfence.auditing.bounds import best_event


def epsilon_lower_bound(inside: object, outside: object, delta: float, confidence: float) -> float:
    """A confidence lower bound of epsilon, given delta, from independent draws on two neighbouring datasets.

    ``inside`` and ``outside`` are draws of a statistic on either dataset, (trials,), or of several of them,
    (statistics, trials). With P and Q the laws of a release, in either order, every set S of large or of
    small values of a statistic gives

        epsilon >= log((P(S) - delta) / Q(S)).

    The statistic and the set are chosen on the first half of the draws; the rates are then bounded on the
    second, P(S) from below and Q(S) from above. Any statistic gives a bound that holds; the likelihood ratio
    gives the best one.

    Guarantee: above the true epsilon with probability at most 1 - ``confidence``.

    >>> draws = np.random.default_rng(0).normal(size=(2, 100_000))
    >>> 1.0 < epsilon_lower_bound(draws[0] + 1, draws[1], 0.1, 0.99) < 1.161  # the exact value is 1.1603
    True
    """
    share = (1 - checks.probability("confidence", confidence)) / 2
    sides = [np.atleast_2d(np.asarray(side, dtype=np.float64)) for side in (inside, outside)]
    if min(side.shape[1] for side in sides) < 2 or len(sides[0]) != len(sides[1]):
        raise ValueError(
            "inside and outside must have at least 2 draws each of the same statistics, "
            f"got {sides[0].shape} and {sides[1].shape}"
        )
    if any(np.isnan(side).any() for side in sides):
        raise FloatingPointError(
            "inside and outside must not be NaN: a value that neither law can give was drawn"
        )
    first, second = zip(*(np.array_split(side, 2, axis=1) for side in sides), strict=True)
    return max(0.0, best_event(first, second, delta, share)[0])
