"""Figure 4 at full size as a chart: the network's panels beside those of the probe."""

from collections.abc import Sequence
from statistics import fmean, median

import numpy as np

from experiments.information.chart import Eta, frontier_lines
from experiments.information.full_size.rows import NetworkRow, complete
from experiments.information.full_size.settings import methods
from experiments.information.rows import InformationRow, frontier
from ringfence.report.chart import Chart, Line, Panel

_KINDS = {"spectral": "", "estimate": ", the paper's estimate of the trace"}
_ETAS: dict[str, Eta] = {"largest": lambda row: row.max_eta, "median": lambda row: row.median_eta}
PAPER = {"rectified": 7.97, "Gaussian": 12.07}  # the largest eta at 75 % that the paper reports
_AT = 0.75


def full_size_chart(rows: Sequence[NetworkRow], probe: Sequence[InformationRow] = ()) -> Chart:
    """The probe's two panels, if its rows are given, then two of the network by each measure of eta.

    Only whole rounds of the search count, so that every method has had as many settings. A point is a
    setting; its numbers are means over its seeds.

    >>> def row(method, accuracy, eta):
    ...     names = ("spectral_max", "spectral_median", "estimate_max", "estimate_median")
    ...     return NetworkRow(method, 0, 0, 10, 0.3, 3.0, None, 0.1, accuracy, accuracy,
    ...         **dict.fromkeys(names, eta))
    >>> chart = full_size_chart([row(name, 0.7, 5.0) for name in methods()])
    >>> [panel.title for panel in chart.panels][0], chart.sensitive
    ('Network, largest η', True)
    """
    kept = complete(rows)
    if not kept:
        raise ValueError("rows must hold a whole round, with a run of every method, got none")
    panels = [
        Panel(
            f"Linear probe, {which} η",
            f"{which} η of the training examples",
            "test accuracy, %",
            frontier_lines(probe, eta),
            x_log=True,
        )
        for which, eta in _ETAS.items()
        if probe
    ]
    for kind, words in _KINDS.items():
        points = points_of(kept, kind)
        for which, eta in _ETAS.items():
            marks = _marks() if (kind, which) == ("estimate", "largest") else ()
            panels.append(
                Panel(
                    f"Network, {which} η{words}",
                    f"{which} η of the measured examples",
                    "test accuracy, %",
                    (*frontier_lines(points, eta), *marks),
                    x_log=True,
                    reference=100 * _AT if marks else None,
                    reference_name="where the paper compares" if marks else "",
                )
            )
    title = "Fisher information loss, a network from scratch"
    caption = (
        "Up and to the left is better. A point is a setting; a line joins those that no other of the same "
        "method beats in both. The paper's two numbers, at 75 %, are drawn beside its estimate."
    )
    details = _details(kept)
    return Chart("network_information", title, caption, tuple(panels), 2, sensitive=True, details=details)


def points_of(rows: Sequence[NetworkRow], kind: str) -> list[InformationRow]:
    """One row per setting that was measured, with means over its seeds. ``kind`` is spectral or estimate."""
    own: dict[tuple[str, int], list[NetworkRow]] = {}
    for row in rows:
        if row.spectral_max is not None:
            own.setdefault((row.method, row.round), []).append(row)
    return [
        InformationRow(
            "network",
            method,
            f"clip {runs[0].clip:g}, noise multiplier {runs[0].noise_multiplier:g}, {runs[0].epochs} epochs",
            _mean(runs, "validation_accuracy"),
            _mean(runs, "test_accuracy"),
            "spectral" if kind == "spectral" else "trace",
            _mean(runs, f"{kind}_max"),
            _mean(runs, f"{kind}_median"),
        )
        for (method, _), runs in sorted(own.items(), key=lambda item: methods().index(item[0][0]))
    ]


def _mean(runs: Sequence[NetworkRow], name: str) -> float:
    return fmean(getattr(run, name) for run in runs)


