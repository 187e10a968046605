"""Reports: sections of text, charts and tables, as one HTML file that opens offline and runs no script.

Everything that is in a report is on its page: what must not be published is left out by the author.
"""

import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import platform, python_version

from ringfence.files.atomic import AS_THE_SYSTEM_SAYS, replacing
from ringfence.report.chart import Chart
from ringfence.report.drawing import svg_address

Pairs = tuple[tuple[str, str], ...]
_PACKAGES = ("ringfence", "torch", "numpy", "dp-accounting", "scikit-learn", "matplotlib")


@dataclass(frozen=True)
class Table:
    """A table whose cells are text: the author has formatted the numbers, and rounded privacy numbers up."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


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
        style=Markup(loader.get_source(templates, "page.css")[0]),  # unescaped, since it is our own
        svg_address=svg_address,
        right=_right,
    )
    return html


def _right(table: Table) -> list[bool]:
    """Which columns stand to the right: those with a number."""
    columns = zip(*table.rows, strict=True) if table.rows else [()] * len(table.columns)
    return [any(re.fullmatch(r"-?[\d,.]+(e[-+]\d+)?%?", cell) for cell in column) for column in columns]
