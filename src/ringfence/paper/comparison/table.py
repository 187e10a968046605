"""A comparison as a table, for the terminal and for the page."""

import math

from rich.table import Table

from ringfence.numerics.rounding import rounded_up
from ringfence.paper.comparison.comparison import Comparison, ComparisonRow
from ringfence.report import content


def comparison_table(comparison: Comparison) -> Table:
    """Epsilon at equal accuracy: a line a target, a column a mechanism.

    >>> empty = Comparison("toy", "per-instance", (), False, "", (), True, 0.5)
    >>> comparison_table(empty).title
    'toy: per-instance epsilon at equal accuracy'
    """
    table = Table(
        title=f"{comparison.data}: {comparison.kind} epsilon at equal accuracy",
        title_justify="left",
        caption="epsilon; times the Gaussian's, with its 95 % band; accuracy on the test split",
        caption_justify="left",
    )
    columns, cells = _lines(comparison)
    for column in columns:
        table.add_column(column, justify="right")
    for line in cells:
        table.add_row(*line)
    return table


def comparison_cells(comparison: Comparison) -> content.Table:
    """The same for a page.

    >>> empty = Comparison("toy", "per-instance", (), False, "", (), True, 0.5)
    >>> comparison_cells(empty).sensitive
    True
    """
    chosen = "chosen on a validation part" if comparison.validated else "chosen on the test split"
    title = f"{comparison.data}, {chosen}: {comparison.kind} epsilon; times the Gaussian's; test accuracy"
    columns, cells = _lines(comparison)
    return content.Table(title, columns, cells, sensitive=True)


def _lines(comparison: Comparison) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Columns and cells, a line at every 5 % of accuracy."""
    names = list(dict.fromkeys(row.mechanism for row in comparison.rows))
    columns = ("validation" if comparison.validated else "test", *names)
    cells = []
    for target in dict.fromkeys(row.target for row in comparison.rows):
        if round(100 * target) % 5 == 0:
            own = {row.mechanism: row for row in comparison.rows if row.target == target}
            cells.append((f"{target:.0%}", *(_cell(own[name]) for name in names)))
    return columns, tuple(cells)


def _cell(row: ComparisonRow) -> str:
    if row.epsilon is None:
        return "never"
    return f"{rounded_up(row.epsilon)}{_ratio(row)}; {row.test_accuracy:.1%}"


def _ratio(row: ComparisonRow) -> str:
    if row.ratio is None or row.ratio_low is None or row.ratio_high is None:
        return ""
    high = "∞" if math.isinf(row.ratio_high) else f"{row.ratio_high:.2f}"
    return f"; {row.ratio:.2f} ({row.ratio_low:.2f} to {high})"
