"""Ratios of epsilons at equal accuracy, with bands that show how much of them is luck.

The bands come from a bootstrap. Every resample draws, for each mechanism, as many settings as it has with
replacement and, for each setting drawn, as many seeds as it has; everything is then computed anew. The bands
show how much depends on which settings and seeds happened to be tried. They say nothing about other data,
other ranges or the choice of the validation part. The smallest epsilon of a resample is never below the
smallest of all settings: the band of every mechanism leans towards larger epsilons.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from experiments.comparison.frontier import Array, Tried

Frontiers = dict[str, tuple[Array, Array]]  # for each name and target: epsilon, and which setting has it
Resampled = dict[str, Array]  # for each name: epsilons by resample and target
Banded = tuple[float, float, float]  # a median ratio and the two ends of its band

_LEVEL = 0.95


def resampled(
    tried: Mapping[str, Tried], targets: Array, resamples: int, generator: np.random.Generator
) -> Resampled:
    """The smallest epsilons of every resample.

    >>> one = Tried([None], np.ones((1, 3)), np.ones((1, 3)), np.full((1, 3), 2.0))
    >>> resampled({"toy": one}, np.array([0.5]), 2, np.random.default_rng(0))["toy"].tolist()
    [[2.0], [2.0]]
    """
    return {
        name: np.stack([one.frontier(targets, one.resample(generator))[0] for _ in range(resamples)])
        for name, one in tried.items()
    }


def median(
    found: Frontiers, drawn: Resampled, name: str, reference: str, useful: Any, candidates: int
) -> Banded:
    """The median ratio to the reference over the targets that count, and its band.

    The band is widened for the number of candidates (Bonferroni): the best of several looks good by luck.

    >>> two, one = np.array([2.0, 4.0]), np.array([1.0, 1.0])
    >>> found = {"a": (two, one), "b": (one, one)}
    >>> median(found, {"a": two[None], "b": one[None]}, "a", "b", np.array([True, False]), 1)
    (2.0, 2.0, 2.0)
    """
    here = float(np.nanmedian(ratios(found[name][0], found[reference][0])[useful]))
    drawn_ratios = ratios(drawn[name], drawn[reference])[:, useful]
    there = ~np.isnan(drawn_ratios).all(axis=1)  # a resample may reach no target at all
    medians = np.nanmedian(drawn_ratios[there], axis=1) if there.any() else np.array([here])
    return here, *band(medians, 1 - (1 - _LEVEL) / candidates)


def ratios(ours: Array, theirs: Array) -> Array:
    """Epsilons over the reference's: infinite where only the reference arrives, 0 where it alone does not.

    NaN where neither arrives.

    >>> ratios(np.array([1.0, np.inf, 1.0]), np.array([2.0, 1.0, np.inf])).tolist()
    [0.5, inf, 0.0]
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where((ours == 0) & (theirs == 0), 1.0, ours / theirs)


def band(values: Array, level: float = _LEVEL) -> tuple[float, float]:
    """The ends of the middle ``level`` of the values that are not NaN; both ends are values, not mixtures.

    >>> band(np.array([1.0, 2.0, 3.0, np.nan]), 0.5)
    (1.0, 3.0)
    """
    known = values[~np.isnan(values)]
    low = np.quantile(known, (1 - level) / 2, method="lower")
    return float(low), float(np.quantile(known, (1 + level) / 2, method="higher"))
