"""``ringfence certificate``: one page for an auditor, about a saved run, an account or a ledger."""

import json
from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli.common import AsJson


def certificate(
    source: Annotated[Path, typer.Argument(help="RUN.ckpt, account.json, or the file of a ledger.")],
    out: Annotated[Path, typer.Option("--out", help="The page to write.")] = Path("certificate.html"),
    delta: Annotated[
        float | None, typer.Option(help="delta of epsilon; left out, the source's own, or 1e-5.")
    ] = None,
    verify: Annotated[
        Path | None,
        typer.Option(help="A certificate.json: check that it says what the source says; write nothing."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Certify a release or a run for every dataset, to publish: a page, JSON beside it, and a key.

    Example: ringfence certificate run.ckpt --out certificate.html

    The key stays with the private files. Later: ringfence certificate run.ckpt --verify certificate.json
    """
    from ringfence.report.certificate import Certificate, read_source
    from ringfence.report.certificate import verify as verified

    found = read_source(source)
    if verify is not None:
        verified(verify, found)
        typer.echo(f'{{"verified": "{verify.name}"}}' if as_json else f"{verify} is about {source}")
    else:
        files = list(map(str, Certificate.of(found, delta).write(out)))
        typer.echo(json.dumps({"files": files}) if as_json else "\n".join(files))
