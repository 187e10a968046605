"""Figure 5b as a chart: what a suppressed histogram costs the people in each cell, and how useful it is."""

from collections.abc import Callable, Sequence

from experiments.histogram.rows import Histogram, HistogramRow, HistogramSettings, HistogramUtilityRow
from ringfence.report.chart import Chart, Line, Panel

_SIGMA = "\N{GREEK SMALL LETTER SIGMA}"
_TAU = f"τ / {_SIGMA}"


def histogram_chart(result: Histogram, settings: HistogramSettings) -> Chart:
    """Panels of epsilon against a cell's count for three thresholds; then divergence, utility, coverage.

    >>> from experiments.histogram.rows import histogram
    >>> small = HistogramSettings(thresholds=(3.0, 5.0, 8.0), plotted=10)
    >>> [panel.shaded for panel in histogram_chart(histogram(small), small).panels[:3]]
    [(0.0, 12.0), (0.0, 20.0), (0.0, 32.0)]
    """
    shown = _shown(settings)
    panels = [_people(result, settings, threshold) for threshold in shown]
    panels += [_divergence(result, settings, shown), _utility(result.utility), _spared(result.utility)]
    caption = (
        "It is nearly all or nothing. Where a cell is shown with a chance well above δ, whoever is in it "
        "pays as much as under the Gaussian; where the chance is below δ, nothing. So only cells some "
        f"4 {_SIGMA} and more below τ gain."
    )
    title, details = "A sparse histogram", _details(result, settings)
    return Chart("histogram", title, caption, tuple(panels), columns=3, details=details)


def _shown(settings: HistogramSettings) -> tuple[float, ...]:
    """The smallest threshold, one in the middle and the largest."""
    every = settings.thresholds
    return tuple(dict.fromkeys((every[0], every[len(every) // 2], every[-1])))


def _people(result: Histogram, settings: HistogramSettings, threshold: float) -> Panel:
    rows = _plotted(result, settings, threshold)
    x = tuple(float(row.count) for row in rows)
    tau = threshold * settings.sigma
    return Panel(
        title=f"Suppressed below τ = {tau:g} ({threshold:g} {_SIGMA})",
        x_label="count of the cell",
        y_label=f"ε of a person in it, δ = {settings.delta:g}",
        lines=(
            Line(
                "Gaussian, clamped afterwards",
                x,
                tuple(row.gaussian_epsilon for row in rows),
                mechanism="Gaussian",
            ),
            Line("rectified", x, tuple(row.epsilon for row in rows)),
        ),
        y_from_zero=True,
        shaded=(0.0, tau),
        shaded_name="suppressed",
    )


def _divergence(result: Histogram, settings: HistogramSettings, shown: Sequence[float]) -> Panel:
    lines = []
    for place, threshold in enumerate(shown):
        rows = _plotted(result, settings, threshold)
        lines.append(
            Line(
                f"τ = {threshold:g} {_SIGMA}",
                tuple(float(row.count) for row in rows),
                tuple(row.renyi / row.gaussian_renyi for row in rows),
                mechanism="any",
                dashed=place == 1,
                points=place == 2,
            )
        )
    return Panel(
        title=f"The same at order {settings.alpha:g}",
        x_label="count of the cell",
        y_label="Rényi divergence, over the Gaussian's",
        lines=tuple(lines),
        y_from_zero=True,
        reference=1.0,
        reference_name="Gaussian",
    )


def _utility(rows: Sequence[HistogramUtilityRow]) -> Panel:
    empty = [row for row in rows if row.empty_shown > 1e-3]
    return Panel(
        title="Cells shown, on average",
        x_label=_TAU,
        y_label="cells",
        lines=(
            _line("large cells (τ or more)", rows, lambda row: row.large_shown),
            _line("small cells (1 to τ)", rows, lambda row: row.small_shown),
            _line("empty cells", empty, lambda row: row.empty_shown),
        ),
        y_log=True,
    )


def _spared(rows: Sequence[HistogramUtilityRow]) -> Panel:
    return Panel(
        title="Who pays at most half the Gaussian's ε",
        x_label=_TAU,
        y_label="share",
        lines=(
            _line("people", rows, lambda row: row.people_spared),
            _line("cells (empty ones included)", rows, lambda row: row.cells_spared),
        ),
        y_from_zero=True,
    )


def _line(
    name: str, rows: Sequence[HistogramUtilityRow], value: Callable[[HistogramUtilityRow], float]
) -> Line:
    return Line(name, tuple(row.threshold for row in rows), tuple(value(row) for row in rows))


def _plotted(result: Histogram, settings: HistogramSettings, threshold: float) -> list[HistogramRow]:
    return [row for row in result.people if row.threshold == threshold and row.count <= settings.plotted]


def _details(result: Histogram, settings: HistogramSettings) -> str:
    sentences = [
        f"{settings.cells:,} cells, {settings.cells - settings.occupied:,} of them empty, about "
        f"{settings.people:,} people; {_SIGMA} = {settings.sigma:g}. Clamping the Gaussian's histogram "
        "afterwards gives the same table: utility is equal, only the accounts differ. A person moves one "
        "cell by 1; ε is that of the cell, exact, both signs and directions."
    ]
    for row in result.utility:
        if row.threshold not in _shown(settings):
            continue
        sentences.append(
            f"τ = {row.threshold:g} {_SIGMA}: {row.large_shown:.0f} of {row.large_cells} cells with τ or "
            f"more are shown (mean absolute error {row.absolute_error:.1f}), besides {row.small_shown:.0f} "
            f"smaller and {row.empty_shown:.2g} empty ones; {row.people_spared:.0%} of the people and "
            f"{row.cells_spared:.0%} of the cells pay at most half."
        )
    sentences.append(
        f"The divergence of order {settings.alpha:g} falls much earlier than ε, which does not show in ε at "
        "this δ."
    )
    return " ".join(sentences)
