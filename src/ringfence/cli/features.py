"""``ringfence features``: extracts features of images with a frozen network."""

from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli.options import AsJson, OutFile
from ringfence.cli.terminal import print_files, progress_bars


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

    Example: ringfence features cifar-10-batches-py --backbone hf:google/vit-large-patch16-384 --out f.npz
    """
    from ringfence.data.extraction import extract

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
