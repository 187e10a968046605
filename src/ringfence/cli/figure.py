"""``ringfence figure NAME``: draws one figure of the paper."""

from pathlib import Path

import typer

from ringfence.cli.options import AsJson, Device, FeatureFile, GridName, Out, PublicStatistics, sweep_features
from ringfence.cli.terminal import print_files, progress_bars

figures = typer.Typer(help="Draw one figure of the paper.", no_args_is_help=True)

# The names are those of ringfence.paper.figures, written out so that --help does not load the experiments.
_FIGURES = {
    "motivation": "Figure 1, what each mechanism gives away against theta",
    "mean-estimation": "Figure 2, the mean of 900 records, cost against how far from 0 it lies",
    "fil": "Figure 4, Fisher information loss against accuracy, on digits",
    "votes": "Figure 5a, votes, the chance of a wrong answer against its cost",
    "histogram": "Figure 5b, a histogram whose small counts are suppressed",
}


def _add_figure(name: str, what: str) -> None:
    """Adds ``ringfence figure NAME``."""

    def command(out: Out = Path("out"), as_json: AsJson = False) -> None:
        from ringfence.paper.figures import draw

        with progress_bars(quiet=as_json) as show:
            files = draw(name, out, show)
        print_files(files, as_json)

    command.__doc__ = f"{what}: PNG, PDF and CSV.\n\nExample: ringfence figure {name} --out out"
    figures.command(name)(command)


for _name, _what in _FIGURES.items():
    _add_figure(_name, _what)


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
    values, public = sweep_features(data, features, public_statistics)
    from ringfence.data.digits import digits
    from ringfence.paper.reproduce import draw_comparisons
    from ringfence.paper.sweep.grid_file import read_grid

    with progress_bars(quiet=as_json) as show:
        files = draw_comparisons(
            read_grid(data), values or digits(), out, public=public, device=device, progress=show
        )
    print_files(files, as_json)
