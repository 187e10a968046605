"""Random allocation: each record is in one batch of every epoch, in each with the same chance.

Let an epoch have t steps, P be the law of its releases with a record whose batch is drawn at random, and Q
that without it. Each step is a Gaussian release or dominated by one (mu-GDP), whatever was released before: a
kernel, which may depend on earlier releases, makes it of x_i ~ N(mu, 1) if the record is in batch i and of
N(0, 1) if it is not. So all releases of the epoch are made of x = (x_1, ..., x_t), whose laws dominate P and
Q. Under the second one their likelihood ratio is

    l = (Y_1 + ... + Y_t) / t,    Y_i = exp(mu x_i - mu^2 / 2) independent,    E Y_i = 1,

and the hockey sticks are E (l - e^epsilon)+ where the record is removed, and E (1 - e^epsilon l)+ where it is
added. Both are expectations of convex functions of l, which grow where a Y_i is spread out with its mean
kept. So the law of the sum is computed on grids, and every number is split between the two points around it.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr  # type: ignore[import-untyped]

Array = NDArray[np.float64]

_SPACING = 0.01  # of the grid: of a deviation near the mean, and of the distance far from it
_FARTHEST = 9.0  # deviations of x above mu: the mean of what is larger is charged as if it told everything
_DEVIATIONS = 40.0  # of the sum, beside the largest of its terms
_SMALLEST, _LARGEST = 1e-6, 3.0  # of mu: beyond, nothing is gained, or grids are too large
_NOTHING = 1e-40  # smaller deltas are raised to it: dp-accounting warns of numbers near the end of floats
_LOST = 1e-12  # more than roundings take, relative to sums of positive numbers


class Terms(NamedTuple):
    """The law of a sum of a ``number`` of Y, on a grid, and the mean of what is beyond the grid."""

    values: Array
    masses: Array
    number: int
    beyond: float

    def plus(self, other: "Terms", deviation: float, largest: float) -> "Terms":
        """The law of the sum of both, on a grid of its own."""
        number, least = self.number + other.number, self.values[1] + other.values[1]
        top = number + _DEVIATIONS * math.sqrt(number) * deviation + 2 * largest
        top = min(top, self.values[-1] + other.values[-1])
        values = _points(number, math.sqrt(number) * deviation, least, top)
        sums = np.add.outer(self.values, other.values).ravel()
        masses = np.multiply.outer(self.masses, other.masses).ravel()
        above = float(masses @ (sums - values[-1]).clip(min=0))
        beyond = self.beyond + other.beyond + above
        return Terms(values, _spread(sums.clip(max=values[-1]), masses, values), number, beyond)


def _points(mean: float, deviation: float, least: float, top: float) -> Array:
    """0 and points from ``least`` to ``top``, dense around the mean and relatively dense towards 0."""
    near = min(1.0, deviation / mean)

    def steps(end: float) -> Array:
        far = math.asinh(end)
        found: Array = np.sinh(np.linspace(0.0, far, math.ceil(far / _SPACING) + 1))
        return found

    below = mean * np.exp(-near * steps(math.log(mean / least) / near)[:0:-1])
    return np.concatenate(([0.0], below, mean + deviation * steps((top - mean) / deviation)))


def _spread(values: Array, masses: Array, points: Array) -> Array:
    """The masses at the points of a grid: each is split between the two around it, which keeps the mean."""
    above = np.searchsorted(points, values, side="right").clip(1, len(points) - 1)
    share = (values - points[above - 1]) / (points[above] - points[above - 1])
    found: Array = np.zeros(len(points))
    found += np.bincount(above - 1, masses * (1 - share), minlength=len(points))
    found += np.bincount(above, masses * share, minlength=len(points))
    return found


def _between(ends: Array) -> Array:
    """P(end_i < N(0, 1) < end_(i+1)), with relative accuracy in both tails."""
    upper, lower = -np.diff(ndtr(-ends)), np.diff(ndtr(ends))
    found: Array = np.where(ends[:-1] > 0, upper, lower)
    return found


@lru_cache(maxsize=16)
def _ratio(mu: float, steps: int) -> Terms:
    """The law of t l, spread out."""
    deviation = math.sqrt(math.expm1(mu * mu))
    largest = math.exp(mu * (_FARTHEST + mu) - 0.5 * mu * mu)
    values = _points(1.0, deviation, math.exp(-mu * _FARTHEST - 0.5 * mu * mu), largest)
    ends = np.append(-np.inf, np.log(values[1:]) / mu + 0.5 * mu)  # the x of these Y
    masses, means = _between(ends), _between(ends - mu)
    above = ((means - values[:-1] * masses) / np.diff(values)).clip(min=0)
    held = np.append(masses - above, ndtr(-ends[-1])) + np.append(0.0, above)
    lost = float(ndtr(mu - ends[-1]))
    one = total = Terms(values, held.clip(min=0), 1, lost)
    for bit in f"{steps:b}"[1:]:
        total = total.plus(total, deviation, largest)
        total = total.plus(one, deviation, largest) if bit == "1" else total
    return total


def hockey_sticks(mu: float, steps: int) -> tuple[Callable[[Array], Array], Callable[[Array], Array]]:
    """delta(epsilon) of an epoch of this many steps, as a record is removed and as one is added.

    Guarantee: upper bounds, for releases that are mu-GDP in each step.

    >>> at = np.array([1.0])
    >>> [side(at).round(4).tolist() for side in hockey_sticks(1.0, 1)]  # the Gaussian's
    [[0.1269], [0.1269]]
    >>> [bool(side(at) < 1e-6) for side in hockey_sticks(1.0, 100)]
    [True, True]
    """
    sums = _ratio(mu, steps)
    values, masses = sums.values / steps, sums.masses
    means, beyond = values * masses, sums.beyond / steps
    above, above_mean = (np.append(part[::-1].cumsum()[::-1], 0.0) for part in (masses, means))
    below, below_mean = (np.append(0.0, part.cumsum()) for part in (masses, means))

    def removed(epsilons: Array) -> Array:
        ratio = np.exp(epsilons)
        place = np.searchsorted(values, ratio)
        found: Array = above_mean[place] * (1 + _LOST) - ratio * above[place] + beyond
        return found.clip(_NOTHING, 1)

    def added(epsilons: Array) -> Array:
        ratio = np.exp(epsilons)
        place = np.searchsorted(values, 1 / ratio)
        found: Array = below[place] * (1 + _LOST) - ratio * below_mean[place]
        return found.clip(_NOTHING, 1)

    return removed, added


def epoch_losses(mu: float, steps: int, interval: float) -> Any:
    """dp-accounting's privacy loss distribution of an epoch, on multiples of the interval.

    Guarantee: it dominates every epoch of mu-GDP steps of which a record is in one, drawn at random.

    >>> round(epoch_losses(1.0, 100, 1e-3).self_compose(10).get_epsilon_for_delta(1e-5), 2)  # Poisson: 1.83
    1.7
    """
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld import privacy_loss_distribution as pld

    if steps == 1 or not _SMALLEST <= mu <= _LARGEST:
        return pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=interval)
    farthest = math.ceil(mu * (_FARTHEST + mu) / interval)
    places = np.arange(-farthest, farthest + 1)
    sides = (
        pld_pmf.create_pmf_pessimistic_connect_dots(
            interval, places, np.minimum.accumulate(side((interval * places).astype(np.float64)))
        )
        for side in hockey_sticks(mu, steps)
    )
    return pld.PrivacyLossDistribution(*sides)
