"""Every figure of the paper and ours, from data to one page: what ``make reproduce`` does."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from experiments.comparison import Comparison
from experiments.comparison_page import (
    SENSITIVE,
    Compared,
    answer_section,
    compare_folder,
    comparison_section,
)
from experiments.drawing import Drawn
from experiments.information.chart import information_figure
from experiments.information.probe import ProbeSettings
from experiments.mean_estimation import draw_mean_estimation
from experiments.motivation import draw_motivation
from experiments.sweep.data import digits, sweep_data
from experiments.sweep.probes import run_sweep
from experiments.sweep.runner import Workers
from experiments.sweep.settings import Grid, Search, read_grid
from experiments.votes import draw_votes
from ringfence.accounting.fisher import InformationNorm
from ringfence.data.features import Features
from ringfence.numerics.blocks import one_thread
from ringfence.report.drawing import save_chart
from ringfence.report.page import Report, Section, installed_versions, write_report

SEARCHES: tuple[Search, ...] = ("paper", "fair")
SPECTRAL_CLASSES = 16  # with more, the largest eta over directions takes minutes per run: use the trace
INFORMATION_SETTINGS = 48  # how many settings per law Figure 4 takes from the start of the fair search
INFORMATION_EXAMPLES = 1000  # of features of one's own: those of all would take hours on two cores


# The figures that need no data but their own.
FIGURES: dict[str, Callable[[], Drawn]] = {
    "motivation": draw_motivation,  # Figure 1
    "mean-estimation": draw_mean_estimation,  # Figure 2
    "fil": information_figure,  # Figure 4
    "votes": draw_votes,  # Figure 5
}


def draw(name: str, out: Path) -> list[Path]:
    """Draws one of ``FIGURES``: writes NAME.png, NAME.pdf and NAME.csv to the folder."""
    with one_thread():
        return FIGURES[name]().save(out)


def comparisons(
    grid: Grid, features: Features, out: Path, *, public: Features | None = None, device: str = "cpu"
) -> tuple[list[Comparison], Compared]:
    """Runs and compares the sweeps of Figure 3: the paper's grid, and the fair search with every clip.

    Sweeps that were begun in the folder ``out`` are continued.
    """
    results: list[Comparison] = []
    for search in SEARCHES:
        folder = out / f"{grid.name.lower().replace(' ', '-')}-{search}"
        run_sweep(grid, features, folder, Workers(device=device), search, public=public)
        fair = compare_folder(folder, step=0.01)
        results += fair.clips
    return results, fair  # the last of the searches


def reproduce(
    out: Path,
    *,
    grid: str | Path = "digits",
    features: Features | None = None,
    public: Features | None = None,
    device: str = "cpu",
) -> list[Path]:
    """Writes everything to a folder: report.html, and every figure as PNG, PDF and CSV.

    Without ``features`` the data are scikit-learn's digits. Sweeps are kept in the folder: the same
    call again continues them.
    """
    out.mkdir(parents=True, exist_ok=True)
    settings = read_grid(grid)
    data = digits() if features is None else features
    with one_thread():
        # Figure 4 on features of one's own needs the parts that the sweeps train on.
        names = [name for name in FIGURES if features is None or name != "fil"]
        drawn = {name: FIGURES[name]() for name in names}
    with one_thread(data.train_features.size):
        results, fair = comparisons(settings, data, out / "sweeps", public=public, device=device)
        if features is not None:
            parts = sweep_data(data, settings, "fair", public).to(device)
            kind: InformationNorm = "spectral" if parts.classes <= SPECTRAL_CLASSES else "trace"
            fewer = replace(settings.fair, settings=min(settings.fair.settings, INFORMATION_SETTINGS))
            wanted = ProbeSettings(replace(settings, fair=fewer), kind, INFORMATION_EXAMPLES)
            drawn["fil"] = information_figure(wanted, parts)
    files = [one.write_rows(out) for one in drawn.values()]

    def figure(heading: str, lead: str, name: str) -> Section:
        return Section(heading, charts=(drawn[name].chart,), lead=lead, folded=True)

    report = Report(
        title="Bounded-support Gaussian privacy: the paper, reproduced",
        summary=("Every figure of the paper, and one of ours, recomputed with its errors corrected.",),
        sections=(
            answer_section([fair]),
            figure(
                "Figure 1: what a release leaks",
                "A bounded law leaks little where the value lies far outside its support.",
                "motivation",
            ),
            figure(
                "Figure 2: the mean of many records",
                "Cost and error of a noisy mean, at equal noise and at equal error.",
                "mean-estimation",
            ),
            comparison_section(results),
            figure(
                "Figure 4: Fisher information loss",
                "Test accuracy against how well an example could be reconstructed.",
                "fil",
            ),
            figure("Figure 5: decisions", "Where bounded support pays: confident votes.", "votes"),
        ),
        settings=(
            ("data", settings.name),
            ("training examples", f"{len(data.train_features):,}"),
            ("features", f"{data.train_features.shape[1]:,}"),
            ("delta", f"{settings.delta:g}"),
            ("seeds", ", ".join(map(str, settings.seeds))),
            ("settings in the paper's grid", f"{len(settings.jobs('paper')) // len(settings.seeds):,}"),
            ("settings in the fair search", f"{len(settings.jobs('fair')) // len(settings.seeds):,}"),
        ),
        versions=installed_versions(),
        notice=SENSITIVE,
    )
    charts = [chart for section in report.sections for chart in section.charts]
    pictures = [path for chart in charts for path in save_chart(chart, out)]
    return [write_report(report, out / "report.html"), *pictures, *files]
