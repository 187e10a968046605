"""Charts before they are drawn: their data, the looks of their lines, and what fits on their axes."""

import math
import re
import sys
import textwrap
from dataclasses import dataclass

from ringfence.mechanisms.base import Mechanism
from ringfence.mechanisms.law import Look

TITLE, LABEL = 30, 36  # how many characters of a line fit above a panel, and how many beside it
MOST_TICKS = 7  # of a log axis
_LARGEST = 1e100  # beyond it, matplotlib's arithmetic of axes overflows
_MARKS = 8  # about how many markers a long curve carries
# Pairs of numbers: every how many decades there are ticks, and at which digits.
_LOG_TICKS: tuple[tuple[int, tuple[float, ...]], ...] = (
    (1, (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 4, 5, 6, 8)),
    (1, (1, 1.5, 2, 3, 4, 6)),
    (1, (1, 2, 5)),
    *((every, (1,)) for every in (1, 2, 3, 5, 10, 20, 50)),
)
# Laws bring their own looks: Okabe and Ito's colours, which colour-blind readers can tell apart, and markers
# that serve in black and white. "any" stands for no law in particular.
_ANY = {"any": Look("#555555", "", "D")}
_OTHERS = tuple(
    Look(color, marker, marker)
    for color, marker in (
        ("#B07900", "v"),
        ("#2F7FB5", "P"),
        ("#6A3D9A", "X"),
        ("#555555", "<"),
        ("#8C510A", ">"),
        ("#2A8C7E", "o"),
        ("#AA4499", "s"),
        ("#7A7A1F", "^"),
    )
)


