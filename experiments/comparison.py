"""Epsilon at equal accuracy, law against law, from the rows of finished sweeps.

A setting reaches a target if its accuracy, averaged over its seeds, is at least the target. The accuracy is
that on the validation part where there is one, and that on the test split otherwise, as in the paper. The
epsilon of a setting is the largest epsilon of its seeds. At each target, a law counts with the smallest
epsilon of its settings that reach the target. Those targets count that are at least half of the best accuracy
reached, and above chance.

"Gaussian, clamped" is the rectified law's release under the Gaussian's account: the noise comes first, and
the clamp afterwards costs nothing. What it gains over the Gaussian is the clamp's help to training; what
the rectified law gains over it is the gain of bounded support.

Bands come from a bootstrap. Every resample draws, for each law, as many settings as it has with replacement
and, for each setting drawn, as many seeds as it has; everything is then computed anew. The bands show how
much depends on which settings and seeds happened to be tried. They say nothing about other data, other ranges
or the choice of the validation part. The smallest epsilon of a resample is never below the smallest of all
settings: the band of every law leans towards larger epsilons.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame

from experiments.sweep.settings import SweepSetting, label

Kind = Literal["per-instance", "ex-post", "data-independent", "tightest"]
Array = NDArray[np.float64]
Banded = tuple[float, float, float]  # a ratio and the two ends of its band

# The columns of a row, the smallest of which counts. An epsilon that holds for every dataset holds for this
# one too: "tightest" gives the Gaussian its exact epsilon, where the paper's number converts Rényi
# divergences for all laws alike.
COLUMNS: dict[Kind, tuple[str, ...]] = {
    "per-instance": ("epsilon_pdp",),
    "ex-post": ("epsilon_ex_post",),
    "data-independent": ("epsilon_data_independent",),
    "tightest": ("epsilon_pdp", "epsilon_data_independent"),
}
Key = tuple[str, str, Kind]  # law, clip, statement
GAUSSIAN = "Gaussian"
CLAMPED = "Gaussian, clamped"
_LEVEL = 0.95


@dataclass(frozen=True)
class Point:
    """The setting with the smallest epsilon among those of one law that reach a target accuracy.

    ``test_accuracy`` is averaged over its seeds. ``ratio`` is to the reference's epsilon at this target, with
    its 95 % band, whose ends are 0 or infinite where it contains resamples in which one of the two does not
    reach the target; None where the reference never does.
    """

    target: float
    epsilon: float
    test_accuracy: float
    setting: SweepSetting
    ratio: Banded | None


@dataclass(frozen=True)
class Candidate:
    """A law with a clip and a statement about it: a point for every target that it reaches.

    ``times`` is the median ratio of its epsilons to the reference's over all targets, and the band of this
    median.
    """

    law: str
    clip: str  # "clamp" or "norm"
    statement: Kind
    times: Banded
    points: tuple[Point, ...]

    @property
    def helped(self) -> bool:
        """Whether the whole band is below 1: only then the answer is yes."""
        return self.times[2] < 1

    def at(self, target: float) -> Point | None:
        """The point at this target; None where it is never reached."""
        return next((point for point in self.points if point.target == target), None)


@dataclass(frozen=True)
class Comparison:
    """Candidates that were compared with one of them, the reference, on one data set."""

    data: str
    targets: tuple[float, ...]  # those that count
    reference: Candidate
    candidates: tuple[Candidate, ...]
    validated: bool  # whether settings were chosen on a validation part
    runs: int  # how many runs the settings were chosen from
    delta: float
    warnings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The data set, and the clip where it is not the paper's."""
        return f"{self.data}, L2 clip" if self.reference.clip == "norm" else self.data

    @property
    def bounded(self) -> list[Candidate]:
        """The laws with a bounded support, and an account of their own."""
        return [one for one in self.candidates if one.law not in (GAUSSIAN, CLAMPED)]


