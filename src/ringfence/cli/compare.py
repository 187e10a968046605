"""``ringfence compare``: epsilon at equal accuracy, from finished sweeps."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from ringfence.cli.options import AsJson, EpsilonKind, Folders
from ringfence.cli.terminal import print_table, print_text

if TYPE_CHECKING:
    from ringfence.paper.comparison.comparison import Comparison
    from ringfence.paper.comparison.winner import Winner
    from ringfence.report.content import Table as Cells


def compare(folders: Folders, kind: EpsilonKind = "per-instance", as_json: AsJson = False) -> None:
    """Epsilon at equal accuracy: did bounded support help here, and which clip and law take the least?

    Example: ringfence compare sweep
    """
    from ringfence.paper.comparison.answer import answer, difference
    from ringfence.paper.comparison.page import comparison_table, ratio_table, winner_table

    data = compared(folders, kind)
    if as_json:
        results = [_plain(one, ("clip", "medians")) for laws, _ in data for one in laws]
        winners = [_plain(best, ("runs", "chosen_on", "delta")) for _, best in data]
        typer.echo(json.dumps({"comparisons": results, "winners": winners}, default=str))
        return
    for laws, best in data:
        print_text(f"{best.data}: {answer(laws, best)}", difference(laws))
        print_table(terminal_table(winner_table(best)))
        print_text(best.sentence)
        print_table(terminal_table(ratio_table(laws)))
        for one in laws:
            print_table(terminal_table(comparison_table(one)))
            print_text(one.sentence, *one.warnings)


def compared(folders: list[Path], kind: str, step: float = 0.05) -> "list[tuple[list[Comparison], Winner]]":
    """For each folder the comparison of laws under each clip, and which clip and law take the least.

    ``kind`` is text from the command line, which the library checks.
    """
    from ringfence.paper.comparison.comparison import compare as compare_rows
    from ringfence.paper.comparison.frontier import ComparedEpsilon, by_clip
    from ringfence.paper.comparison.winner import winner
    from ringfence.paper.sweep.store import read_rows

    asked = cast(ComparedEpsilon, kind)
    return [
        ([compare_rows(own, kind=asked, step=step) for own in by_clip(rows)], winner(rows, step=step))
        for rows in map(read_rows, folders)
    ]


def _plain(result: "Comparison | Winner", left_out: tuple[str, ...]) -> dict[str, Any]:
    """What programs read has the same fields in every version; what only pages need is left out."""
    return {name: value for name, value in asdict(result).items() if name not in left_out}


def terminal_table(cells: "Cells") -> Table:
    """A report's table for the terminal.

    >>> from ringfence.report.content import Table as Cells
    >>> terminal_table(Cells("toy", ("accuracy",), (("50%",),))).row_count
    1
    """
    table = Table(title=cells.title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column, cell in zip(cells.columns, cells.rows[0] if cells.rows else cells.columns, strict=True):
        table.add_column(column, justify="left" if cell.isalpha() or "," in cell else "right")
    for line in cells.rows:
        table.add_row(*line)
    return table
