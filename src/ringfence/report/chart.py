"""Charts before they are drawn: their data, and the looks of their lines."""

import re
from dataclasses import dataclass
from itertools import chain, cycle
from typing import NamedTuple

from ringfence.mechanisms.base import Mechanism


class Look(NamedTuple):
    """The look of a line: its colour, its marker ("" for none), and the marker of single points."""

    color: str
    marker: str
    point: str


# The laws of the package in alphabetical order get Okabe and Ito's colours, which colour-blind readers can
# tell apart, and markers that serve in black and white. "any" stands for no law in particular.
_ANY = {"any": Look("#555555", "", "D")}
_LAWS = [
    *(Look("#000000", "", "x"), Look("#E69F00", "v", "v"), Look("#CC79A7", "D", "D")),
    *(Look("#0072B2", "o", "o"), Look("#009E73", "^", "^"), Look("#D55E00", "s", "s")),
]
_COLOURS = ("#B07900", "#2F7FB5", "#6A3D9A", "#555555", "#8C510A", "#2A8C7E", "#AA4499", "#7A7A1F")
_OTHERS = [Look(colour, marker, marker) for colour, marker in zip(_COLOURS, "vPX<>os^", strict=True)]


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
    bars: bool = False  # draw bars from 0; low and high are then the ends of whiskers, dashed ones frames
    in_legend: bool = True

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

    @property
    def described(self) -> str:
        """The drawing in words, for those who do not see it."""
        panels = [
            f"{panel.title or self.title}: {panel.y_label} by {panel.x_label}, of "
            f"{', '.join(dict.fromkeys(line.name for line in panel.lines))}."
            for panel in self.panels
        ]
        return " ".join(panels)


def looks(chart: Chart) -> dict[str, Look]:
    """The look of every name in the chart: of a law, by its label; any other name gets the next free look.

    >>> looks(Chart("", "", "", (Panel("", "x", "y", (Line("sign", (), ()),)),)))["sign"].marker
    '^'
    """
    laws = [law.label for law in Mechanism.known().values()]
    known = ["any", *laws]
    lines = [line for panel in chart.panels for line in panel.lines]
    others = [name for name in dict.fromkeys(line.looks_like for line in lines) if name not in known]
    free = chain(_LAWS, cycle(_OTHERS))
    return _ANY | dict(zip([*laws, *others], free, strict=False))
