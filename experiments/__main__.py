"""``python -m experiments``: the paper's figures, sweeps over grids, and comparisons of finished sweeps.

Commands import inside their functions what takes seconds to load, so that ``--help`` does not wait for it.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from ringfence.cli.app import run
from ringfence.cli.common import AsJson, Device, Out, OutFile, print_statement, print_table

if TYPE_CHECKING:
    from experiments.comparison import Kind
    from ringfence.data.features import Features
    from ringfence.report.page import Table as Cells

app = typer.Typer(
    help="Reproduce the paper's figures, sweep over grids of settings, and compare finished sweeps.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# The names are those of experiments.reproduce, written out so that --help does not load the experiments.
FIGURES = {
    "motivation": "Figure 1, what each mechanism leaks against theta",
    "mean-estimation": "Figure 2, the mean of 900 records, cost against how far from 0 it lies",
    "pdp": "Figure 3, epsilon at equal accuracy, from the paper's grid and a fair search",
    "fil": "Figure 4, Fisher information loss against accuracy",
    "votes": "Figure 5, votes, the chance of a wrong answer against its cost",
}
GridName = Annotated[
    str, typer.Option("--data", help="digits, cifar10, cifar100, pets, or a grid file of your own.")
]
FeatureFile = Annotated[
    Path | None, typer.Option("--features", help="Features and labels: .npz or .parquet.")
]
PublicStatistics = Annotated[
    Path | None, typer.Option(help="Public features whose mean and standard deviation center and scale.")
]
Engine = Annotated[str, typer.Option(help="local or ray.")]
Address = Annotated[
    str | None, typer.Option(help="Address of a Ray cluster; without it, a local one is started.")
]
Folders = Annotated[list[Path], typer.Argument(help="Folders of sweeps.")]


@app.command()
def reproduce(
    out: Out = Path("out"),
    data: GridName = "digits",
    features: FeatureFile = None,
    public_statistics: PublicStatistics = None,
    device: Device = "cpu",
) -> None:
    """Every figure of the paper and ours, and one HTML report; minutes on two cores.

    Without --features the data are scikit-learn's handwritten digits.

    Example: python -m experiments reproduce --out out
    """
    values, public = sweep_features(data, features, public_statistics)
    from experiments import reproduce as whole

    print(*whole.reproduce(out, grid=data, features=values, public=public, device=device), sep="\n")


@app.command()
def figure(
    name: Annotated[str, typer.Argument(help="; ".join(f"{one}: {what}" for one, what in FIGURES.items()))],
    out: Out = Path("out"),
    data: GridName = "digits",
    features: FeatureFile = None,
    public_statistics: PublicStatistics = None,
    device: Device = "cpu",
) -> None:
    """Draw one figure of the paper: PNG, PDF and CSV.

    Example: python -m experiments figure motivation --out out
    """
    if name not in FIGURES:
        raise ValueError(f"figure must be one of {', '.join(FIGURES)}, got {name!r}")
    if name != "pdp" and (data != "digits" or features is not None):
        raise ValueError(f"--data and --features are for figure pdp, got {name!r}")
    values, public = sweep_features(data, features, public_statistics)
    from experiments import reproduce as whole
    from experiments.sweep.data import digits
    from experiments.sweep.settings import read_grid

    if name == "pdp":
        from experiments.comparison_page import ratio_chart
        from ringfence.report.drawing import save_chart

        grid, place = read_grid(data), out / "sweeps"
        results, _ = whole.comparisons(grid, values or digits(), place, public=public, device=device)
        files = save_chart(ratio_chart(results), out)
    else:
        files = whole.draw(name, out)
    print(*files, sep="\n")


@app.command()
def sweep(
    grid: Annotated[
        str, typer.Argument(help="A grid file, or one that is shipped: cifar10, cifar100, pets, digits.")
    ],
    out: Out,
    features: FeatureFile = None,
    public_statistics: PublicStatistics = None,
    search: Annotated[
        str, typer.Option(help="paper: every combination; fair: the same number of settings for each law.")
    ] = "paper",
    engine: Engine = "local",
    address: Address = None,
    device: Device = "cpu",
) -> None:
    """Train every setting of a grid; a sweep may be killed at any moment and started again.

    Example: python -m experiments sweep cifar10 --features cifar10.npz --out sweep --search fair
    """
    from experiments.sweep.data import digits
    from experiments.sweep.probes import run_sweep
    from experiments.sweep.runner import Workers
    from experiments.sweep.settings import Search, read_grid

    settings = read_grid(grid)
    values, public = sweep_features(grid, features, public_statistics)
    workers, kind = Workers(engine, address, device), cast(Search, search)  # which the library checks
    print(run_sweep(settings, values or digits(), out, workers, kind, public=public))


@app.command()
def compare(
    folders: Folders,
    kind: Annotated[
        str, typer.Option(help="per-instance, ex-post, data-independent or tightest epsilon.")
    ] = "per-instance",
    page: Annotated[
        Path | None,
        typer.Option("--out", help="Also write an HTML page that opens offline; it is sensitive."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Epsilon at equal accuracy: did bounded support help here, and which clip and law take the least?

    Example: python -m experiments compare sweep --out report.html
    """
    from experiments.comparison_page import (
        NOTE,
        answer,
        compare_folder,
        comparison_table,
        epsilon_table,
        ratio_table,
        write_comparison,
    )

    wanted = cast("Kind", kind)  # which the library checks
    data = [compare_folder(folder, wanted) for folder in folders]
    if page is not None:
        write_comparison([compare_folder(folder, wanted, step=0.01) for folder in folders], page)
    if as_json:
        plain = [
            {
                "answer": answer(one),
                "clips": [asdict(result) for result in one.clips],
                "everything": asdict(one.everything),
            }
            for one in data
        ]
        typer.echo(json.dumps(plain))
        return
    for one in data:
        print_statement(f"{one.everything.data}: {answer(one)}")
        print_table(terminal_table(epsilon_table(one.everything)))
        print_table(terminal_table(ratio_table(one.clips)))
        for result in one.clips:
            print_table(terminal_table(comparison_table(result)))
            for warning in result.warnings:
                print_statement(warning)
        print_statement(NOTE)


