"""``ringfence audit``: attacks that must not beat the claims."""

import json
from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli.options import AsJson, writable
from ringfence.cli.terminal import print_files, print_table, progress_bars


def audit(
    settings: Annotated[int, typer.Option(help="How many random releases to attack.")] = 300,
    trials: Annotated[int, typer.Option(help="How many draws of each release.")] = 1000,
    tight: Annotated[int, typer.Option(help="How many releases get 20 times as many draws.")] = 5,
    probes: Annotated[
        int, typer.Option(help="How many linear models are trained with and without a record.")
    ] = 5,
    runs: Annotated[
        int, typer.Option(help="How often each is trained, with the record and without it.")
    ] = 300,
    seed: Annotated[int, typer.Option(help="Seed of the attacks.")] = 0,
    confidence: Annotated[float, typer.Option(help="Confidence of all lower bounds together.")] = 0.99,
    out: Annotated[
        Path | None, typer.Option("--out", callback=writable, help="Folder for the page and the figure.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Attacks that must not beat the claims, and planted flaws that they must see.

    The exit status is 1 if a claim fell or a flaw was not seen.

    Example: ringfence audit --settings 300
    """
    from ringfence.audit.page import audit_chart, audit_tables, write_audit
    from ringfence.audit.suite import run_audit
    from ringfence.numerics.threads import one_thread
    from ringfence.report.drawing import save_chart

    with progress_bars(quiet=as_json) as show, one_thread():
        result = run_audit(
            settings,
            trials=trials,
            tight=tight,
            probes=probes,
            runs=runs,
            seed=seed,
            confidence=confidence,
            progress=show,
        )
    if as_json:
        typer.echo(json.dumps(result.as_dict()))
    else:
        for table in audit_tables(result):
            print_table(table)
    if out is not None:
        files = [write_audit(result, out / "audit.html"), *save_chart(audit_chart(result.attacks), out)]
        if not as_json:  # which is one object
            print_files(files, as_json=False)
    if not result.holds:
        raise typer.Exit(1)
