"""Epsilon at equal accuracy, mechanism against mechanism, from the rows of a sweep.

A setting reaches a target if its accuracy, averaged over its seeds, is at least the target. The accuracy is
that on the validation part where there is one, and that on the test split otherwise, as in the paper. The
epsilon of a setting is the largest epsilon of its seeds. At each target, a mechanism counts with the smallest
epsilon of its settings that reach the target.

"Gaussian, clamped" is the rectified law's release under the Gaussian's account: the noise comes first, and
the clamp afterwards costs nothing. What it gains over the Gaussian is the clamp's help to training; what
the rectified law gains over it is the gain of bounded support.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from experiments.comparison import verdict
from experiments.comparison.frontier import (
    CLAMPED,
    COLUMNS,
    GAUSSIAN,
    ComparedEpsilon,
    Tried,
    targets_that_count,
    tried_settings,
)
from experiments.comparison.ratios import Banded, Frontiers, Resampled, band, median, ratios, resampled
from experiments.sweep.probes import SweepRow
from experiments.sweep.settings import SweepSetting
from ringfence import checks


@dataclass(frozen=True)
class ComparisonRow:
    """A mechanism at a target accuracy: its smallest epsilon, None where it never reaches the target.

    ``ratio`` is its epsilon over the Gaussian's; None where one of the two never reaches the target.
    ``ratio_low`` and ``ratio_high`` are the ends of the 95 % band; they are 0 or infinite where the band
    contains resamples in which one of the two does not reach the target. ``test_accuracy`` is that of the
    setting that was chosen, averaged over its seeds.
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
    """A row for every target and mechanism, one sentence about them, and what to beware of."""

    data: str
    kind: ComparedEpsilon
    rows: tuple[ComparisonRow, ...]
    helped: bool
    sentence: str
    warnings: tuple[str, ...]
    validated: bool  # whether settings were chosen on a validation part
    counts_from: float  # the first target that counts in the sentence
    clip: str = "clamp"
    medians: tuple[tuple[str, Banded], ...] = ()  # of each mechanism: the median ratio, and its band

    @property
    def helped_by(self) -> list[str]:
        """The bounded laws whose whole band is below 1: those about which the answer is yes.

        >>> medians = (("sign", (0.5, 0.4, 0.9)), ("rectified", (0.5, 0.4, 1.1)))
        >>> Comparison("toy", "tightest", (), True, "", (), True, 0.5, medians=medians).helped_by
        ['sign']
        """
        return [name for name, band in self.bounded if band[2] < 1]

    @property
    def bounded(self) -> list[tuple[str, Banded]]:
        """The median ratio of every bounded law, and its band.

        >>> Comparison("toy", "per-instance", (), False, "", (), True, 0.5).bounded
        []
        """
        return [(name, band) for name, band in self.medians if name != CLAMPED]


def compare(
    rows: Sequence[SweepRow],
    *,
    kind: ComparedEpsilon = "per-instance",
    step: float = 0.05,
    resamples: int = 1000,
    generator: np.random.Generator | None = None,
) -> Comparison:
    """Compares every mechanism with the Gaussian at targets ``step`` apart, on one data set.

    The sentence is about the median ratio of epsilons over the targets that count: those of at least
    half of the best accuracy reached, and above chance. A mechanism that misses a target which the Gaussian
    reaches has an infinite ratio there; where it is the other way round, the ratio is 0. Bounded support
    helped if the whole band of some mechanism's median is below 1, and the sentence says of which. These
    bands are widened for the number of mechanisms (Bonferroni), since the best of several would look good
    by luck.

    >>> def row(mechanism, seed, epsilon):
    ...     setting = SweepSetting(mechanism.lower(), 0.1, 10.0, learning_rate=1.0, steps=5)
    ...     return SweepRow("toy", mechanism, setting, seed, 1e-5, 0.9, 0.9, epsilon_pdp=epsilon)
    >>> rows = [row(*pair, 2.0) for pair in (("Gaussian", 0), ("Gaussian", 1))]
    >>> rows += [row("truncated", seed, 1.0) for seed in (0, 1)]
    >>> compare(rows).sentence[:72]
    'Yes, on toy bounded support helped: at equal accuracy truncated took 0.5'
    """
    if kind not in COLUMNS:
        raise ValueError(f"kind must be one of {', '.join(COLUMNS)}, got {kind!r}")
    step = checks.probability("step", step)
    checks.count("resamples", resamples, at_least=1)
    names = {row.data for row in rows}
    if len(names) != 1:
        raise ValueError(f"rows must be of one data set, got {sorted(names) or 'none'}")
    generator = np.random.default_rng(0) if generator is None else generator
    tried, validated = tried_settings(rows, kind)
    [data] = names
    if GAUSSIAN not in tried:
        raise ValueError(
            "rows must hold finished settings of the Gaussian: it is what others are compared with"
        )
    targets, useful = targets_that_count(tried, step, rows[0].classes)
    found = {name: one.frontier(targets) for name, one in tried.items()}
    drawn = resampled(tried, targets, resamples, generator)
    bounded = [name for name in tried if name not in (GAUSSIAN, CLAMPED)]
    others = [name for name in tried if name != GAUSSIAN]
    medians = {name: median(found, drawn, name, GAUSSIAN, useful, len(bounded)) for name in others}
    helped = any(medians[name][2] < 1 for name in bounded)
    real = {name: one for name, one in tried.items() if name != CLAMPED}
    return Comparison(
        data=data,
        kind=kind,
        rows=tuple(
            _row(data, name, one, float(target), found, drawn, i)
            for name, one in tried.items()
            for i, target in enumerate(targets)
        ),
        helped=helped,
        sentence=verdict.sentence(data, kind, medians, targets[useful], validated),
        warnings=tuple(verdict.warnings(rows, real, validated)),
        validated=validated,
        counts_from=round(float(targets[useful][0]), 10),
        clip=rows[0].setting.clip_kind,
        medians=tuple(medians.items()),
    )


def _row(
    data: str, name: str, one: Tried, target: float, found: Frontiers, drawn: Resampled, i: int
) -> ComparisonRow:
    (ours, places), theirs = found[name], found[GAUSSIAN][0]
    epsilon = float(ours[i]) if np.isfinite(ours[i]) else None
    gaussian = float(theirs[i]) if np.isfinite(theirs[i]) else None
    row = ComparisonRow(data, name, round(target, 10), epsilon, gaussian, None, None, None, None, None)
    if epsilon is None:
        return row
    place = int(places[i])
    row = replace(row, setting=one.settings[place], test_accuracy=float(one.tested[place].mean()))
    if gaussian is None:
        return row
    if name == GAUSSIAN:
        return replace(row, ratio=1.0)
    low, high = band(ratios(drawn[name][:, i], drawn[GAUSSIAN][:, i]))
    return replace(row, ratio=float(ratios(ours[i], theirs[i])), ratio_low=low, ratio_high=high)
