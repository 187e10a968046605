"""Confidence lower bounds of privacy parameters from what an attack saw: thresholds, and one run.

Thresholds need independent draws on two neighbouring datasets. The bounds of one run need canaries that are
in the data or not by independent fair coins, and the outcome of one run with all of them.
"""

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtr, ndtri  # type: ignore[import-untyped]

from ringfence.accounting.conversion import gaussian_delta

Floats = NDArray[np.float64]
Sides = tuple[Floats, Floats]  # the same statistics, (statistics, draws), on either dataset
Blowup = Callable[[float], float]

_THRESHOLDS = 64  # how many are tried on the draws that choose one
_LARGEST = 64.0  # no larger epsilon or mu is searched for
_HALVINGS = 40
_ROUNDING = 1e-9  # the share by which sums must exceed what they are compared with


def rate_at_least(hits: object, trials: int, failure_probability: float) -> Floats:
    """Lower confidence bound of a rate after this many hits (Clopper and Pearson 1934).

    Guarantee: above the rate with at most ``failure_probability``, whatever the rate.

    >>> round(float(rate_at_least(10, 10, 0.05)), 4)
    0.7411
    """
    found = np.asarray(hits, dtype=np.float64)
    return np.where(found > 0, betaincinv(np.maximum(found, 1), trials + 1 - found, failure_probability), 0.0)


def _proved(
    hits: list[Any], trials: list[int], likelier: int, delta: float, share: float
) -> tuple[Floats, Floats]:
    """log((P - delta) / Q) and the difference of normal quantiles, with P from below and Q from above."""
    rate = rate_at_least(hits[likelier], trials[likelier], share)
    alarm = 1 - rate_at_least(trials[1 - likelier] - hits[1 - likelier], trials[1 - likelier], share)
    return np.log(np.maximum(rate - delta, 1e-300)) - np.log(alarm), ndtri(rate) - ndtri(alarm)


def best_event(choose: Sides, judge: Sides, delta: float, share: float) -> tuple[float, float, Sides]:
    """Lower bounds of epsilon and mu that draws prove by an event which others chose, not cut off at 0.

    The event, a set of large or of small values of one statistic, is the one that proves the largest epsilon
    on ``choose``, in either order of the datasets. ``judge`` has the draws that prove. Last comes its
    statistic on them, turned so that it is larger in the first dataset.

    Guarantee: both hold but with probability 2 ``share``, if ``judge`` was drawn independently of ``choose``.
    """
    best, event, threshold = -math.inf, (0, 1, 0), math.inf
    for row, sign in product(range(len(choose[0])), (1, -1)):
        sides = [np.sort(sign * side[row]) for side in choose]
        pooled = np.sort(np.concatenate(sides))
        ranks = np.linspace(0, len(pooled) - 1, min(_THRESHOLDS, len(pooled))).round().astype(int)
        # the extremes decide where one side never goes: each end of each side is among them
        ends = [end for side in sides for end in (side[0], side[-1], math.nextafter(side[-1], math.inf))]
        thresholds = np.unique(np.concatenate((pooled[ranks], ends)))
        hits = [len(side) - np.searchsorted(side, thresholds) for side in sides]
        for likelier in (0, 1):
            gains, _ = _proved(hits, [len(side) for side in sides], likelier, delta, share)
            if gains.max() > best:
                best, event = float(gains.max()), (row, sign, likelier)
                threshold = float(thresholds[gains.argmax()])
    row, sign, likelier = event
    turned = [sign * side[row] for side in judge]
    found = [(side >= threshold).sum() for side in turned]
    epsilon, mu = _proved(found, [len(side) for side in turned], likelier, delta, share)
    toward = 1 - 2 * likelier
    return float(epsilon), float(mu), (toward * turned[0], toward * turned[1])


def approximate_blowup(epsilon: float, delta: float) -> Blowup:
    """The smallest Q(S) that (epsilon, delta)-DP allows where P(S) is x, as a function of x.

    >>> round(approximate_blowup(math.log(3), 0.0)(0.3), 9)
    0.1
    """
    factor = math.exp(epsilon)
    return lambda rate: max(0.0, (rate - delta) / factor, 1 - delta - (1 - rate) * factor)


