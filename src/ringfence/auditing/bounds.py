"""Confidence lower bounds of privacy parameters from what an attack saw: thresholds, and one run.

Thresholds need independent draws on two neighbouring datasets. The bounds of one run need canaries that are
in the data or not by independent fair coins, and the outcome of one run with all of them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtr, ndtri  # type: ignore[import-untyped]
from scipy.stats import binom  # type: ignore[import-untyped]

from ringfence import checks

Floats = NDArray[np.float64]
Blowup = Callable[[float], float]

_THRESHOLDS = 64  # how many are tried on the draws that choose one
_LARGEST = 64.0  # no larger epsilon is searched for
_LARGEST_MU = 16.0
_HALVINGS = 40
_ROUNDING = 1e-9  # the share by which sums must exceed what they are compared with


@lru_cache(maxsize=32)
def rate_bounds(trials: int, failure_probability: float) -> tuple[Floats, Floats]:
    """Lower and upper confidence bounds of a rate after k = 0 .. trials hits (Clopper and Pearson 1934).

    Guarantee: each end fails with at most ``failure_probability``, whatever the rate.

    >>> lower, upper = rate_bounds(10, 0.05)
    >>> round(float(lower[10]), 4), round(float(upper[0]), 4)
    (0.7411, 0.2589)
    """
    hits = np.arange(1, checks.count("trials", trials, at_least=1) + 1, dtype=np.float64)
    lower = np.concatenate(([0.0], betaincinv(hits, trials + 1 - hits, failure_probability)))
    return lower, 1 - lower[::-1]


@dataclass(frozen=True)
class Event:
    """The set of large (``sign`` 1) or small (-1) values of one statistic, ends included.

    ``swapped`` where the set is likelier on the second dataset.
    """

    statistic: int
    sign: int
    swapped: bool
    threshold: float

    def rates(self, inside: Floats, outside: Floats, share: float) -> tuple[float, float]:
        """The rate of the event where it is likelier, from below, and where it is not, from above.

        Guarantee: each fails with probability at most ``share`` if the event does not depend on the draws.
        """
        sides = (outside, inside) if self.swapped else (inside, outside)
        hits = [int((self.sign * side[self.statistic] >= self.threshold).sum()) for side in sides]
        sizes = [side.shape[1] for side in sides]
        return float(rate_bounds(sizes[0], share)[0][hits[0]]), float(
            rate_bounds(sizes[1], share)[1][hits[1]]
        )


def best_event(inside: Floats, outside: Floats, delta: float, share: float) -> Event:
    """The event that proves the largest epsilon on these draws, (statistics, trials), of either dataset."""
    found: tuple[float, Event] = (-math.inf, Event(0, 1, False, math.inf))
    for statistic in range(len(inside)):
        for sign in (1, -1):
            sides = [np.sort(sign * side[statistic]) for side in (inside, outside)]
            pooled = np.sort(np.concatenate(sides))
            ranks = np.linspace(0, len(pooled) - 1, min(_THRESHOLDS, len(pooled))).round().astype(int)
            # the extremes decide where one side never goes: each end of each side is among them
            ends = [end for side in sides for end in (side[0], side[-1])]
            ends += [math.nextafter(side[-1], math.inf) for side in sides]
            thresholds = np.unique(np.concatenate((pooled[ranks], ends)))
            hits = [len(side) - np.searchsorted(side, thresholds) for side in sides]
            for swapped in (False, True):
                ours, theirs = (hits[::-1], sides[::-1]) if swapped else (hits, sides)
                rate = rate_bounds(len(theirs[0]), share)[0][ours[0]]
                alarm = rate_bounds(len(theirs[1]), share)[1][ours[1]]
                gain = np.log(np.maximum(rate - delta, 1e-300)) - np.log(alarm)
                best = int(gain.argmax())
                if gain[best] > found[0]:
                    found = float(gain[best]), Event(statistic, sign, swapped, float(thresholds[best]))
    return found[1]


def epsilon_of_rates(rate: float, false_alarms: float, delta: float) -> float:
    """log((rate - delta) / false alarms), at least 0: what an event proves.

    >>> round(epsilon_of_rates(0.5, 0.1, 0.0), 4)
    1.6094
    """
    return max(0.0, math.log((rate - delta) / false_alarms)) if rate > delta else 0.0


def mu_of_rates(rate: float, false_alarms: float) -> float:
    """The smallest mu of Gaussian differential privacy at which these rates are possible.

    >>> round(mu_of_rates(0.5, 0.1), 4)
    1.2816
    """
    return max(0.0, float(ndtri(rate) - ndtri(false_alarms))) if rate > 0 and false_alarms < 1 else 0.0


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
    first, second = halves(inside, outside)
    return epsilon_of_rates(*best_event(*first, delta, share).rates(*second, share), delta)


def halves(inside: object, outside: object) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    """The first half of the draws of either side, and the second, as (statistics, trials)."""
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
    first, second = ([np.array_split(side, 2, axis=1)[half] for side in sides] for half in (0, 1))
    return (first[0], first[1]), (second[0], second[1])


def one_run_p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Upper bound of the probability of at least ``right`` right guesses if training is (epsilon, delta)-DP.

    Theorem 5.2 (Corollary 5.4) of Steinke, Nasr and Jagielski 2023 (arXiv 2305.08846): with W binomial of
    ``guesses`` trials with chance e^eps / (1 + e^eps) each, v right guesses and m canaries,

        P(W >= v) + 2 m delta max_{i = 1 .. v} P(v > W >= v - i) / i.

    >>> round(one_run_p_value(1000, 100, 75, 0.673, 1e-4), 3)  # their example, page 46
    0.05
    """
    if not 0 <= right <= guesses <= canaries:
        raise ValueError(
            f"right, guesses and canaries must not fall, got {right!r}, {guesses!r} and {canaries!r}"
        )
    chance = 1 / (1 + math.exp(-epsilon))
    masses = binom.pmf(np.arange(right), guesses, chance)[::-1]
    worst = float((masses.cumsum() / np.arange(1, right + 1)).max(initial=0.0))
    return min(1.0, float(binom.sf(right - 1, guesses, chance)) + 2 * canaries * delta * worst)


