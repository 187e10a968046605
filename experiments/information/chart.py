"""Figure 4 as a chart: test accuracy against the largest and the median eta, a probe's and a network's."""

from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from experiments.comparison import CLAMPED
from experiments.drawing import Drawn, read_csv
from experiments.information.network import (
    METHODS,
    NetworkSettings,
    digit_images,
    steps_per_epoch,
    train_and_measure,
)
from experiments.information.networks import NetworkRow, complete
from experiments.information.probe import InformationRow, ProbeSettings, frontier, probe_rows
from experiments.progress import Progress
from experiments.sweep.data import SweepData
from experiments.sweep.settings import FairSearch
from ringfence.report.chart import Chart, Line, Panel

Eta = Callable[[InformationRow], float]
_ETAS: dict[str, Eta] = {"largest": lambda row: row.max_eta, "median": lambda row: row.median_eta}
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


def information_figure(
    settings: ProbeSettings | None = None, progress: Progress | None = None, data: SweepData | None = None
) -> Drawn:
    """Figure 4 and its rows: of the probe on ``data``, or of a probe and a small network on digits."""
    wanted = ProbeSettings() if settings is None else settings
    rows = list(probe_rows(wanted, progress, data))
    networks = [] if data is not None else _digit_networks(progress)
    rows += [row for kind in ("spectral", "estimate") for row in network_points(networks, kind)]
    details = [_probe_details(rows, wanted), *([_network_details(networks)] if networks else []), _LUCK]
    chart = Chart(
        "information",
        "Fisher information loss",
        _CAPTION + " Dashed: the rectified law's runs under the Gaussian's account, which is free.",
        tuple(_panels(rows)),
        2,
        details=" ".join(details),
    )
    return Drawn(chart, rows)


def network_chart(rows: Sequence[NetworkRow], probe: Sequence[InformationRow] = ()) -> Chart:
    """The probe's two panels, if its rows are given, then two of the network by each measure of eta.

    Only whole rounds of the search count, so that every method has had as many settings. A point is a
    setting; its numbers are means over its seeds.

    >>> def row(method, accuracy, eta):
    ...     names = ("spectral_max", "spectral_median", "estimate_max", "estimate_median")
    ...     return NetworkRow(method, 0, 0, 10, 0.3, 3.0, None, 0.1, accuracy, accuracy,
    ...         **dict.fromkeys(names, eta))
    >>> chart = network_chart([row(name, 0.7, 5.0) for name in METHODS])
    >>> [panel.title for panel in chart.panels][0]
    'Network, largest η'
    """
    kept = complete(rows)
    if not kept:
        raise ValueError("rows must hold a whole round, with a run of every method, got none")
    points = chain(probe, *(network_points(kept, kind) for kind in ("spectral", "estimate")))
    return Chart(
        "network_information",
        "Fisher information loss, a network from scratch",
        _CAPTION + " The paper's two numbers, at 75 %, are drawn beside its estimate.",
        tuple(_panels(list(points), marks=True)),
        2,
        details=f"{_network_details(kept)} {_LUCK}",
    )


def draw_networks(file: Path, out: Path, probe: Path | None = None) -> list[Path]:
    """Draws the chart of a CSV file as PNG and PDF; ``probe`` is the CSV file of the probe's panels."""
    from ringfence.report.drawing import save_chart

    others = [] if probe is None else read_csv(probe, InformationRow)
    chart = network_chart(read_csv(file, NetworkRow), [row for row in others if row.model == "linear probe"])
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{chart.name}.txt").write_text(f"{chart.caption}\n\n{chart.details}\n")
    return [*save_chart(chart, out), out / f"{chart.name}.txt"]