def one_run_refutes(blowup: Blowup, canaries: int, guesses: int, right: int, significance: float) -> bool:
    """Whether at least ``right`` right guesses are too many for a trade-off curve, at this significance.

    Theorem of Mahloujifar, Melis and Chaudhuri 2025 (arXiv 2410.22235). With c guesses and m canaries let G_t
    be the probability of at least t right guesses, r_t that of a canary, drawn at random, to be guessed
    right while at least t are right, and h_t that of one to be guessed wrong then. A right guess beside t - 1
    others that are right is, where its canary's coin is the other one, a wrong guess beside t - 1: both are
    the same event of the output. So h_{t-1} >= blowup(r_t), averaged over coins and canaries, as the blowup
    is convex. With T_t = G_{t+1} + G_{t+2} + ... it is m r_t = t G_t + T_t and r_t + h_t = c G_t / m, so

        (c - t + 1) G_{t-1} >= G_t + T_t + m blowup((t G_t + T_t) / m).

    The right side grows with every G. So if G at ``right`` is at least ``significance``, each G_t below is at
    least what these inequalities give from G = 0 beyond ``right``. If that is more than 1 at t = 0, G at
    ``right`` is smaller. A larger parameter has a smaller blowup, so what is refuted at one is refuted below.
    ``blowup`` must be that of a curve that holds in both directions.

    >>> one_run_refutes(approximate_blowup(1.0, 0.0), 1000, 100, 90, 0.05)
    True
    >>> one_run_refutes(approximate_blowup(3.0, 0.0), 1000, 100, 90, 0.05)
    False
    """
    most = guesses / canaries * (1 + _ROUNDING)
    hits, misses = significance * right / canaries, significance * (guesses - right) / canaries
    for count in range(right - 1, -1, -1):  # hits and misses are r and h at count + 1
        asked = blowup(min(hits, 1.0))
        if asked <= misses or hits + misses > most:
            break
        hits, misses = hits + count / (guesses - count) * (asked - misses), asked
    return hits + misses > most


def largest_refuted(refutes: Callable[[float], bool], low: float = 0.0) -> float:
    """A parameter that is refuted, the largest where all below are refuted too; ``low`` if that is not.

    >>> round(largest_refuted(lambda epsilon: epsilon < 0.7), 6)
    0.7
    """
    if not refutes(low):
        return low
    high = _LARGEST
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if refutes(middle) else (low, middle)
    return low


def epsilon_of_mu(mu: float, delta: float) -> float:
    """The epsilon that mu-GDP has at this delta, from below; 0 where delta is 0, of which none is said.

    >>> round(epsilon_of_mu(0.32, 1e-5), 4)
    1.2151
    """
    least = delta * (1 + _ROUNDING)
    return largest_refuted(lambda epsilon: gaussian_delta(mu, epsilon) > least) if delta and mu else 0.0


def ranked_guesses(inside: Floats, outside: Floats, rng: np.random.Generator) -> list[tuple[int, int]]:
    """How many guesses several rules make, and how many are right, by the ranks of the scores.

    A rule guesses "in" for the largest scores, and one of the two kinds also "out" for the smallest. How many
    guesses each makes depends on the number of canaries alone, which is public; fewer than 16 prove nothing.
    ``rng`` orders equal scores, whichever side they are on.

    >>> ranked_guesses(np.arange(16.0) + 16, np.arange(16.0), np.random.default_rng(0))
    [(16, 16), (16, 16), (32, 16), (32, 32)]
    """
    scores = np.concatenate((inside, outside))
    shuffled = rng.permutation(len(scores))
    ranked = (shuffled < len(inside))[np.argsort(scores[shuffled], kind="stable")[::-1]]
    high, low = ranked.cumsum(), (~ranked[::-1]).cumsum()
    rules = []
    for power in range(len(scores).bit_length() - 5, -1, -1):
        count = len(scores) >> power
        both = int(high[count - count // 2 - 1] + low[count // 2 - 1])
        rules += [(count, int(high[count - 1])), (count, both)]
    return rules


def one_run_bounds(
    inside: Floats, outside: Floats, delta: float, significance: float, rng: np.random.Generator
) -> tuple[float, float]:
    """Epsilon, and mu of Gaussian differential privacy, by ``one_run_refutes``.

    Each is the largest of several rules of guessing, which may fail with an equal part of the significance.

    Guarantee: each is above the truth with probability at most ``significance``.
    """
    canaries, rules = len(inside) + len(outside), ranked_guesses(inside, outside, rng)
    share = significance / len(rules)
    epsilon = mu = 0.0
    for guesses, right in rules:

        def refuted(blowup: Blowup, guesses: int = guesses, right: int = right) -> bool:
            return one_run_refutes(blowup, canaries, guesses, right, share)

        epsilon = largest_refuted(lambda at: refuted(approximate_blowup(at, delta)), epsilon)
        mu = largest_refuted(lambda at: refuted(lambda x: float(ndtr(ndtri(x) - at))), mu)
    return epsilon, mu
