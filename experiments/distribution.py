"""Charts of how numbers of many examples are spread."""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise

from ringfence import checks
from ringfence.report.chart import Chart, Line, Panel


def distribution_chart(
    name: str,
    title: str,
    caption: str,
    values: Mapping[str, Sequence[float]],
    *,
    x_label: str,
    y_label: str = "examples",
    bins: int = 30,
    x_log: bool = False,
    sensitive: bool = True,
    details: str = "",
) -> Chart:
    """Draws the outline of one histogram for each name in ``values``, all over the same bins.

    Values that are not finite, or not positive on a log axis, are in no bin; the caption says how many.

    >>> chart = distribution_chart("h", "", "", {"sign": [1.0, 1.0, 2.0]}, x_label="epsilon", bins=2)
    >>> chart.panels[0].lines[0].x, chart.panels[0].lines[0].y, chart.sensitive
    ((1.0, 1.0, 1.5, 1.5, 2.0, 2.0), (0.0, 2.0, 2.0, 1.0, 1.0, 0.0), True)
    """
    checks.count("bins", bins, at_least=1)
    inside = {
        who: [value for value in numbers if math.isfinite(value) and (value > 0 or not x_log)]
        for who, numbers in values.items()
    }
    edges = _edges([value for numbers in inside.values() for value in numbers], bins, x_log)
    lines = tuple(_outline(who, numbers, edges) for who, numbers in inside.items())
    left_out = sum(map(len, values.values())) - sum(map(len, inside.values()))
    note = f" In no bin: {left_out}, infinite, not a number or off the axis." if left_out else ""
    panel = Panel(title, x_label, y_label, lines, x_log=x_log, y_from_zero=True)
    return Chart(name, title, caption + note, (panel,), sensitive=sensitive, details=details)


def _edges(values: list[float], bins: int, log: bool) -> list[float]:
    if not values:
        return []
    low, high = min(values), max(values)
    if low == high:
        low, high = (low / 2, high * 2) if log else (low - 0.5, high + 0.5)
    if log:
        inner = [low * (high / low) ** (k / bins) for k in range(1, bins)]
    else:
        inner = [low + (high - low) * k / bins for k in range(1, bins)]
    return [low, *inner, high]  # the ends are exact: rounding must not push a value out


def _outline(name: str, values: list[float], edges: list[float]) -> Line:
    if not edges:
        return Line(name, (), ())
    counts = [0.0] * (len(edges) - 1)
    for value in values:
        counts[min(bisect_right(edges, value), len(counts)) - 1] += 1
    x, y = [edges[0]], [0.0]
    for (left, right), count in zip(pairwise(edges), counts, strict=True):
        x += [left, right]
        y += [count, count]
    return Line(name, (*x, edges[-1]), (*y, 0.0))
