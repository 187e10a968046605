"""``ringfence report``: finished sweeps as one HTML page."""

from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli.compare import compared
from ringfence.cli.options import AsJson, Folders, Publishable
from ringfence.cli.terminal import print_files


def report(
    folders: Folders,
    out: Annotated[Path, typer.Option("--out", help="The HTML file to write.")] = Path("report.html"),
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind", help="per-instance (the default), ex-post, data-independent or tightest epsilon."
        ),
    ] = None,
    publishable: Publishable = False,
    as_json: AsJson = False,
) -> None:
    """Sweeps as one HTML page that opens offline.

    With --publishable it has the epsilons that hold for every dataset, and says that the choice of settings
    is not charged.

    Example: ringfence report sweep --out report.html
    """
    from ringfence.paper.comparison.page import write_comparison

    if publishable and kind not in (None, "data-independent"):
        raise ValueError(
            f"--kind must be data-independent in a publishable report, got {kind!r}: that epsilon is "
            "computed from the private data"
        )
    default = "data-independent" if publishable else "per-instance"
    data = compared(folders, kind or default, step=0.01)
    print_files([write_comparison(data, out, publishable)], as_json)
