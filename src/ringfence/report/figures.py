"""What all pictures share: one look a mechanism, on paper and on a page; PNG and PDF side by side."""

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ringfence.report.chart import Chart, Line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE, LABEL = 30, 36  # characters that fit above a panel, and beside one


@dataclass(frozen=True)
class Look:
    """A colour, a marker on lines (none for the Gaussian's) and one for single points."""

    color: str
    marker: str
    point: str


# Okabe and Ito's colours, told apart by colour-blind readers; the markers serve in black and white.
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
    """What the look of a line goes by.

    >>> looks_by(Line("quantised, 5 levels", (), ())), looks_by(Line("one-sided", (), (), mechanism="any"))
    ('quantised', 'any')
    """
    return line.mechanism or re.split(r"[\s,;:(]", line.name, maxsplit=1)[0]


def looks(chart: Chart) -> dict[str, Look]:
    """A look for everything in the chart; what is no mechanism gets the next free one."""
    names = [looks_by(line) for panel in chart.panels for line in panel.lines]
    others = [name for name in dict.fromkeys(names) if name not in _LOOKS]
    return _LOOKS | {name: _OTHERS[index % len(_OTHERS)] for index, name in enumerate(others)}


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
