"""A released table as a chart: a bar with a whisker for each row, gray where the number is hidden."""

import math
from collections.abc import Sequence

from ringfence.report.chart import Chart, Line, Panel

MOST_NAMES = 24  # rows of a table that have their names in a chart
MOST_BARS = 2000  # rows of a table that are drawn: no eye tells more of them apart
_MOST_PANELS = 12


def bar_chart(
    title: str,
    caption: str,
    y_label: str,
    names: Sequence[str],
    labels: Sequence[tuple[str, ...]],
    heights: Sequence[float],
    ends: Sequence[tuple[float, float]],
    hidden: tuple[str, float] | None = None,
) -> Chart:
    """One panel, or one for each value of the first column where there are several columns.

    ``names`` are those of the columns that tell the rows apart, ``labels`` their values in each row.
    ``heights`` are the released numbers, NaN where a number is hidden, and ``ends`` those of the whiskers.
    ``hidden`` is the name and the height of the gray bars that stand for hidden numbers.

    >>> labels = [("north", "young"), ("north", "old"), ("south", "young"), ("south", "old")]
    >>> ends = [(8.0, 12.0), (1.0, 5.0), (3.0, 7.0), (math.nan, math.nan)]
    >>> names, heights = ("region", "age"), [10.0, 3.0, 5.0, math.nan]
    >>> chart = bar_chart("t", "c", "count", names, labels, heights, ends, hidden=("below 3", 3.0))
    >>> [panel.title for panel in chart.panels], chart.panels[1].x_label, chart.panels[1].x_names
    (['region: north', 'region: south'], 'age', ('young', 'old'))
    """
    if len(labels) > MOST_BARS:
        caption += f" The first {MOST_BARS:,} of {len(labels):,} rows are drawn."
        labels, heights, ends = labels[:MOST_BARS], heights[:MOST_BARS], ends[:MOST_BARS]
    groups: dict[str, list[int]] = {}
    for row, label in enumerate(labels):
        groups.setdefault(label[0] if label else "", []).append(row)
    if not 1 < len(groups) <= _MOST_PANELS or any(len(label) < 2 for label in labels):
        groups = {"": list(range(len(labels)))}
    apart = len(groups) > 1
    reach = tuple(end for both in ends for end in both if math.isfinite(end))
    panels = []
    for name, rows in groups.items():
        shown = [label[1:] if apart else label for label in (labels[row] for row in rows)]
        named = len(rows) <= MOST_NAMES
        place = tuple(float(number + (not named)) for number in range(len(rows)))
        lines = [
            Line(
                y_label,
                place,
                tuple(heights[row] for row in rows),
                low=tuple(ends[row][0] for row in rows),
                high=tuple(ends[row][1] for row in rows),
                mechanism="rectified",
                bars=True,
            )
        ]
        if hidden is not None:
            gray = tuple(hidden[1] if math.isnan(heights[row]) else math.nan for row in rows)
            lines.append(Line(hidden[0], place, gray, mechanism="any", bars=True))
        panels.append(
            Panel(
                title=f"{names[0]}: {name}" if apart else title,
                x_label=", ".join(names[apart:]) if named else "row of the table",
                y_label=y_label,
                lines=tuple(lines),
                y_from_zero=True,
                y_also=reach,
                x_names=tuple(", ".join(label) for label in shown) if named else (),
            )
        )
    return Chart("chart", title, caption, tuple(panels), columns=3)
