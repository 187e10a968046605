"""A comparison as a table for the terminal."""

import math

from rich.table import Table

from ringfence.accounting.rounding import rounded_up
from ringfence.experiments.comparison import Comparison, ComparisonRow


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
    names = list(dict.fromkeys(row.mechanism for row in comparison.rows))
    table.add_column("validation" if comparison.validated else "test", justify="right")
    for name in names:
        table.add_column(name, justify="right")
    for target in dict.fromkeys(row.target for row in comparison.rows):
        own = {row.mechanism: row for row in comparison.rows if row.target == target}
        table.add_row(f"{target:.0%}", *(_cell(own[name]) for name in names))
    return table


def _cell(row: ComparisonRow) -> str:
    if row.epsilon is None:
        return "never"
    return f"{rounded_up(row.epsilon)}{_ratio(row)}; {row.test_accuracy:.1%}"


def _ratio(row: ComparisonRow) -> str:
    if row.ratio is None or row.ratio_low is None or row.ratio_high is None:
        return ""
    high = "∞" if math.isinf(row.ratio_high) else f"{row.ratio_high:.2f}"
    return f"; {row.ratio:.2f} ({row.ratio_low:.2f} to {high})"
