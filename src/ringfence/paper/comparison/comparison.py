"""Epsilon at equal accuracy, mechanism against mechanism, from the rows of a sweep.

A setting reaches a target if its accuracy, averaged over its seeds, is at least the target: that on the
validation part where there is one, else that on the test split, as in the paper. Its epsilon is the
largest of its seeds'. At each target the smallest epsilon counts that a mechanism reaches it with.

"Gaussian, clamped" is the rectified law's release under the Gaussian's account: noise first, the clamp
afterwards, which costs nothing. What it gains over the Gaussian is the clamp's help to training; what
the rectified law gains over it is bounded support's.

The bands are what a bootstrap gives: every resample draws, for each mechanism, as many settings as it
has with replacement and, for each setting drawn, as many seeds as it has; everything is then computed
anew. They show how much hangs on which settings and seeds happened to be tried. They say nothing about
other data, other ranges or the choice of the validation part, and the smallest of a resample is never
below the smallest there is: a band leans towards larger epsilons, for every mechanism.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ringfence import checks
from ringfence.paper.sweep.settings import SweepSetting
from ringfence.paper.sweep.store import SweepRow

Kind = Literal["per-instance", "ex-post", "data-independent", "tightest"]
Array = NDArray[np.float64]

# The smallest of these counts. What holds for every dataset holds for this one too: "tightest" gives
# the Gaussian its exact epsilon, where the paper's number converts Rényi divergences for all laws alike.
_FIELDS = {
    "per-instance": ("epsilon_pdp",),
    "ex-post": ("epsilon_ex_post",),
    "data-independent": ("epsilon_data_independent",),
    "tightest": ("epsilon_pdp", "epsilon_data_independent"),
}
_BASE = "Gaussian"
CLAMPED = "Gaussian, clamped"
_LEVEL = 0.95
_TUNING = "the cost of tuning is not in epsilon"


@dataclass(frozen=True)
class ComparisonRow:
    """A mechanism at a target accuracy: its smallest epsilon, None where it never arrives.

    ``ratio`` is to the Gaussian's epsilon; None where one of the two never arrives. ``ratio_low`` and
    ``ratio_high`` are the ends of the 95 % band, 0 or infinite where resamples without one of them
    reach so far. ``test_accuracy`` is that of the setting that was chosen, averaged over its seeds.
    """

    data: str
    mechanism: str
    target: float
    epsilon: float | None
    gaussian_epsilon: float | None
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    test_accuracy: float | None
    setting: SweepSetting | None


@dataclass(frozen=True)
class Comparison:
    """Rows for every target and mechanism, one sentence about them, and what to beware of."""

    data: str
    kind: Kind
    rows: tuple[ComparisonRow, ...]
    helped: bool
    sentence: str
    warnings: tuple[str, ...]
    validated: bool  # chosen on a validation part
    counts_from: float  # the first target that counts in the sentence


@dataclass(frozen=True)
class _Tried:
    """The settings of one mechanism: (settings, seeds) arrays."""

    settings: list[SweepSetting]
    chosen_by: Array
    tested: Array
    epsilon: Array

    def frontier(self, targets: Array, picks: NDArray[np.int64] | None = None) -> tuple[Array, Array]:
        """The smallest epsilon at each target (infinite: never), and which setting has it.

        ``picks`` is a resample: settings first, then the seeds of each.
        """
        accuracy, epsilon = self.chosen_by, self.epsilon
        if picks is not None:
            rows = picks[:, :1]
            accuracy, epsilon = accuracy[rows, picks[:, 1:]], epsilon[rows, picks[:, 1:]]
        mean, largest = accuracy.mean(axis=1), epsilon.max(axis=1)
        # rounding must not keep a mean of equal numbers below itself
        enough = np.where(mean[None] >= targets[:, None] - 1e-12, largest[None], np.inf)
        best = enough.argmin(axis=1)
        return enough[np.arange(len(targets)), best], best

    def resample(self, generator: np.random.Generator) -> NDArray[np.int64]:
        count, seeds = self.epsilon.shape
        chosen = generator.integers(count, size=(count, 1))
        return np.concatenate((chosen, generator.integers(seeds, size=(count, seeds))), axis=1)


def compare(
    rows: Sequence[SweepRow],
    *,
    kind: Kind = "per-instance",
    step: float = 0.05,
    resamples: int = 1000,
    generator: np.random.Generator | None = None,
) -> Comparison:
    """Compares every mechanism with the Gaussian at targets ``step`` apart, on one data set.

    The sentence is about the median, over the targets that count, of the ratio of epsilons; those
    count that are at least half of the best accuracy reached. A mechanism that misses a target which
    the Gaussian reaches has an infinite ratio there, and 0 the other way round. Bounded support
    helped if the whole band of some mechanism's median is below 1; bands are widened for the number
    of mechanisms (Bonferroni), since the best of several would look good by luck.

    >>> def row(mechanism, seed, epsilon):
    ...     setting = SweepSetting(mechanism.lower(), 0.1, 10.0, learning_rate=1.0, steps=5)
    ...     return SweepRow("toy", mechanism, setting, seed, 1e-5, 0.9, 0.9, epsilon_pdp=epsilon)
    >>> rows = [row(*pair, 2.0) for pair in (("Gaussian", 0), ("Gaussian", 1))]
    >>> rows += [row("truncated", seed, 1.0) for seed in (0, 1)]
    >>> compare(rows).sentence[:72]
    'Yes, on toy bounded support helped: at equal accuracy truncated took 0.5'
    """
    if kind not in _FIELDS:
        raise ValueError(f"kind must be one of {', '.join(_FIELDS)}, got {kind!r}")
    step = checks.probability("step", step)
    checks.count("resamples", resamples, at_least=1)
    names = {row.data for row in rows}
    if len(names) != 1:
        raise ValueError(f"rows must be of one data set, got {sorted(names) or 'none'}")
    generator = np.random.default_rng(0) if generator is None else generator
    tried, validated = _tried([*rows, *_clamped(rows)], _FIELDS[kind])
    [data] = names
    if _BASE not in tried:
        raise ValueError(
            "rows must hold finished settings of the Gaussian: it is what others are compared with"
        )
    best = max(float(one.chosen_by.mean(axis=1).max()) for one in tried.values())
    targets: Array = step * np.arange(1, math.floor(best / step + 1e-9) + 1, dtype=np.float64)
    if not len(targets):
        raise ValueError(f"no mechanism reaches the first target {step:g}, the best accuracy is {best:g}")

    found = {name: one.frontier(targets) for name, one in tried.items()}
    drawn = _resampled(tried, targets, resamples, generator)
    result = []
    for name, one in tried.items():
        for i, target in enumerate(targets):
            result.append(_row(data, name, one, float(target), found, drawn, i))
    useful = targets >= best / 2 - 1e-12
    bounded = [name for name in tried if name not in (_BASE, CLAMPED)]
    others = [name for name in tried if name != _BASE]
    medians = {name: _median(found, drawn, name, useful, len(bounded)) for name in others}
    helped = any(medians[name][2] < 1 for name in bounded)
    return Comparison(
        data=data,
        kind=kind,
        rows=tuple(result),
        helped=helped,
        sentence=_sentence(data, kind, medians, targets[useful], helped, validated),
        warnings=tuple(_warnings(rows, {name: tried[name] for name in tried if name != CLAMPED}, validated)),
        validated=validated,
        counts_from=round(float(targets[useful][0]), 10),
    )


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


def _tried(rows: Sequence[SweepRow], columns: tuple[str, ...]) -> tuple[dict[str, _Tried], bool]:
    """Settings that are finished with every seed of the sweep."""
    done = [row for row in rows if row.error is None]
    if not done:
        raise ValueError("rows must hold finished settings, got none without an error")
    validated = all(row.validation_accuracy is not None for row in done)
    seeds = sorted({row.seed for row in rows})
    by_setting: dict[tuple[str, SweepSetting], dict[int, SweepRow]] = {}
    for row in done:
        by_setting.setdefault((row.mechanism, row.setting), {})[row.seed] = row
    result: dict[str, _Tried] = {}
    whole = {key: own for key, own in by_setting.items() if len(own) == len(seeds)}
    for name in dict.fromkeys(mechanism for mechanism, _ in whole):
        mine = {setting: own for (mechanism, setting), own in whole.items() if mechanism == name}

        runs = [[own[seed] for seed in seeds] for own in mine.values()]
        result[name] = _Tried(
            list(mine),
            chosen_by=_array("validation_accuracy" if validated else "test_accuracy", runs),
            tested=_array("test_accuracy", runs),
            epsilon=np.minimum.reduce([_array(column, runs) for column in columns]),
        )
    return result, validated


def _array(column: str, runs: list[list[SweepRow]]) -> Array:
    values = [[getattr(row, column) for row in own] for own in runs]
    if any(value is None or math.isnan(value) for own in values for value in own):
        raise ValueError(f"rows without an error must have {column}, one has none")
    return np.array(values, dtype=np.float64)


def _resampled(
    tried: dict[str, _Tried], targets: Array, resamples: int, generator: np.random.Generator
) -> dict[str, Array]:
    return {
        name: np.stack([one.frontier(targets, one.resample(generator))[0] for _ in range(resamples)])
        for name, one in tried.items()
    }


def _ratios(ours: Array, theirs: Array) -> Array:
    """Ratios of epsilons: infinite where only the Gaussian arrives, 0 where only we do, else NaN."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where((ours == 0) & (theirs == 0), 1.0, ours / theirs)


