"""The command line: parse, one library call, print."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.status import Status

from ringfence import __version__
from ringfence.data.features import read_features
from ringfence.experiments.account import account_row, read_theta
from ringfence.experiments.motivation import MotivationSettings, motivation
from ringfence.experiments.probe import ProbeSettings, probe_row, save_model
from ringfence.mechanisms.base import Mechanism
from ringfence.report.account import account_table
from ringfence.report.figures import save
from ringfence.report.motivation import motivation_figure
from ringfence.report.probe import probe_table
from ringfence.report.rows import write_csv

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


@figures.command("motivation")
def figure_motivation(out: Out = Path("out"), as_json: AsJson = False) -> None:
    """Figure 1: what each mechanism gives away against theta, PNG, PDF and CSV.

    Example: ringfence figure motivation --out out
    """
    with _busy("Figure 1", quiet=as_json):
        settings = MotivationSettings()
        rows = list(motivation(settings))
        files = save(motivation_figure(rows, settings), out, "motivation")
        files.append(write_csv(rows, out / "motivation.csv"))
    _print_files(files, as_json)


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
        Console().print(account_table(row), highlight=False)
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
        float | None, typer.Option(help="Divides the sum; else the number of examples counts as public.")
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
    )
    with _busy("Training", quiet=as_json):
        public = read_features(public_statistics) if public_statistics else None
        row = probe_row(read_features(features, labels), settings, public)
        if out:
            save_model(row, out)
    if as_json:
        typer.echo(json.dumps(row.as_dict()))
    else:
        Console().print(probe_table(row), highlight=False)
        typer.echo(f"\n{row.statement}")


def _busy(what: str, quiet: bool) -> Status:
    """A spinner for a person at a terminal, nothing otherwise."""
    return Console(stderr=True, quiet=quiet).status(f"{what} ...")


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
    except (ValueError, TypeError, OSError, ModuleNotFoundError) as error:
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
        return f"{error.strerror}: {error.filename}"
    return str(error)


def _fail(message: str) -> None:
    if message:  # empty where the help was printed instead
        typer.echo(f"ringfence: {message}", err=True)
    sys.exit(2)
