"""``python -m experiments``: the paper's figures, sweeps over grids, and comparisons of finished sweeps.

Commands import inside their functions what takes seconds to load, so that ``--help`` does not wait for it.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from ringfence.cli.app import run
from ringfence.cli.options import AsJson, Device, FeatureFile, Out, OutFile, PublicStatistics
from ringfence.cli.terminal import print_files, print_table, print_text, progress_bars

if TYPE_CHECKING:
    from experiments.comparison.comparison import Comparison
    from experiments.comparison.winner import Winner
    from ringfence.data.features import Features
    from ringfence.report.content import Table as Cells

app = typer.Typer(
    help="Reproduce the paper's figures, sweep over grids of settings, and compare finished sweeps.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
figures = typer.Typer(help="Draw one figure of the paper.", no_args_is_help=True)
app.add_typer(figures, name="figure")

GridName = Annotated[
    str, typer.Option("--data", help="digits, cifar10, cifar100, pets, or a grid file of your own.")
]
Engine = Annotated[str, typer.Option(help="local or ray.")]
Address = Annotated[
    str | None, typer.Option(help="Address of a Ray cluster; without it, a local one is started.")
]
Folders = Annotated[list[Path], typer.Argument(help="Folders of sweeps.")]
Publishable = Annotated[bool, typer.Option("--publishable", help="Leave out what depends on private data.")]
EpsilonKind = Annotated[
    str, typer.Option("--kind", help="per-instance, ex-post, data-independent or tightest epsilon.")
]


@app.command()
def reproduce(
    out: Out = Path("out"),
    data: GridName = "digits",
    features: FeatureFile = None,
    public_statistics: PublicStatistics = None,
    device: Device = "cpu",
    publishable: Publishable = False,
    figure: Annotated[
        str | None, typer.Option(help="This figure alone; fil takes --data FILE.npz of images too.")
    ] = None,
    settings: Annotated[
        int | None, typer.Option(help="For images: so many settings for every method, 16 by default.")
    ] = None,
    workers: Annotated[int, typer.Option(help="For images: how many processes share the GPUs.")] = 0,
    engine: Engine = "local",
    address: Address = None,
    as_json: AsJson = False,
) -> None:
    """Every figure of the paper and ours, and one HTML report; minutes on two cores.

    Without --features the data are scikit-learn's handwritten digits. With images, Figure 4 is drawn at full
    size: hours on a GPU, and the same command again continues.

    Example: python -m experiments reproduce --out out
    """
    if Path(data).suffix == ".npz":
        if figure != "fil":
            raise ValueError(f"--data {data} is for --figure fil, got {figure!r}: others have no images")
        from experiments.information.chart import draw_networks
        from experiments.information.networks import ROUNDS, run_networks, write_rows
        from experiments.sweep.runner import Workers

        rounds, where = settings or ROUNDS, Workers(engine, address, device, workers)
        with progress_bars(quiet=as_json) as show:
            run_networks(Path(data), out, rounds=rounds, workers=where, progress=show)
        file = write_rows(out)
        files = [*draw_networks(file, out), file]
        print_files(files, as_json)
        return
    if figure is not None:
        from experiments.figures import FIGURES, draw

        if figure not in FIGURES or data != "digits" or features is not None:
            raise ValueError(
                f"--figure must be one of {', '.join(FIGURES)}, without --data but for fil of images, "
                f"got {figure!r}"
            )
        with progress_bars(quiet=as_json) as show:
            files = draw(figure, out, show)
        print_files(files, as_json)
        return
    values, public = sweep_features(data, features, public_statistics)
    from experiments import reproduce as whole

    with progress_bars(quiet=as_json) as show:
        files = whole.reproduce(
            out,
            grid=data,
            features=values,
            public=public,
            device=device,
            publishable=publishable,
            progress=show,
        )
    print_files(files, as_json)


# The names are those of experiments.figures, written out so that --help does not load the experiments.
_FIGURES = {
    "motivation": "Figure 1, what each mechanism gives away against theta",
    "mean-estimation": "Figure 2, the mean of 900 records, cost against how far from 0 it lies",
    "fil": "Figure 4, Fisher information loss against accuracy, on digits",
    "votes": "Figure 5a, votes, the chance of a wrong answer against its cost",
    "histogram": "Figure 5b, a histogram whose small counts are suppressed",
}


def _add_figure(name: str, what: str) -> None:
    """Adds ``python -m experiments figure NAME``."""

    def command(out: Out = Path("out"), as_json: AsJson = False) -> None:
        from experiments.figures import draw

        with progress_bars(quiet=as_json) as show:
            files = draw(name, out, show)
        print_files(files, as_json)

    command.__doc__ = f"{what}: PNG, PDF and CSV.\n\nExample: python -m experiments figure {name} --out out"
    figures.command(name)(command)


for _name, _what in _FIGURES.items():
    _add_figure(_name, _what)


@figures.command("pdp")
def figure_pdp(
    out: Out = Path("out"),
    data: GridName = "digits",
    features: FeatureFile = None,
    public_statistics: PublicStatistics = None,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Figure 3, epsilon at equal accuracy, from the paper's grid and a fair search.

    Example: python -m experiments figure pdp --data cifar10 --features cifar10.npz --device cuda
    """
    values, public = sweep_features(data, features, public_statistics)
    from experiments.reproduce import draw_comparisons
    from experiments.sweep.data import digits
    from experiments.sweep.settings import read_grid

    with progress_bars(quiet=as_json) as show:
        files = draw_comparisons(
            read_grid(data), values or digits(), out, public=public, device=device, progress=show
        )
    print_files(files, as_json)


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
    as_json: AsJson = False,
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
    with progress_bars(quiet=as_json) as show:
        file = run_sweep(
            settings,
            values or digits(),
            out,
            Workers(engine, address, device),
            cast(Search, search),  # which the library checks
            show,
            public=public,
        )
    print_files([file], as_json)


