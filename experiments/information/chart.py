"""Figure 4 as a chart: test accuracy against the largest and the median eta, a probe's and a network's."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas import DataFrame

from experiments.comparison import CLAMPED
from experiments.drawing import Drawn
from experiments.information import networks
from experiments.information.network import (
    METHODS,
    NetworkSettings,
    digit_images,
    steps_per_epoch,
    train_and_measure,
)
from experiments.information.networks import complete, network_row
from experiments.information.probe import COLUMNS, ProbeSettings, probe_rows
from experiments.progress import track
from experiments.sweep.data import SweepData
from experiments.sweep.settings import FairSearch
from ringfence.report.chart import Chart, Line, Panel
from ringfence.report.drawing import save_chart

_ETAS = {"largest": "max_eta", "median": "median_eta"}
_BASE = "Gaussian"
_KINDS = {"spectral": "", "trace": " (trace)", "estimate": ", the paper's estimate of the trace"}
_DEFINITIONS = {
    "trace": "η² of an example is the mean over its features (trace); the definition takes the largest over "
    "directions, which is up to √p times as much in η: a law that gains in one need not gain in the other.",
    "spectral": "η is the largest over all directions that an example can move in (spectral norm).",
}
PAPER = {"rectified": 7.97, "Gaussian": 12.07}  # the largest eta at 75 % that the paper reports
_AT = 0.75
_CAPTION = (
    "Up and to the left is better. A point is a setting; a line joins those that no other of the same "
    "method beats in both."
)
_LUCK = (
    "One data set, few settings, no confidence bands: small differences may be luck. "
    "The cost of tuning is not in η."
)
# A small network on digits: seconds on a CPU, where the paper's network takes hours on a GPU.
DIGITS = NetworkSettings(
    search=FairSearch(
        validation=0.2,
        clip=(0.02, 0.2),
        noise_multiplier=(2.0, 20.0),
        bound_over_sigma=(0.5, 5.0),
        learning_rate=(0.02, 0.2),
        norm=(0.2, 2.0),
        norm_noise_multiplier=(0.1, 1.0),
        norm_learning_rate=(0.1, 1.0),
    ),
    epochs=(2, 4),
    model="small",
    batch_size=80,
    examples=100,
    probes=64,
    least_accuracy=0.3,
)
DIGIT_ROUNDS = 4


def information_figure(settings: ProbeSettings | None = None, data: SweepData | None = None) -> Drawn:
    """Figure 4 and its rows: of the probe on ``data``, or of a probe and a small network on digits."""
    wanted = ProbeSettings() if settings is None else settings
    rows = probe_rows(wanted, data)
    details = [_probe_details(rows, wanted)]
    if data is None:
        trained = _digit_networks()
        rows = pd.concat([rows, *(network_points(trained, kind) for kind in ("spectral", "estimate"))])
        details.append(_network_details(trained))
    chart = Chart(
        "information",
        "Fisher information loss",
        _CAPTION + " Dashed: the rectified law's runs under the Gaussian's account, which is free.",
        tuple(_panels(rows)),
        2,
        details=" ".join([*details, _LUCK]),
    )
    return Drawn(chart, rows)


def network_chart(rows: DataFrame, probe: DataFrame | None = None) -> Chart:
    """The probe's two panels, if its rows are given, then two of the network by each measure of eta.

    Only whole rounds of the search count, so that every method has had as many settings. A point is a
    setting; its numbers are means over its seeds.
    """
    kept = complete(rows)
    if kept.empty:
        raise ValueError("rows must hold a whole round, with a run of every method, got none")
    points = pd.concat([probe, *(network_points(kept, kind) for kind in ("spectral", "estimate"))])
    return Chart(
        "network_information",
        "Fisher information loss, a network from scratch",
        _CAPTION + " The paper's two numbers, at 75 %, are drawn beside its estimate.",
        tuple(_panels(points, marks=True)),
        2,
        details=f"{_network_details(kept)} {_LUCK}",
    )


def draw_networks(file: Path, out: Path, probe: Path | None = None) -> list[Path]:
    """Draws the chart of a CSV file as PNG and PDF; ``probe`` is the CSV file of the probe's panels."""
    others = None if probe is None else pd.read_csv(probe).query("model == 'linear probe'")
    chart = network_chart(pd.read_csv(file), others)
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{chart.name}.txt").write_text(f"{chart.caption}\n\n{chart.details}\n")
    return [*save_chart(chart, out), out / f"{chart.name}.txt"]