def network_points(rows: Sequence[NetworkRow], kind: str) -> list[InformationRow]:
    """One row per setting that was measured, with means over its seeds. ``kind`` is spectral or estimate."""
    own: dict[tuple[str, int], list[NetworkRow]] = {}
    for row in rows:
        if row.spectral_max is not None:
            own.setdefault((row.method, row.round), []).append(row)

    def mean(runs: list[NetworkRow], name: str) -> float:
        return fmean(getattr(run, name) for run in runs)

    return [
        InformationRow(
            "network",
            method,
            f"clip {runs[0].clip:g}, noise multiplier {runs[0].noise_multiplier:g}, {runs[0].epochs} epochs",
            mean(runs, "validation_accuracy"),
            mean(runs, "test_accuracy"),
            "spectral" if kind == "spectral" else "estimate",
            mean(runs, f"{kind}_max"),
            mean(runs, f"{kind}_median"),
        )
        for (method, _), runs in sorted(own.items(), key=lambda item: METHODS.index(item[0][0]))
    ]


def eta_on_line(points: Sequence[InformationRow], method: str, eta: Eta, accuracy: float) -> float | None:
    """The eta at which the line of a method passes an accuracy on the validation part; None beyond its ends.

    Settings are few and far apart, so that the cheapest setting of at least this accuracy may be many points
    better, which would be held against its method. Between two settings the logarithm of eta is a line.
    Settings whose eta is 0 do not count: their clip flattens everything, whatever the mechanism is.

    >>> def row(accuracy, eta):
    ...     return InformationRow("network", "sign", "", accuracy, accuracy, "trace", eta, eta)
    >>> rows = [row(0.5, 1.0), row(0.7, 4.0)]
    >>> [eta_on_line(rows, "sign", lambda row: row.max_eta, each) for each in (0.4, 0.5, 0.6)]
    [None, 1.0, 2.0]
    """
    line = frontier([row for row in points if row.mechanism == method and eta(row) > 0], eta)
    reached = [row.validation_accuracy for row in line]
    if not line or not reached[0] <= accuracy <= reached[-1]:
        return None
    return float(np.exp(np.interp(accuracy, reached, np.log([eta(row) for row in line]))))


def eta_ratio(points: Sequence[InformationRow], method: str, eta: Eta) -> float | None:
    """The eta of a method over the Gaussian's: the median over accuracies that both lines pass, 1 % apart."""
    ratios = []
    for percent in range(101):
        ours, theirs = (eta_on_line(points, name, eta, percent / 100) for name in (method, _BASE))
        if ours is not None and theirs is not None:
            ratios.append(ours / theirs)
    return median(ratios) if ratios else None


def _digit_networks(progress: Progress | None) -> list[NetworkRow]:
    data = digit_images(DIGITS.search)
    each, rows = steps_per_epoch(data, DIGITS), []
    for number, settings in enumerate(DIGITS.rounds(DIGIT_ROUNDS, each)):
        for setting in settings:
            found = train_and_measure(data, DIGITS, (setting, DIGITS.seeds[0]))
            given = (setting.clip, setting.noise_multiplier, setting.bound, setting.learning_rate)
            epochs = setting.steps // each
            rows.append(NetworkRow(setting.label, number, DIGITS.seeds[0], epochs, *given, **found))
            if progress is not None:
                progress("fil, network", len(rows) / (DIGIT_ROUNDS * len(METHODS)))
    return rows


def _panels(rows: Sequence[InformationRow], marks: bool = False) -> list[Panel]:
    """Two panels for every model and kind of eta: the settings of every method, and its frontier."""
    panels = []
    for model, kind in dict.fromkeys((row.model, row.kind) for row in rows):
        own = [row for row in rows if (row.model, row.kind) == (model, kind)]
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


