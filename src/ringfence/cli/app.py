"""The command line: parse, one library call, print."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, cast, get_args

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.status import Status
from rich.table import Table

from ringfence import __version__
from ringfence.cli.account_row import account_row, read_theta
from ringfence.cli.account_table import account_table
from ringfence.cli.probe_table import probe_table
from ringfence.data.features import Features, read_features
from ringfence.mechanisms.base import Mechanism
from ringfence.paper.comparison.comparison import Comparison
from ringfence.training.linear.file_probe import ProbeSettings, probe_row, save_model

app = typer.Typer(
    help="Bounded-support Gaussian privacy.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
figures = typer.Typer(help="Draw one figure of the paper.", no_args_is_help=True)
app.add_typer(figures, name="figure")

Sigma = Annotated[float, typer.Option(help="Standard deviation of the Gaussian noise.")]
Law = Annotated[str, typer.Option("--mechanism", help="gaussian, rectified, truncated, sign or quantized.")]
Interval = Annotated[float | None, typer.Option("--bound", help="b for the interval [-b, b].")]
Levels = Annotated[int | None, typer.Option(help="Levels of the quantized law.")]
Delta = Annotated[float, typer.Option(help="delta of every (epsilon, delta).")]
Out = Annotated[Path, typer.Option("--out", help="Folder for the files; made if missing.")]
GridName = Annotated[
    str, typer.Option("--data", help="digits, cifar10, cifar100, pets, or a grid file of your own.")
]
FeatureFile = Annotated[
    Path | None, typer.Option("--features", help="Features and labels: .npz, .npy, .parquet, .safetensors.")
]
PublicStatistics = Annotated[
    Path | None, typer.Option(help="Public features whose mean and deviation center and scale.")
]
Device = Annotated[str, typer.Option(help="cpu or cuda.")]
Publishable = Annotated[bool, typer.Option("--publishable", help="Leave out what depends on private data.")]
EpsilonKind = Annotated[
    str, typer.Option("--kind", help="per-instance, ex-post, data-independent or tightest epsilon.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, for machines.")]


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"ringfence {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Bounded-support Gaussian privacy."""


def _figure(name: str) -> None:
    """Adds ``ringfence figure NAME``."""

    def command(out: Out = Path("out"), as_json: AsJson = False) -> None:
        from ringfence.paper.reproduce import draw

        with _bar(quiet=as_json) as show:
            files = draw(name, out, lambda share: show(name, share))
        _print_files(files, as_json)

    what = _FIGURES[name]
    command.__doc__ = f"{what}: PNG, PDF and CSV.\n\nExample: ringfence figure {name} --out out"
    figures.command(name)(command)


