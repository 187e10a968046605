"""The settings of a sweep that are finished, and the smallest epsilon with which they reach an accuracy."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from experiments.sweep.probes import SweepRow
from experiments.sweep.settings import SweepSetting, label

ComparedEpsilon = Literal["per-instance", "ex-post", "data-independent", "tightest"]
Array = NDArray[np.float64]

# The columns of a row, the smallest of which counts. An epsilon that holds for every dataset holds for this
# one too: "tightest" gives the Gaussian its exact epsilon, where the paper's number converts Rényi
# divergences for all laws alike.
COLUMNS: dict[ComparedEpsilon, tuple[str, ...]] = {
    "per-instance": ("epsilon_pdp",),
    "ex-post": ("epsilon_ex_post",),
    "data-independent": ("epsilon_data_independent",),
    "tightest": ("epsilon_pdp", "epsilon_data_independent"),
}
GAUSSIAN = "Gaussian"
CLAMPED = "Gaussian, clamped"


@dataclass(frozen=True)
class Tried:
    """The finished settings of one mechanism; each array has one row per setting and one column per seed."""

    settings: list[SweepSetting]
    chosen_by: Array  # the accuracy that settings are chosen by
    tested: Array  # the accuracy on the test split
    epsilon: Array

    def frontier(self, targets: Array, picks: NDArray[np.int64] | None = None) -> tuple[Array, Array]:
        """For each target accuracy the smallest epsilon (infinite: never reached), and which setting has it.

        ``picks`` is a resample: the first column holds settings, the others the seeds drawn for each.
        """
        accuracy, epsilon = self.chosen_by, self.epsilon
        if picks is not None:
            rows = picks[:, :1]
            accuracy, epsilon = accuracy[rows, picks[:, 1:]], epsilon[rows, picks[:, 1:]]
        mean, largest = accuracy.mean(axis=1), epsilon.max(axis=1)
        # Rounding must not keep a mean of equal numbers below these numbers.
        enough = np.where(mean[None] >= targets[:, None] - 1e-12, largest[None], np.inf)
        best = enough.argmin(axis=1)
        return enough[np.arange(len(targets)), best], best

    def resample(self, generator: np.random.Generator) -> NDArray[np.int64]:
        """Draws as many settings as there are, with replacement, and for each as many seeds as it has."""
        count, seeds = self.epsilon.shape
        chosen = generator.integers(count, size=(count, 1))
        return np.concatenate((chosen, generator.integers(seeds, size=(count, seeds))), axis=1)


def tried_settings(rows: Sequence[SweepRow], kind: ComparedEpsilon) -> tuple[dict[str, Tried], bool]:
    """For each mechanism its settings that are finished with every seed; whether a validation part chose.

    The rectified law's rows appear twice: also as ``CLAMPED``, under the Gaussian's account.

    >>> setting = SweepSetting("gaussian", 0.1, 10.0, learning_rate=1.0, steps=5)
    >>> row = SweepRow("toy", "Gaussian", setting, 0, 1e-5, test_accuracy=0.9, epsilon_pdp=2.0)
    >>> tried, validated = tried_settings([row], "per-instance")
    >>> tried["Gaussian"].epsilon.tolist(), validated
    ([[2.0]], False)
    """
    rows = [*rows, *_clamped(rows)]
    done = [row for row in rows if row.error is None]
    if not done:
        raise ValueError("rows must hold finished settings, got none without an error")
    validated = all(row.validation_accuracy is not None for row in done)
    seeds = sorted({row.seed for row in rows})
    by_setting: dict[tuple[str, SweepSetting], dict[int, SweepRow]] = {}
    for row in done:
        by_setting.setdefault((row.mechanism, row.setting), {})[row.seed] = row
    result: dict[str, Tried] = {}
    whole = {key: own for key, own in by_setting.items() if len(own) == len(seeds)}
    for name in dict.fromkeys(mechanism for mechanism, _ in whole):
        mine = {setting: own for (mechanism, setting), own in whole.items() if mechanism == name}
        runs = [[own[seed] for seed in seeds] for own in mine.values()]
        result[name] = Tried(
            list(mine),
            chosen_by=_array("validation_accuracy" if validated else "test_accuracy", runs),
            tested=_array("test_accuracy", runs),
            epsilon=np.minimum.reduce([_array(column, runs) for column in COLUMNS[kind]]),
        )
    return result, validated


def targets_that_count(
    tried: dict[str, Tried], step: float, classes: int | None
) -> tuple[Array, NDArray[np.bool_]]:
    """Accuracies ``step`` apart up to the best one reached, and which of them count.

    Those count that are at least half of the best accuracy and above chance; where nothing is above chance,
    half of the best accuracy is enough.

    >>> one = Tried([None], np.array([[0.8]]), np.array([[0.8]]), np.array([[2.0]]))
    >>> targets, count = targets_that_count({"toy": one}, 0.1, classes=2)
    >>> targets[count].round(1).tolist()
    [0.6, 0.7, 0.8]
    """
    best = max(float(one.chosen_by.mean(axis=1).max()) for one in tried.values())
    targets: Array = step * np.arange(1, math.floor(best / step + 1e-9) + 1, dtype=np.float64)
    if not len(targets):
        raise ValueError(f"no mechanism reaches the first target {step:g}, the best accuracy is {best:g}")
    useful = targets >= best / 2 - 1e-12
    above_chance = useful & (targets > (1 / classes if classes else 0.0) + 1e-12)
    return targets, above_chance if above_chance.any() else useful


def by_clip(rows: Sequence[SweepRow]) -> list[list[SweepRow]]:
    """The rows of each clip: laws are compared under one clip. An L2 clip becomes part of the data's name.

    >>> both = ("clamp", "norm")
    >>> settings = [SweepSetting("sign", 0.1, 10.0, 1.0, steps=5, clip_kind=kind) for kind in both]
    >>> rows = [SweepRow("toy", setting.label, setting, 0, 1e-5) for setting in settings]
    >>> [(own[0].data, own[0].mechanism) for own in by_clip(rows)]
    [('toy', 'sign'), ('toy, L2 clip', 'sign')]
    """
    kinds = dict.fromkeys(row.setting.clip_kind for row in rows)
    parts = ([row for row in rows if row.setting.clip_kind == kind] for kind in kinds)
    return [
        [
            row
            if row.setting.clip_kind == "clamp"
            else replace(row, data=f"{row.data}, L2 clip", mechanism=label(row.setting.mechanism))
            for row in part
        ]
        for part in parts
    ]


def _clamped(rows: Sequence[SweepRow]) -> list[SweepRow]:
    return [
        replace(
            row,
            mechanism=CLAMPED,
            epsilon_pdp=row.gaussian_epsilon_pdp,
            epsilon_ex_post=row.gaussian_epsilon_ex_post,
            epsilon_data_independent=row.gaussian_epsilon_data_independent,
        )
        for row in rows
        if row.mechanism == "rectified" and row.gaussian_epsilon_pdp is not None
    ]


def _array(column: str, runs: list[list[SweepRow]]) -> Array:
    values = [[getattr(row, column) for row in own] for own in runs]
    if any(value is None or math.isnan(value) for own in values for value in own):
        raise ValueError(f"rows without an error must have {column}, one has none")
    return np.array(values, dtype=np.float64)