def frontier_lines(rows: Sequence[InformationRow], eta: Eta) -> tuple[Line, ...]:
    """Points for the rows of every method, and a line for its frontier.

    >>> row = InformationRow("network", "Gaussian, L2 clip", "", 0.8, 0.8, "spectral", 1.0, 0.5)
    >>> [(line.points, line.mechanism) for line in frontier_lines([row], lambda row: row.max_eta)]
    [(True, 'any'), (False, 'any')]
    """

    def line(name: str, shown: Sequence[InformationRow], **how: Any) -> Line:
        look = "any" if name.endswith("L2 clip") else name.split(",")[0]  # dashes are the clamped one's
        places = tuple(map(eta, shown)), tuple(100 * row.test_accuracy for row in shown)
        return Line(name, *places, mechanism=look, **how)

    points, curves = [], []
    for name in dict.fromkeys(row.mechanism for row in rows):
        own = [row for row in rows if row.mechanism == name and eta(row) > 0]
        curves.append(line(name, sorted(frontier(own, eta), key=eta), dashed=name == CLAMPED))
        if name != CLAMPED:  # these are the rectified mechanism's runs, a little to the right
            points.append(line(name, own, points=True, in_legend=False))
    return (*points, *curves)


def _marks() -> tuple[Line, ...]:
    return tuple(
        Line(f"{name}, as the paper reports", (eta,), (100 * _AT,), mechanism=name, points=True)
        for name, eta in PAPER.items()
    )


def _probe_details(rows: Sequence[InformationRow], settings: ProbeSettings) -> str:
    """What was measured of the probe and what came out."""
    own, grid = [row for row in rows if row.model == "linear probe"], settings.grid
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
    flat = sum(row.median_eta == 0 for row in own if row.mechanism != CLAMPED)
    if flat:
        parts.append(
            f"In {flat} of the runs the median η is 0: their clip is so small that it flattens every "
            "coordinate of most gradients, whatever the law. They are not drawn there, and η says nothing "
            "about them."
        )
    parts.append(_ratios(own))
    if any(row.mechanism == CLAMPED for row in own):
        parts.append(
            "Dashed: the rectified law's runs under the Gaussian's account, which is free; what lies left of "
            "it is bounded support's own gain, the rest is the clamp's help to training."
        )
    return " ".join(parts)


def _network_details(rows: Sequence[NetworkRow]) -> str:
    """What was measured of networks and what came out."""
    rounds = len({row.round for row in rows})
    learned = {(row.method, row.round) for row in rows if row.spectral_max is not None}
    several = {(row.method, row.round) for row in rows if row.seed != min(one.seed for one in rows)}
    broken = sum(row.error is not None for row in rows)
    epochs = " or ".join(map(str, sorted({row.epochs for row in rows})))
    parts = [
        f"The network was trained from scratch with Poisson batches, {epochs} epochs. "
        f"{rounds} settings for every method, at the same places of their ranges; {len(learned)} of these "
        f"{rounds * len(METHODS)} learned enough to be measured, {broken} runs ended with an error. Points "
        f"are settings: means over several seeds for the {len(several)} that were on a frontier, else one "
        "run. Lines were chosen on a validation part.",
        "η is about the network's input, in which black and white are 4 apart. It is measured at evenly "
        "spaced steps as if the example were in the batch, times the sampling rate, and scaled to all steps: "
        "an upper bound at each measured step, an estimate for the run. The paper's estimate is the trace "
        "from random directions, without a margin.",
    ]
    for kind in ("spectral", "estimate"):
        points, reached = network_points(rows, kind), []
        for name in METHODS:
            there = eta_on_line(points, name, _ETAS["largest"], _AT)
            best = max((row.test_accuracy for row in points if row.mechanism == name), default=0.0)
            reached.append(f"{name} not (at most {best:.0%})" if there is None else f"{name} {there:.3g}")
        parts.append(f"{_ratios(points, _KINDS[kind])} Largest η at {_AT:.0%}: {'; '.join(reached)}.")
    return " ".join(parts)


def _ratios(points: Sequence[InformationRow], words: str = "") -> str:
    shown = []
    for name in dict.fromkeys(row.mechanism for row in points):
        both = [eta_ratio(points, name, eta) for eta in _ETAS.values()]
        if name != _BASE and None not in both:
            shown.append(f"{name} {both[0]:.2f} and {both[1]:.2f}")
    return (
        f"Along the lines, at equal accuracy, the largest and the median η{words} are, as a multiple of the "
        f"Gaussian's (median over accuracies that both reach), {'; '.join(shown) or 'nothing to compare'}."
    )
