"""Comparisons of sweeps in words, tables and charts: Figure 3 of the paper, and the page about it."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from experiments.comparison import (
    CLAMPED,
    GAUSSIAN,
    Banded,
    Candidate,
    Comparison,
    Kind,
    compare,
    compare_all,
)
from experiments.drawing import flat
from experiments.sweep.probes import read_rows
from ringfence.numerics.rounding import rounded_up
from ringfence.report.chart import Chart, Line, Panel
from ringfence.report.page import Report, Section, Table, installed_versions, write_report

CLIPS = {"norm": "the L2 clip", "clamp": "clamped coordinates"}
SENSITIVE = "Sensitive: do not publish this file. Per-instance numbers say something about the private data."
NOTE = (
    "The cost of tuning is not in epsilon. A per-instance epsilon is about this dataset alone and must not "
    "be published."
)


class Compared(NamedTuple):
    """A sweep: its laws against the Gaussian under each clip, and everything against the usual way."""

    clips: Sequence[Comparison]
    everything: Comparison


def compare_folder(folder: Path, kind: Kind = "per-instance", step: float = 0.05) -> Compared:
    """The comparisons of the sweep in a folder."""
    rows = read_rows(folder)
    return Compared(compare(rows, kind=kind, step=step), compare_all(rows, step=step))


def write_comparison(data: Sequence[Compared], path: Path) -> Path:
    """Writes a page about sweeps that were compared, which is sensitive."""
    clips = [one for sweep in data for one in sweep.clips]
    report = Report(
        title="Bounded support against the Gaussian mechanism",
        sections=(answer_section(data), comparison_section(clips)),
        notice=SENSITIVE,
        settings=tuple(("data", sweep.everything.data) for sweep in data),
        versions=installed_versions(),
    )
    return write_report(report, path)


def answer(sweep: Compared) -> str:
    """One sentence of at most 30 words: did bounded support help, which law and clip, and what is best?

    Yes is said only of a law whose whole band is below 1.
    """
    bounded = [one for comparison in sweep.clips for one in comparison.bounded]
    if not bounded:
        return "Nothing was compared: only the Gaussian was tried."
    least = sweep.everything.candidates[0]
    if least.helped:
        last = f"the least epsilon is {least.law} with {CLIPS[least.clip]}, {least.statement}"
    else:
        last = f"nothing reliably beat the Gaussian with {CLIPS[sweep.everything.reference.clip]}"
    helped = [one for one in bounded if one.helped]
    if not helped:
        return f"No, no bounded law took less epsilon than the Gaussian by more than luck; {last}."
    said = []
    for clip in dict.fromkeys(one.clip for one in helped):
        own = [one.law for one in helped if one.clip == clip]
        tried = sum(one.clip == clip for one in bounded)
        if len(own) == tried > 1:
            laws = "every bounded law"
        else:
            laws = " and ".join(own) if len(own) < 3 else f"{len(own)} of {tried} bounded laws"
        said.append(f"{laws} with {CLIPS[clip]}")
    rest = "" if len(helped) == len(bounded) else ", no otherwise"
    return f"Yes for {' and '.join(said)}{rest}; {last}."


def answer_section(data: Sequence[Compared]) -> Section:
    """One sentence, one chart and one table for each data set: epsilon at three accuracies; sensitive."""
    everything = [sweep.everything for sweep in data]
    names = [f"{sweep.everything.data}: " if len(data) > 1 else "" for sweep in data]
    return Section(
        "Did bounded support help?",
        charts=(clip_chart(everything),),
        tables=tuple(epsilon_table(one, ratios=False) for one in everything),
        lead="\n".join(f"{name}{answer(sweep)}" for name, sweep in zip(names, data, strict=True)),
    )


def comparison_section(results: Sequence[Comparison]) -> Section:
    """Figure 3: ratios and the tables of epsilon at equal accuracy, all of them sensitive."""
    return Section(
        "Figure 3: epsilon at equal accuracy",
        tuple(dict.fromkeys(line for one in results for line in one.warnings)),
        tuple(chart for chart in [ratio_chart(results)] if chart.panels),
        (ratio_table(results), *map(comparison_table, results)),
        lead="Law by law under each clip: how many times the Gaussian's epsilon, with bands that show luck.",
        folded=True,
    )


def epsilon_table(result: Comparison, ratios: bool = True) -> Table:
    """Clip, law, statement and epsilon at three accuracies, the smallest first.

    With ``ratios``, also the median ratio to the reference and the ends of its band: one number in a cell.
    Where both statements have the same numbers, one line stands for both.
    """
    targets = three_targets(result)
    found: dict[tuple[str, ...], tuple[str, ...]] = {}
    for one in result.candidates:
        times = _banded(one.times) if ratios else ()
        key = (_clip(one), one.law, *times, *_epsilons(one, targets))
        found[key] = (*key[:2], "both" if key in found else one.statement, *key[2:])
    title = f"{result.data}: epsilon by accuracy"
    if ratios:
        reference = (
            f"{result.reference.law} with {CLIPS[result.reference.clip]}, {result.reference.statement}"
        )
        title += f", and the median ratio to {reference}, with its 95 % band"
    columns = ("clip", "law", "statement", *(("times", "from", "to") if ratios else ()))
    return Table(title, (*columns, *map(_percent, targets)), tuple(found.values()))


def ratio_table(results: Sequence[Comparison]) -> Table:
    """For each clip and law the median ratio to the Gaussian's epsilon under that clip, and its band."""
    lines = []
    for result in results:
        name = result.name if result.validated else f"{result.name}, chosen on the test split"
        for one in result.candidates:
            if one.law != GAUSSIAN:
                helped = "yes" if one.helped else "worse" if one.times[1] > 1 else "no"
                lines.append((name, one.law, *_banded(one.times), helped))
    return Table(
        "Median ratio to the Gaussian's epsilon, and its 95 % band",
        ("data", "law", "times", "from", "to", "helped"),
        tuple(lines),
    )