def _quantiles(values: Array, level: float = _LEVEL) -> tuple[float, float]:
    """The ends of the middle ``level`` of the values, NaN left out; values that are there, no mixtures."""
    known = values[~np.isnan(values)]
    low = np.quantile(known, (1 - level) / 2, method="lower")
    return float(low), float(np.quantile(known, (1 + level) / 2, method="higher"))


def _row(
    data: str,
    name: str,
    one: _Tried,
    target: float,
    found: dict[str, tuple[Array, Array]],
    drawn: dict[str, Array],
    i: int,
) -> ComparisonRow:
    (ours, places), theirs = found[name], found[_BASE][0]
    epsilon = float(ours[i]) if np.isfinite(ours[i]) else None
    gaussian = float(theirs[i]) if np.isfinite(theirs[i]) else None
    row = ComparisonRow(data, name, round(target, 10), epsilon, gaussian, None, None, None, None, None)
    if epsilon is None:
        return row
    place = int(places[i])
    row = replace(row, setting=one.settings[place], test_accuracy=float(one.tested[place].mean()))
    if gaussian is None:
        return row
    if name == _BASE:
        return replace(row, ratio=1.0)
    low, high = _quantiles(_ratios(drawn[name][:, i], drawn[_BASE][:, i]))
    return replace(row, ratio=float(_ratios(ours[i], theirs[i])), ratio_low=low, ratio_high=high)