def compare(
    rows: DataFrame, *, kind: Kind = "per-instance", step: float = 0.05, resamples: int = 1000
) -> list[Comparison]:
    """For each clip, every law against the Gaussian under that clip, at targets ``step`` apart.

    A law that misses a target which the Gaussian reaches has an infinite ratio there; where it is the other
    way round, the ratio is 0. Bands of medians are widened for the number of laws (Bonferroni), since the
    best of several would look good by luck.
    """
    if kind not in COLUMNS:
        raise ValueError(f"kind must be one of {', '.join(COLUMNS)}, got {kind!r}")
    if rows.empty:
        raise ValueError("rows must be those of a sweep, got none")
    results = []
    for clip, own in rows.groupby("clip_kind", sort=False):
        tried = _tried(own, kind)
        result = _compare(own, tried, [(GAUSSIAN, clip, kind)], step, resamples)
        results.append(replace(result, warnings=tuple(_warnings(own, tried))))
    return results


def compare_all(rows: DataFrame, *, step: float = 0.05, resamples: int = 1000) -> Comparison:
    """Every clip, law and statement of a sweep against the usual way to train privately.

    That is the Gaussian on gradients clipped in L2, with an epsilon that holds for every dataset and may be
    published. A per-instance epsilon is the smaller of what was computed for this dataset and of what holds
    for every dataset. It must not be published, so it has to be clearly smaller to be worth anything.
    Candidates come from the smallest median ratio to the largest.
    """
    data_independent = _tried(rows, "data-independent")
    tightest = _tried(rows, "tightest", "per-instance")
    tried = {key: one for key, one in (data_independent | tightest).items() if key[0] != CLAMPED}
    usual: list[Key] = [(GAUSSIAN, clip, "data-independent") for clip in ("norm", "clamp")]
    result = _compare(rows, tried, usual, step, resamples)
    order = sorted(result.candidates, key=lambda one: (one.times, one != result.reference))
    return replace(result, candidates=tuple(order))


@dataclass(frozen=True)
class Tried:
    """The finished settings of one law; each array has one row per setting and one column per seed."""

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

    def resampled(self, targets: Array, resamples: int, generator: np.random.Generator) -> Array:
        """The smallest epsilons of every resample, by resample and target."""
        count, seeds = self.epsilon.shape
        drawn = []
        for _ in range(resamples):
            chosen = generator.integers(count, size=(count, 1))
            picks = np.concatenate((chosen, generator.integers(seeds, size=(count, seeds))), axis=1)
            drawn.append(self.frontier(targets, picks)[0])
        return np.stack(drawn)


