"""Figure 3 of the paper and the frontiers behind it: one panel per comparison."""

from collections.abc import Sequence

from experiments.comparison.comparison import Comparison, ComparisonRow
from experiments.comparison.frontier import CLAMPED, GAUSSIAN
from experiments.comparison.winner import Winner
from ringfence.report.chart import Chart, Line, Panel, flat


def ratio_chart(comparisons: Sequence[Comparison]) -> Chart:
    """Figure 3: each mechanism's epsilon over the Gaussian's, against the target accuracy.

    A panel in which every law takes what the Gaussian takes is not drawn; the details say so.

    >>> ratio_chart([Comparison("toy", "per-instance", (), False, "No.", (), True, 0.5)]).panels
    ()
    """
    panels = []
    for comparison in comparisons:
        shown = [row for row in comparison.rows if row.target >= comparison.counts_from]
        ratios = [row for row in shown if row.mechanism != GAUSSIAN and row.ratio is not None]
        values = [row.ratio for row in ratios if row.ratio]
        ends = min([0.5, *values]), max([2.0, *values])
        lines = [_ratio_line(name, rows, *ends) for name, rows in _by_mechanism(ratios).items()]
        panels.append(
            Panel(
                _title(comparison),
                f"{'validation' if comparison.validated else 'test'} accuracy reached, %",
                "epsilon, times the Gaussian's",
                tuple(lines),
                y_log=True,
                reference=1.0,
                reference_name="the Gaussian",
            )
        )
    kinds = " and ".join(dict.fromkeys(comparison.kind for comparison in comparisons))
    caption = (
        f"Below the gray line a law reaches the accuracy with a smaller {kinds} epsilon than the Gaussian. "
        "Dashed: the clamp's free help to training, under the Gaussian's account. Bands: 95 % of bootstrap "
        "resamples. The cost of tuning is not in epsilon."
    )
    details = (
        "Dashed is the rectified law's release under the Gaussian's account: the clamp comes after the noise "
        "and costs nothing, so what lies below it is bounded support's own gain. Bands are of resampled "
        "settings and seeds, cut off where no curve goes. Accuracies from half of the best on and above "
        f"chance; a curve ends where one of the two never arrives. {_arrivals(comparisons)}"
    )
    left_out = ", ".join(panel.title for panel in panels if flat(panel))
    if left_out:
        details += f" Not drawn, because every law takes what the Gaussian takes: {left_out}."
    seen = tuple(panel for panel in panels if not flat(panel))
    title = "Privacy at equal accuracy"
    return Chart("utility_ratio", title, caption, seen, sensitive=True, details=details)


def frontier_chart(comparisons: Sequence[Comparison]) -> Chart:
    """Test accuracy against epsilon, for the settings that the comparison chose.

    >>> frontier_chart([Comparison("toy", "per-instance", (), False, "No.", (), True, 0.5)]).panels[0].x_log
    True
    """
    panels = []
    for comparison in comparisons:
        shown = [row for row in comparison.rows if row.target >= comparison.counts_from]
        reached = [row for row in shown if row.epsilon is not None and row.epsilon > 0]
        lines = [_frontier_line(name, rows) for name, rows in _by_mechanism(reached).items()]
        panels.append(
            Panel(
                _title(comparison), f"{comparison.kind} epsilon", "test accuracy, %", tuple(lines), x_log=True
            )
        )
    caption = (
        "For every accuracy the setting with the smallest epsilon that reaches it, averaged over seeds: "
        "up and to the left is better."
    )
    title, details = "Accuracy against epsilon", _arrivals(comparisons)
    return Chart("utility_frontier", title, caption, tuple(panels), sensitive=True, details=details)