@app.command()
def compare(folders: Folders, kind: EpsilonKind = "per-instance", as_json: AsJson = False) -> None:
    """Epsilon at equal accuracy: did bounded support help here, and which clip and law take the least?

    Example: python -m experiments compare sweep
    """
    from experiments.comparison.answer import answer, difference
    from experiments.comparison.page import comparison_table, ratio_table, winner_table

    data = compared(folders, kind)
    if as_json:
        results = [_plain(one, ("clip", "medians")) for laws, _ in data for one in laws]
        winners = [_plain(best, ("runs", "chosen_on", "delta")) for _, best in data]
        typer.echo(json.dumps({"comparisons": results, "winners": winners}, default=str))
        return
    for laws, best in data:
        print_text(f"{best.data}: {answer(laws, best)}", difference(laws))
        print_table(terminal_table(winner_table(best)))
        print_text(best.sentence)
        print_table(terminal_table(ratio_table(laws)))
        for one in laws:
            print_table(terminal_table(comparison_table(one)))
            print_text(one.sentence, *one.warnings)


def compared(folders: list[Path], kind: str, step: float = 0.05) -> "list[tuple[list[Comparison], Winner]]":
    """For each folder the comparison of laws under each clip, and which clip and law take the least.

    ``kind`` is text from the command line, which the library checks.
    """
    from experiments.comparison.comparison import compare as compare_rows
    from experiments.comparison.frontier import ComparedEpsilon, by_clip
    from experiments.comparison.winner import winner
    from experiments.sweep.probes import read_rows

    asked = cast(ComparedEpsilon, kind)
    return [
        ([compare_rows(own, kind=asked, step=step) for own in by_clip(rows)], winner(rows, step=step))
        for rows in map(read_rows, folders)
    ]


def _plain(result: "Comparison | Winner", left_out: tuple[str, ...]) -> dict[str, Any]:
    """What programs read has the same fields in every version; what only pages need is left out."""
    return {name: value for name, value in asdict(result).items() if name not in left_out}


def terminal_table(cells: "Cells") -> Table:
    """A report's table for the terminal.

    >>> from ringfence.report.content import Table as Cells
    >>> terminal_table(Cells("toy", ("accuracy",), (("50%",),))).row_count
    1
    """
    table = Table(title=cells.title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column, cell in zip(cells.columns, cells.rows[0] if cells.rows else cells.columns, strict=True):
        table.add_column(column, justify="left" if cell.isalpha() or "," in cell else "right")
    for line in cells.rows:
        table.add_row(*line)
    return table


@app.command()
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

    Example: python -m experiments report sweep --out report.html
    """
    from experiments.comparison.page import write_comparison

    if publishable and kind not in (None, "data-independent"):
        raise ValueError(
            f"--kind must be data-independent in a publishable report, got {kind!r}: that epsilon is "
            "computed from the private data"
        )
    default = "data-independent" if publishable else "per-instance"
    data = compared(folders, kind or default, step=0.01)
    print_files([write_comparison(data, out, publishable)], as_json)


@app.command()
def features(
    images: Annotated[Path, typer.Argument(help="CIFAR batches, .npz, an image folder or Oxford-IIIT Pet.")],
    backbone: Annotated[str, typer.Option(help="hf:NAME, or a folder with config.json.")],
    out: OutFile,
    batch_size: Annotated[int, typer.Option(help="How many images the network is given at once.")] = 64,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; by default whichever is there.")] = None,
    dtype: Annotated[str, typer.Option(help="float16 or uint8 (features in [0, 6] only).")] = "float16",
    pooling: Annotated[
        str | None, typer.Option(help="pooler, cls or mean; by default what the model has.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Extract features of images with a frozen network; an interrupted run continues.

    Example: python -m experiments features images/ --backbone hf:google/vit-large-patch16-384 --out f.npz
    """
    from experiments.features.extraction import extract

    with progress_bars(quiet=as_json) as show:
        file = extract(
            images,
            backbone,
            out,
            batch_size=batch_size,
            device=device,
            dtype=dtype,
            pooling=pooling,
            progress=show,
        )
    print_files([file], as_json)


def sweep_features(
    grid: str, features: Path | None, public_statistics: Path | None
) -> "tuple[Features | None, Features | None]":
    """The features of a sweep (None stands for scikit-learn's digits) and those declared public.

    >>> sweep_features("digits", None, None)
    (None, None)
    """
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
