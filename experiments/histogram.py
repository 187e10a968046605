"""Figure 5b: a sparse histogram with small counts suppressed, and what it costs the people in each cell.

Every cell is released as count + N(0, sigma^2), clamped to [tau, highest]; the value tau reads "suppressed".
The Gaussian's histogram, clamped afterwards, is the same release: only the accounts differ.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from experiments.drawing import SIGMA, Drawn, curve
from ringfence.accounting.conversion import gaussian_epsilon
from ringfence.accounting.divergence_sums import both_directions
from ringfence.accounting.profile import single_epsilons
from ringfence.mechanisms.rectified import RectifiedGaussian
from ringfence.numerics.normal import cumulative
from ringfence.numerics.rounding import ROUNDING, UNDERFLOW
from ringfence.report.chart import Chart, Panel


@dataclass(frozen=True)
class HistogramSettings:
    """Counts that fall like rank^-exponent over the occupied cells; the other cells are empty.

    ``thresholds`` are values of tau / sigma. Every count up to ``plotted`` is accounted for, whether or not
    a cell has it.

    >>> counts = HistogramSettings().counts()
    >>> len(counts), int((counts == 0).sum()), int(counts.sum()), int(counts.max())
    (2000, 1500, 10006, 2410)
    """

    cells: int = 2000
    occupied: int = 500
    people: int = 10_000
    exponent: float = 1.2
    sigma: float = 4.0
    thresholds: tuple[float, ...] = (3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0)
    highest: float = 10_000.0
    plotted: int = 60
    alpha: float = 2.0
    delta: float = 1e-5

    def counts(self) -> Tensor:
        """The counts of all cells, the largest first."""
        weights = torch.arange(1, self.occupied + 1, dtype=torch.float64) ** -self.exponent
        counts = torch.zeros(self.cells, dtype=torch.float64)
        counts[: self.occupied] = torch.round(self.people * weights / weights.sum())
        return counts

    def law(self, threshold: float | Tensor) -> RectifiedGaussian:
        """The law of a release that suppresses what is below threshold * sigma."""
        return RectifiedGaussian(self.sigma, (threshold * self.sigma, self.highest))


@dataclass(frozen=True)
class HistogramRow:
    """What the release costs one person in a cell of this count, and how often such a cell is shown."""

    threshold: float  # tau / sigma
    count: int
    cells: int  # how many cells have this count
    shown: float  # the probability that such a cell is shown
    epsilon: float
    gaussian_epsilon: float
    renyi: float  # of order alpha
    gaussian_renyi: float


@dataclass(frozen=True)
class HistogramUtilityRow:
    """What the release is good for, on average over the noise, and whom the support protects."""

    threshold: float
    large_cells: int  # cells with a count of tau or more
    large_shown: float
    small_shown: float  # cells that hold someone, but fewer than tau
    empty_shown: float
    people_spared: float  # the share of people whose epsilon is at most half the Gaussian's
    cells_spared: float  # the same share of cells, the empty ones included


def histogram(settings: HistogramSettings) -> list[HistogramRow]:
    """A row for every count and threshold.

    >>> rows = histogram(HistogramSettings(thresholds=(3.0, 5.0), plotted=0))
    >>> [round(row.epsilon, 3) for row in rows if row.count == 0]  # someone joining an empty cell
    [0.926, 0.0]
    """
    counts, numbers = settings.counts().unique(return_counts=True)
    cells = dict(zip(counts.tolist(), numbers.tolist(), strict=True))
    every = torch.cat((counts, torch.arange(settings.plotted + 1).double())).unique()
    thresholds = torch.tensor(settings.thresholds, dtype=torch.float64).repeat_interleave(len(every))
    theta = every.repeat(len(settings.thresholds))
    law = settings.law(thresholds)
    one, orders = torch.ones_like(theta), torch.tensor([settings.alpha], dtype=torch.float64)
    renyi = both_directions(law, theta, one, orders)[:, 0].amax(dim=0)
    columns = (
        single_epsilons(law, theta, 1.0, settings.delta),
        cumulative((theta - law.lower) / settings.sigma),
        renyi * (1 + ROUNDING) + UNDERFLOW,
        thresholds,
        theta,
    )
    gaussian = gaussian_epsilon(1 / settings.sigma, settings.delta)
    return [
        HistogramRow(
            threshold=threshold,
            count=int(count),
            cells=cells.get(count, 0),
            shown=shown,
            epsilon=epsilon,
            gaussian_epsilon=gaussian,
            renyi=divergence,
            gaussian_renyi=settings.alpha / (2 * settings.sigma**2),
        )
        for epsilon, shown, divergence, threshold, count in zip(*(c.tolist() for c in columns), strict=True)
    ]


def utility(
    settings: HistogramSettings, rows: Sequence[HistogramRow], threshold: float
) -> HistogramUtilityRow:
    """What a threshold does to the whole histogram."""
    rows = [row for row in rows if row.threshold == threshold]
    tau = threshold * settings.sigma
    spared = [row for row in rows if row.epsilon <= row.gaussian_epsilon / 2]
    return HistogramUtilityRow(
        threshold=threshold,
        large_cells=sum(row.cells for row in rows if row.count >= tau),
        large_shown=sum(row.cells * row.shown for row in rows if row.count >= tau),
        small_shown=sum(row.cells * row.shown for row in rows if 0 < row.count < tau),
        empty_shown=sum(row.cells * row.shown for row in rows if row.count == 0),
        people_spared=sum(row.cells * row.count for row in spared) / float(settings.counts().sum()),
        cells_spared=sum(row.cells for row in spared) / settings.cells,
    )


def draw_histogram(settings: HistogramSettings | None = None) -> Drawn:
    """Panels of epsilon against a cell's count for three thresholds; then divergence, utility, coverage.

    >>> small = HistogramSettings(thresholds=(3.0, 5.0, 8.0), plotted=10)
    >>> [panel.shaded for panel in draw_histogram(small).chart.panels[:3]]
    [(0.0, 12.0), (0.0, 20.0), (0.0, 32.0)]
    """
    settings = HistogramSettings() if settings is None else settings
    rows = histogram(settings)
    useful = [utility(settings, rows, threshold) for threshold in settings.thresholds]
    ends = settings.thresholds
    chosen = dict.fromkeys((ends[0], ends[len(ends) // 2], ends[-1]))
    shown = {
        threshold: [row for row in rows if row.threshold == threshold and row.count <= settings.plotted]
        for threshold in chosen
    }
    caption = (
        "It is nearly all or nothing. Where a cell is shown with a chance well above δ, those in it pay "
        "as much as under the Gaussian; where the chance is below δ, nothing. So only cells some "
        f"4 {SIGMA} and more below τ gain."
    )
    panels = (
        *(_people_panel(own, settings, threshold) for threshold, own in shown.items()),
        _divergence_panel(shown, settings),
        *_utility_panels(useful),
    )
    details = _details([row for row in useful if row.threshold in chosen], settings)
    chart = Chart("histogram", "A sparse histogram", caption, panels, columns=3, details=details)
    return Drawn(chart, rows)


def _people_panel(rows: Sequence[HistogramRow], settings: HistogramSettings, threshold: float) -> Panel:
    tau = threshold * settings.sigma
    clamped = "Gaussian, clamped afterwards"
    return Panel(
        title=f"Suppressed below τ = {tau:g} ({threshold:g} {SIGMA})",
        x_label="count of the cell",
        y_label=f"ε of a person in it, δ = {settings.delta:g}",
        lines=(
            curve(clamped, rows, "count", "gaussian_epsilon", mechanism="Gaussian"),
            curve("rectified", rows, "count", "epsilon"),
        ),
        y_from_zero=True,
        shaded=(0.0, tau),
        shaded_name="suppressed",
    )


def _divergence_panel(shown: dict[float, list[HistogramRow]], settings: HistogramSettings) -> Panel:
    lines = [
        curve(
            f"τ = {threshold:g} {SIGMA}",
            rows,
            "count",
            lambda row: row.renyi / row.gaussian_renyi,
            mechanism="any",
            dashed=place == 1,
            points=place == 2,
        )
        for place, (threshold, rows) in enumerate(shown.items())
    ]
    return Panel(
        title=f"The same at order {settings.alpha:g}",
        x_label="count of the cell",
        y_label="Rényi divergence, over the Gaussian's",
        lines=tuple(lines),
        y_from_zero=True,
        reference=1.0,
        reference_name="Gaussian",
    )


def _utility_panels(rows: Sequence[HistogramUtilityRow]) -> tuple[Panel, Panel]:
    empty = [row for row in rows if row.empty_shown > 1e-3]
    cells = (
        curve("large cells (τ or more)", rows, "threshold", "large_shown"),
        curve("small cells (1 to τ)", rows, "threshold", "small_shown"),
        curve("empty cells", empty, "threshold", "empty_shown"),
    )
    spared = (
        curve("people", rows, "threshold", "people_spared"),
        curve("cells (empty ones included)", rows, "threshold", "cells_spared"),
    )
    tau = f"τ / {SIGMA}"
    return (
        Panel("Cells shown, on average", tau, "cells", cells, y_log=True),
        Panel("Who pays at most half the Gaussian's ε", tau, "share", spared, y_from_zero=True),
    )


def _details(rows: Sequence[HistogramUtilityRow], settings: HistogramSettings) -> str:
    thresholds = (
        f"τ = {row.threshold:g} {SIGMA}: {row.large_shown:.0f} of {row.large_cells} cells with τ or "
        f"more are shown, besides {row.small_shown:.0f} "
        f"smaller and {row.empty_shown:.2g} empty ones; {row.people_spared:.0%} of the people and "
        f"{row.cells_spared:.0%} of the cells pay at most half."
        for row in rows
    )
    return (
        f"{settings.cells:,} cells, {settings.cells - settings.occupied:,} of them empty, about "
        f"{settings.people:,} people; {SIGMA} = {settings.sigma:g}. Clamping the Gaussian's histogram "
        "afterwards gives the same table: utility is equal, only the accounts differ. A person moves one "
        f"cell by 1; ε is that of the cell, exact, both signs and directions. {' '.join(thresholds)} "
        f"The divergence of order {settings.alpha:g} falls much earlier than ε, which does not show in ε at "
        "this δ."
    )
