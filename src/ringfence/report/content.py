"""A report before it is a page: sections of text, charts and tables, and which of them are sensitive."""

from dataclasses import dataclass, replace

from ringfence.report.chart import Chart

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Table:
    """Cells as text: numbers come formatted, privacy numbers rounded up."""

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
    """A heading with what belongs under it. ``sensitive`` holds for all of it, the text too.

    ``in_place`` stands for a sensitive section in a report to be published: private upper bounds,
    the statement that holds for every dataset.
    """

    heading: str
    text: tuple[str, ...] = ()
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()
    sensitive: bool = False
    in_place: "Section | None" = None

    def __post_init__(self) -> None:
        if self.in_place is not None and not self.sensitive:
            raise ValueError(f"section {self.heading!r} has a section in its place but is not sensitive")


@dataclass(frozen=True)
class Report:
    """All that goes on the page. ``settings`` and ``versions`` are pairs of a name and a value.

    Guarantee: none is made about text. What depends on private data is what the author marked
    ``sensitive``; title, summary, settings and versions are always printed.
    """

    title: str
    sections: tuple[Section, ...]
    summary: tuple[str, ...] = ()
    settings: Pairs = ()
    versions: Pairs = ()


def sensitive_parts(report: Report) -> int:
    """Sections, charts and tables marked sensitive; what is in a sensitive section counts once.

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
    """The report without what is sensitive, with what was given in its place.

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
        sections.append(
            replace(
                kept,
                charts=tuple(chart for chart in kept.charts if not chart.sensitive),
                tables=tuple(table for table in kept.tables if not table.sensitive),
            )
        )
    return replace(report, sections=tuple(sections))
