"""Figure 3 of the paper and the frontiers behind it: one panel per comparison."""

from collections.abc import Sequence

from ringfence.paper.comparison.comparison import Comparison, ComparisonRow
from ringfence.paper.comparison.frontier import CLAMPED, GAUSSIAN
from ringfence.paper.comparison.winner import Candidate, Winner
from ringfence.report.chart import Chart, Line, Panel


def ratio_chart(comparisons: Sequence[Comparison]) -> Chart:
    """Figure 3: each mechanism's epsilon over the Gaussian's, against the target accuracy.

    >>> ratio_chart([Comparison("toy", "per-instance", (), False, "No.", (), True, 0.5)]).panels[0].reference
    1.0
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
        "Dashed: the rectified law's release under the Gaussian's account, which is free; what lies below "
        "it is bounded support's own gain. Bands: 95 % of bootstrap resamples of settings and seeds, cut "
        "off where no curve goes. Accuracies from half of the best on; a curve ends where one of the two "
        f"never arrives. {_arrivals(comparisons)} The cost of tuning is not in epsilon."
    )
    return Chart("utility_ratio", "Privacy at equal accuracy", caption, tuple(panels), sensitive=True)


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
        f"up and to the left is better. {_arrivals(comparisons)}"
    )
    return Chart("utility_frontier", "Accuracy against epsilon", caption, tuple(panels), sensitive=True)


def winner_chart(winners: Sequence[Winner]) -> Chart:
    """Test accuracy against epsilon for every clip and law, with the smaller of both statements' epsilons.

    >>> winner_chart([Winner("toy", (0.5,), 0.5, "Gaussian", (), "")]).panels[0].title
    'toy'
    """
    panels = [
        Panel(
            one.data,
            "epsilon",
            "test accuracy, %",
            tuple(_clip_line(one, candidate) for candidate in one.candidates if candidate.per_instance),
            x_log=True,
        )
        for one in winners
    ]
    caption = (
        "For every accuracy the setting with the smallest epsilon that reaches it, averaged over seeds: up "
        "and to the left is better. Solid: gradients clipped in L2. Dashed: every coordinate clamped. The "
        "epsilon is the smaller of the per-instance one, which must not be published, and of the one that "
        "holds for every dataset."
    )
    return Chart("clips", "Clips and laws: accuracy against epsilon", caption, tuple(panels), sensitive=True)


def _clip_line(winner: Winner, candidate: Candidate) -> Line:
    law = candidate.name.removesuffix(", per-instance")
    reached = [
        (epsilon, 100 * accuracy)
        for target, epsilon, accuracy in zip(
            winner.targets, candidate.epsilon, candidate.test_accuracy, strict=True
        )
        if target >= winner.counts_from and epsilon and accuracy is not None
    ]
    x, y = zip(*sorted(reached), strict=True) if reached else ((), ())
    name = law if "clip" in law else f"{law}, clamped coordinates"
    return Line(name, x, y, mechanism=_look(law), dashed=candidate.clip == "clamp")


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