@dataclass(frozen=True)
class Line:
    """A curve. Its look is that of ``mechanism``; where none is given, that of the first word of ``name``.

    NaN is a gap. What an axis cannot hold (infinity, or 0 on a log axis) is a gap that the chart counts.

    >>> Line("quantised, 5 levels", (0.0, 1.0), (1.0, 2.0)).points
    False
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] | None = None  # the lower edge of a band around the curve
    high: tuple[float, ...] | None = None  # the upper edge of the band
    mechanism: str | None = None
    dashed: bool = False
    points: bool = False  # draw markers, without a line between them
    bars: bool = False  # draw bars from 0; low and high are then the ends of whiskers
    in_legend: bool = True

    def __post_init__(self) -> None:
        for name, values in (("y", self.y), ("low", self.low), ("high", self.high)):
            if values is not None and len(values) != len(self.x):
                raise ValueError(
                    f"{name} of line {self.name!r} must have {len(self.x)} values, got {len(values)}"
                )
        if (self.low is None) != (self.high is None):
            raise ValueError(f"line {self.name!r} must have low and high, or neither")

    @property
    def looks_like(self) -> str:
        """The name that decides the look of the line.

        >>> Line("quantised, 5 levels", (), ()).looks_like
        'quantised'
        """
        return self.mechanism or re.split(r"[\s,;:(]", self.name, maxsplit=1)[0]


@dataclass(frozen=True)
class Panel:
    """A pair of axes, with the curves on them."""

    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    x_log: bool = False
    y_log: bool = False
    y_from_zero: bool = False
    y_also: tuple[float, ...] = ()  # values that a y axis from zero reaches too: those of the other panels
    reference: float | None = None  # where to draw a gray horizontal line
    reference_name: str = ""
    shaded: tuple[float, float] | None = None  # the stretch of the x axis to shade gray
    shaded_name: str = ""
    x_names: tuple[str, ...] = ()  # what stands at x = 0, 1, ... instead of numbers


@dataclass(frozen=True)
class Chart:
    """Panels side by side. ``name`` is the stem of its files; ``caption`` says what there is to see.

    A caption has at most 60 words. What else there is to know is in ``details``, which a page folds away.

    >>> panel = Panel("one", "x", "y", (Line("Gaussian", (0.0, 1.0), (1.0, 2.0)),))
    >>> Chart("demo", "A demonstration", "Nothing to see.", (panel,)).columns
    4
    """

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...]
    columns: int = 4
    details: str = ""


def flat(panel: Panel, tolerance: float = 0.01) -> bool:
    """Whether every curve of the panel lies on its gray line: words say that shorter than a picture.

    >>> line = Line("sign", (1.0, 2.0), (1.0, 1.002))
    >>> flat(Panel("", "x", "y", (line,), reference=1.0)), flat(Panel("", "x", "y", (line,)))
    (True, False)
    """
    level = panel.reference
    return level is not None and all(
        abs(y - level) <= tolerance * abs(level) for line in panel.lines for y in line.y
    )


def looks(chart: Chart) -> dict[str, Look]:
    """The look of every name in the chart: a law's own, by its label; any other name gets the next free look.

    >>> looks(Chart("", "", "", (Panel("", "x", "y", (Line("sign", (), ()),)),)))["sign"].marker
    '^'
    """
    laws = {law.label: law.look for law in Mechanism.known().values()}
    lines = [line for panel in chart.panels for line in panel.lines]
    for line in lines:
        if line.mechanism is not None and line.mechanism not in _ANY | laws:
            known = ", ".join(_ANY | laws)
            raise ValueError(
                f"mechanism of line {line.name!r} must be one of {known}, got {line.mechanism!r}"
            )
    own = _ANY | {label: look for label, look in laws.items() if look is not None}
    others = [name for name in dict.fromkeys(line.looks_like for line in lines) if name not in own]
    return own | {name: _OTHERS[index % len(_OTHERS)] for index, name in enumerate(others)}


def wrapped(text: str, width: int = LABEL) -> list[str]:
    """Breaks a text into lines that fit its panel; the two sides of an equals sign stay together.

    >>> wrapped("short"), len(wrapped("a label that is clearly too long for the side of one panel"))
    (['short'], 2)
    """
    together = text.replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}")
    return textwrap.wrap(together, width, break_long_words=False) or [""]


@dataclass(frozen=True)
class Curve:
    """A line as the axes can hold it: gaps are NaN, ``marked`` are the indices of points with a marker."""

    x: tuple[float, ...]
    y: tuple[float, ...]
    marked: tuple[int, ...]
    isolated: tuple[int, ...]  # indices of points with a gap on both sides: no line shows them
    off_axes: (
        int  # how many values exist but cannot be drawn: (almost) infinite, or not positive on a log axis
    )


def curve(panel: Panel, line: Line, order: int = 0) -> Curve:
    """Fits the line to the panel's axes; ``order`` staggers the markers of curves that run together.

    >>> line = Line("Gaussian", (1.0, 2.0, 3.0), (1.0, float("nan"), float("inf")))
    >>> drawn = curve(Panel("", "x", "y", (line,)), line)
    >>> drawn.y, drawn.isolated, drawn.off_axes
    ((1.0, nan, nan), (0,), 1)
    """
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


@dataclass(frozen=True)
class Stretch:
    """An unbroken stretch of a band."""

    x: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


def band(panel: Panel, line: Line) -> list[Stretch]:
    """The band around the line, as unbroken stretches.

    An edge off the axis is drawn where the panel's values end: a band that reaches zero on a log axis,
    or infinity, is cut there, not left out.

    >>> line = Line("Gaussian", (1.0, 2.0), (2.0, 3.0), low=(0.0, 1.0), high=(4.0, float("inf")))
    >>> band(Panel("", "x", "y", (line,), y_log=True), line)
    [Stretch(x=(1.0, 2.0), low=(1.0, 1.0), high=(4.0, 4.0))]
    """
    if line.low is None or line.high is None:
        return []
    columns = (column for each in panel.lines for column in (each.y, each.low or (), each.high or ()))
    values = [value for column in columns for value in column if _on(panel.y_log, value)]
    bottom, top = min(values, default=1.0), max(values, default=1.0)
    stretches: list[list[tuple[float, float, float]]] = [[]]
    for x, low, high in zip(line.x, line.low, line.high, strict=True):
        if not _on(panel.x_log, x) or math.isnan(low) or math.isnan(high):
            stretches.append([])
        else:
            stretches[-1].append((x, min(max(low, bottom), top), min(max(high, bottom), top)))
    return [Stretch(*zip(*stretch, strict=True)) for stretch in stretches if stretch]


def _on(log: bool, value: float) -> bool:
    """Whether an axis, logarithmic or not, can hold the value."""
    return abs(value) <= _LARGEST and (value > 0 or not log)


def drawn_values(panel: Panel, axis: str) -> list[float]:
    """All finite values that the x axis or the y axis has to reach.

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

    >>> range_from_zero(Panel("", "x", "y", (Line("sign", (1.0,), (2.0,)),)))
    (0.0, 2.1)
    """
    values = (*drawn_values(panel, "y"), *panel.y_also, 0.0)
    low, high = min(values), max(values)
    return (1.05 * low, 1.05 * high) if low < high else None


def log_ticks(panel: Panel, axis: str) -> list[float]:
    """The finest usual ticks that are few enough not to run into each other; an empty list where none fit.

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
