"""Every figure of the paper and ours, from data to one page: what ``ringfence reproduce`` does."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ringfence.accounting.fisher.loss import InformationNorm
from ringfence.audit.page import audit_section
from ringfence.audit.suite import run_audit
from ringfence.data.digits import digits
from ringfence.data.features import Features
from ringfence.numerics.threads import one_thread
from ringfence.paper.comparison.chart import frontier_chart, ratio_chart
from ringfence.paper.comparison.chosen_settings import like_for_like
from ringfence.paper.comparison.comparison import Comparison, compare
from ringfence.paper.comparison.table import comparison_cells
from ringfence.paper.histogram.chart import histogram_chart
from ringfence.paper.histogram.rows import HistogramSettings, histogram
from ringfence.paper.information.chart import information_chart
from ringfence.paper.information.rows import InformationSettings, information
from ringfence.paper.mean_estimation.chart import mean_estimation_chart
from ringfence.paper.mean_estimation.rows import MeanEstimationSettings, mean_estimation
from ringfence.paper.motivation.chart import motivation_chart
from ringfence.paper.motivation.rows import MotivationSettings, motivation
from ringfence.paper.single_examples.chart import distribution_chart
from ringfence.paper.single_examples.rows import SingleExampleRow, single_examples
from ringfence.paper.sweep.data import SweepData, sweep_data
from ringfence.paper.sweep.grid_file import read_grid
from ringfence.paper.sweep.run import read_rows, run_sweep
from ringfence.paper.sweep.settings import Grid, Search
from ringfence.paper.votes.chart import votes_chart
from ringfence.paper.votes.rows import VotesSettings, votes
from ringfence.report.chart import Chart
from ringfence.report.content import Report, Section
from ringfence.report.csv_file import write_csv
from ringfence.report.page import installed_versions, save_charts, write_report
from ringfence.report.paper_chart import save_chart

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Share = Callable[[float], None]  # how much of a figure is done, from 0 to 1
Progress = Callable[[str, float], None]  # the same, with the figure's name
SEARCHES: tuple[Search, ...] = ("paper", "fair")
SPECTRAL_CLASSES = 16  # with more, the largest eta over directions takes minutes a run: the trace instead
AUDITED = 100  # releases that are attacked; ``ringfence audit`` does more
INFORMATION_SETTINGS = 48  # of Figure 4, a law: the first ones of the fair search
EXAMPLES = 1000  # training examples whose own numbers are shown: thousands would take hours on two cores


@dataclass(frozen=True)
class Drawn:
    """A figure and the rows it was drawn from."""

    chart: Chart
    rows: "Sequence[DataclassInstance]"


def figure_motivation(share: Share) -> Drawn:
    """Figure 1: what each mechanism gives away against theta."""
    rows = list(motivation(MotivationSettings()))
    return Drawn(motivation_chart(rows, MotivationSettings()), rows)


def figure_mean_estimation(share: Share) -> Drawn:
    """Figure 2: the mean of 900 records, cost against how far from 0 it lies."""
    settings = MeanEstimationSettings()
    rows = list(mean_estimation(settings, share))
    return Drawn(mean_estimation_chart(rows, settings), rows)


def figure_fil(share: Share) -> Drawn:
    """Figure 4: Fisher information loss against accuracy, probe and small network on digits."""
    settings = InformationSettings()
    rows = list(information(settings, share))
    return Drawn(information_chart(rows, settings), rows)


def figure_votes(share: Share) -> Drawn:
    """Figure 5a: votes, the chance of a wrong answer against its cost."""
    settings = VotesSettings()
    rows = list(votes(settings, share))
    return Drawn(votes_chart(rows, settings), rows)


def figure_histogram(share: Share) -> Drawn:
    """Figure 5b: a histogram whose small counts are suppressed, cost person by person."""
    result = histogram(HistogramSettings())
    return Drawn(histogram_chart(result, HistogramSettings()), result.people)


_KINDS = {"spectral": "the largest over directions", "trace": "the root of the mean square over features"}

# Figures that need no data but their own.
FIGURES: dict[str, Callable[[Share], Drawn]] = {
    "motivation": figure_motivation,
    "mean-estimation": figure_mean_estimation,
    "fil": figure_fil,
    "votes": figure_votes,
    "histogram": figure_histogram,
}


def draw(name: str, out: Path, share: Share) -> list[Path]:
    """One figure: NAME.png, NAME.pdf and NAME.csv in the folder."""
    with one_thread():
        drawn = FIGURES[name](share)
    files = save_chart(drawn.chart, out)
    return [*files, write_csv(drawn.rows, out / f"{drawn.chart.name}.csv")]


def comparisons(
    grid: Grid,
    features: Features,
    out: Path,
    *,
    public: Features | None = None,
    device: str = "cpu",
    progress: Progress | None = None,
) -> dict[Search, Comparison]:
    """Figure 3's sweeps, the paper's grid and the fair search; they go on where they were."""
    results: dict[Search, Comparison] = {}
    for search in SEARCHES:

        def share(done: int, total: int, left: float | None, search: str = search) -> None:
            if progress is not None:
                progress(f"sweep, {search}", done / total)

        folder = out / f"{grid.name.lower().replace(' ', '-')}-{search}"
        run_sweep(grid, features, folder, device=device, search=search, public=public, progress=share)
        results[search] = compare(read_rows(folder), step=0.01)
    return results


def reproduce(
    out: Path,
    *,
    grid: str | Path = "digits",
    features: Features | None = None,
    public: Features | None = None,
    device: str = "cpu",
    publishable: bool = False,
    progress: Progress | None = None,
) -> list[Path]:
    """All of it into a folder: report.html, and every figure as PNG, PDF and CSV.

    Without ``features`` the data are scikit-learn's digits. Sweeps are kept in the folder: the same
    call again goes on where it was.
    """
    out.mkdir(parents=True, exist_ok=True)
    settings = read_grid(grid)
    data = digits() if features is None else features
    with one_thread():
        attacks = run_audit(
            AUDITED, tight=2, probes=2, runs=100, progress=lambda _, share: _share(progress, "audit")(share)
        )
        # Figure 4 on features of one's own needs the sweeps first
        names = [name for name in FIGURES if features is None or name != "fil"]
        drawn = {name: FIGURES[name](_share(progress, name)) for name in names}
    with one_thread(data.train_features.size):
        results = comparisons(settings, data, out / "sweeps", public=public, device=device, progress=progress)
        parts = sweep_data(data, settings, "fair", public).to(device)
        kind: InformationNorm = "spectral" if parts.classes <= SPECTRAL_CLASSES else "trace"
        if features is not None:
            fewer = replace(settings.fair, settings=min(settings.fair.settings, INFORMATION_SETTINGS))
            wanted = InformationSettings(replace(settings, fair=fewer), None, kind, EXAMPLES)
            rows = list(information(wanted, _share(progress, "fil"), parts))
            drawn["fil"] = Drawn(information_chart(rows, wanted), rows)
        examples, single_rows = _examples(
            parts, settings.delta, results["fair"], kind, _share(progress, "single examples")
        )
    files = [write_csv(one.rows, out / f"{one.chart.name}.csv") for one in drawn.values()]
    sections = [
        Section(
            "Did bounded support help?",
            tuple(f"{_named(search)}: {one.sentence}" for search, one in results.items()),
            sensitive=True,
        ),
        Section("Figure 1: what a release gives away", charts=(drawn["motivation"].chart,)),
        Section("Figure 2: the mean of many records", charts=(drawn["mean-estimation"].chart,)),
        *comparison_sections(list(results.values())),
        Section("Figure 4: Fisher information loss against accuracy", charts=(drawn["fil"].chart,)),
        Section("Figure 5: decisions", charts=(drawn["votes"].chart, drawn["histogram"].chart)),
        audit_section(attacks),
        examples,
    ]
    files.append(write_csv(single_rows, out / "single_examples.csv"))
    report = Report(
        title="Bounded-support Gaussian privacy: the paper, reproduced",
        summary=("Every figure of the paper, and two of ours, recomputed with its errors corrected.",),
        sections=tuple(sections),
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
    )
    page = write_report(report, out / "report.html", publishable)
    return [page, *save_charts(report, out, publishable), *files]


def comparison_sections(results: Sequence[Comparison]) -> list[Section]:
    """Figure 3: ratios, frontiers and the table of epsilon at equal accuracy, all sensitive."""
    charts = (ratio_chart(results), frontier_chart(results))
    text = tuple(dict.fromkeys(line for one in results for line in one.warnings))
    tables = tuple(comparison_cells(one) for one in results)
    return [Section("Figure 3: epsilon at equal accuracy", text, charts, tables, sensitive=True)]


def write_comparison(results: Sequence[Comparison], path: Path, publishable: bool = False) -> Path:
    """Sweeps that were compared, as a page."""
    short = Section("Did bounded support help?", tuple(one.sentence for one in results), sensitive=True)
    report = Report(
        title="Bounded support against the Gaussian mechanism",
        sections=(short, *comparison_sections(results)),
        settings=tuple(("data", one.data) for one in results),
        versions=installed_versions(),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_report(report, path, publishable)


def _examples(
    data: SweepData, delta: float, fair: Comparison, kind: InformationNorm, share: Share
) -> tuple[Section, list[SingleExampleRow]]:
    """What a run cost single examples, every law with the same setting."""
    target, chosen = like_for_like(fair)
    runs = list(single_examples(data, chosen, delta, examples=EXAMPLES, kind=kind, progress=share))
    accuracy = ", ".join(f"{run.mechanism} {run.test_accuracy:.1%}" for run in runs)
    how = (
        f"Every law with the same clip, noise, bound, learning rate and steps: {runs[-1].setting}, a choice "
        f"of the fair search for an accuracy of {target:.0%}. Test accuracy: {accuracy}."
    )
    count = min(EXAMPLES, len(data.train[1]))
    flat = ", ".join(f"{run.mechanism} {sum(row.eta == 0 for row in run.rows):,}" for run in runs)
    charts = (
        distribution_chart(
            "example_epsilons",
            "Epsilon of single examples",
            f"Ex-post epsilon of {count:,} training examples at delta {delta:g}. {how}",
            {run.mechanism: [row.epsilon for row in run.rows] for run in runs},
            x_label="epsilon",
        ),
        distribution_chart(
            "example_information",
            "Fisher information loss of single examples",
            f"Eta ({_KINDS[kind]}) of {count:,} training examples over the run. It is 0, and not drawn, "
            f"where the clip flattens every coordinate of a gradient: {flat}. {how}",
            {run.mechanism: [row.eta for row in run.rows if row.eta > 0] for run in runs},
            x_label="eta",
            x_log=True,
        ),
    )
    statements = tuple(f"{run.mechanism}. {run.statement}" for run in runs)
    section = Section("Single examples, and what may be said", statements, charts, sensitive=True)
    return section, [row for run in runs for row in run.rows]


def _named(search: Search) -> str:
    return {"paper": "On the paper's grid", "fair": "With as many settings for every mechanism"}[search]


def _share(progress: Progress | None, name: str) -> Share:
    return lambda share: progress(name, share) if progress is not None else None