def terminal_table(cells: "Cells") -> Table:
    """A report's table for the terminal."""
    table = Table(title=cells.title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column, cell in zip(cells.columns, cells.rows[0] if cells.rows else cells.columns, strict=True):
        table.add_column(column, justify="left" if cell.isalpha() or "," in cell else "right")
    for line in cells.rows:
        table.add_row(*line)
    return table


@app.command()
def features(
    images: Annotated[Path, typer.Argument(help="A .npz file, or a folder per class.")],
    backbone: Annotated[str, typer.Option(help="hf:NAME, or a folder with config.json.")],
    out: OutFile,
    batch_size: Annotated[int, typer.Option(help="How many images the network is given at once.")] = 64,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; by default whichever is there.")] = None,
) -> None:
    """Extract features of images with a frozen network.

    Example: python -m experiments features images/ --backbone hf:google/vit-large-patch16-384 --out f.npz
    """
    from experiments.features import extract

    print(extract(images, backbone, out, batch_size=batch_size, device=device))


def sweep_features(
    grid: str, features: Path | None, public_statistics: Path | None
) -> "tuple[Features | None, Features | None]":
    """The features of a sweep (None stands for scikit-learn's digits) and those declared public."""
    if features is None:
        if grid != "digits":
            raise ValueError(f"--features is needed with {grid}: only the digits need no file")
        if public_statistics is not None:
            raise ValueError("--public-statistics is for --features: digits are scaled by constants")
        return None, None
    from ringfence.data.features import read_features

    return read_features(features), None if public_statistics is None else read_features(public_statistics)


def main() -> None:
    """Entry point of ``python -m experiments``."""
    run(app, "experiments")


if __name__ == "__main__":
    main()
