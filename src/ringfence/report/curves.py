"""Which values of a line can be drawn. NaN is a gap; a value off the axes is a gap that is counted."""

import math
from dataclasses import dataclass

from ringfence.report.chart import Line, Panel

_MARKS = 8  # about how many markers a long curve carries


@dataclass(frozen=True)
class Curve:
    """A line as the axes can hold it: gaps are NaN, ``marked`` are the indices of points with a marker."""

    x: tuple[float, ...]
    y: tuple[float, ...]
    marked: tuple[int, ...]
    isolated: tuple[int, ...]  # indices of points with a gap on both sides: no line shows them
    off_axes: int  # how many values exist but cannot be drawn: infinite, or not positive on a log axis


@dataclass(frozen=True)
class Stretch:
    """An unbroken stretch of a band."""

    x: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


def curve(panel: Panel, line: Line, order: int = 0) -> Curve:
    """Fits the line to the panel's axes; ``order`` staggers the markers of curves that run together.

    >>> line = Line("Gaussian", (1.0, 2.0, 3.0), (1.0, float("nan"), float("inf")))
    >>> drawn = curve(Panel("", "x", "y", (line,)), line)
    >>> drawn.y, drawn.isolated, drawn.off_axes
    ((1.0, nan, nan), (0,), 1)
    """
    _check(line)
    points = list(zip(line.x, line.y, strict=True))
    there = [not (math.isnan(x) or math.isnan(y)) for x, y in points]
    drawn = [_on(panel.x_log, x) and _on(panel.y_log, y) for x, y in points]
    padded = [False, *drawn, False]
    isolated = [i for i, on in enumerate(drawn) if on and not padded[i] and not padded[i + 2]]
    step = len(points) // _MARKS if len(points) > 2 * _MARKS else 1
    marked = {*range(order * step // 5, len(points), step), *isolated}
    return Curve(
        x=tuple(x if on else math.nan for (x, _), on in zip(points, drawn, strict=True)),
        y=tuple(y if on else math.nan for (_, y), on in zip(points, drawn, strict=True)),
        marked=tuple(sorted(marked)),
        isolated=tuple(isolated),
        off_axes=sum(there) - sum(drawn),
    )


def off_axes(panel: Panel) -> int:
    """How many values of the panel cannot be drawn.

    >>> off_axes(Panel("", "x", "y", (Line("sign", (1.0,), (0.0,)),), y_log=True))
    1
    """
    return sum(curve(panel, line).off_axes for line in panel.lines)


def band(panel: Panel, line: Line) -> list[Stretch]:
    """The band around the line, as unbroken stretches.

    An edge off the axis is drawn where the panel's values end: a band that reaches zero on a log axis,
    or infinity, is cut there, not left out.

    >>> line = Line("Gaussian", (1.0, 2.0), (2.0, 3.0), low=(0.0, 1.0), high=(4.0, float("inf")))
    >>> band(Panel("", "x", "y", (line,), y_log=True), line)
    [Stretch(x=(1.0, 2.0), low=(1.0, 1.0), high=(4.0, 4.0))]
    """
    _check(line)
    if line.low is None or line.high is None:
        return []
    bottom, top = _span(panel)
    stretches: list[list[tuple[float, float, float]]] = [[]]
    for x, low, high in zip(line.x, line.low, line.high, strict=True):
        if not _on(panel.x_log, x) or math.isnan(low) or math.isnan(high):
            stretches.append([])
        else:
            stretches[-1].append((x, min(max(low, bottom), top), min(max(high, bottom), top)))
    return [Stretch(*zip(*stretch, strict=True)) for stretch in stretches if stretch]


def _span(panel: Panel) -> tuple[float, float]:
    """The smallest and the largest value of the panel that can be drawn."""
    values = [
        value
        for line in panel.lines
        for column in (line.y, line.low or (), line.high or ())
        for value in column
        if _on(panel.y_log, value)
    ]
    return min(values, default=1.0), max(values, default=1.0)


def _on(log: bool, value: float) -> bool:
    """Whether an axis, logarithmic or not, can hold the value."""
    return math.isfinite(value) and (value > 0 or not log)


def _check(line: Line) -> None:
    for name, values in (("y", line.y), ("low", line.low), ("high", line.high)):
        if values is not None and len(values) != len(line.x):
            raise ValueError(
                f"{name} of line {line.name!r} must have {len(line.x)} values, got {len(values)}"
            )
    if (line.low is None) != (line.high is None):
        raise ValueError(f"line {line.name!r} must have low and high, or neither")
