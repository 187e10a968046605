"""``ringfence report``: finished sweeps as one HTML page."""

from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli.compare import compared
from ringfence.cli.options import AsJson, EpsilonKind, Folders, Publishable
from ringfence.cli.terminal import print_files


def report(
    folders: Folders,
    out: Annotated[Path, typer.Option("--out", help="The HTML file to write.")] = Path("report.html"),
    kind: EpsilonKind = "per-instance",
    publishable: Publishable = False,
    as_json: AsJson = False,
) -> None:
    """Sweeps as one HTML page that opens offline.

    Example: ringfence report sweep --out report.html
    """
    from ringfence.paper.comparison.page import write_comparison

    results, winners = compared(folders, kind, step=0.01)
    print_files([write_comparison(results, winners, out, publishable)], as_json)
