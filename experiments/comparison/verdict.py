"""What a comparison says in words: one sentence, and the warnings that belong to it."""

import math
from collections.abc import Sequence

import numpy as np

from experiments.comparison.frontier import CLAMPED, Array, ComparedEpsilon, Tried
from experiments.comparison.ratios import Banded
from experiments.sweep.probes import SweepRow

_TUNING = "the cost of tuning is not in epsilon"


def sentence(
    data: str, kind: ComparedEpsilon, medians: dict[str, Banded], targets: Array, validated: bool
) -> str:
    """Whether bounded support helped, law by law, and by how much; ``targets`` are the accuracies that count.

    Yes is said only of a law whose whole band is below 1.

    >>> medians = {"truncated": (0.5, 0.4, 0.6)}
    >>> sentence("toy", "per-instance", medians, np.array([0.5, 0.9]), True)[:78]
    'Yes, on toy bounded support helped: at equal accuracy truncated took 0.50 (95 '
    """
    medians = dict(medians)
    clamped = medians.pop(CLAMPED, None)
    if not medians:
        return f"Nothing was compared on {data}: only the Gaussian was tried, and {_TUNING}."
    amounts = " and ".join(f"{name} took {banded(median)}" for name, median in medians.items())
    helped = [name for name, (_, _, high) in medians.items() if high < 1]
    if len(helped) == len(medians):
        verdict = f"Yes, on {data} bounded support helped"
    elif helped:
        others = " and ".join(name for name in medians if name not in helped)
        verdict = f"Yes, on {data} {' and '.join(helped)} helped; no, {others} did not by more than luck"
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


def _free(clamped: Banded | None) -> str:
    if clamped is None:
        return ""
    return f", where the Gaussian clamped afterwards, a change that is free, took {banded(clamped)}"


def banded(median: Banded) -> str:
    """A median ratio with its band, in words.

    >>> banded((0.5, 0.4, float("inf")))
    '0.50 (95 % band 0.40 to infinitely many)'
    """
    middle, low, high = map(_shown, median)
    return f"{middle} (95 % band {low} to {high})"


def _shown(ratio: float) -> str:
    return "infinitely many" if math.isinf(ratio) else f"{ratio:.2f}"


def warnings(rows: Sequence[SweepRow], tried: dict[str, Tried], validated: bool) -> list[str]:
    """What a reader of the sentence has to beware of; ``tried`` is what the rows hold, without ``CLAMPED``.

    >>> warnings([], {}, validated=True)
    ['Fewer than three seeds: the bands know little about the noise of training.']
    """
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
