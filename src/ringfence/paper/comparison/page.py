"""Comparisons of sweeps on a page: Figure 3 with its table, as sections of a report or as a report."""

import math
from collections.abc import Sequence
from pathlib import Path

from ringfence.numerics.rounding import rounded_up
from ringfence.paper.comparison.chart import frontier_chart, ratio_chart
from ringfence.paper.comparison.comparison import Comparison, ComparisonRow
from ringfence.report.content import Report, Section, Table
from ringfence.report.page.page import write_report
from ringfence.report.versions import installed_versions


def write_comparison(results: Sequence[Comparison], path: Path, publishable: bool = False) -> Path:
    """Writes a page about sweeps that were compared.

    >>> from tempfile import TemporaryDirectory
    >>> empty = Comparison("toy", "per-instance", (), False, "No.", (), True, 0.5)
    >>> with TemporaryDirectory() as folder:
    ...     write_comparison([empty], Path(folder) / "report.html").stat().st_size > 0
    True
    """
    short = Section("Did bounded support help?", tuple(one.sentence for one in results), sensitive=True)
    report = Report(
        title="Bounded support against the Gaussian mechanism",
        sections=(short, comparison_section(results)),
        settings=tuple(("data", one.data) for one in results),
        versions=installed_versions(),
    )
    return write_report(report, path, publishable)


def comparison_section(results: Sequence[Comparison]) -> Section:
    """Figure 3: ratios, frontiers and the table of epsilon at equal accuracy, all of them sensitive.

    >>> comparison_section([Comparison("toy", "per-instance", (), False, "No.", (), True, 0.5)]).sensitive
    True
    """
    charts = (ratio_chart(results), frontier_chart(results))
    text = tuple(dict.fromkeys(line for one in results for line in one.warnings))
    tables = tuple(comparison_table(one) for one in results)
    return Section("Figure 3: epsilon at equal accuracy", text, charts, tables, sensitive=True)


def comparison_table(comparison: Comparison) -> Table:
    """Epsilon at equal accuracy: one line for every 5 % of accuracy, one column per mechanism.

    >>> empty = Comparison("toy", "per-instance", (), False, "", (), True, 0.5)
    >>> comparison_table(empty).columns, comparison_table(empty).sensitive
    (('validation',), True)
    """
    chosen = "chosen on a validation part" if comparison.validated else "chosen on the test split"
    names = list(dict.fromkeys(row.mechanism for row in comparison.rows))
    cells = []
    for target in dict.fromkeys(row.target for row in comparison.rows):
        if round(100 * target) % 5 == 0:
            own = {row.mechanism: row for row in comparison.rows if row.target == target}
            cells.append((f"{target:.0%}", *(_cell(own[name]) for name in names)))
    return Table(
        f"{comparison.data}, {chosen}: {comparison.kind} epsilon; times the Gaussian's; test accuracy",
        ("validation" if comparison.validated else "test", *names),
        tuple(cells),
        sensitive=True,
    )


def _cell(row: ComparisonRow) -> str:
    if row.epsilon is None:
        return "never"
    return f"{rounded_up(row.epsilon)}{_ratio(row)}; {row.test_accuracy:.1%}"


def _ratio(row: ComparisonRow) -> str:
    if row.ratio is None or row.ratio_low is None or row.ratio_high is None:
        return ""
    high = "∞" if math.isinf(row.ratio_high) else f"{row.ratio_high:.2f}"
    return f"; {row.ratio:.2f} ({row.ratio_low:.2f} to {high})"
