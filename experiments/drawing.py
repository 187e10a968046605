"""Figures, the rows they are drawn from, and curves made of rows."""

import csv
from codecs import getwriter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_type_hints

from ringfence.files.atomic import AS_THE_SYSTEM_SAYS, replacing
from ringfence.report.chart import Chart, Line, Panel
from ringfence.report.drawing import save_chart

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Row = TypeVar("Row")
Rows = TypeVar("Rows", bound="DataclassInstance")
SIGMA = "\N{GREEK SMALL LETTER SIGMA}"  # ruff takes the letter itself for an o


def write_csv(rows: "Sequence[DataclassInstance]", path: Path) -> Path:
    """Writes one line per row; the columns are the fields of the rows.

    >>> from tempfile import TemporaryDirectory
    >>> from ringfence.mechanisms.base import Look
    >>> with TemporaryDirectory() as folder:
    ...     write_csv([Look("#000000", "", "x")], Path(folder) / "looks.csv").read_text().split()
    ['color,marker,point', '#000000,,x']
    """
    with replacing(path, mode=AS_THE_SYSTEM_SAYS) as file:
        writer = csv.DictWriter(getwriter("utf-8")(file), [field.name for field in fields(rows[0])])
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)
    return path


def read_csv(path: Path, kind: type[Rows]) -> list[Rows]:
    """Reads rows that ``write_csv`` wrote; ``kind`` is the class of the rows.

    >>> from tempfile import TemporaryDirectory
    >>> from ringfence.mechanisms.base import Look
    >>> with TemporaryDirectory() as folder:
    ...     read_csv(write_csv([Look("#000000", "", "x")], Path(folder) / "looks.csv"), Look)
    [Look(color='#000000', marker='', point='x')]
    """
    hints = {name: get_args(hint) or (hint,) for name, hint in get_type_hints(kind).items()}

    def value(text: str, types: tuple[Any, ...]) -> Any:
        if not text and type(None) in types:
            return None
        return types[0](text) if types[0] in (int, float) else text

    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        if list(reader.fieldnames or ()) != list(hints):
            raise ValueError(f"{path} must hold rows of {kind.__name__}, got {reader.fieldnames!r:.100}")
        return [kind(**{name: value(row[name], hints[name]) for name in hints}) for row in reader]


@dataclass(frozen=True)
class Drawn:
    """A figure and the rows it was drawn from."""

    chart: Chart
    rows: "Sequence[DataclassInstance]"

    def write_rows(self, out: Path) -> Path:
        """Writes the rows to NAME.csv in the folder ``out``."""
        return write_csv(self.rows, out / f"{self.chart.name}.csv")

    def save(self, out: Path) -> list[Path]:
        """Writes NAME.png, NAME.pdf and NAME.csv to the folder ``out``."""
        return [*save_chart(self.chart, out), self.write_rows(out)]


def grouped(rows: Iterable[Row], field: str) -> dict[Any, list[Row]]:
    """The rows by the value of a field, both in the order in which they come.

    >>> grouped([1.0, 2j, 3.0], "imag")
    {0.0: [1.0, 3.0], 2.0: [2j]}
    """
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(getattr(row, field), []).append(row)
    return groups


def curve(
    name: str,
    rows: Iterable[object],
    x: str | Callable[[Any], float],
    y: str | Callable[[Any], float],
    **look: Any,
) -> Line:
    """The curve through one point for each row; ``x`` and ``y`` are names of fields, or functions of a row.

    >>> curve("sums", [1.0, 2.0], "real", lambda row: row + 1).y
    (2.0, 3.0)
    """
    found = list(rows)
    points = [tuple(float(value(row)) for row in found) for value in (_field(x), _field(y))]
    return Line(name, points[0], points[1], **look)


def _field(value: str | Callable[[Any], float]) -> Callable[[Any], float]:
    return attrgetter(value) if isinstance(value, str) else value


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
