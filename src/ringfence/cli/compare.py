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


def compare(folders: Folders, kind: EpsilonKind = "per-instance", as_json: AsJson = False) -> None:
    """Epsilon at equal accuracy, mechanism against mechanism: did bounded support help here?

    Example: ringfence compare sweep
    """
    results = compared(folders, kind)
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in results], default=str))
        return
    for one in results:
        print_table(terminal_table(one))
        typer.echo("\n".join(("", one.sentence, *one.warnings, "")))


def compared(folders: list[Path], kind: str, step: float = 0.05) -> "list[Comparison]":
    """The comparison of each folder; ``kind`` is text from the command line, which the library checks."""
    from ringfence.paper.comparison.comparison import compare as compare_rows
    from ringfence.paper.comparison.frontier import ComparedEpsilon
    from ringfence.paper.sweep.store import read_rows

    return [
        compare_rows(read_rows(folder), kind=cast(ComparedEpsilon, kind), step=step) for folder in folders
    ]


def terminal_table(comparison: "Comparison") -> Table:
    """Epsilon at equal accuracy: one line per target, one column per mechanism.

    >>> from ringfence.paper.comparison.comparison import Comparison
    >>> terminal_table(Comparison("toy", "per-instance", (), False, "", (), True, 0.5)).title
    'toy: per-instance epsilon at equal accuracy'
    """
    from ringfence.paper.comparison.page import comparison_table

    cells = comparison_table(comparison)
    table = Table(
        title=f"{comparison.data}: {comparison.kind} epsilon at equal accuracy",
        title_justify="left",
        caption="epsilon; times the Gaussian's, with its 95 % band; accuracy on the test split",
        caption_justify="left",
    )
    for column in cells.columns:
        table.add_column(column, justify="right")
    for line in cells.rows:
        table.add_row(*line)
    return table
