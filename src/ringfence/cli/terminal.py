"""What commands print: progress for a person at a terminal, tables, and the names of files."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.status import Status
from rich.table import Table

from ringfence.progress import Progress


def busy(what: str, quiet: bool) -> Status:
    """A spinner for a person at a terminal, and nothing otherwise."""
    return Console(stderr=True, quiet=quiet).status(f"{what} ...")


@contextmanager
def progress_bars(quiet: bool) -> Iterator[Progress]:
    """A progress bar per part for a person at a terminal, and nothing otherwise.

    >>> with progress_bars(quiet=True) as progress:
    ...     progress("votes", 0.5)
    """
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=console, disable=quiet or not console.is_terminal) as bars:
        tasks: dict[str, TaskID] = {}

        def show(name: str, share: float) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=1.0)
            bars.update(tasks[name], completed=share)

        yield show


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


def print_text(*paragraphs: str) -> None:
    """Prints paragraphs, broken between words where the terminal ends; empty ones are left out.

    >>> print_text("One.", "")
    One.
    """
    console = Console(markup=False)
    for paragraph in filter(None, paragraphs):
        console.print(paragraph, highlight=False)


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
