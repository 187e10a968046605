"""The figures of the paper that need no data but their own, by the names the command line gives them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.csv_file import write_csv
from experiments.histogram.chart import histogram_chart
from experiments.histogram.rows import HistogramSettings, histogram
from experiments.information.chart import information_figure
from experiments.mean_estimation.chart import mean_estimation_chart
from experiments.mean_estimation.rows import MeanEstimationSettings, mean_estimation
from experiments.motivation import MotivationSettings, motivation, motivation_chart
from experiments.votes.chart import votes_chart
from experiments.votes.rows import VotesSettings, votes
from ringfence.numerics.threads import one_thread
from ringfence.progress import Progress
from ringfence.report.chart import Chart
from ringfence.report.drawing import save_chart

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@dataclass(frozen=True)
class Drawn:
    """A figure and the rows it was drawn from."""

    chart: Chart
    rows: "Sequence[DataclassInstance]"


def draw(name: str, out: Path, progress: Progress | None = None) -> list[Path]:
    """Draws one figure: writes NAME.png, NAME.pdf and NAME.csv to the folder.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     [file.name for file in draw("motivation", Path(folder))]
    ['motivation.png', 'motivation.pdf', 'motivation.csv']
    """
    with one_thread():
        drawn = FIGURES[name](progress)
    files = save_chart(drawn.chart, out)
    return [*files, write_csv(drawn.rows, out / f"{drawn.chart.name}.csv")]


def _motivation(progress: Progress | None) -> Drawn:
    rows = list(motivation(MotivationSettings()))
    return Drawn(motivation_chart(rows, MotivationSettings()), rows)


def _mean_estimation(progress: Progress | None) -> Drawn:
    settings = MeanEstimationSettings()
    rows = list(mean_estimation(settings, progress))
    return Drawn(mean_estimation_chart(rows, settings), rows)


def _information(progress: Progress | None) -> Drawn:
    return Drawn(*information_figure(progress=progress))


def _votes(progress: Progress | None) -> Drawn:
    settings = VotesSettings()
    rows = list(votes(settings, progress))
    return Drawn(votes_chart(rows, settings), rows)


def _histogram(progress: Progress | None) -> Drawn:
    result = histogram(HistogramSettings())
    return Drawn(histogram_chart(result, HistogramSettings()), result.people)


FIGURES: dict[str, Callable[[Progress | None], Drawn]] = {
    "motivation": _motivation,  # Figure 1
    "mean-estimation": _mean_estimation,  # Figure 2
    "fil": _information,  # Figure 4, on digits
    "votes": _votes,  # Figure 5a
    "histogram": _histogram,  # Figure 5b
}
