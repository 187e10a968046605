"""Figure 4 as a chart: test accuracy against the largest and the median eta."""

from collections.abc import Callable, Sequence
from statistics import median

from experiments.comparison import CLAMPED
from experiments.information.rows import InformationRow, InformationSettings, frontier
from ringfence.report.chart import Chart, Line, Panel

Eta = Callable[[InformationRow], float]
_ETAS: dict[str, Eta] = {"largest": lambda row: row.max_eta, "median": lambda row: row.median_eta}
_BASE = "Gaussian"
_SIGMA = "\N{GREEK SMALL LETTER SIGMA}"
_KINDS = {
    "trace": "η² of an example is the mean over its features (trace); the definition takes the largest over "
    "directions, which is up to √p times as much in η: a law that gains in one need not gain in the other.",
    "spectral": "η is the largest over all directions that an example can move in (spectral norm).",
}


def information_chart(rows: Sequence[InformationRow], settings: InformationSettings) -> Chart:
    """Two panels per model: a point for every setting, a line for the Pareto frontier of every mechanism.

    >>> def row(mechanism, accuracy, eta):
    ...     return InformationRow("network", mechanism, "", accuracy, accuracy, "trace", eta, eta / 2)
    >>> rows = [row("Gaussian", 0.8, 0.2), row("truncated", 0.8, 0.1)]
    >>> chart = information_chart(rows, InformationSettings())
    >>> [panel.title for panel in chart.panels], chart.sensitive
    (['Network, largest η (trace)', 'Network, median η (trace)'], True)
    """
    models = dict.fromkeys(row.model for row in rows)
    panels = [
        Panel(
            f"{model.capitalize()}, {which} η{_short(rows, model)}",
            f"{which} η of the training examples",
            "test accuracy, %",
            frontier_lines([row for row in rows if row.model == model], eta),
            x_log=True,
        )
        for model in models
        for which, eta in _ETAS.items()
    ]
    dashes = " Dashed: the rectified law's runs under the Gaussian's account, which is free."
    caption = (
        "Up and to the left is better. A point is a setting; a line joins those that no other of the same "
        "law beats in both." + (dashes if any(row.mechanism == CLAMPED for row in rows) else "")
    )
    title, details = "Fisher information loss", _details(rows, settings)
    return Chart("information", title, caption, tuple(panels), 2, sensitive=True, details=details)


def eta_ratio(rows: Sequence[InformationRow], mechanism: str, eta: Eta) -> float | None:
    """The eta that a mechanism needs for an accuracy over the Gaussian's eta: the median over accuracies.

    Accuracies are those on the validation part, 1 % apart, from half of the best accuracy up to where one of
    the two mechanisms no longer arrives; None where there are none. Settings whose eta is 0 do not count:
    their clip is so small that gradients do not move with the features, whatever the law is.

    >>> def row(mechanism, accuracy, eta):
    ...     return InformationRow("network", mechanism, "", accuracy, accuracy, "trace", eta, eta)
    >>> eta_ratio([row("Gaussian", 0.8, 0.2), row("sign", 0.7, 0.1)], "sign", lambda row: row.max_eta)
    0.5
    """
    best = max((row.validation_accuracy for row in rows), default=0.0)
    ratios = []
    for target in range(round(50 * best), 101):
        ours, theirs = (
            [
                eta(row)
                for row in rows
                if row.mechanism == name and 100 * row.validation_accuracy >= target and eta(row) > 0
            ]
            for name in (mechanism, _BASE)
        )
        if ours and theirs:
            ratios.append(min(ours) / min(theirs))
    return median(ratios) if ratios else None


def _short(rows: Sequence[InformationRow], model: str) -> str:
    kinds = {row.kind for row in rows if row.model == model}
    return " (trace)" if kinds == {"trace"} else ""