# in words, so that --help does not load every experiment
_FIGURES = {
    "motivation": "Figure 1, what each mechanism gives away against theta",
    "mean-estimation": "Figure 2, the mean of 900 records, cost against how far from 0 it lies",
    "fil": "Figure 4, Fisher information loss against accuracy, on digits",
    "votes": "Figure 5a, votes, the chance of a wrong answer against its cost",
    "histogram": "Figure 5b, a histogram whose small counts are suppressed",
}
for _name in _FIGURES:
    _figure(_name)


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

    Example: ringfence figure pdp --data cifar10 --features cifar10.npz --device cuda
    """
    values, public = _data(data, features, public_statistics)
    from ringfence.data.digits import digits
    from ringfence.paper.comparison.chart import frontier_chart, ratio_chart
    from ringfence.paper.reproduce import comparisons
    from ringfence.paper.sweep.grid_file import read_grid
    from ringfence.report.paper_chart import save_chart

    with _bar(quiet=as_json) as show:
        results = comparisons(
            read_grid(data), values or digits(), out / "sweeps", public=public, device=device, progress=show
        )
    both = list(results.values())
    _print_files([*save_chart(ratio_chart(both), out), *save_chart(frontier_chart(both), out)], as_json)


@app.command()
def reproduce(
    out: Out = Path("out"),
    data: GridName = "digits",
    features: FeatureFile = None,
    public_statistics: PublicStatistics = None,
    device: Device = "cpu",
    publishable: Publishable = False,
    as_json: AsJson = False,
) -> None:
    """Every figure of the paper and ours, and one HTML report; minutes on two cores.

    Without --features the data are scikit-learn's handwritten digits.

    Example: ringfence reproduce --out out
    """
    values, public = _data(data, features, public_statistics)
    from ringfence.paper import reproduce as whole

    with _bar(quiet=as_json) as show:
        files = whole.reproduce(
            out,
            grid=data,
            features=values,
            public=public,
            device=device,
            publishable=publishable,
            progress=show,
        )
    _print_files(files, as_json)


@app.command()
def features(
    images: Annotated[Path, typer.Argument(help="CIFAR batches, .npz, an image folder or Oxford-IIIT Pet.")],
    backbone: Annotated[str, typer.Option(help="hf:NAME, or a folder with config.json.")],
    out: Annotated[Path, typer.Option("--out", help="The .npz file to write.")],
    batch_size: Annotated[int, typer.Option(help="Images at once.")] = 64,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; else whichever is there.")] = None,
    dtype: Annotated[str, typer.Option(help="float16 or uint8 (features in [0, 6] only).")] = "float16",
    pooling: Annotated[str | None, typer.Option(help="pooler, cls or mean; else what the model has.")] = None,
    as_json: AsJson = False,
) -> None:
    """Features of images from a frozen network; goes on where it was.

    Example: ringfence features cifar-10-batches-py --backbone hf:google/vit-large-patch16-384 --out f.npz
    """
    from ringfence.data.extraction import extract

    with _bar(quiet=as_json) as show:
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
    _print_files([file], as_json)


@app.command()
def sweep(
    grid: Annotated[
        str, typer.Argument(help="A grid file, or one that is shipped: cifar10, cifar100, pets, digits.")
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder of the sweep; the same one goes on.")],
    features: FeatureFile = None,
    public_statistics: PublicStatistics = None,
    search: Annotated[
        str, typer.Option(help="paper: every combination; fair: as many for each law.")
    ] = "paper",
    engine: Annotated[str, typer.Option(help="local or ray.")] = "local",
    address: Annotated[str | None, typer.Option(help="Of a Ray cluster.")] = None,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Train every setting of a grid; may be killed at any moment and started again.

    Example: ringfence sweep cifar10 --features cifar10.npz --out sweep --search fair --device cuda
    """
    from ringfence.data.digits import digits
    from ringfence.paper.sweep.grid_file import read_grid
    from ringfence.paper.sweep.run import run_sweep

    if search not in ("paper", "fair"):
        raise ValueError(f"search must be paper or fair, got {search!r}")
    settings = read_grid(grid)
    values, public = _data(grid, features, public_statistics)
    with _bar(quiet=as_json) as show:
        file = run_sweep(
            settings,
            values or digits(),
            out,
            engine,
            address,
            device,
            "fair" if search == "fair" else "paper",
            lambda done, total, _: show("settings", done / total),
            public=public,
        )
    _print_files([file], as_json)


@app.command()
def compare(
    folders: Annotated[list[Path], typer.Argument(help="Folders of sweeps.")],
    kind: EpsilonKind = "per-instance",
    as_json: AsJson = False,
) -> None:
    """Epsilon at equal accuracy, mechanism against mechanism: did bounded support help here?

    Example: ringfence compare sweep
    """
    results = _compared(folders, kind)
    if as_json:
        from dataclasses import asdict

        typer.echo(json.dumps([asdict(one) for one in results], default=str))
        return
    from ringfence.paper.comparison.table import comparison_table

    for one in results:
        _show(comparison_table(one))
        typer.echo("\n".join(("", one.sentence, *one.warnings, "")))


@app.command()
def report(
    folders: Annotated[list[Path], typer.Argument(help="Folders of sweeps.")],
    out: Annotated[Path, typer.Option("--out", help="The HTML file to write.")] = Path("report.html"),
    kind: EpsilonKind = "per-instance",
    publishable: Publishable = False,
    as_json: AsJson = False,
) -> None:
    """Sweeps as one HTML page that opens offline.

    Example: ringfence report sweep --out report.html
    """
    from ringfence.paper.reproduce import write_comparison

    _print_files([write_comparison(_compared(folders, kind, step=0.01), out, publishable)], as_json)


