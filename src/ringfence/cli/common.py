"""Options and arguments that several commands take, and what several commands print."""

import errno
import os
from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.status import Status
from rich.table import Table

from ringfence.mechanisms.base import Mechanism


def writable(out: Path | None) -> Path | None:
    """``out``, whose folder may be written, or the folder where it will be made: known before work begins."""
    if out is not None:
        place = out.absolute().parent if out.is_file() else out.absolute()
        while not place.exists():
            place = place.parent
        if not place.is_dir() or not os.access(place, os.W_OK):
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory that may be written", str(out))
    return out


def option(kind: Any, says: str, *names: str, read: Callable[..., Any] | None = None) -> Any:
    """An option of this kind, whose text ``read`` converts; without names it has that of the argument."""
    return Annotated[kind, typer.Option(*names, callback=read, help=says)]


def give_options(command: Callable[..., Any], options: Mapping[str, tuple[Any, Any]]) -> Callable[..., Any]:
    """The command with more options before its own, which it takes as ``**options``.

    They are pairs of an option and its default; ``Parameter.empty`` is that of one that must be given.
    """
    own = [one for one in signature(command).parameters.values() if one.kind != Parameter.VAR_KEYWORD]
    kind, needed = Parameter.KEYWORD_ONLY, [one for one in own if one.default is Parameter.empty]
    more = [
        Parameter(name, kind, default=default, annotation=one) for name, (one, default) in options.items()
    ]
    every = [*needed, *more, *own[len(needed) :]]
    command.__signature__ = Signature([one.replace(kind=kind) for one in every])  # type: ignore[attr-defined]
    return command


Sigma = Annotated[float, typer.Option(help="Standard deviation of the Gaussian noise.")]
Law = Annotated[str, typer.Option("--mechanism", help=f"One of {', '.join(Mechanism.known())}.")]
Interval = Annotated[
    float | None, typer.Option("--bound", help="b of the interval [-b, b], for laws that have one.")
]
Levels = Annotated[int | None, typer.Option(help="How many points, for a law with levels.")]
Delta = Annotated[float, typer.Option(help="delta of every (epsilon, delta) that is printed.")]
Out = Annotated[
    Path, typer.Option("--out", callback=writable, file_okay=False, help="Folder of files; made if missing.")
]
OutFile = Annotated[Path, typer.Option("--out", callback=writable, dir_okay=False, help="The file to write.")]
Device = Annotated[str, typer.Option(help="cpu or cuda.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, for machines.")]


def numbers(option: str, text: str, lengths: tuple[int, ...], form: str) -> list[float]:
    """The numbers of an option such as ``1,1e-6``.

    >>> numbers("--claim", "1,1e-6", (2,), "EPSILON,DELTA")
    [1.0, 1e-06]
    """
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if len(found) not in lengths:
        raise ValueError(f"{option} must be {form}, got {text!r}")
    return found


def busy(what: str, quiet: bool) -> Status:
    """A spinner for a person at a terminal, and nothing otherwise."""
    return Console(stderr=True, quiet=quiet).status(f"{what} ...")


def print_cost(
    title: str,
    claim: Mapping[str, Any],
    before: Iterable[tuple[str, ...]] = (),
    after: Iterable[tuple[str, ...]] = (),
) -> None:
    """Prints every epsilon of a claim, as plain data, beside that of the Gaussian computed in the same way.

    ``before`` and ``after`` are further rows: a name, the number of this law and of the Gaussian, and words.
    """
    from ringfence.numerics.rounding import rounded_up

    own = claim["per_instance"]
    instance = f"this dataset; {own['proof']}"
    if not own["every_dataset"] and claim["steps"] > 1:
        instance += ", an estimate if theta depends on earlier releases"
    plain, sums, ex_post = (own[f"gaussian_{kind}epsilon"] for kind in ("", "renyi_", "ex_post_"))
    costs = (
        ("epsilon", claim["epsilon"], claim.get("gaussian_epsilon", plain), "DP, every dataset"),
        ("per-instance", own["epsilon"], plain, f"{instance}; sensitive"),
        ("by Rényi sums", own["renyi_epsilon"], sums, "the same, as in the paper; sensitive"),
        ("ex-post", own["ex_post_epsilon"], ex_post, "this dataset and trajectory; sensitive"),
    )
    table = Table(title=title, title_justify="left")
    for heading in ("", "this law", "Gaussian", "what it is"):
        table.add_column(heading, justify="right" if heading in ("this law", "Gaussian") else "left")
    rounded = ((name, rounded_up(ours), rounded_up(theirs), what) for name, ours, theirs, what in costs)
    for row in (*before, *rounded, *after):
        table.add_row(*row)
    print_table(table)


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
