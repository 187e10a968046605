"""``ringfence reproduce``: every figure of the paper and ours, and one report."""

from pathlib import Path

from ringfence.cli.options import (
    AsJson,
    Device,
    FeatureFile,
    GridName,
    Out,
    PublicStatistics,
    Publishable,
    sweep_features,
)
from ringfence.cli.terminal import print_files, progress_bars


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