def _tried(rows: DataFrame, kind: Kind, statement: Kind | None = None) -> dict[Key, Tried]:
    """The settings of each law and clip that are finished with every seed.

    The rectified law's runs appear twice: also as ``CLAMPED``, under the Gaussian's account.
    """
    seeds = rows.seed.nunique()
    accuracy = "validation_accuracy" if _validated(rows) else "test_accuracy"
    done = rows[rows.error.isna()].sort_values("seed", kind="stable")
    finished = done[done.groupby("setting", sort=False).seed.transform("size") == seeds]
    runs = dict(list(finished.groupby(["law", "clip_kind"], sort=False)))

    def tried(own: DataFrame, account: str = "") -> Tried:
        def array(column: str) -> Array:
            values: Array = own[column].to_numpy().reshape(seeds, -1).T
            if np.isnan(values).any():
                raise ValueError(f"rows without an error must have {column}, one has none")
            return values

        epsilon = np.minimum.reduce([array(account + column) for column in COLUMNS[kind]])
        return Tried(list(own.setting)[: len(own) // seeds], array(accuracy), array("test_accuracy"), epsilon)

    found = {(law, clip, statement or kind): tried(own) for (law, clip), own in runs.items()}
    for (law, clip), own in runs.items():
        if law == label("rectified") and own.gaussian_epsilon_pdp.notna().all():
            found[CLAMPED, clip, statement or kind] = tried(own, "gaussian_")
    return found


def _validated(rows: DataFrame) -> bool:
    return bool(rows.validation_accuracy[rows.error.isna()].notna().all())


def _compare(
    rows: DataFrame, tried: dict[Key, Tried], references: Sequence[Key], step: float, resamples: int
) -> Comparison:
    """Compares all that was tried with the first of the references that is there."""
    if rows.error.notna().all():
        raise ValueError("rows must hold finished settings, got none without an error")
    reference = next((key for key in references if key in tried), None)
    if reference is None:
        raise ValueError(
            "rows must hold finished settings of the Gaussian: it is what others are compared with"
        )
    about = rows.iloc[0]
    targets = targets_that_count(tried, step, about.classes)
    found = {key: one.frontier(targets) for key, one in tried.items()}
    drawn: dict[Key, Array] = {}
    for statement in {key[2]: None for key in tried}:  # every statement sees the same draws
        generator = np.random.default_rng(0)
        for key in tried:
            if key[2] == statement:
                drawn[key] = tried[key].resampled(targets, resamples, generator)
    others = sum(key[0] != CLAMPED for key in tried) - 1 or 1

    def candidate(key: Key, one: Tried) -> Candidate:
        epsilon, places = found[key]
        usual = found[reference][0]
        drawn_ratios = ratios(drawn[key], drawn[reference])
        points = [
            Point(
                target=float(targets[i]),
                epsilon=float(epsilon[i]),
                test_accuracy=float(one.tested[places[i]].mean()),
                setting=one.settings[places[i]],
                ratio=(float(ratios(epsilon[i], usual[i])), *band(drawn_ratios[:, i]))
                if np.isfinite(usual[i])
                else None,
            )
            for i in np.flatnonzero(np.isfinite(epsilon))
        ]
        return Candidate(*key, median(ratios(epsilon, usual), drawn_ratios, others), tuple(points))

    candidates = {key: candidate(key, one) for key, one in tried.items()}
    return Comparison(
        data=about.data,
        targets=tuple(targets.tolist()),
        reference=candidates[reference],
        candidates=tuple(candidates.values()),
        validated=_validated(rows),
        runs=len(rows),
        delta=float(about.delta),
    )


def targets_that_count(tried: Mapping[Any, Tried], step: float, classes: int | None) -> Array:
    """Accuracies ``step`` apart, from half of the best one reached to the best, above chance if any is."""
    best = max(float(one.chosen_by.mean(axis=1).max()) for one in tried.values())
    targets: Array = step * np.arange(1, math.floor(best / step + 1e-9) + 1, dtype=np.float64)
    targets = targets.round(10)
    if not len(targets):
        raise ValueError(f"no mechanism reaches the first target {step:g}, the best accuracy is {best:g}")
    useful = targets[targets >= best / 2 - 1e-12]
    above_chance = useful[useful > (1 / classes if classes else 0.0) + 1e-12]
    return above_chance if len(above_chance) else useful


def median(found: Array, drawn: Array, candidates: int) -> Banded:
    """The median of ratios, and the band of the medians that were drawn, a row each.

    The band is widened for the number of candidates (Bonferroni): the best of several looks good by luck.
    """
    here = float(np.nanmedian(found))
    there = ~np.isnan(drawn).all(axis=1)  # a resample may reach no target at all
    medians = np.nanmedian(drawn[there], axis=1) if there.any() else np.array([here])
    return here, *band(medians, 1 - (1 - _LEVEL) / candidates)


def ratios(ours: Array, theirs: Array) -> Array:
    """Epsilons over the reference's: infinite where only the reference arrives, 0 where it alone does not.

    NaN where neither arrives.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where((ours == 0) & (theirs == 0), 1.0, ours / theirs)


def band(values: Array, level: float = _LEVEL) -> tuple[float, float]:
    """The ends of the middle ``level`` of the values that are not NaN; both ends are values, not mixtures."""
    known = values[~np.isnan(values)]
    low = np.quantile(known, (1 - level) / 2, method="lower")
    return float(low), float(np.quantile(known, (1 + level) / 2, method="higher"))


def _warnings(rows: DataFrame, tried: dict[Key, Tried]) -> list[str]:
    """Caveats of a comparison of laws under one clip."""
    result = []
    counts = {law: len(one.settings) for (law, _, _), one in tried.items() if law != CLAMPED}
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{name} {count}" for name, count in counts.items())
        result.append(
            f"The mechanisms had different numbers of settings ({shown}): part of any gain may be the "
            "finer search. A fair search gives each the same number."
        )
    if not _validated(rows):
        result.append(
            "Nothing was kept back to choose by: settings were chosen by the accuracy on the test split, "
            "which is then too high for every mechanism."
        )
    if rows.seed.nunique() < 3:
        result.append("Fewer than three seeds: the bands know little about the noise of training.")
    errors = rows.error.notna().sum()
    if errors:
        result.append(f"{errors} of {len(rows)} runs ended with an error and count as not tried.")
    left_out = rows.setting[rows.error.isna()].nunique() - sum(counts.values())
    if left_out > 0:
        result.append(f"{left_out} settings are left out: not every seed of theirs is finished.")
    return result
