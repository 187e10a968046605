"""Figures, the rows they are drawn from, and curves through these rows."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pandas import DataFrame

from ringfence.files.atomic import AS_THE_SYSTEM_SAYS, replacing
from ringfence.report.chart import Chart, Line, Panel
from ringfence.report.drawing import save_chart

SIGMA = "\N{GREEK SMALL LETTER SIGMA}"  # ruff takes the letter itself for an o


def write_csv(rows: DataFrame, path: Path) -> Path:
    """Writes the rows as a CSV file with a header."""
    with replacing(path, mode=AS_THE_SYSTEM_SAYS) as file:
        rows.to_csv(file, index=False)
    return path


@dataclass(frozen=True)
class Drawn:
    """A figure and the rows it was drawn from."""

    chart: Chart
    rows: DataFrame

    def write_rows(self, out: Path) -> Path:
        """Writes the rows to NAME.csv in the folder ``out``."""
        return write_csv(self.rows, out / f"{self.chart.name}.csv")

    def save(self, out: Path) -> list[Path]:
        """Writes NAME.png, NAME.pdf and NAME.csv to the folder ``out``."""
        return [*save_chart(self.chart, out), self.write_rows(out)]


def curve(name: str, rows: DataFrame, x: str, y: str, **look: Any) -> Line:
    """The curve through one point for each row; ``x`` and ``y`` name columns."""
    return Line(name, tuple(rows[x].astype(float)), tuple(rows[y].astype(float)), **look)


def flat(panel: Panel, tolerance: float = 0.01) -> bool:
    """Whether every curve of the panel lies on its gray line: words say that shorter than a picture."""
    level = panel.reference
    return level is not None and all(
        abs(y - level) <= tolerance * abs(level) for line in panel.lines for y in line.y
    )
