"""Options and arguments that several commands take, and what several commands print."""

import errno
import json
import os
import time
from collections.abc import Sequence
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.status import Status
from rich.table import Table

from ringfence.mechanisms.base import Mechanism

if TYPE_CHECKING:
    from ringfence.accounting.sensitivity import Sensitivity

_asked: list[tuple[Path, float]] = []  # what --out named, and when


def writable(out: Path | None) -> Path | None:
    """``out``, whose folder may be written, or the folder where it will be made: known before work begins."""
    if out is not None:
        place = out.absolute().parent if out.is_file() else out.absolute()
        while not place.exists():
            place = place.parent
        if not place.is_dir() or not os.access(place, os.W_OK):
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory that may be written", str(out))
        _asked[:] = [(out.absolute(), time.time() - 0.05)]  # a file system's clock is a little behind
    return out


def saved_files() -> list[str]:
    """What the command has written so far: to --out, or beside it under a longer name."""
    places = [(place, at) for out, at in _asked for place in out.parent.glob(f"{escape(out.name)}*")]
    files = [(file, at) for place, at in places for file in (place, *place.rglob("*"))]
    return [str(file) for file, at in files if file.is_file() and file.stat().st_mtime > at]


Sigma = Annotated[float, typer.Option(help="Standard deviation of the Gaussian noise.")]
Law = Annotated[str, typer.Option("--mechanism", help=f"One of {', '.join(Mechanism.known())}.")]
Interval = Annotated[
    float | None, typer.Option("--bound", help="b of the interval [-b, b], for laws that have one.")
]
Levels = Annotated[int | None, typer.Option(help="How many points, for a law with levels.")]
EachMove = Annotated[
    float | None, typer.Option("--sensitivity", help="The most that one record can move a coordinate.")
]
AtMost = Annotated[
    int | None, typer.Option(help="How many coordinates one record can move: 1 for the cells of a table.")
]
LongestMove = Annotated[float | None, typer.Option("--norm", help="The L2 length of the whole move.")]
Delta = Annotated[float, typer.Option(help="delta of every (epsilon, delta) that is printed.")]
Out = Annotated[
    Path, typer.Option("--out", callback=writable, file_okay=False, help="Folder of files; made if missing.")
]
OutFile = Annotated[Path, typer.Option("--out", callback=writable, dir_okay=False, help="The file to write.")]
PublicStatistics = Annotated[
    Path | None, typer.Option(help="Public features whose mean and standard deviation center and scale.")
]
FitIntercept = Annotated[bool, typer.Option("--fit-intercept", help="Add a feature that is always 1.")]
PublicCenter = Annotated[float | None, typer.Option(help="A public constant, subtracted from every feature.")]
PublicScale = Annotated[float | None, typer.Option(help="A public constant that divides every feature.")]
ProjectionFile = Annotated[
    Path | None, typer.Option(help="A file of ringfence project, which maps features first.")
]
PublicClasses = Annotated[
    int | None,
    typer.Option(help="Labels are 0 .. N - 1; by default those that occur, which then count as public."),
]
LabelFile = Annotated[
    Path | None, typer.Option(help="Labels of a .npy file, if they are not in NAME.labels.npy.")
]
Seed = Annotated[
    int | None, typer.Option(help="Makes a run repeatable. The seed determines the noise: keep it secret.")
]
ModelFile = Annotated[
    Path | None,
    typer.Option("--out", callback=writable, dir_okay=False, help="Save the model, as .safetensors."),
]
Device = Annotated[str, typer.Option(help="cpu or cuda.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, for machines.")]


def one_record_moves(sensitivity: float | None, at_most: int | None, norm: float | None) -> "Sensitivity":
    """What one record can move, from the options that say so.

    >>> one_record_moves(1.0, 1, None)
    Sensitivity(each=1.0, at_most=1)
    """
    from ringfence.accounting.sensitivity import Sensitivity

    if sensitivity is None and norm is None:
        raise ValueError("--sensitivity or --norm must be given: it bounds how far one record can move theta")
    if sensitivity is not None:
        Sensitivity.of(sensitivity)  # an error that names the option
    return Sensitivity(sensitivity, at_most, norm)


def busy(what: str, quiet: bool) -> Status:
    """A spinner for a person at a terminal, and nothing otherwise."""
    return Console(stderr=True, quiet=quiet).status(f"{what} ...")


def law_beside_gaussian(title: str, heading: str) -> Table:
    """An empty table of what a law costs, beside what the Gaussian costs; ``heading`` is of the first column.

    >>> [column.header for column in law_beside_gaussian("one release", "epsilon").columns]
    ['epsilon', 'this law', 'Gaussian', 'what it is']
    """
    table = Table(title=title, title_justify="left")
    table.add_column(heading)
    table.add_column("this law", justify="right")
    table.add_column("Gaussian", justify="right")
    table.add_column("what it is")
    return table


def print_table(table: Table) -> None:
    """Prints a table as it is: the name of a data set may look like markup."""
    Console(markup=False).print(table, highlight=False)


def print_statement(text: str) -> None:
    """Prints paragraphs as they are to files and pipes, and broken between words to a terminal.

    >>> print_statement("One. " * 30 + "Two.")  # doctest: +ELLIPSIS
    One. One. One. ...One. One. Two.
    """
    console = Console(markup=False)
    console.print(text, highlight=False, soft_wrap=not console.is_terminal)


def print_files(files: Sequence[Path], as_json: bool) -> None:
    """Prints the paths of files that were written, one per line or as one JSON object.

    >>> print_files([Path("report.html")], as_json=True)
    {"files": ["report.html"]}
    """
    if as_json:
        typer.echo(json.dumps({"files": [str(file) for file in files]}))
    else:
        for file in files:
            typer.echo(file)