def frontier_lines(rows: Sequence[InformationRow], eta: Eta) -> tuple[Line, ...]:
    """Points for the rows of every mechanism, and a line for its frontier.

    >>> row = InformationRow("network", "Gaussian, L2 clip", "", 0.8, 0.8, "spectral", 1.0, 0.5)
    >>> [(line.points, line.mechanism) for line in frontier_lines([row], lambda row: row.max_eta)]
    [(True, 'any'), (False, 'any')]
    """
    names = list(dict.fromkeys(row.mechanism for row in rows))
    points, curves = [], []
    for name in names:
        own = [row for row in rows if row.mechanism == name and eta(row) > 0]
        best = sorted(frontier(own, eta), key=eta)
        clamped = name == CLAMPED
        look = "any" if name.endswith("L2 clip") else name.split(",")[0]  # dashes are the clamped one's
        curves.append(Line(name, *_places(best, eta), mechanism=look, dashed=clamped))
        if not clamped:  # these are the rectified law's runs, a little to the right
            points.append(Line(name, *_places(own, eta), mechanism=look, points=True, in_legend=False))
    return (*points, *curves)


def _places(rows: Sequence[InformationRow], eta: Eta) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return tuple(eta(row) for row in rows), tuple(100 * row.test_accuracy for row in rows)


def _details(rows: Sequence[InformationRow], settings: InformationSettings) -> str:
    """What was measured and what came out, with the numbers of these rows."""
    grid, network = settings.grid, settings.network
    parts = [
        f"Test accuracy is a mean of {len(grid.seeds)} runs, η that of the first. Lines were "
        "chosen on a validation part. η is about features in the units of the file. "
        f"Linear probe: {_KINDS[settings.kind]} Full batches, "
        f"{grid.fair.settings} settings for every law, the same ones; those below half of the best accuracy "
        "are left out."
    ]
    if settings.examples is not None:
        parts.append(
            f"The probe's η was measured of up to {settings.examples:,} training examples, picked without "
            "looking at them: the largest is over those."
        )
    if network is not None and any(row.model == "network" for row in rows):
        parts.append(
            f"Network from scratch: {_KINDS[network.kind]} {network.steps} Poisson batches of "
            f"{network.batch_size}, all of them measured; an example's η is that of the batches it was in, "
            "0 if it was in none. Clip, noise and "
            "steps are the same for every law, the bound is "
            f"{network.bound_over_sigma:g} {_SIGMA}, and each takes the best of "
            f"{len(network.learning_rates)} learning rates, as a bounded release moves the weights less."
        )
    flat = sum(row.median_eta == 0 for row in rows if row.mechanism != CLAMPED)
    if flat:
        parts.append(
            f"In {flat} of the runs the median η is 0: their clip is so small that it flattens every "
            "coordinate of most gradients, whatever the law. They are not drawn there, and η says nothing "
            "about them."
        )
    parts += [_result(rows, model) for model in dict.fromkeys(row.model for row in rows)]
    if any(row.mechanism == CLAMPED for row in rows):
        parts.append(
            "Dashed, for the probe: the rectified law's runs under the Gaussian's account, which is free; "
            "what lies left of it is bounded support's own gain, the rest is the clamp's help to training, "
            "which nothing tells apart in a network."
        )
    parts.append(
        "One data set, few settings, ranges set after first looks at it, no confidence bands: small "
        "differences may be luck. The cost of tuning is not in η."
    )
    return " ".join(parts)


def _result(rows: Sequence[InformationRow], model: str) -> str:
    here = [row for row in rows if row.model == model]
    words = []
    for name in dict.fromkeys(row.mechanism for row in here):
        ratios = [eta_ratio(here, name, eta) for eta in _ETAS.values()]
        if name != _BASE and None not in ratios:
            words.append(f"{name} {ratios[0]:.2f} and {ratios[1]:.2f}")
    if not words:
        return f"{model.capitalize()}: nothing to compare with the Gaussian."
    return (
        f"{model.capitalize()}: at equal accuracy the largest and the median η are, as a multiple of the "
        f"Gaussian's (median over accuracies), {'; '.join(words)}."
    )