def approximate_blowup(epsilon: float, delta: float) -> Blowup:
    """The smallest Q(S) that (epsilon, delta)-DP allows where P(S) is x, as a function of x.

    >>> round(approximate_blowup(math.log(3), 0.0)(0.3), 9)
    0.1
    """
    factor = math.exp(epsilon)
    return lambda rate: max(0.0, (rate - delta) / factor, 1 - delta - (1 - rate) * factor)


def gaussian_blowup(mu: float) -> Blowup:
    """The smallest Q(S) that mu-GDP allows where P(S) is x, as a function of x.

    >>> round(gaussian_blowup(1.0)(0.5), 4)
    0.1587
    """
    return lambda rate: float(ndtr(ndtri(rate) - mu))


def one_run_refutes(blowup: Blowup, canaries: int, guesses: int, right: int, significance: float) -> bool:
    """Whether at least ``right`` right guesses are too many for a trade-off curve, at this significance.

    Theorem of Mahloujifar, Melis and Chaudhuri 2025 (arXiv 2410.22235). Let p_i be the probability of
    i right guesses, r_t = sum_{i >= t} i p_i / m and h_t = sum_{i >= t} (guesses - i) p_i / m. A canary that
    is guessed right, while at least t - 1 others are, is a wrong guess with t - 1 others where its coin is
    the other one. Both are the same event of the output. Averaged over coins and canaries (the curve is
    convex), h_{t-1} >= blowup(r_t) for every t.

    If P(at least ``right``) were ``significance``, p would be least where all of it is at ``right`` and every
    further p_t is no larger than these inequalities ask: moving mass from i to i - 1 lowers every r and
    raises every h that is still asked for. If even then the p_i add up to more than 1, the probability is
    smaller. ``blowup`` must be that of a curve that holds in both directions.

    >>> one_run_refutes(approximate_blowup(1.0, 0.0), 1000, 100, 90, 0.05)
    True
    >>> one_run_refutes(approximate_blowup(3.0, 0.0), 1000, 100, 90, 0.05)
    False
    """
    most = guesses / canaries * (1 + _ROUNDING)
    hits, misses = significance * right / canaries, significance * (guesses - right) / canaries
    for count in range(right - 1, -1, -1):
        asked = blowup(min(hits, 1.0))
        if asked <= misses or hits + misses > most:
            break
        hits, misses = hits + count / (guesses - count) * (asked - misses), asked
    return hits + misses > most


