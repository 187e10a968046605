"""Reports as one HTML file that opens offline and runs no script."""

import math
from pathlib import Path

from ringfence.files.atomic import AS_THE_SYSTEM_SAYS, replacing
from ringfence.report.chart import Chart, Line
from ringfence.report.content import Report, Table, publishable_part, sensitive_parts
from ringfence.report.drawing import page_drawing

_MOST_ROWS = 150  # of a table beside a chart


def write_report(report: Report, path: Path, publishable: bool = False) -> Path:
    """Writes the page, with everything it needs inside, the same bytes each time.

    ``publishable`` leaves out what is marked sensitive. Without it, the page has a box to tick that only
    hides those parts: they are still in the file.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     page = write_report(Report("Nothing yet", ()), Path(folder) / "report.html")
    ...     "<h1>Nothing yet</h1>" in page.read_text(encoding="utf-8")
    True
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, mode=AS_THE_SYSTEM_SAYS) as file:
        file.write(page(report, publishable).encode())
    return path


def page(report: Report, publishable: bool = False) -> str:
    """The text of the page.

    Guarantee: with ``publishable`` the text holds nothing of a part marked sensitive, neither its name nor
    its numbers. A content security policy lets the browser run no script and fetch nothing.

    >>> from ringfence.report.content import Section
    >>> report = Report("An example", (Section("Epsilon is 1.5", sensitive=True), Section("Method")))
    >>> "Epsilon is 1.5" in page(report), "Epsilon is 1.5" in page(report, publishable=True)
    (True, False)
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
    shown = publishable_part(report) if publishable else report
    html: str = templates.get_template("page.html").render(
        report=shown,
        publishable=publishable,
        sensitive=sensitive_parts(report),
        replaced=sum(section.in_place is not None for section in report.sections),
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
