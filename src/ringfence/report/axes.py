"""How far axes reach and where a log axis has its ticks, the same in image files and on pages."""

import math
import sys

from ringfence.report.chart import Panel
from ringfence.report.curves import band, curve

MOST_TICKS = 7  # per axis
# Pairs of numbers: every how many decades there are ticks, and at which digits.
_LOG_TICKS: tuple[tuple[int, tuple[float, ...]], ...] = (
    (1, (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 4, 5, 6, 8)),
    (1, (1, 1.5, 2, 3, 4, 6)),
    (1, (1, 2, 5)),
    *((every, (1,)) for every in (1, 2, 3, 5, 10, 20, 50)),
)


def drawn_values(panel: Panel, axis: str) -> list[float]:
    """All finite values that the x axis or the y axis has to reach.

    >>> from ringfence.report.chart import Line
    >>> drawn_values(Panel("", "x", "y", (Line("sign", (1.0,), (2.0,)),), reference=3.0), "y")
    [2.0, 3.0]
    """
    values: list[float] = []
    for line in panel.lines:
        drawn = curve(panel, line)
        values += drawn.x if axis == "x" else drawn.y
        for stretch in band(panel, line):
            values += stretch.x if axis == "x" else (*stretch.low, *stretch.high)
    extra = panel.shaded or () if axis == "x" else () if panel.reference is None else (panel.reference,)
    return [value for value in (*values, *extra) if math.isfinite(value)]


def range_from_zero(panel: Panel) -> tuple[float, float] | None:
    """From 0 to a little above the largest value; below 0 only where a value is negative.

    >>> from ringfence.report.chart import Line
    >>> range_from_zero(Panel("", "x", "y", (Line("sign", (1.0,), (2.0,)),)))
    (0.0, 2.1)
    """
    values = drawn_values(panel, "y")
    values += panel.y_also
    low, high = min(0.0, *values, 0.0), max(0.0, *values, 0.0)
    return (1.05 * low, 1.05 * high) if low < high else None


def log_ticks(panel: Panel, axis: str) -> list[float]:
    """The finest usual ticks that are few enough not to run into each other; an empty list where none fit.

    >>> from ringfence.report.chart import Line
    >>> line = Line("sign", (0.5, 3.0), (0.01, 10.0))
    >>> panel = Panel("", "x", "y", (line,), x_log=True, y_log=True)
    >>> log_ticks(panel, "x"), log_ticks(panel, "y")
    ([0.6, 1.0, 1.5, 2.0, 3.0], [0.01, 0.1, 1.0, 10.0])
    """
    values = [value for value in drawn_values(panel, axis) if value > 0]
    if not values:
        return []
    low = max(min(values) / 1.1, sys.float_info.min)
    high = min(max(values) * 1.1, sys.float_info.max)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for every, digits in _LOG_TICKS:
        ticks = [float(f"{digit}e{power}") for power in powers if power % every == 0 for digit in digits]
        seen = [tick for tick in ticks if low <= tick <= high]
        if 2 <= len(seen) <= MOST_TICKS:
            return seen
    return []