def network_points(rows: DataFrame, kind: str) -> DataFrame:
    """One row per setting that was measured, with means over its seeds. ``kind`` is spectral or estimate."""
    points = []
    settings = rows[rows.spectral_max.notna()].groupby(["method", "round"], sort=False)
    for (method, _), runs in sorted(settings, key=lambda group: METHODS.index(group[0][0])):
        one, means = runs.iloc[0], runs.mean(numeric_only=True)
        words = f"clip {one['clip']:g}, noise multiplier {one.noise_multiplier:g}, {one.epochs} epochs"
        numbers = (means.validation_accuracy, means.test_accuracy)
        etas = (means[f"{kind}_max"], means[f"{kind}_median"])
        points.append(("network", method, words, *numbers, kind, *etas))
    return DataFrame(points, columns=COLUMNS)


def frontier(rows: DataFrame, eta: str) -> DataFrame:
    """The rows that no other row beats in both eta and validation accuracy, by rising eta.

    Rows whose eta is 0 do not count: their clip makes all gradients constant, under any mechanism.
    """
    rows = rows[rows[eta] > 0]
    return rows.iloc[networks.frontier(rows[eta].to_numpy(), rows.validation_accuracy.to_numpy())]


def eta_on_line(points: DataFrame, method: str, eta: str, accuracies: Sequence[float]) -> NDArray[np.float64]:
    """The eta at which the line of a method passes each accuracy on the validation part; NaN beyond its ends.

    Settings are few and far apart, so that the cheapest setting of at least this accuracy may be many points
    better, which would be held against its method. Between two settings the logarithm of eta is a line.
    """
    line = frontier(points[points.mechanism == method], eta)
    if line.empty:
        return np.full(len(accuracies), np.nan)
    reached, logarithms = line.validation_accuracy, np.log(line[eta])
    found: NDArray[np.float64] = np.interp(accuracies, reached, logarithms, left=np.nan, right=np.nan)
    return np.exp(found)


def eta_ratio(points: DataFrame, method: str, eta: str) -> float | None:
    """The eta of a method over the Gaussian's: the median over accuracies that both lines pass, 1 % apart."""
    accuracies = [percent / 100 for percent in range(101)]
    ours, theirs = (eta_on_line(points, name, eta, accuracies) for name in (method, _BASE))
    ratios = (ours / theirs)[~np.isnan(ours + theirs)]
    return float(np.median(ratios)) if ratios.size else None


