"""Every figure of the paper and ours, from data to one page: what ``ringfence reproduce`` does."""

from dataclasses import replace
from pathlib import Path

from experiments.comparison.chart import frontier_chart, ratio_chart
from experiments.comparison.comparison import Comparison, compare
from experiments.comparison.frontier import by_clip
from experiments.comparison.page import answer_section, comparison_section
from experiments.comparison.winner import Winner, winner
from experiments.csv_file import write_csv
from experiments.figures import FIGURES, Drawn
from experiments.information.chart import information_figure
from experiments.information.probe import ProbeSettings
from experiments.single_examples import EXAMPLES, single_examples_section
from experiments.sweep.data import digits, sweep_data
from experiments.sweep.probes import read_rows, run_sweep
from experiments.sweep.runner import Workers
from experiments.sweep.settings import Grid, Search, read_grid
from ringfence.accounting.fisher import InformationNorm
from ringfence.audit.page import audit_section
from ringfence.audit.suite import run_audit
from ringfence.data.features import Features
from ringfence.numerics.threads import one_thread
from ringfence.progress import Progress
from ringfence.report.content import Report, Section, installed_versions
from ringfence.report.drawing import save_chart, save_charts
from ringfence.report.page import write_report

SEARCHES: tuple[Search, ...] = ("paper", "fair")
SPECTRAL_CLASSES = 16  # with more, the largest eta over directions takes minutes per run: use the trace
AUDITED = 100  # how many releases are attacked; ``ringfence audit`` attacks more
INFORMATION_SETTINGS = 48  # how many settings per law Figure 4 takes from the start of the fair search


def comparisons(
    grid: Grid,
    features: Features,
    out: Path,
    *,
    public: Features | None = None,
    device: str = "cpu",
    progress: Progress | None = None,
) -> tuple[dict[str, Comparison], Winner]:
    """Runs and compares the sweeps of Figure 3, the paper's grid and the fair search with every clip.

    Comparisons are named by their search, those of further clips also by the clip. The winner is that of the
    fair search. Sweeps that were begun in the folder ``out`` are continued.
    """
    results: dict[str, Comparison] = {}
    for search in SEARCHES:

        def tell(_: str, share: float, search: Search = search) -> None:
            if progress is not None:
                progress(f"sweep, {search}", share)

        folder = out / f"{grid.name.lower().replace(' ', '-')}-{search}"
        run_sweep(grid, features, folder, Workers(device=device), search, tell, public=public)
        rows = read_rows(folder)
        for own in by_clip(rows):
            clip = own[0].setting.clip_kind
            results[search if clip == "clamp" else f"{search}, {clip}"] = compare(own, step=0.01)
    return results, winner(rows, step=0.01)


def draw_comparisons(
    grid: Grid,
    features: Features,
    out: Path,
    *,
    public: Features | None = None,
    device: str = "cpu",
    progress: Progress | None = None,
) -> list[Path]:
    """Figure 3 and the frontiers behind it as PNG and PDF; the sweeps are kept in ``out``/sweeps."""
    results, _ = comparisons(grid, features, out / "sweeps", public=public, device=device, progress=progress)
    both = list(results.values())
    return [*save_chart(ratio_chart(both), out), *save_chart(frontier_chart(both), out)]


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
    """Writes everything to a folder: report.html, and every figure as PNG, PDF and CSV.

    Without ``features`` the data are scikit-learn's digits. Sweeps are kept in the folder: the same
    call again continues them.
    """
    out.mkdir(parents=True, exist_ok=True)
    settings = read_grid(grid)
    data = digits() if features is None else features
    with one_thread():
        attacks = run_audit(AUDITED, tight=2, probes=2, runs=100, progress=progress)
        # Figure 4 on features of one's own needs the parts that the sweeps train on.
        names = [name for name in FIGURES if features is None or name != "fil"]
        drawn = {name: FIGURES[name](progress) for name in names}
    with one_thread(data.train_features.size):
        results, best = comparisons(
            settings, data, out / "sweeps", public=public, device=device, progress=progress
        )
        parts = sweep_data(data, settings, "fair", public).to(device)
        kind: InformationNorm = "spectral" if parts.classes <= SPECTRAL_CLASSES else "trace"
        if features is not None:
            fewer = replace(settings.fair, settings=min(settings.fair.settings, INFORMATION_SETTINGS))
            wanted = ProbeSettings(replace(settings, fair=fewer), kind, EXAMPLES)
            drawn["fil"] = Drawn(*information_figure(wanted, progress, parts))
        examples, single_rows = single_examples_section(
            parts, settings.delta, results["fair"], kind, progress
        )
    files = [write_csv(one.rows, out / f"{one.chart.name}.csv") for one in drawn.values()]
    fair = [one for search, one in results.items() if search.startswith("fair")]
    sections = [
        answer_section([(fair, best)]),
        Section(
            "Figure 1: what a release gives away",
            charts=(drawn["motivation"].chart,),
            lead="A bounded law gives away little where the value lies far outside its support.",
            folded=True,
        ),
        Section(
            "Figure 2: the mean of many records",
            charts=(drawn["mean-estimation"].chart,),
            lead="Cost and error of a noisy mean, at equal noise and at equal error.",
            folded=True,
        ),
        comparison_section(list(results.values())),
        Section(
            "Figure 4: Fisher information loss",
            charts=(drawn["fil"].chart,),
            lead="Test accuracy against how well an example could be reconstructed.",
            folded=True,
        ),
        Section(
            "Figure 5: decisions",
            charts=(drawn["votes"].chart, drawn["histogram"].chart),
            lead="Where bounded support pays: confident votes and suppressed cells.",
            folded=True,
        ),
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
