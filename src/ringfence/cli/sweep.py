"""``ringfence sweep``: trains every setting of a grid."""

from typing import Annotated, cast

import typer

from ringfence.cli.options import (
    Address,
    AsJson,
    Device,
    Engine,
    FeatureFile,
    Out,
    PublicStatistics,
    sweep_features,
)
from ringfence.cli.terminal import print_files, progress_bars


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

    Example: ringfence sweep cifar10 --features cifar10.npz --out sweep --search fair --device cuda
    """
    from ringfence.data.digits import digits
    from ringfence.paper.sweep.grid_file import read_grid
    from ringfence.paper.sweep.run import run_sweep
    from ringfence.paper.sweep.settings import Search

    settings = read_grid(grid)
    values, public = sweep_features(grid, features, public_statistics)
    with progress_bars(quiet=as_json) as show:
        file = run_sweep(
            settings,
            values or digits(),
            out,
            engine,
            address,
            device,
            cast(Search, search),  # which the library checks
            show,
            public=public,
        )
    print_files([file], as_json)