def _marks() -> tuple[Line, ...]:
    return tuple(
        Line(f"{name}, as the paper reports", (eta,), (100 * _AT,), mechanism=name, points=True)
        for name, eta in PAPER.items()
    )


def _details(rows: Sequence[NetworkRow]) -> str:
    rounds = len({row.round for row in rows})
    learned = {(row.method, row.round) for row in rows if row.spectral_max is not None}
    several = {(row.method, row.round) for row in rows if row.seed != min(one.seed for one in rows)}
    broken = sum(row.error is not None for row in rows)
    epochs = " or ".join(map(str, sorted({row.epochs for row in rows})))
    parts = [
        f"The network was trained from scratch with Poisson batches, {epochs} epochs. "
        f"{rounds} settings for every method, at the same places of their ranges; {len(learned)} of these "
        f"{rounds * len(methods())} learned enough to be measured, {broken} runs ended with an error. Points "
        f"are settings: means over several seeds for the {len(several)} that were on a frontier, else one "
        "run. Lines were chosen on a validation part.",
        "η is about the network's input, in which black and white are 4 apart. It is measured at evenly "
        "spaced steps as if the example were in the batch, times the sampling rate, and scaled to all steps: "
        "an upper bound at each measured step, an estimate for the run. The paper's estimate is the trace "
        "from random directions, without a margin.",
        *(_result(points_of(rows, kind), words) for kind, words in _KINDS.items()),
        "Few settings, one data set, no confidence bands: small differences may be luck. The cost of tuning "
        "is not in η.",
    ]
    return " ".join(parts)


def eta_on_line(points: Sequence[InformationRow], method: str, eta: Eta, accuracy: float) -> float | None:
    """The eta at which the line of a method passes an accuracy on the validation part; None beyond its ends.

    Settings are few and far apart, so that the cheapest setting of at least this accuracy may be many points
    better, which would be held against its method. Between two settings the logarithm of eta is a line.

    >>> def row(accuracy, eta):
    ...     return InformationRow("network", "sign", "", accuracy, accuracy, "trace", eta, eta)
    >>> rows = [row(0.5, 1.0), row(0.7, 4.0)]
    >>> [eta_on_line(rows, "sign", lambda row: row.max_eta, each) for each in (0.4, 0.5, 0.6)]
    [None, 1.0, 2.0]
    """
    line = frontier([row for row in points if row.mechanism == method and eta(row) > 0], eta)
    accuracies = [row.validation_accuracy for row in line]
    if not line or not accuracies[0] <= accuracy <= accuracies[-1]:
        return None
    return float(np.exp(np.interp(accuracy, accuracies, np.log([eta(row) for row in line]))))


def _ratio(points: Sequence[InformationRow], method: str, eta: Eta) -> float | None:
    """The eta of a method over the Gaussian's: the median over accuracies that both lines pass, 1 % apart."""
    ratios = []
    for percent in range(101):
        ours, theirs = (eta_on_line(points, name, eta, percent / 100) for name in (method, "Gaussian"))
        if ours is not None and theirs is not None:
            ratios.append(ours / theirs)
    return median(ratios) if ratios else None


def _result(points: Sequence[InformationRow], words: str) -> str:
    ratios, reached = [], []
    for name in methods():
        both = [_ratio(points, name, eta) for eta in _ETAS.values()]
        if name != "Gaussian" and None not in both:
            ratios.append(f"{name} {both[0]:.2f} and {both[1]:.2f}")
        there = eta_on_line(points, name, _ETAS["largest"], _AT)
        best = max((row.test_accuracy for row in points if row.mechanism == name), default=0.0)
        reached.append(f"{name} not (at most {100 * best:.0f} %)" if there is None else f"{name} {there:.3g}")
    return (
        f"Along the lines, at equal accuracy, the largest and the median η{words} are, as a multiple of the "
        f"Gaussian's (median over accuracies that both reach), {'; '.join(ratios) or 'nothing to compare'}. "
        f"Largest η at {100 * _AT:.0f} %: {'; '.join(reached)}."
    )
