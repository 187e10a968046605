"""A report before it is a page: sections of text, charts and tables, and which of them are sensitive."""

from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from platform import platform, python_version

from ringfence.report.chart import Chart

Pairs = tuple[tuple[str, str], ...]
_PACKAGES = ("ringfence", "torch", "numpy", "dp-accounting", "scikit-learn", "matplotlib")


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
    sensitive: bool = False

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(
                    f"a row of table {self.title!r} must have {len(self.columns)} cells, got {len(row)}"
                )


@dataclass(frozen=True)
class Section:
    """A heading with what belongs under it. ``sensitive`` covers all of the section, its text included.

    ``in_place`` is what a publishable report prints instead of a sensitive section: for example private
    upper bounds, or the statement that holds for every dataset. ``lead`` is the one line that stands at the
    heading; where a section is ``folded``, the rest is shown when a reader opens it.
    """

    heading: str
    text: tuple[str, ...] = ()
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()
    sensitive: bool = False
    in_place: "Section | None" = None
    lead: str = ""
    folded: bool = False

    def __post_init__(self) -> None:
        if self.in_place is not None and not self.sensitive:
            raise ValueError(f"section {self.heading!r} has a section in its place but is not sensitive")


@dataclass(frozen=True)
class Report:
    """Everything that goes on the page. ``settings`` and ``versions`` are pairs of a name and a value.

    Guarantee: none is made about text. Only what the author marked ``sensitive`` is treated as depending
    on private data; title, summary, settings and versions are always printed.
    """

    title: str
    sections: tuple[Section, ...]
    summary: tuple[str, ...] = ()
    settings: Pairs = ()
    versions: Pairs = ()


def sensitive_parts(report: Report) -> int:
    """The number of sections, charts and tables marked sensitive; a sensitive section counts once.

    >>> table = Table("epsilon", ("law", "epsilon"), (("sign", "0.5"),), sensitive=True)
    >>> sensitive_parts(Report("", (Section("a", tables=(table, table)), Section("b", sensitive=True))))
    3
    """
    parts = 0
    for section in report.sections:
        inside = (
            *(chart.sensitive for chart in section.charts),
            *(table.sensitive for table in section.tables),
        )
        parts += 1 if section.sensitive else sum(inside)
    return parts


def publishable_part(report: Report) -> Report:
    """The report without its sensitive parts, and with the sections that were given in their place.

    A report of which nothing is left is refused: an empty page looks as if there was nothing to hide.

    >>> bound = Section("Bounds", ("epsilon is at most 2",))
    >>> private = Section("Examples", ("epsilon is 1.5",), sensitive=True, in_place=bound)
    >>> [section.heading for section in publishable_part(Report("", (private,))).sections]
    ['Bounds']
    """
    sections = []
    for section in report.sections:
        if section.sensitive and section.in_place is None:
            continue
        kept = section.in_place or section
        if kept.sensitive:
            raise ValueError(
                f"section {kept.heading!r} is given in place of a sensitive one and is sensitive"
            )
        part = replace(
            kept,
            charts=tuple(chart for chart in kept.charts if not chart.sensitive),
            tables=tuple(table for table in kept.tables if not table.sensitive),
        )
        if part == kept or part.text or part.charts or part.tables:  # not a heading with nothing left below
            sections.append(part)
    if report.sections and not sections:
        raise ValueError(
            f"nothing of the report {report.title!r} may be published: all of its sections "
            f"({len(report.sections)}) depend on private data"
        )
    return replace(report, sections=tuple(sections))


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
