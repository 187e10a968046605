"""Which clip, law and statement take the smallest epsilon at equal accuracy, and by how much.

The usual way to train privately is the reference: the Gaussian on gradients clipped in L2, with an epsilon
that holds for every dataset and may be published. A per-instance epsilon is the smaller of what was computed
for this dataset and of what holds for every dataset. It must not be published, so it has to be clearly
smaller to be worth anything.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from experiments.comparison.frontier import (
    CLAMPED,
    GAUSSIAN,
    Array,
    ComparedEpsilon,
    Tried,
    targets_that_count,
    tried_settings,
)
from experiments.comparison.ratios import Banded, Resampled, median, resampled
from experiments.comparison.verdict import banded
from experiments.sweep.probes import SweepRow
from ringfence import checks

# The statements, and the epsilon of a row that belongs to each.
_KINDS: dict[str, ComparedEpsilon] = {"data-independent": "data-independent", "per-instance": "tightest"}
_REFERENCES = tuple(f"{GAUSSIAN}{clip}, data-independent" for clip in (", L2 clip", ""))


@dataclass(frozen=True)
class Candidate:
    """A law, its clip and a statement; the epsilon at each target, None where it is never reached.

    ``ratio`` is that to the reference: the median over the targets that count, and its band.
    """

    name: str
    clip: str
    epsilon: tuple[float | None, ...]
    test_accuracy: tuple[float | None, ...]
    ratio: Banded

    @property
    def law(self) -> str:
        """The law without its clip and statement.

        >>> Candidate("sign, L2 clip, per-instance", "norm", (), (), (1.0, 1.0, 1.0)).law
        'sign'
        """
        return self.name.removesuffix(f", {self.statement}").removesuffix(", L2 clip")

    @property
    def statement(self) -> str:
        """Which epsilon it is: data-independent or per-instance.

        >>> Candidate("sign, per-instance", "clamp", (), (), (1.0, 1.0, 1.0)).statement
        'per-instance'
        """
        return next(statement for statement in _KINDS if self.name.endswith(statement))

    @property
    def per_instance(self) -> bool:
        """Whether the statement is about this dataset alone.

        >>> Candidate("sign, per-instance", "clamp", (), (), (1.0, 1.0, 1.0)).per_instance
        True
        """
        return self.name.endswith("per-instance")


@dataclass(frozen=True)
class Winner:
    """Every candidate of a sweep, from the smallest epsilon to the largest, and one sentence."""

    data: str
    targets: tuple[float, ...]
    counts_from: float  # the first target that counts in the sentence
    reference: str
    candidates: tuple[Candidate, ...]
    sentence: str
    runs: int = 0  # how many runs of this data set the choice is from
    chosen_on: str = "a validation part"
    delta: float | None = None

    @property
    def least(self) -> Candidate | None:
        """What takes less than the reference, and the least of all; None where no whole band is below 1.

        >>> Winner("toy", (), 0.5, "Gaussian, data-independent", (), "").least
        """
        first = self.candidates[0] if self.candidates else None
        return first if first is not None and first.ratio[2] < 1 else None

    def three(self) -> list[int]:
        """The places of three targets that count: the lowest, one in the middle and the highest.

        Multiples of 5 % where there are three of them.

        >>> winner = Winner("toy", (0.4, 0.45, 0.46, 0.5, 0.55, 0.57), 0.45, "Gaussian", (), "")
        >>> [winner.targets[place] for place in winner.three()]
        [0.45, 0.5, 0.55]
        """
        count = [place for place, target in enumerate(self.targets) if target >= self.counts_from]
        round_ones = [place for place in count if round(1000 * self.targets[place]) % 50 == 0]
        shown = round_ones if len(round_ones) >= 3 else count
        return sorted({shown[0], shown[len(shown) // 2], shown[-1]}) if shown else []


def winner(rows: Sequence[SweepRow], *, step: float = 0.05, resamples: int = 1000, seed: int = 0) -> Winner:
    """Compares every clip, law and statement of a sweep with the reference.

    A candidate wins over the reference only if the whole band of its median ratio is below 1.

    >>> from experiments.sweep.settings import SweepSetting
    >>> def row(clip, seed, epsilon):
    ...     setting = SweepSetting("gaussian", 0.1, 10.0, learning_rate=1.0, steps=5, clip_kind=clip)
    ...     own = {"epsilon_pdp": epsilon, "epsilon_data_independent": epsilon}
    ...     return SweepRow("toy", setting.label, setting, seed, 1e-5, 0.9, 0.9, **own)
    >>> rows = [row(clip, seed, epsilon) for clip, epsilon in (("clamp", 3), ("norm", 1)) for seed in (0, 1)]
    >>> winner(rows).sentence[:68]
    'On toy nothing takes less than Gaussian, L2 clip, data-independent: '
    """
    checks.probability("step", step)
    tried: dict[str, Tried] = {}
    for statement, kind in _KINDS.items():
        own, validated = tried_settings(rows, kind)
        tried |= {f"{law}, {statement}": one for law, one in own.items() if law != CLAMPED}
    reference = next((name for name in _REFERENCES if name in tried), None)
    if reference is None:
        raise ValueError("rows must hold finished settings of the Gaussian: it is the reference")
    targets, useful = targets_that_count(tried, step, rows[0].classes)
    found = {name: one.frontier(targets) for name, one in tried.items()}
    drawn: Resampled = {}
    for statement in _KINDS:  # both statements see the same draws
        own = {name: one for name, one in tried.items() if name.endswith(statement)}
        drawn |= resampled(own, targets, resamples, np.random.default_rng(seed))
    candidates = [
        _candidate(
            name, one, *found[name], median(found, drawn, name, reference, useful, len(tried) - 1 or 1)
        )
        for name, one in tried.items()
    ]
    candidates.sort(key=lambda candidate: (candidate.ratio, candidate.name != reference))
    return Winner(
        data=rows[0].data,
        targets=tuple(round(float(target), 10) for target in targets),
        counts_from=round(float(targets[useful][0]), 10),
        reference=reference,
        candidates=tuple(candidates),
        sentence=_sentence(rows[0].data, candidates, reference, targets[useful]),
        runs=len(rows),
        chosen_on="a validation part" if validated else "the test split",
        delta=rows[0].delta,
    )


def _candidate(name: str, one: Tried, epsilon: Array, places: Array, ratio: Banded) -> Candidate:
    reached = np.isfinite(epsilon)
    return Candidate(
        name=name,
        clip=one.settings[0].clip_kind,
        epsilon=tuple(float(value) if there else None for value, there in zip(epsilon, reached, strict=True)),
        test_accuracy=tuple(
            float(one.tested[int(place)].mean()) if there else None
            for place, there in zip(places, reached, strict=True)
        ),
        ratio=ratio,
    )


def _sentence(data: str, candidates: Sequence[Candidate], reference: str, targets: Array) -> str:
    """``candidates`` from the smallest ratio to the largest."""
    same = (1.0, 1.0, 1.0)  # the reference's own per-instance epsilon, where that is no smaller
    others = [one for one in candidates if one.name != reference and one.ratio != same]
    if not others:
        return f"Nothing was compared on {data}: only {reference} was tried."
    first = others[0]
    amount = f"{first.name} took {banded(first.ratio)} times as much"
    if first.ratio[2] < 1:
        verdict = (
            f"On {data} {first.name} takes the least: {banded(first.ratio)} times what {reference} takes"
        )
    elif first.ratio[1] >= 1:
        verdict = f"On {data} nothing takes less than {reference}: {amount}"
    else:
        luck = "by more than this sweep can tell from luck"
        verdict = f"On {data} nothing takes less than {reference} {luck}: {amount}"
    own = next(one.clip for one in candidates if one.name == reference)
    across = next((one for one in others if one.clip not in (own, first.clip)), None)
    if across is not None:
        verdict += f"; with the other clip the best, {across.name}, took {banded(across.ratio)} times as much"
    ends = f"{100 * targets[0]:.0f} to {100 * targets[-1]:.0f} %"
    words = f"{verdict}; the median over targets of {ends}, and the cost of tuning is not in epsilon."
    if "per-instance" in verdict:
        words += " A per-instance epsilon is about this dataset alone and must not be published."
    return words