def winner_chart(winners: Sequence[Winner]) -> Chart:
    """Test accuracy against epsilon for every clip and law, with the smaller of both statements' epsilons.

    >>> winner_chart([Winner("toy", (0.5,), 0.5, "Gaussian", (), "")]).panels[0].title
    'toy'
    """
    panels = [Panel(one.data, "epsilon", "test accuracy, %", _clip_lines(one), x_log=True) for one in winners]
    caption = "Up and to the left is better: the smallest epsilon with which a law reaches an accuracy." + (
        " Solid: gradients clipped in L2. Dashed: every coordinate clamped."
        if any(_clips(one) > 1 for one in winners)
        else ""
    )
    details = (
        "For every accuracy the setting with the smallest epsilon that reaches it, averaged over seeds. The "
        "epsilon is the smaller of the per-instance one, which must not be published, and of the one that "
        "holds for every dataset. The cost of tuning is not in epsilon."
    )
    title = "Accuracy against epsilon, by law and clip"
    return Chart("clips", title, caption, tuple(panels), sensitive=True, details=details)


def _clips(winner: Winner) -> int:
    return len({candidate.clip for candidate in winner.candidates})


def _clip_lines(winner: Winner) -> tuple[Line, ...]:
    """A colour per law, which the legend names once; where there are two clips, dashes are the clamp's."""
    lines: list[Line] = []
    several = _clips(winner) > 1
    for candidate in sorted(winner.candidates, key=lambda one: (one.clip != "norm", one.name)):
        if candidate.per_instance:
            reached = [
                (epsilon, 100 * accuracy)
                for target, epsilon, accuracy in zip(
                    winner.targets, candidate.epsilon, candidate.test_accuracy, strict=True
                )
                if target >= winner.counts_from and epsilon and accuracy is not None
            ]
            x, y = zip(*sorted(reached), strict=True) if reached else ((), ())
            dashed = several and candidate.clip == "clamp"
            first = not dashed and candidate.law not in {line.name for line in lines}
            lines.append(Line(candidate.law, x, y, mechanism=candidate.law, dashed=dashed, in_legend=first))
    if several:
        lines.append(Line("coordinates clamped", (), (), mechanism="any", dashed=True))
    return tuple(lines)


def _by_mechanism(rows: Sequence[ComparisonRow]) -> dict[str, list[ComparisonRow]]:
    names = dict.fromkeys(row.mechanism for row in rows)
    return {name: [row for row in rows if row.mechanism == name] for name in names}


def _title(comparison: Comparison) -> str:
    return f"{comparison.data}, {'fair search' if comparison.validated else 'paper grid'}"


def _ratio_line(name: str, rows: list[ComparisonRow], bottom: float, top: float) -> Line:
    x = tuple(100 * row.target for row in rows)
    y = tuple(row.ratio or 0.0 for row in rows)
    if name == CLAMPED:  # a band around this line would hide the others
        return Line(name, x, y, mechanism=_look(name), dashed=True)
    low = tuple(max(row.ratio_low or 0.0, bottom) for row in rows)
    high = tuple(min(row.ratio_high or top, top) for row in rows)
    return Line(name, x, y, low, high, mechanism=_look(name))


def _frontier_line(name: str, rows: list[ComparisonRow]) -> Line:
    # One setting may be the best at several targets.
    chosen = {row.setting: (row.epsilon or 0.0, 100 * (row.test_accuracy or 0.0)) for row in rows}
    points = sorted(chosen.values())
    x, y = tuple(x for x, _ in points), tuple(y for _, y in points)
    return Line(name, x, y, mechanism=_look(name), dashed=name == CLAMPED)


def _look(name: str) -> str:
    return name.split(",")[0]


def _arrivals(comparisons: Sequence[Comparison]) -> str:
    """How far each mechanism gets, in words: a curve that ends does not say why it ends."""
    parts = []
    for comparison in comparisons:
        reached = {
            name: max((row.target for row in rows if row.epsilon is not None), default=None)
            for name, rows in _by_mechanism(comparison.rows).items()
        }
        words = (
            f"{name} {'no target' if end is None else f'{100 * end:.0f} %'}" for name, end in reached.items()
        )
        if reached:
            parts.append(f"Highest target reached on {comparison.data}: {', '.join(words)}.")
    return " ".join(parts)
