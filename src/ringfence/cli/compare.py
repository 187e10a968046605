"""``ringfence compare``: epsilon at equal accuracy, from finished sweeps."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, cast

import typer
from rich.table import Table

from ringfence.cli.options import AsJson, EpsilonKind, Folders
from ringfence.cli.terminal import print_table

if TYPE_CHECKING:
    from ringfence.paper.comparison.comparison import Comparison
    from ringfence.paper.comparison.winner import Winner
    from ringfence.report.content import Table as Cells


def compare(folders: Folders, kind: EpsilonKind = "per-instance", as_json: AsJson = False) -> None:
    """Epsilon at equal accuracy: did bounded support help here, and which clip and law take the least?

    Example: ringfence compare sweep
    """
    from ringfence.paper.comparison.page import comparison_table, winner_table

    results, winners = compared(folders, kind)
    if as_json:
        plain = {"comparisons": [asdict(one) for one in results], "winners": [asdict(one) for one in winners]}
        typer.echo(json.dumps(plain, default=str))
        return
    for one in results:
        print_table(terminal_table(comparison_table(one)))
        typer.echo("\n".join(("", one.sentence, *one.warnings, "")))
    for best in winners:
        print_table(terminal_table(winner_table(best)))
        typer.echo(f"\n{best.sentence}\n")


def compared(folders: list[Path], kind: str, step: float = 0.05) -> "tuple[list[Comparison], list[Winner]]":
    """The comparison of laws for each folder and clip, and for each folder which clip and law take the least.

    ``kind`` is text from the command line, which the library checks.
    """
    from ringfence.paper.comparison.comparison import compare as compare_rows
    from ringfence.paper.comparison.frontier import ComparedEpsilon, by_clip
    from ringfence.paper.comparison.winner import winner
    from ringfence.paper.sweep.store import read_rows

    sweeps = [read_rows(folder) for folder in folders]
    asked = cast(ComparedEpsilon, kind)
    results = [compare_rows(own, kind=asked, step=step) for rows in sweeps for own in by_clip(rows)]
    return results, [winner(rows, step=step) for rows in sweeps]


def terminal_table(cells: "Cells") -> Table:
    """A report's table for the terminal.

    >>> from ringfence.report.content import Table as Cells
    >>> terminal_table(Cells("toy", ("accuracy",), (("50%",),))).row_count
    1
    """
    table = Table(title=cells.title, title_justify="left")
    for column in cells.columns:
        table.add_column(column, justify="right")
    for line in cells.rows:
        table.add_row(*line)
    return table
