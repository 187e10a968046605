"""Reports: sections of text, charts and tables, as one HTML file that opens offline and runs no script.

Everything that is in a report is on its page: what must not be published is left out by the author.
"""

import math
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import platform, python_version

from ringfence.files.atomic import AS_THE_SYSTEM_SAYS, replacing
from ringfence.report.chart import Chart, Line
from ringfence.report.drawing import page_drawing

Pairs = tuple[tuple[str, str], ...]
_PACKAGES = ("ringfence", "torch", "numpy", "dp-accounting", "scikit-learn", "matplotlib")
_MOST_ROWS = 150  # of a table beside a chart


@dataclass(frozen=True)
class Table:
    """A table whose cells are text: the author has formatted the numbers, and rounded privacy numbers up.

    >>> Table("epsilons", ("law", "epsilon"), (("sign",),))
    Traceback (most recent call last):
    ValueError: a row of table 'epsilons' must have 2 cells, got 1
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(
                    f"a row of table {self.title!r} must have {len(self.columns)} cells, got {len(row)}"
                )


@dataclass(frozen=True)
class Section:
    """A heading with what belongs under it.

    ``lead`` is the one line that stands at the heading; where a section is ``folded``, the rest is shown when
    a reader opens it.
    """

    heading: str
    text: tuple[str, ...] = ()
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()
    lead: str = ""
    folded: bool = False


@dataclass(frozen=True)
class Report:
    """Everything that goes on the page. ``settings`` and ``versions`` are pairs of a name and a value.

    ``notice`` stands in a frame at the top, such as who may read the page.
    """

    title: str
    sections: tuple[Section, ...]
    summary: tuple[str, ...] = ()
    settings: Pairs = ()
    versions: Pairs = ()
    notice: str = ""


def installed_versions() -> Pairs:
    """The versions of Python, of the platform and of the packages that can change a number.

    >>> dict(installed_versions())["Python"] == python_version()
    True
    """
    pairs = [("Python", python_version()), ("platform", platform())]
    for package in _PACKAGES:
        try:
            pairs.append((package, version(package)))
        except PackageNotFoundError:
            continue
    return tuple(pairs)


def write_report(report: Report, path: Path) -> Path:
    """Writes the page, with everything it needs inside, the same bytes each time.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     page = write_report(Report("Nothing yet", ()), Path(folder) / "report.html")
    ...     "<h1>Nothing yet</h1>" in page.read_text(encoding="utf-8")
    True
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, mode=AS_THE_SYSTEM_SAYS) as file:
        file.write(page(report).encode())
    return path


def page(report: Report) -> str:
    """The text of the page.

    Guarantee: a content security policy lets the browser run no script and fetch nothing.

    >>> "<h2" in page(Report("An example", (Section("Method"),)))
    True
    """
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from markupsafe import Markup
    except ModuleNotFoundError:
        raise ModuleNotFoundError("the report needs jinja2: pip install 'ringfence[report]'") from None
    loader = PackageLoader("ringfence.report", "template")
    templates = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    html: str = templates.get_template("page.html").render(
        report=report,
        # unescaped, since they are our own: the style, and what page_drawing has escaped
        style=Markup(loader.get_source(templates, "page.css")[0]),
        svg=Markup,
        page_drawing=page_drawing,
        data_tables=data_tables,
        right=_right,
    )
    return html


def data_tables(chart: Chart) -> list[Table]:
    """The numbers of a chart: per panel, one table for all lines with the same x.

    Of a curve with very many points, every second or third is in the table, which says so.

    >>> from ringfence.report.chart import Panel
    >>> lines = (Line("a", (1.0,), (2.0,)), Line("b", (1.0,), (float("nan"),)))
    >>> data_tables(Chart("", "", "", (Panel("one", "x", "y", lines),)))[0].rows
    (('1', '2', ''),)
    """
    tables = []
    for panel in chart.panels:
        together: dict[tuple[float, ...], list[Line]] = {}
        for line in panel.lines:
            if line.x:
                together.setdefault(line.x, []).append(line)
        for x, lines in together.items():
            columns = [(panel.x_label, x)]
            for line in lines:
                columns.append((line.name, line.y))
                if line.low is not None and line.high is not None:
                    columns += [(f"{line.name}, low", line.low), (f"{line.name}, high", line.high)]
            texts = [list(map(_number, values)) for _, values in columns]
            if panel.x_names:
                texts[0] = [panel.x_names[int(place)] for place in x]
            every = math.ceil(len(x) / _MOST_ROWS)
            rows = tuple(zip(*texts, strict=True))[::every]
            names = tuple(name for name, _ in columns)
            part = f", one point in {every}" if every > 1 else ""
            tables.append(Table(f"{panel.title or chart.title}: {panel.y_label}{part}", names, rows))
    return tables


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.6g}"


def _right(table: Table) -> list[bool]:
    """Which columns stand to the right: those with a number."""
    return [any(map(_numeric, column)) for column in zip(*table.rows, strict=True)] or [False] * len(
        table.columns
    )


def _numeric(cell: str) -> bool:
    try:
        float(cell.rstrip("%").replace(",", ""))
    except ValueError:
        return False
    return True