def _digit_networks() -> DataFrame:
    data, seed = digit_images(DIGITS.search), DIGITS.seeds[0]
    each = steps_per_epoch(data, DIGITS)
    jobs = [
        (number, setting)
        for number, those in enumerate(DIGITS.rounds(DIGIT_ROUNDS, each))
        for setting in those
    ]
    rows = []
    for number, setting in track(jobs, "fil, network"):
        found = train_and_measure(data, DIGITS, (setting, seed))
        rows.append(network_row(setting, round=number, seed=seed, epochs=setting.steps // each, **found))
    return DataFrame(rows, columns=networks.COLUMNS)


def _panels(rows: DataFrame, marks: bool = False) -> list[Panel]:
    """Two panels for every model and kind of eta: the settings of every method, and its frontier."""
    panels = []
    for (model, kind), own in rows.groupby(["model", "kind"], sort=False):
        for which, eta in _ETAS.items():
            compared = marks and (kind, which) == ("estimate", "largest")
            panels.append(
                Panel(
                    f"{model.capitalize()}, {which} η{_KINDS[kind]}",
                    f"{which} η of the measured examples",
                    "test accuracy, %",
                    (*frontier_lines(own, eta), *(_marks() if compared else ())),
                    x_log=True,
                    reference=100 * _AT if compared else None,
                    reference_name="where the paper compares" if compared else "",
                )
            )
    return panels


def frontier_lines(rows: DataFrame, eta: str) -> tuple[Line, ...]:
    """Points for the rows of every method, and a line for its frontier."""

    def line(name: str, shown: DataFrame, **how: Any) -> Line:
        look = "any" if name.endswith("L2 clip") else name.split(",")[0]  # dashes are the clamped one's
        return Line(name, tuple(shown[eta]), tuple(100 * shown.test_accuracy), mechanism=look, **how)

    points, curves = [], []
    for name, own in rows.groupby("mechanism", sort=False):
        curves.append(line(name, frontier(own, eta), dashed=name == CLAMPED))
        if name != CLAMPED:  # these are the rectified mechanism's runs, a little to the right
            points.append(line(name, own[own[eta] > 0], points=True, in_legend=False))
    return (*points, *curves)


def _marks() -> tuple[Line, ...]:
    return tuple(
        Line(f"{name}, as the paper reports", (eta,), (100 * _AT,), mechanism=name, points=True)
        for name, eta in PAPER.items()
    )


def _probe_details(rows: DataFrame, settings: ProbeSettings) -> str:
    """Describes the measurement of the probe and its results."""
    grid = settings.grid
    parts = [
        f"Linear probe: test accuracy is a mean of {len(grid.seeds)} runs with full batches, η that of the "
        f"first, about features in the units of the file. {_DEFINITIONS[settings.kind]} {grid.fair.settings} "
        "settings for every law, the same ones; those below half of the best accuracy are left out. "
        "Lines were chosen on a validation part."
    ]
    if settings.examples is not None:
        parts.append(
            f"η was measured of up to {settings.examples:,} training examples, picked without looking at "
            "them: the largest is over those."
        )
    flat = ((rows.median_eta == 0) & (rows.mechanism != CLAMPED)).sum()
    if flat:
        parts.append(
            f"In {flat} of the runs the median η is 0: their clip is so small that it flattens every "
            "coordinate of most gradients, whatever the law. They are not drawn there, and η says nothing "
            "about them."
        )
    parts.append(_ratios(rows))
    if (rows.mechanism == CLAMPED).any():
        parts.append(
            "Dashed: the rectified law's runs under the Gaussian's account, which is free; what lies left of "
            "it is bounded support's own gain, the rest is the clamp's help to training."
        )
    return " ".join(parts)


def _network_details(rows: DataFrame) -> str:
    """Describes the measurement of networks and its results."""
    rounds, broken = rows["round"].nunique(), rows.error.notna().sum()
    learned = rows[rows.spectral_max.notna()].groupby(["method", "round"]).ngroups
    several = rows[rows.seed != rows.seed.min()].groupby(["method", "round"]).ngroups
    epochs = " or ".join(map(str, sorted(set(rows.epochs))))
    parts = [
        f"The network was trained from scratch with Poisson batches, {epochs} epochs. "
        f"{rounds} settings for every method, at the same places of their ranges; {learned} of these "
        f"{rounds * len(METHODS)} learned enough to be measured, {broken} runs ended with an error. Points "
        f"are settings: means over several seeds for the {several} that were on a frontier, else one "
        "run. Lines were chosen on a validation part.",
        "η is about the network's input, in which black and white are 4 apart. It is measured at evenly "
        "spaced steps as if the example were in the batch, times the sampling rate, and scaled to all steps: "
        "an upper bound at each measured step, an estimate for the run. The paper's estimate is the trace "
        "from random directions, without a margin.",
    ]
    for kind in ("spectral", "estimate"):
        points, reached = network_points(rows, kind), []
        for name in METHODS:
            (there,) = eta_on_line(points, name, "max_eta", [_AT])
            best = points.test_accuracy[points.mechanism == name].max()
            never = f"{name} not (at most {0.0 if np.isnan(best) else best:.0%})"
            reached.append(never if np.isnan(there) else f"{name} {there:.3g}")
        parts.append(f"{_ratios(points, _KINDS[kind])} Largest η at {_AT:.0%}: {'; '.join(reached)}.")
    return " ".join(parts)


def _ratios(points: DataFrame, words: str = "") -> str:
    shown = []
    for name in points.mechanism.unique():
        both = [eta_ratio(points, name, eta) for eta in _ETAS.values()]
        if name != _BASE and None not in both:
            shown.append(f"{name} {both[0]:.2f} and {both[1]:.2f}")
    return (
        f"Along the lines, at equal accuracy, the largest and the median η{words} are, as a multiple of the "
        f"Gaussian's (median over accuracies that both reach), {'; '.join(shown) or 'nothing to compare'}."
    )
