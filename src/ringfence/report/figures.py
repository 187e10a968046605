"""What all pictures share: one look a mechanism, on paper and on a page; PNG and PDF side by side."""

import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from ringfence.mechanisms.base import Mechanism
from ringfence.mechanisms.law import Look
from ringfence.report.chart import Chart, Line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE, LABEL = 30, 36  # characters that fit above a panel, and beside one


# The laws bring their own looks: Okabe and Ito's colours, which colour-blind readers tell apart, and markers
# that serve in black and white.
_ANY = {"any": Look("#555555", "", ".")}
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
    """What the look of a line goes by.

    >>> looks_by(Line("quantised, 5 levels", (), ())), looks_by(Line("one-sided", (), (), mechanism="any"))
    ('quantised', 'any')
    """
    return line.mechanism or re.split(r"[\s,;:(]", line.name, maxsplit=1)[0]


def looks(chart: Chart) -> dict[str, Look]:
    """A look for everything in the chart: a law's own, by its label; what has none gets the next free one."""
    known = _ANY | {law.label: law.look for law in Mechanism.known().values() if law.look is not None}
    names = [looks_by(line) for panel in chart.panels for line in panel.lines]
    others = [name for name in dict.fromkeys(names) if name not in known]
    return known | {name: _OTHERS[index % len(_OTHERS)] for index, name in enumerate(others)}


def wrapped(text: str, width: int = LABEL) -> list[str]:
    """A text in lines that fit its panel; what is around an equals sign stays together.

    >>> wrapped("short"), len(wrapped("a label that is clearly too long for the side of one panel"))
    (['short'], 2)
    """
    together = text.replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}")
    return textwrap.wrap(together, width, break_long_words=False) or [""]


def new_figure(width: float, height: float) -> "Figure":
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise ModuleNotFoundError("figures need matplotlib: pip install 'ringfence[plots]'") from None
    return Figure(figsize=(width, height), layout="constrained")


def save(figure: "Figure", folder: Path, name: str) -> list[Path]:
    """NAME.png and NAME.pdf in the folder, the same bytes each time."""
    if name != Path(name).name or name in {"", ".", ".."}:
        raise ValueError(f"name must be a file name without a folder, got {name!r}")
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.png", folder / f"{name}.pdf"]
    figure.savefig(paths[0], dpi=200, metadata={"Software": None})
    figure.savefig(paths[1], metadata={"CreationDate": None, "Producer": None, "Creator": None})
    return paths
