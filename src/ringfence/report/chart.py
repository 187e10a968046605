"""A picture before it is drawn: what matplotlib puts on paper and plotly on a page is the same data."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """A curve. Its look goes by ``mechanism`` (the first word of ``name`` if none is given)."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] | None = None  # of a band around it
    high: tuple[float, ...] | None = None
    mechanism: str | None = None
    dashed: bool = False
    points: bool = False  # marks without a line
    in_legend: bool = True


@dataclass(frozen=True)
class Panel:
    """Axes with curves."""

    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    x_log: bool = False
    y_log: bool = False
    y_from_zero: bool = False
    reference: float | None = None  # a gray horizontal line
    reference_name: str = ""
    shaded: tuple[float, float] | None = None  # a gray stretch of the x axis
    shaded_name: str = ""


@dataclass(frozen=True)
class Chart:
    """Panels side by side. ``name`` is the stem of its files; ``caption`` says what to see in it.

    >>> panel = Panel("one", "x", "y", (Line("Gaussian", (0.0, 1.0), (1.0, 2.0)),))
    >>> Chart("demo", "A demonstration", "Nothing to see.", (panel,)).columns
    4
    """

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...]
    columns: int = 4
    sensitive: bool = False  # its numbers depend on private data: not in a publishable report
