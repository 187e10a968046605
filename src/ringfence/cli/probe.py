"""``ringfence probe``: trains a linear classifier on features privately."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from ringfence.cli.options import AsJson, Delta, Device, Interval, Law, Levels, PublicStatistics, Sigma
from ringfence.cli.terminal import busy, law_beside_gaussian, print_table

if TYPE_CHECKING:
    from ringfence.training.linear.file_probe import ProbeRow

_ENDS = {0.0: "the smallest", 1.0: "the largest"}


def probe(
    features: Annotated[
        Path, typer.Argument(help="Private features and labels: .npz, .npy, .parquet or .safetensors.")
    ],
    sigma: Sigma,
    clip: Annotated[
        float, typer.Option(help="Each coordinate of an example's gradient is clamped to [-clip, clip].")
    ],
    learning_rate: Annotated[float, typer.Option(help="Multiplies the released sum over --public-size.")],
    mechanism: Law = "truncated",
    bound: Interval = None,
    levels: Levels = None,
    steps: Annotated[int, typer.Option(help="Full-batch steps, one release each.")] = 10,
    momentum: Annotated[float, typer.Option(help="Weight of earlier releases, in [0, 1).")] = 0.0,
    intercept: Annotated[bool, typer.Option("--intercept", help="Add a feature that is always 1.")] = False,
    center: Annotated[
        float | None, typer.Option(help="A public constant, subtracted from every feature.")
    ] = None,
    scale: Annotated[float | None, typer.Option(help="A public constant that divides every feature.")] = None,
    public_statistics: PublicStatistics = None,
    public_projection: Annotated[
        Path | None, typer.Option(help="A file of ringfence project, which maps features first.")
    ] = None,
    public_size: Annotated[
        float | None,
        typer.Option(
            help="Divides the sum; by default the number of examples, which then counts as public. "
            "--secure needs it."
        ),
    ] = None,
    public_classes: Annotated[
        int | None,
        typer.Option(help="Labels are 0 .. N - 1; by default those that occur, which then count as public."),
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(help="Labels of a .npy file, if they are not in NAME.labels.npy.")
    ] = None,
    delta: Delta = 1e-5,
    seed: Annotated[
        int | None, typer.Option(help="Makes a run repeatable. Whoever knows the seed knows the noise.")
    ] = None,
    device: Device = "cpu",
    out: Annotated[
        Path | None, typer.Option("--out", help="Save the model here, a .safetensors file.")
    ] = None,
    examples: Annotated[
        bool, typer.Option("--examples", help="Also print epsilons of single examples.")
    ] = False,
    secure: Annotated[
        bool, typer.Option("--secure", help="Noise from the operating system, on a public grid; no seed.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Train a linear classifier on features privately, and print its accuracy and what it cost.

    Accuracy is that of the file's test split, if it has one.

    Example: ringfence probe features.npz --sigma 4 --bound 32 --clip 2e-3 --learning-rate 16
    """
    from ringfence.data.features import read_features
    from ringfence.data.projection import PublicProjection
    from ringfence.mechanisms.base import Mechanism
    from ringfence.training.linear.file_probe import ProbeSettings, probe_row, save_model

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
    with busy("Training", quiet=as_json):
        public = read_features(public_statistics) if public_statistics else None
        projection = PublicProjection.load(public_projection) if public_projection else None
        row = probe_row(read_features(features, labels), settings, public, projection)
        if out:
            save_model(row, out)
    if as_json:
        typer.echo(json.dumps(row.as_dict()))
    else:
        print_table(probe_table(row))
        typer.echo(f"\n{row.statement}")


def probe_table(row: "ProbeRow") -> Table:
    """Accuracy, then every epsilon with what it is a statement about, beside the Gaussian's."""
    from ringfence.accounting.guarantee import RENYI
    from ringfence.numerics.rounding import rounded_up

    claim = row.guarantee
    estimate = ", an estimate where steps > 1" if claim.proof_pdp == RENYI else ""
    title = (
        f"{row.settings.mechanism!r}\n{row.examples:,} training examples, {row.features:,} features, "
        f"{len(row.classes)} classes, releases: {claim.steps}, delta {claim.delta:g}"
    )
    table = law_beside_gaussian(title, "")
    if row.test_accuracy is None:
        table.add_row("accuracy", "", "", "not reported: the file has no test split")
    else:
        table.add_row("accuracy", f"{row.test_accuracy:.2%}", "", "on the test split")
    for name, value, gaussian, what in (
        (
            "epsilon, data-independent",
            claim.epsilon_data_independent,
            row.gaussian_epsilon_data_independent,
            "DP, every dataset",
        ),
        ("epsilon, ex-post", claim.epsilon, claim.gaussian_epsilon, "this dataset and trajectory; sensitive"),
        (
            "epsilon, per-instance",
            claim.epsilon_pdp,
            claim.gaussian_epsilon_pdp,
            f"this dataset; {claim.proof_pdp}{estimate}; sensitive",
        ),
    ):
        table.add_row(name, rounded_up(value), rounded_up(gaussian), what)
    for quantile, epsilon in (row.example_epsilons or {}).items():
        what = _ENDS.get(quantile, f"{quantile:.0%} have at most this")
        table.add_row("epsilon, examples", rounded_up(epsilon), "", f"{what}; ex-post, sensitive")
    return table
