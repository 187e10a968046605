"""``ringfence grid show|copy``: the grids that come with the package, to read and to start from."""

from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli.options import AsJson
from ringfence.cli.terminal import print_files

grid = typer.Typer(help="Grids that come with the package: read one, or copy it.", no_args_is_help=True)
_Name = Annotated[str, typer.Argument(help="cifar10, cifar100, digits or pets.")]


@grid.command()
def show(name: _Name) -> None:
    """Print the TOML file of a grid.

    Example: ringfence grid show cifar10
    """
    from ringfence.paper.sweep.grid_file import grid_text

    typer.echo(grid_text(name), nl=False)


@grid.command()
def copy(
    name: _Name,
    out: Annotated[Path | None, typer.Option("--out", help="The new file; NAME.toml if not given.")] = None,
    as_json: AsJson = False,
) -> None:
    """Copy the TOML file of a grid, to be changed; a file that is there already is never replaced.

    Example: ringfence grid copy cifar10 --out mine.toml
    """
    from ringfence.paper.sweep.grid_file import grid_text

    file = out or Path(f"{name}.toml")
    text = grid_text(name)
    with file.open("x", encoding="utf-8") as new:
        new.write(text)
    print_files([file], as_json)