def _median(
    found: dict[str, tuple[Array, Array]], drawn: dict[str, Array], name: str, useful: Any, mechanisms: int
) -> tuple[float, float, float]:
    """The median ratio over the targets that count, and its band."""
    here = float(np.nanmedian(_ratios(found[name][0], found[_BASE][0])[useful]))
    ratios = _ratios(drawn[name], drawn[_BASE])[:, useful]
    there = ~np.isnan(ratios).all(axis=1)  # a resample may reach no target at all
    medians = np.nanmedian(ratios[there], axis=1) if there.any() else np.array([here])
    return here, *_quantiles(medians, 1 - (1 - _LEVEL) / mechanisms)


def _sentence(
    data: str,
    kind: Kind,
    medians: dict[str, tuple[float, float, float]],
    targets: Array,
    helped: bool,
    validated: bool,
) -> str:
    medians = dict(medians)
    clamped = medians.pop(CLAMPED, None)
    if not medians:
        return f"Nothing was compared on {data}: only the Gaussian was tried, and {_TUNING}."
    amounts = " and ".join(f"{name} took {_banded(median)}" for name, median in medians.items())
    if helped:
        verdict = f"Yes, on {data} bounded support helped"
    elif all(low > 1 for _, low, _ in medians.values()):
        verdict = f"No, on {data} bounded support made it worse"
    else:
        verdict = f"No, on {data} bounded support did not help by more than this sweep can tell from luck"
    ends = " to ".join(dict.fromkeys(f"{100 * end:g} %" for end in np.round((targets[0], targets[-1]), 6)))
    chosen = "" if validated else ", chosen by the test split itself"
    return (
        f"{verdict}: at equal accuracy {amounts} times the Gaussian's {kind} epsilon, the median over "
        f"targets of {ends}{chosen}{_free(clamped)}; {_TUNING}."
    )


def _free(clamped: tuple[float, float, float] | None) -> str:
    if clamped is None:
        return ""
    return f", where the Gaussian clamped afterwards, a change that is free, took {_banded(clamped)}"


def _banded(median: tuple[float, float, float]) -> str:
    middle, low, high = map(_shown, median)
    return f"{middle} (95 % band {low} to {high})"


def _shown(ratio: float) -> str:
    return "infinitely many" if math.isinf(ratio) else f"{ratio:.2f}"


def _warnings(rows: Sequence[SweepRow], tried: dict[str, _Tried], validated: bool) -> list[str]:
    result = []
    counts = {name: len(one.settings) for name, one in tried.items()}
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{name} {count}" for name, count in counts.items())
        result.append(
            f"The mechanisms had different numbers of settings ({shown}): part of any gain may be the "
            "finer search. A fair search gives each the same number."
        )
    if not validated:
        result.append(
            "Nothing was kept back to choose by: settings were chosen by the accuracy on the test split, "
            "which is then too high for every mechanism."
        )
    if len({row.seed for row in rows}) < 3:
        result.append("Fewer than three seeds: the bands know little about the noise of training.")
    errors = sum(row.error is not None for row in rows)
    if errors:
        result.append(f"{errors} of {len(rows)} runs ended with an error and count as not tried.")
    unfinished = {row.setting for row in rows if row.error is None}
    left_out = len(unfinished) - sum(counts.values())
    if left_out > 0:
        result.append(f"{left_out} settings are left out: not every seed of theirs is finished.")
    return result
