"""``ringfence audit``: a lower bound of epsilon from scores, or from a function on two datasets."""

import csv
import importlib
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ringfence.cli.common import AsJson, busy, numbers, print_statement, writable


def audit(
    target: Annotated[
        str, typer.Argument(help="scores.csv with columns score and in (1 or 0), or module:function.")
    ],
    delta: Annotated[float | None, typer.Option(help="delta of the bound; a claim has its own.")] = None,
    claim: Annotated[str | None, typer.Option(help="EPSILON,DELTA: what is claimed, such as 1,1e-6.")] = None,
    data: Annotated[Path | None, typer.Option(help="For a function: the dataset, .npy or .csv.")] = None,
    neighbour: Annotated[Path | None, typer.Option(help="One record more, fewer or changed.")] = None,
    draws: Annotated[int, typer.Option(help="For a function: the most draws of either dataset.")] = 100_000,
    digits: Annotated[bool, typer.Option(help="For a function: its numbers' last digits too.")] = True,
    significance: Annotated[float | None, typer.Option(help="Default .05, for a function .001.")] = None,
    independent: Annotated[bool, typer.Option("--independent", help="Each score has its own run.")] = False,
    out: Annotated[Path | None, typer.Option(callback=writable, help="A page to write, and JSON.")] = None,
    as_json: AsJson = False,
) -> None:
    """Put a claim to the test: a lower bound of epsilon, and whether the claim falls (exit status 1).

    Example: ringfence audit scores.csv --delta 1e-6

    A function: ringfence audit module:function --data a.npy --neighbour b.npy --claim 1,1e-6
    """
    claimed = None if claim is None else numbers("--claim", claim, (2,), "EPSILON,DELTA, such as 1,1e-6")
    given: dict[str, Any] = {} if significance is None else {"significance": significance}
    if target.endswith(".csv"):
        from ringfence.auditing.scores import audit_scores

        if data is not None or neighbour is not None:
            raise ValueError("--data and --neighbour are for a function, module:function")
        if claimed is not None and delta not in (None, claimed[1]):
            raise ValueError(f"--delta must be that of the claim, {claimed[1]:g}, got {delta:g}")
        if claimed is not None:
            given["claim"], delta = claimed
        if delta is None:
            raise ValueError("--delta or --claim must be given: epsilon is bounded at a delta")
        given |= {"delta": delta, "independent": independent, "what": Path(target).name}
        found = audit_scores(*_scores(Path(target)), **given)
    else:
        from ringfence.auditing.function import audit as audit_function

        if claimed is None or data is None or neighbour is None:
            raise ValueError("--claim, --data and --neighbour must be given for a function, module:function")
        if delta is not None or independent:
            raise ValueError("--delta and --independent are for scores: a claim has its own delta")
        given |= {"claim": tuple(claimed), "draws": draws, "floating_point": digits}
        function, both = _function(target), map(_array, (data, neighbour))
        with busy("Drawing", quiet=as_json):
            found = audit_function(function, *both, **given)
    files = [] if out is None else list(map(str, found.save(out)))
    if as_json:
        typer.echo(json.dumps({**found.as_dict(), "files": files}))
    else:
        print_statement("\n".join([found.statement, *files]))
    raise typer.Exit(int(found.refuted))


def _scores(path: Path) -> tuple[list[float], list[float]]:
    sides: dict[str, list[float]] = {"1": [], "0": []}
    with path.open(encoding="utf-8", newline="") as file:
        for line, row in enumerate(csv.DictReader(file), 2):
            try:
                sides[row["in"].strip()].append(float(row["score"]))
            except (KeyError, ValueError, TypeError, AttributeError):
                raise ValueError(
                    f"{path}, line {line}: needs a number in column score, and 1 or 0 in column in, got {row}"
                ) from None
    return sides["1"], sides["0"]


def _function(target: str) -> Any:
    module, _, name = target.partition(":")
    sys.path.insert(0, "")  # a module in this folder
    function = getattr(importlib.import_module(module), name, None) if name else None
    if function is None:
        raise ValueError(f"the target must be scores.csv, or module:function that exists, got {target!r}")
    return function


def _array(path: Path) -> Any:
    import numpy as np

    from ringfence.data.features import read_array

    try:
        return read_array(path) if path.suffix == ".npy" else np.loadtxt(path, delimiter=",", ndmin=1)
    except ValueError as error:
        raise ValueError(f"{path} must hold numbers, as .npy or .csv: {error}") from None
