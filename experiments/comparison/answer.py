"""The answer of a sweep in one sentence of at most 30 words, and why it differs from what the README says."""

from collections.abc import Sequence

from experiments.comparison.comparison import Comparison
from experiments.comparison.winner import Winner

CLIPS = {"norm": "the L2 clip", "clamp": "clamped coordinates"}


def answer(results: Sequence[Comparison], winner: Winner) -> str:
    """Did bounded support help, for which law and clip, and what takes the least? All of one data set.

    Yes is said only of a law whose whole band excludes 1.

    >>> medians = (("rectified", (0.3, 0.1, 0.6)), ("truncated", (0.5, 0.2, 1.9)))
    >>> toy = Comparison("toy", "per-instance", (), True, "", (), True, 0.5, medians=medians)
    >>> answer([toy], Winner("toy", (), 0.5, "Gaussian, data-independent", (), "")).split("; ")[0]
    'Yes for rectified with clamped coordinates, no otherwise'
    """
    if not any(one.bounded for one in results):
        return "Nothing was compared: only the Gaussian was tried."
    least = winner.least
    usual = f"the Gaussian with {CLIPS['norm' if 'L2 clip' in winner.reference else 'clamp']}"
    last = (
        f"nothing reliably beat {usual}"
        if least is None
        else f"the least epsilon is {least.law} with {CLIPS[least.clip]}, {least.statement}"
    )
    helped = [one for one in results if one.helped_by]
    if not helped:
        return f"No, no bounded law took less epsilon than the Gaussian by more than luck; {last}."
    said = " and ".join(f"{_laws(one)} with {CLIPS[one.clip]}" for one in helped)
    rest = "" if all(len(one.helped_by) == len(one.bounded) for one in results) else ", no otherwise"
    return f"Yes for {said}{rest}; {last}."


def difference(results: Sequence[Comparison]) -> str:
    """Why a yes differs from the README, which says no; empty where it does not differ.

    >>> difference([Comparison("toy", "per-instance", (), False, "", (), True, 0.5)])
    ''
    """
    helped = [one for one in results if one.helped_by]
    if not helped:
        return ""
    if not any(one.validated for one in helped):
        return (
            "The README says no, from searches that give every law the same number of settings. Here "
            "settings were chosen by the test split, and a bounded law had more of them: try --search fair."
        )
    if any(one.clip == "clamp" for one in helped):
        return (
            "The README says no, unless features are badly conditioned, as raw pixels are: a gain with "
            "clamped coordinates is a sign of that. Centring them by public means gains more."
        )
    return (
        "The README says no, for each of its data sets with the L2 clip: repeat this with other seeds first."
    )


def _laws(one: Comparison) -> str:
    names = one.helped_by
    if len(names) == len(one.bounded) > 1:
        return "every bounded law"
    return " and ".join(names) if len(names) < 3 else f"{len(names)} of {len(one.bounded)} bounded laws"