def largest_refuted(refutes: Callable[[float], bool], most: float = _LARGEST) -> float:
    """The largest parameter that is refuted, from below; what is refuted at a value is refuted below it.

    >>> round(largest_refuted(lambda epsilon: epsilon < 0.7), 6)
    0.7
    """
    low, high = 0.0, most
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if refutes(middle) else (low, middle)
    return low


@dataclass(frozen=True)
class OneRun:
    """Right guesses of several rules in one run: pairs of guesses and right ones.

    A rule guesses "in" for the largest scores, and one of the two kinds also "out" for the smallest. How many
    guesses each makes is public: it depends on the number of canaries alone. Each rule may fail with an
    equal part of the significance.

    Guarantee: each bound is above the truth with probability at most the significance.
    """

    canaries: int
    rules: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, inside: Floats, outside: Floats, rng: np.random.Generator) -> "OneRun":
        """Guesses by the ranks of the scores; ``rng`` orders equal ones, whichever side they are on.

        >>> run = OneRun.of(np.arange(8.0) + 8, np.arange(8.0), np.random.default_rng(0))
        >>> run.rules
        ((2, 2), (2, 2), (4, 4), (4, 4), (8, 8), (8, 8), (16, 8), (16, 16))
        """
        scores = np.concatenate((inside, outside))
        within = np.concatenate(
            (np.ones(len(inside), dtype=np.int64), np.zeros(len(outside), dtype=np.int64))
        )
        shuffled = rng.permutation(len(scores))
        ranked = within[shuffled][np.argsort(scores[shuffled], kind="stable")[::-1]]
        high, low = ranked.cumsum(), (1 - ranked[::-1]).cumsum()
        counts = [len(scores) >> power for power in range(len(scores).bit_length() - 1)][::-1]
        top = [(count, int(high[count - 1])) for count in counts]
        both = [(count, int(high[count - count // 2 - 1] + low[count // 2 - 1])) for count in counts]
        return cls(len(scores), tuple(rule for pair in zip(top, both, strict=True) for rule in pair))

    def by_binomial(self, delta: float, significance: float) -> float:
        """Epsilon by the theorem of Steinke, Nasr and Jagielski."""
        return self._best(
            lambda guesses, right, share: (
                lambda epsilon: one_run_p_value(self.canaries, guesses, right, epsilon, delta) <= share
            ),
            significance,
            _LARGEST,
        )

    def epsilon(self, delta: float, significance: float) -> float:
        """Epsilon by the trade-off curve of (epsilon, delta)-DP: nothing else is assumed."""
        return self._best(
            lambda guesses, right, share: (
                lambda epsilon: one_run_refutes(
                    approximate_blowup(epsilon, delta), self.canaries, guesses, right, share
                )
            ),
            significance,
            _LARGEST,
        )

    def mu(self, significance: float) -> float:
        """Mu by the trade-off curve of Gaussian differential privacy."""
        return self._best(
            lambda guesses, right, share: (
                lambda mu: one_run_refutes(gaussian_blowup(mu), self.canaries, guesses, right, share)
            ),
            significance,
            _LARGEST_MU,
        )

    def _best(
        self, refutes: Callable[[int, int, float], Callable[[float], bool]], significance: float, most: float
    ) -> float:
        share = significance / len(self.rules)
        best = 0.0
        for guesses, right in self.rules:
            refuted = refutes(guesses, right, share)
            if 2 * right > guesses and refuted(best):  # no search where it cannot become larger
                best = max(best, largest_refuted(refuted, most))
        return best