@app.command()
def account(
    theta: Annotated[Path, typer.Argument(help="What is released, before noise: a .npy file of floats.")],
    sensitivity: Annotated[float, typer.Option(help="How far one record moves a coordinate, at most.")],
    sigma: Sigma,
    mechanism: Law = "rectified",
    bound: Interval = None,
    levels: Levels = None,
    steps: Annotated[int, typer.Option(help="How many times theta is released.")] = 1,
    delta: Delta = 1e-5,
    as_json: AsJson = False,
) -> None:
    """What releases of theta cost, to whom, and what may be said about it.

    Example: ringfence account theta.npy --mechanism rectified --sigma 1 --bound 4 --sensitivity 1e-3
    """
    law = Mechanism.by_name(mechanism, sigma=sigma, bound=bound, levels=levels)
    with _busy("Accounting", quiet=as_json):
        values = read_theta(theta)
        row = account_row(law, values, sensitivity, steps, delta)
    if as_json:
        typer.echo(json.dumps(row.as_dict()))
    else:
        _show(account_table(row))
        typer.echo(f"\n{row.guarantee.statement}\n\n{row.profile_statement}")


@app.command()
def probe(
    features: Annotated[
        Path, typer.Argument(help="Private features and labels: .npz, .npy, .parquet or .safetensors.")
    ],
    sigma: Sigma,
    clip: Annotated[float, typer.Option(help="Each coordinate of an example's gradient is clamped to this.")],
    learning_rate: Annotated[float, typer.Option(help="Times the released sum over --public-size.")],
    mechanism: Law = "truncated",
    bound: Interval = None,
    levels: Levels = None,
    steps: Annotated[int, typer.Option(help="Full-batch steps, one release each.")] = 10,
    momentum: Annotated[float, typer.Option(help="Of earlier releases, in [0, 1).")] = 0.0,
    intercept: Annotated[bool, typer.Option("--intercept", help="Add a feature that is always 1.")] = False,
    center: Annotated[float | None, typer.Option(help="Taken off every feature: a public constant.")] = None,
    scale: Annotated[float | None, typer.Option(help="Divides every feature: a public constant.")] = None,
    public_statistics: Annotated[
        Path | None, typer.Option(help="Public features whose mean and deviation center and scale.")
    ] = None,
    public_size: Annotated[
        float | None,
        typer.Option(
            help="Divides the sum; else the number of examples counts as public. Needed by --secure."
        ),
    ] = None,
    public_classes: Annotated[
        int | None, typer.Option(help="Labels are 0 .. N - 1; else which labels occur counts as public.")
    ] = None,
    labels: Annotated[Path | None, typer.Option(help="Of a .npy file, if not in NAME.labels.npy.")] = None,
    delta: Delta = 1e-5,
    seed: Annotated[
        int | None, typer.Option(help="To repeat a run. Who knows the seed knows the noise.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    out: Annotated[
        Path | None, typer.Option("--out", help="Save the model here, a .safetensors file.")
    ] = None,
    examples: Annotated[bool, typer.Option("--examples", help="Epsilons of single examples too.")] = False,
    secure: Annotated[
        bool, typer.Option("--secure", help="Noise from the operating system, on a public grid; no seed.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Train a linear classifier on features privately: how well it does and what it cost.

    Accuracy is that of the file's test split, if it has one.

    Example: ringfence probe features.npz --sigma 4 --bound 32 --clip 2e-3 --learning-rate 16
    """
    settings = ProbeSettings(
        mechanism=Mechanism.by_name(mechanism, sigma=sigma, bound=bound, levels=levels),
        clip=clip,
        learning_rate=learning_rate,
        steps=steps,
        momentum=momentum,
        intercept=intercept,
        center=center,
        scale=scale,
        public_size=public_size,
        public_classes=public_classes,
        delta=delta,
        seed=seed,
        device=device,
        examples=examples,
        secure=secure,
    )
    with _busy("Training", quiet=as_json):
        public = read_features(public_statistics) if public_statistics else None
        row = probe_row(read_features(features, labels), settings, public)
        if out:
            save_model(row, out)
    if as_json:
        typer.echo(json.dumps(row.as_dict()))
    else:
        _show(probe_table(row))
        typer.echo(f"\n{row.statement}")


@app.command()
def audit(
    settings: Annotated[int, typer.Option(help="Random releases to attack.")] = 300,
    trials: Annotated[int, typer.Option(help="Draws of each.")] = 1000,
    tight: Annotated[int, typer.Option(help="Releases with 20 times as many draws.")] = 5,
    probes: Annotated[int, typer.Option(help="Linear models trained with and without a record.")] = 5,
    runs: Annotated[int, typer.Option(help="Of each, on either side.")] = 300,
    seed: Annotated[int, typer.Option(help="Of the attacks.")] = 0,
    confidence: Annotated[float, typer.Option(help="Of all lower bounds together.")] = 0.99,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for the page and figure.")] = None,
    as_json: AsJson = False,
) -> None:
    """Attacks that must not beat the claims, and planted flaws that they must see.

    The exit status is 1 where a claim fell or a flaw was not seen.

    Example: ringfence audit --settings 300
    """
    from ringfence.audit.page import audit_chart, audit_tables, write_audit
    from ringfence.audit.suite import run_audit
    from ringfence.numerics.threads import one_thread
    from ringfence.report.paper_chart import save_chart

    with _bar(quiet=as_json) as show, one_thread():
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
            _show(table)
    if out is not None:
        files = [write_audit(result, out / "audit.html"), *save_chart(audit_chart(result.attacks), out)]
        if not as_json:  # which is one object
            _print_files(files, as_json=False)
    if not result.holds:
        raise typer.Exit(1)


def _busy(what: str, quiet: bool) -> Status:
    """A spinner for a person at a terminal, nothing otherwise."""
    return Console(stderr=True, quiet=quiet).status(f"{what} ...")


@contextmanager
def _bar(quiet: bool) -> Iterator[Callable[[str, float], None]]:
    """A progress bar a part for a person at a terminal, nothing otherwise."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=quiet or not console.is_terminal) as progress:
        tasks: dict[str, TaskID] = {}

        def show(name: str, share: float) -> None:
            if name not in tasks:
                tasks[name] = progress.add_task(name, total=1.0)
            progress.update(tasks[name], completed=share)

        yield show


def _data(
    grid: str, features: Path | None, public_statistics: Path | None
) -> tuple[Features | None, Features | None]:
    """The features of a sweep (None: digits) and those declared public."""
    if features is None:
        if grid != "digits":
            raise ValueError(f"--features is needed with {grid}: only digits come with a dependency")
        if public_statistics is not None:
            raise ValueError("--public-statistics is for --features: digits are scaled by constants")
        return None, None
    return read_features(features), None if public_statistics is None else read_features(public_statistics)


def _compared(folders: list[Path], kind: str, step: float = 0.05) -> list[Comparison]:
    from ringfence.paper.comparison.comparison import Kind, compare
    from ringfence.paper.sweep.store import read_rows

    if kind not in get_args(Kind):
        raise ValueError(f"kind must be one of {', '.join(get_args(Kind))}, got {kind!r}")
    return [compare(read_rows(folder), kind=cast(Kind, kind), step=step) for folder in folders]


def _show(table: Table) -> None:
    """As it is: names of data may look like markup."""
    Console(markup=False).print(table, highlight=False)


def _print_files(files: list[Path], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"files": [str(file) for file in files]}))
    else:
        for file in files:
            typer.echo(file)


def main() -> None:
    """Entry point: exit status 2 and one clear line for bad input."""
    try:
        status = app(prog_name="ringfence", standalone_mode=False)
    except (ValueError, TypeError, OSError, ModuleNotFoundError, FloatingPointError) as error:
        _fail(_one_line(error))
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    except Exception as error:
        # typer's own complaints about the call: all know how to say themselves.
        if not hasattr(error, "format_message"):
            raise
        _fail(error.format_message())
    sys.exit(status if isinstance(status, int) else 0)


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error)


def _fail(message: str) -> None:
    if message:  # empty where the help was printed instead
        typer.echo(f"ringfence: {' '.join(message.split())}", err=True)
    sys.exit(2)
