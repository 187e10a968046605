"""``ringfence reproduce``: every figure of the paper and ours, and one report."""

from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli.options import (
    Address,
    AsJson,
    Device,
    Engine,
    FeatureFile,
    GridName,
    Out,
    PublicStatistics,
    Publishable,
    sweep_features,
)
from ringfence.cli.terminal import print_files, progress_bars

_IMAGES = "cifar10-images"


def reproduce(
    out: Out = Path("out"),
    data: GridName = "digits",
    features: FeatureFile = None,
    public_statistics: PublicStatistics = None,
    device: Device = "cpu",
    publishable: Publishable = False,
    figure: Annotated[
        str | None, typer.Option(help="This figure alone; fil takes --data cifar10-images or FILE.npz too.")
    ] = None,
    settings: Annotated[
        int | None, typer.Option(help="For images: so many settings for every method, 16 by default.")
    ] = None,
    workers: Annotated[int, typer.Option(help="For images: how many processes share the GPUs.")] = 1,
    engine: Engine = "local",
    address: Address = None,
    as_json: AsJson = False,
) -> None:
    """Every figure of the paper and ours, and one HTML report; minutes on two cores.

    Without --features the data are scikit-learn's handwritten digits. With images, Figure 4 is drawn at full
    size: hours on a GPU, and the same command again continues.

    Example: ringfence reproduce --out out
    """
    if data == _IMAGES or Path(data).suffix == ".npz":
        if figure != "fil":
            raise ValueError(f"--data {data} is for --figure fil, got {figure!r}: others have no images")
        from ringfence.paper.information.full_size.figure import ROUNDS, reproduce_full_size
        from ringfence.paper.information.full_size.images import image_file

        with progress_bars(quiet=as_json) as show:
            files = reproduce_full_size(
                *(image_file(data), out),
                rounds=ROUNDS if settings is None else settings,
                device=device,
                workers=workers,
                engine=engine,
                address=address,
                progress=show,
            )
        print_files(files, as_json)
        return
    if figure is not None:
        from ringfence.paper.figures import FIGURES, draw

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
    from ringfence.paper import reproduce as whole

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
