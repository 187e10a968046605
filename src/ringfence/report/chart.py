"""A chart before it is drawn: matplotlib (image files) and plotly (pages) draw the same data."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """A curve. Its look is that of ``mechanism``; where none is given, that of the first word of ``name``.

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
    sensitive: bool = False  # whether its numbers depend on private data: a publishable report leaves it out
    details: str = ""
