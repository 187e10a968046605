"""``ringfence project``: principal components of public features, for probes on private ones."""

import json
from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli.common import AsJson, OutFile, busy


def project(
    public: Annotated[
        Path,
        typer.Argument(help="Public features: .npz, .npy, .parquet or .safetensors; labels are not used."),
    ],
    components: Annotated[int, typer.Option(help="How many principal components are kept.")],
    out: OutFile,
    whiten: Annotated[
        bool, typer.Option("--whiten", help="Divide each component by its standard deviation.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Find the principal components of public features, for probes and sweeps on other, private features.

    The features must be public: the file that is written is not private in any way.

    Example: ringfence project public.npz --components 256 --out P.npz
    """
    from ringfence.data.features import read_features
    from ringfence.data.projection import PublicProjection

    with busy("Projecting", quiet=as_json):
        features = read_features(public).train_features
        projection = PublicProjection.of(features, components, whiten=whiten)
        projection.save(out)
    share = projection.share_of_variance(features)
    if as_json:
        kept = {"components": components, "features": features.shape[1], "whitened": whiten}
        typer.echo(json.dumps({"files": [str(out)], **kept, "share_of_variance": share}))
    else:
        typer.echo(out)
        typer.echo(f"{components} of {features.shape[1]} directions, {share:.1%} of the public variance")
