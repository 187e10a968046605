"""The look that image files and pages share: a colour and markers per mechanism, and where labels break."""

import re
import textwrap
from dataclasses import dataclass

from ringfence.report.chart import Chart, Line

TITLE, LABEL = 30, 36  # how many characters of a line fit above a panel, and how many beside it


@dataclass(frozen=True)
class Look:
    """A colour, the marker on a line (empty where the line has none) and the marker of a single point."""

    color: str
    marker: str
    point: str


# Colour-blind readers can tell Okabe and Ito's colours apart; the markers serve in black and white.
_LOOKS = {
    "Gaussian": Look("#000000", "", "x"),
    "rectified": Look("#0072B2", "o", "o"),
    "truncated": Look("#D55E00", "s", "s"),
    "sign": Look("#009E73", "^", "^"),
    "quantised": Look("#CC79A7", "D", "D"),
    "any": Look("#555555", "", "."),
}
_OTHERS = tuple(
    Look(color, marker, marker)
    for color, marker in (
        ("#B07900", "v"),
        ("#2F7FB5", "P"),
        ("#6A3D9A", "X"),
        ("#555555", "<"),
        ("#8C510A", ">"),
    )
)


def looks_by(line: Line) -> str:
    """The name that decides the look of a line.

    >>> looks_by(Line("quantised, 5 levels", (), ())), looks_by(Line("one-sided", (), (), mechanism="any"))
    ('quantised', 'any')
    """
    return line.mechanism or re.split(r"[\s,;:(]", line.name, maxsplit=1)[0]


def looks(chart: Chart) -> dict[str, Look]:
    """The look of every name in the chart; a name that is no mechanism gets the next free look.

    >>> from ringfence.report.chart import Panel
    >>> looks(Chart("", "", "", (Panel("", "x", "y", (Line("sign", (), ()),)),)))["sign"].marker
    '^'
    """
    lines = [line for panel in chart.panels for line in panel.lines]
    for line in lines:
        if line.mechanism is not None and line.mechanism not in _LOOKS:
            known = ", ".join(_LOOKS)
            raise ValueError(
                f"mechanism of line {line.name!r} must be one of {known}, got {line.mechanism!r}"
            )
    names = [looks_by(line) for line in lines]
    others = [name for name in dict.fromkeys(names) if name not in _LOOKS]
    return _LOOKS | {name: _OTHERS[index % len(_OTHERS)] for index, name in enumerate(others)}


def wrapped(text: str, width: int = LABEL) -> list[str]:
    """Breaks a text into lines that fit its panel; the two sides of an equals sign stay together.

    >>> wrapped("short"), len(wrapped("a label that is clearly too long for the side of one panel"))
    (['short'], 2)
    """
    together = text.replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}")
    return textwrap.wrap(together, width, break_long_words=False) or [""]
