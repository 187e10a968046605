"""Figure 2 as a chart: cost and error at equal noise, then cost at equal error."""

from collections import defaultdict
from collections.abc import Callable, Sequence

from experiments.mean_estimation.rows import MeanEstimationRow, MeanEstimationSettings
from ringfence.report.chart import Chart, Line, Panel, flat

_X = "biasedness |μ|"
_SIGMA = "\N{GREEK SMALL LETTER SIGMA}"


def mean_estimation_chart(rows: Sequence[MeanEstimationRow], settings: MeanEstimationSettings) -> Chart:
    """Four panels for each noise level; a band runs from the smallest to the largest value of the trials.

    >>> from experiments.mean_estimation.rows import mean_estimation
    >>> small = MeanEstimationSettings(records=50, dimensions=2, trials=1, means=(0.0, 0.5), sigmas=(0.4,))
    >>> chart = mean_estimation_chart(list(mean_estimation(small)), small)
    >>> len(chart.panels), chart.panels[2].lines[0].name
    (4, 'Gaussian, clamped afterwards')
    """
    drawn = [_panels(rows, settings, sigma) for sigma in settings.sigmas]
    seen = [[panel for panel in panels if not flat(panel)] for panels in drawn]
    seen.sort(key=len, reverse=True)  # whole rows of panels first
    left_out = [panel.title for panels in drawn for panel in panels if flat(panel)]
    return Chart(
        "mean_estimation",
        "Mean estimation",
        "At equal noise bounded laws cost less the larger |μ| is, but err more where the support cuts off "
        f"the mean. At equal error and a = {settings.bounds[0]:g} (solid), this is left of the Gaussian's "
        f"cost: {'; '.join(_extremes(rows, settings))}.",
        tuple(panel for panels in seen for panel in panels),
        details=_details(settings, left_out),
    )


def _panels(
    rows: Sequence[MeanEstimationRow], settings: MeanEstimationSettings, sigma: float
) -> tuple[Panel, ...]:
    here = [row for row in rows if row.gaussian_sigma == sigma]
    noise, fixed, tuned = (
        [row for row in here if row.comparison == kind] for kind in ("equal noise", "equal error", "tuned")
    )
    cost = f"ε of order {settings.alpha:g}, over the Gaussian's"
    common = {"x_label": _X, "reference": 1.0, "reference_name": "Gaussian", "y_from_zero": True}
    trivial = {"shaded": (0.0, min(sigma, max(settings.means))), "shaded_name": "answering 0 errs no more"}
    return (
        Panel(
            title=f"Cost at equal noise, {_SIGMA} = {sigma:g}",
            y_label=cost,
            lines=_by_bound(noise, settings, _cost),
            **common,  # type: ignore[arg-type]
        ),
        Panel(
            title=f"Error at equal noise, {_SIGMA} = {sigma:g}",
            y_label="mean squared error, over the Gaussian's",
            lines=_by_bound(noise, settings, lambda row: row.error / row.gaussian_error),
            **common,  # type: ignore[arg-type]
        ),
        Panel(
            title=f"Cost at equal error, a = {settings.bounds[0]:g}, {_SIGMA} = {sigma:g}",
            y_label=cost,
            lines=_by_mechanism(fixed),
            **common,  # type: ignore[arg-type]
        ),
        Panel(
            title=f"The same, a tuned for each μ, {_SIGMA} = {sigma:g}",
            y_label=cost,
            lines=_by_mechanism(tuned),
            **common,  # type: ignore[arg-type]
            **trivial,  # type: ignore[arg-type]
        ),
    )


def _cost(row: MeanEstimationRow) -> float:
    return row.renyi / row.gaussian_renyi


def _by_bound(
    rows: Sequence[MeanEstimationRow],
    settings: MeanEstimationSettings,
    value: Callable[[MeanEstimationRow], float],
) -> tuple[Line, ...]:
    return (
        *(
            _line(
                mechanism if place == 0 else f"{mechanism}, a = {bound:g}",
                [row for row in rows if (row.mechanism, row.bound) == (mechanism, bound)],
                value,
                mechanism,
                dashed=place > 0,
            )
            for mechanism in ("rectified", "truncated")
            for place, bound in enumerate(settings.bounds)
        ),
        *(Line(f"a = {bound:g}", (), (), mechanism="any", dashed=True) for bound in settings.bounds[1:]),
    )


def _by_mechanism(rows: Sequence[MeanEstimationRow]) -> tuple[Line, ...]:
    names = {"Gaussian": "Gaussian, clamped afterwards", "rectified": "rectified", "truncated": "truncated"}
    lines = (
        _line(name, [row for row in rows if row.mechanism == mechanism], _cost, mechanism)
        for mechanism, name in names.items()
    )
    return tuple(line for line in lines if line.x)


def _line(
    name: str,
    rows: Sequence[MeanEstimationRow],
    value: Callable[[MeanEstimationRow], float],
    mechanism: str,
    dashed: bool = False,
) -> Line:
    trials: dict[float, list[float]] = defaultdict(list)
    for row in rows:
        trials[row.mean].append(value(row))
    return Line(
        name=name,
        x=tuple(trials),
        y=tuple(sum(values) / len(values) for values in trials.values()),
        low=tuple(min(values) for values in trials.values()),
        high=tuple(max(values) for values in trials.values()),
        mechanism=mechanism,
        dashed=dashed,
        in_legend=not dashed,  # colours are the laws' and dashes the smaller support's: each is named once
    )


def _extremes(rows: Sequence[MeanEstimationRow], settings: MeanEstimationSettings) -> list[str]:
    """What is left of the Gaussian's cost at equal error: of each law at each noise level, from and to."""
    extremes = []
    for sigma in settings.sigmas:
        for mechanism in ("rectified", "truncated"):
            ratios = [
                _cost(row)
                for row in rows
                if (row.comparison, row.gaussian_sigma, row.mechanism) == ("equal error", sigma, mechanism)
            ]
            if ratios:
                extremes.append(f"{mechanism} at {_SIGMA}={sigma:g}: {min(ratios):.2f} to {max(ratios):.2f}")
    return extremes


def _details(settings: MeanEstimationSettings, left_out: Sequence[str]) -> str:
    flat_ones = f" Not drawn, because they are flat at 1: {'; '.join(left_out)}." if left_out else ""
    return (
        f"n = {settings.records}, d = {settings.dimensions}, records clipped to [-1, 1], "
        f"{settings.trials} trials (band: smallest to largest). The sensitivity is 2/n, what one record more "
        "or less can do to a mean (erratum A14). ε is the Rényi divergence of order "
        f"{settings.alpha:g}, both signs and directions; it goes like 1/{_SIGMA}², so a ratio of 0.81 is one "
        "of about 0.9 in (ε, δ). That the bounded laws cost less the larger |μ| is, is the opposite of what "
        "the paper says (erratum A13). At equal error every law has the noise with which it errs as much as "
        "the plain Gaussian, and the Gaussian is clamped to the same interval afterwards, which costs "
        "nothing. The rectified law is the clamped Gaussian under another account. "
        "Tuning a for each μ uses what is to be estimated and is not charged: where |μ| is below "
        f"{_SIGMA} the answer 0 errs no more than the Gaussian, and any tuned support looks free.{flat_ones}"
    )