def comparison_table(result: Comparison) -> Table:
    """Epsilon at equal accuracy: one line for every 5 % of accuracy that counts, one column per law."""
    targets = list(filter(_is_five, result.targets)) or result.targets
    cells = zip(*(_epsilons(one, targets) for one in result.candidates), strict=True)
    return Table(
        f"{result.name}: {result.reference.statement} epsilon by accuracy on {_chosen_on(result)}",
        ("accuracy", *(one.law for one in result.candidates)),
        tuple((_percent(target), *own) for target, own in zip(targets, cells, strict=True)),
    )


def three_targets(result: Comparison) -> list[float]:
    """The lowest target, a middle one and the highest; multiples of 5 % if there are three."""
    fives = list(filter(_is_five, result.targets))
    shown = fives if len(fives) >= 3 else result.targets
    return sorted({shown[0], shown[len(shown) // 2], shown[-1]})


def _is_five(target: float) -> bool:
    return round(1000 * target) % 50 == 0


def _percent(target: float) -> str:
    return f"{100 * target:.0f} %"


def _clip(one: Candidate) -> str:
    return "L2" if one.clip == "norm" else one.clip


def _chosen_on(result: Comparison) -> str:
    return "a validation part" if result.validated else "the test split"


def _epsilons(one: Candidate, targets: Sequence[float]) -> tuple[str, ...]:
    """The epsilons at these targets, rounded up; "never" where no setting reaches a target."""
    points = map(one.at, targets)
    return tuple("never" if point is None else rounded_up(point.epsilon, 3) for point in points)


def _banded(times: Banded) -> tuple[str, ...]:
    return tuple("∞" if math.isinf(ratio) else f"{ratio:.2f}" for ratio in times)


def ratio_chart(results: Sequence[Comparison]) -> Chart:
    """Figure 3: each law's epsilon over the Gaussian's, against the target accuracy.

    A panel in which every law takes what the Gaussian takes is not drawn; the details say so.
    """
    panels = [
        Panel(
            _title(result),
            f"{'validation' if result.validated else 'test'} accuracy reached, %",
            "epsilon, times the Gaussian's",
            tuple(_ratio_lines(result)),
            y_log=True,
            reference=1.0,
            reference_name="the Gaussian",
        )
        for result in results
    ]
    kinds = " and ".join(dict.fromkeys(result.reference.statement for result in results))
    caption = (
        f"Below the gray line a law reaches the accuracy with a smaller {kinds} epsilon than the Gaussian. "
        "Dashed: the clamp's free help to training, under the Gaussian's account. Bands: 95 % of bootstrap "
        "resamples. The cost of tuning is not in epsilon."
    )
    details = (
        "Dashed is the rectified law's release under the Gaussian's account: the clamp comes after the noise "
        "and costs nothing, so what lies below it is bounded support's own gain. Bands are of resampled "
        "settings and seeds, cut off where no curve goes. Accuracies from half of the best on and above "
        f"chance; a curve ends where one of the two never arrives. {_arrivals(results)}"
    )
    left_out = ", ".join(panel.title for panel in panels if flat(panel))
    if left_out:
        details += f" Not drawn, because every law takes what the Gaussian takes: {left_out}."
    seen = tuple(panel for panel in panels if not flat(panel))
    return Chart("utility_ratio", "Privacy at equal accuracy", caption, seen, details=details)


def _ratio_lines(result: Comparison) -> list[Line]:
    shown: dict[str, list[tuple[float, Banded]]] = {}
    for one in result.candidates:
        if one.law != GAUSSIAN:
            shown[one.law] = [(p.target, p.ratio) for p in one.points if p.ratio is not None]
    values = [ratio for points in shown.values() for _, (ratio, _, _) in points if ratio]
    bottom, top = min([0.5, *values]), max([2.0, *values])
    lines = []
    for law, points in shown.items():
        times, low, high = zip(*(ratio for _, ratio in points), strict=True) if points else ((), (), ())
        look: dict[str, Any] = {"dashed": True}  # a band around the dashed line would hide the others
        if law != CLAMPED:
            look = {
                "low": tuple(max(end, bottom) for end in low),
                "high": tuple(min(end, top) for end in high),
            }
        reached = tuple(100 * target for target, _ in points)
        lines.append(Line(law, reached, times, mechanism=_look(law), **look))
    return lines


def clip_chart(results: Sequence[Comparison]) -> Chart:
    """Test accuracy against epsilon for every clip and law, with the smaller of both statements' epsilons."""
    several = any(len({one.clip for one in result.candidates}) > 1 for result in results)
    caption = "Up and to the left is better: the smallest epsilon with which a law reaches an accuracy." + (
        " Solid: gradients clipped in L2. Dashed: every coordinate clamped." if several else ""
    )
    details = (
        "For every accuracy the setting with the smallest epsilon that reaches it, averaged over seeds. The "
        "epsilon is the smaller of the per-instance one, which must not be published, and of the one that "
        "holds for every dataset. The cost of tuning is not in epsilon."
    )
    panels = tuple(
        Panel(result.data, "epsilon", "test accuracy, %", tuple(_clip_lines(result)), x_log=True)
        for result in results
    )
    title = "Accuracy against epsilon, by law and clip"
    return Chart("clips", title, caption, panels, details=details)


def _clip_lines(result: Comparison) -> list[Line]:
    """A colour per law, which the legend names once; where there are two clips, dashes are the clamp's."""
    lines: list[Line] = []
    several = len({one.clip for one in result.candidates}) > 1
    for one in sorted(result.candidates, key=lambda one: (one.clip != "norm", one.law)):
        if one.statement == "per-instance":
            dashed = several and one.clip == "clamp"
            first = not dashed and one.law not in {line.name for line in lines}
            # one setting may be the best at several targets
            chosen = {p.setting: (p.epsilon, 100 * p.test_accuracy) for p in one.points if p.epsilon}
            x, y = zip(*sorted(chosen.values()), strict=True) if chosen else ((), ())
            lines.append(Line(one.law, x, y, mechanism=_look(one.law), dashed=dashed, in_legend=first))
    if several:
        lines.append(Line("coordinates clamped", (), (), mechanism="any", dashed=True))
    return lines


def _look(law: str) -> str:
    return GAUSSIAN if law == CLAMPED else law


def _title(result: Comparison) -> str:
    return f"{result.name}, {'fair search' if result.validated else 'paper grid'}"


def _arrivals(results: Sequence[Comparison]) -> str:
    """How far each law gets, in words: a curve that ends does not say why it ends."""
    parts = []
    for result in results:
        words = (
            f"{one.law} {_percent(one.points[-1].target) if one.points else 'no target'}"
            for one in result.candidates
        )
        parts.append(f"Highest target reached on {result.name}: {', '.join(words)}.")
    return " ".join(parts)
