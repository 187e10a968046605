"""The look that image files and pages share: a colour and markers per mechanism, and where labels break."""

import re
import textwrap

from ringfence.mechanisms.base import Mechanism
from ringfence.mechanisms.law import Look
from ringfence.report.chart import Chart, Line

TITLE, LABEL = 30, 36  # how many characters of a line fit above a panel, and how many beside it


# The laws bring their own looks: Okabe and Ito's colours, which colour-blind readers can tell apart, and
# markers that serve in black and white. "any" stands for no law in particular.
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


def looks_by(line: Line) -> str:
    """The name that decides the look of a line.

    >>> looks_by(Line("quantised, 5 levels", (), ())), looks_by(Line("one-sided", (), (), mechanism="any"))
    ('quantised', 'any')
    """
    return line.mechanism or re.split(r"[\s,;:(]", line.name, maxsplit=1)[0]


def looks(chart: Chart) -> dict[str, Look]:
    """The look of every name in the chart: a law's own, by its label; any other name gets the next free look.

    >>> from ringfence.report.chart import Panel
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
    others = [name for name in dict.fromkeys(map(looks_by, lines)) if name not in own]
    return own | {name: _OTHERS[index % len(_OTHERS)] for index, name in enumerate(others)}


def wrapped(text: str, width: int = LABEL) -> list[str]:
    """Breaks a text into lines that fit its panel; the two sides of an equals sign stay together.

    >>> wrapped("short"), len(wrapped("a label that is clearly too long for the side of one panel"))
    (['short'], 2)
    """
    together = text.replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}")
    return textwrap.wrap(together, width, break_long_words=False) or [""]
