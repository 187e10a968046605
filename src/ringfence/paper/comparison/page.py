"""Comparisons of sweeps on a page: Figure 3 with its table, as sections of a report or as a report."""

import math
from collections.abc import Sequence
from pathlib import Path

from ringfence.numerics.rounding import rounded_up
from ringfence.paper.comparison.chart import frontier_chart, ratio_chart, winner_chart
from ringfence.paper.comparison.comparison import Comparison, ComparisonRow
from ringfence.paper.comparison.verdict import banded
from ringfence.paper.comparison.winner import Winner
from ringfence.report.content import Report, Section, Table
from ringfence.report.page.page import write_report
from ringfence.report.versions import installed_versions


def write_comparison(
    results: Sequence[Comparison], winners: Sequence[Winner], path: Path, publishable: bool = False
) -> Path:
    """Writes a page about sweeps that were compared.

    >>> from tempfile import TemporaryDirectory
    >>> empty = Comparison("toy", "per-instance", (), False, "No.", (), True, 0.5)
    >>> with TemporaryDirectory() as folder:
    ...     write_comparison([empty], [], Path(folder) / "report.html").stat().st_size > 0
    True
    """
    short = Section("Did bounded support help?", tuple(one.sentence for one in results), sensitive=True)
    report = Report(
        title="Bounded support against the Gaussian mechanism",
        sections=(short, winner_section(winners), comparison_section(results)),
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


def winner_section(winners: Sequence[Winner]) -> Section:
    """Which clip, law and statement take the least: a sentence and a table for each data set.

    >>> winner_section([]).sensitive
    True
    """
    text = tuple(one.sentence for one in winners)
    tables = tuple(winner_table(one) for one in winners)
    charts = (winner_chart(winners),) if winners else ()
    return Section("Which clip, law and statement take the least?", text, charts, tables, sensitive=True)


def winner_table(winner: Winner) -> Table:
    """Epsilon at every 5 % of accuracy: one line for each clip, law and statement, the smallest first.

    >>> winner_table(Winner("toy", (0.5, 0.55), 0.5, "Gaussian", (), "")).columns
    ('clip, law and statement', 'times the reference', '50%', '55%')
    """
    shown = [
        i for i, at in enumerate(winner.targets) if at >= winner.counts_from and round(100 * at) % 5 == 0
    ]
    lines = [
        (
            one.name,
            banded(one.ratio),
            *("never" if (epsilon := one.epsilon[i]) is None else rounded_up(epsilon, 3) for i in shown),
        )
        for one in winner.candidates
    ]
    return Table(
        f"{winner.data}: epsilon at equal accuracy; the reference is {winner.reference}",
        ("clip, law and statement", "times the reference", *(f"{winner.targets[i]:.0%}" for i in shown)),
        tuple(lines),
        sensitive=True,
    )


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
