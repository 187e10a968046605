"""``ringfence probe`` trains a linear classifier privately on a file of features."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ringfence import checks
from ringfence.cli.common import (
    AsJson,
    Delta,
    Device,
    Interval,
    Levels,
    busy,
    give_options,
    option,
    print_cost,
    print_statement,
    writable,
)
from ringfence.mechanisms.base import Mechanism

_ENDS = {0.0: "the smallest", 1.0: "the largest"}
_LAWS = f"One of {', '.join(Mechanism.known())}; by default truncated, or gaussian with a target."
_EPSILON = "Find the noise that meets this, for every dataset; nothing else is needed then."
_CLIP = "Each coordinate of an example's gradient is clamped to [-clip, clip]."
_SIZE = "Divides the sum; by default the number of examples, which then counts as public."
_CLASSES = "Labels are 0 .. N - 1; by default those that occur, which then count as public."
_UNIT = "Divide every row by its length; by a rule if left out."
_SCALING = "Spend a part of the target on where features lie and spread; so by default."
_SEED = "Makes a run repeatable. The seed determines the noise: keep it secret."
_SECURE = "Noise from the operating system, on a public grid; no seed."
# The arguments of ``LinearProbe`` that are options as they are.
_SETTINGS: dict[str, tuple[Any, Any]] = {
    "target_epsilon": (option(float | None, _EPSILON, "--target-epsilon", "--epsilon"), None),
    "learning_rate": (option(float | None, "Multiplies the released sum over --public-size."), None),
    "steps": (option(int | None, "Full-batch steps, one release each; 10 or a target's 32."), None),
    "momentum": (
        option(float | None, "Weight of earlier releases, in [0, 1); by default 0, or 0.5 with a target."),
        None,
    ),
    "fit_intercept": (option(bool, "Add a feature that is the same in all rows."), True),
    "unit_rows": (option(bool | None, _UNIT, "--unit-rows/--no-unit-rows"), None),
    "private_scaling": (option(bool | None, _SCALING), None),
    "public_center": (option(float, "A public constant, subtracted from every feature."), 0.0),
    "public_scale": (option(float, "A public constant that divides every feature."), 1.0),
    "public_size": (option(float | None, _SIZE), None),
    "public_classes": (
        option(int | None, _CLASSES, read=lambda given: None if given is None else range(given)),
        None,
    ),
    "random_state": (option(int | None, _SEED, "--seed"), None),
    "device": (Device, "cpu"),
    "secure": (option(bool, _SECURE, "--secure"), False),
}


def probe(
    features: Annotated[Path, typer.Argument(help="Private features and labels: .npz or .parquet.")],
    sigma: Annotated[float | None, typer.Option(help="Standard deviation of the Gaussian noise.")] = None,
    clip: Annotated[float | None, typer.Option(help=_CLIP)] = None,
    clip_norm: Annotated[
        float | None, typer.Option(help="An example's gradient is scaled down to this L2 norm instead.")
    ] = None,
    mechanism: Annotated[str | None, typer.Option(help=_LAWS)] = None,
    bound: Interval = None,
    levels: Levels = None,
    delta: Delta = 1e-5,
    out: Annotated[
        Path | None,
        typer.Option("--out", callback=writable, dir_okay=False, help="Save the model, as .safetensors."),
    ] = None,
    examples: Annotated[
        bool, typer.Option("--examples", help="Also print epsilons of single examples.")
    ] = False,
    as_json: AsJson = False,
    **settings: Any,
) -> None:
    """Train a linear classifier on features privately, and print its accuracy and what it cost.

    Accuracy is that of the file's test split, if it has one. With --target-epsilon every setting that is
    not given follows from the numbers of examples, features and classes.

    Example: ringfence probe features.npz --target-epsilon 1
    Example: ringfence probe features.npz --sigma 4 --bound 32 --clip 2e-3 --learning-rate 16
    """
    from ringfence.data.features import read_features
    from ringfence.training.clipping import Norm
    from ringfence.training.probe import LinearProbe
    from ringfence.training.probe_file import probe_report, save_probe

    target = settings["target_epsilon"]
    any_clip = clip if clip_norm is None else Norm(clip_norm)
    needed = {"sigma": sigma, "clip or --clip-norm": any_clip, "learning-rate": settings["learning_rate"]}
    for name, value in needed.items():
        if target is None and value is None:
            raise ValueError(f"--{name} must be given unless --target-epsilon is")
    if target is not None and sigma is not None:
        raise ValueError(f"--sigma must be left out where --target-epsilon is given, got {sigma!r}")
    if clip is not None and clip_norm is not None:
        raise ValueError(f"--clip-norm must be left out where --clip is given, got {clip_norm!r}")
    checks.probability("delta", delta)
    name = mechanism or ("truncated" if target is None else "gaussian")
    with busy("Training", quiet=as_json):
        data = read_features(features)
        law = Mechanism.by_name(name, sigma=1.0 if sigma is None else sigma, bound=bound, levels=levels)
        probe = LinearProbe(law, any_clip, target_delta=None if target is None else delta, **settings)
        probe.fit(data.train_features, data.train_labels)
        report = probe_report(probe, data, delta, examples=examples)
        if out:
            save_probe(probe, out)
    if as_json:
        typer.echo(json.dumps(report))
    else:
        print_probe(report)
        print_statement(f"\n{report['statement']}\n\n{probe.guarantee(delta).per_instance.statement}")


give_options(probe, _SETTINGS)


def print_probe(row: dict[str, Any]) -> None:
    """Prints accuracy, then every epsilon with what it is a statement about, beside the Gaussian's."""
    from ringfence.numerics.rounding import rounded_up

    found = ""
    if row["target_epsilon"] is not None:
        found = (
            f"for epsilon {row['target_epsilon']:g}: clip {row['clip']}, "
            f"learning rate {row['learning_rate']:.4g}, {row['training_steps']} steps, momentum "
            f"{row['momentum']:g}{', rows of norm 1' if row['unit_rows'] else ''}"
            f"{', features scaled privately' if row['private_scaling'] else ''}\n"
        )
    size = row["public_size"] or row["training_examples"]  # the number of records where it is public
    title = (
        f"{row['mechanism']}\n{found}{size:,.0f} training examples, {row['features']:,} "
        f"features, {len(row['classes'])} classes, releases: {row['steps']}, delta {row['delta']:g}"
    )
    accuracy = ("accuracy", "", "", "not reported: the file has no test split")
    if row["test_accuracy"] is not None:
        accuracy = ("accuracy", f"{row['test_accuracy']:.2%}", "", "on the test split")
    examples = [
        (
            "an example's",
            rounded_up(epsilon),
            "",
            f"{_ENDS.get(quantile, f'{quantile:.0%} have at most this')}; ex-post, sensitive",
        )
        for quantile, epsilon in (row["example_epsilons"] or {}).items()
    ]
    print_cost(title, row, [accuracy], examples)
