"""``ringfence tune``: the best of several linear classifiers, chosen from a grid of settings privately."""

import json
from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli.common import (
    AsJson,
    Delta,
    Device,
    FitIntercept,
    LabelFile,
    ModelFile,
    ProjectionFile,
    PublicCenter,
    PublicClasses,
    PublicScale,
    PublicStatistics,
    Seed,
    busy,
    print_statement,
)


def tune(
    grid: Annotated[
        Path, typer.Argument(help="Lists of clip_norm, clip, learning_rate, steps, momentum: a TOML file.")
    ],
    features: Annotated[
        Path, typer.Option(help="Private features and labels: .npz, .npy, .parquet or .safetensors.")
    ],
    target_epsilon: Annotated[
        float,
        typer.Option("--target-epsilon", "--epsilon", help="What all of it may cost, for every dataset."),
    ],
    delta: Delta = 1e-5,
    expected_runs: Annotated[float, typer.Option(help="How many runs there are on average.")] = 10.0,
    fit_intercept: FitIntercept = False,
    public_center: PublicCenter = None,
    public_scale: PublicScale = None,
    public_statistics: PublicStatistics = None,
    public_projection: ProjectionFile = None,
    public_size: Annotated[
        float | None,
        typer.Option(help="Divides the sum; by default the number of examples, which then counts as public."),
    ] = None,
    public_classes: PublicClasses = None,
    labels: LabelFile = None,
    seed: Seed = None,
    device: Device = "cpu",
    out: ModelFile = None,
    as_json: AsJson = False,
) -> None:
    """Choose settings of a linear classifier privately: --target-epsilon pays for all runs and the choice.

    After each run it is left to chance whether there is another one. The best is kept, by a noisy count of
    the training examples it gets right. How many runs there were must stay secret, and how long it took.

    Example: ringfence tune grid.toml --features features.npz --target-epsilon 1
    """
    from ringfence.data.features import read_features
    from ringfence.data.projection import PublicProjection
    from ringfence.training.probe_file import data_arguments, save_probe
    from ringfence.training.tune import read_tuning_grid
    from ringfence.training.tune import tune as tuned_probe

    with busy("Tuning", quiet=as_json):
        file = read_features(features, labels)
        arguments = data_arguments(
            file,
            public_center=public_center,
            public_scale=public_scale,
            public_statistics=read_features(public_statistics) if public_statistics else None,
            public_projection=PublicProjection.load(public_projection) if public_projection else None,
            public_classes=public_classes,
        )
        tuned = tuned_probe(
            file.train_features,
            file.train_labels,
            read_tuning_grid(grid),
            target_epsilon=target_epsilon,
            target_delta=delta,
            expected_runs=expected_runs,
            random_state=seed,
            fit_intercept=fit_intercept,
            public_size=public_size,
            device=device,
            **arguments,
        )
        probe = tuned.probe
        if out:
            save_probe(probe, out)
    accuracy = None
    if file.test_features is not None:
        accuracy = float(probe.score(file.test_features, file.test_labels))
    row = {**tuned.as_dict(), "test_accuracy": accuracy}
    if as_json:
        typer.echo(json.dumps(row))
        return
    chosen = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in row["setting"].items())
    typer.echo(f"chosen: {chosen}")
    typer.echo(f"score: {tuned.right:,} of the training examples right, with noise")
    if accuracy is not None:
        typer.echo(f"accuracy: {accuracy:.2%} on the test split, which is not protected")
    print_statement(f"\n{tuned.statement}")
