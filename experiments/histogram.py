"""Figure 5b: a sparse histogram with small counts suppressed, and what it costs the people in each cell.

Every cell is released as count + N(0, sigma^2), clamped to [tau, highest]; the value tau reads "suppressed".
The Gaussian's histogram, clamped afterwards, is the same release: only the accounts differ.
"""

from collections.abc import Sequence

import torch
from pandas import DataFrame, Series
from torch import Tensor

from experiments.drawing import SIGMA, Drawn, curve
from experiments.motivation import worst_case_renyi
from ringfence.accounting.conversion import gaussian_epsilon
from ringfence.accounting.profile import single_epsilons
from ringfence.mechanisms.rectified import RectifiedGaussian
from ringfence.numerics.normal import cumulative
from ringfence.numerics.rounding import ROUNDING, UNDERFLOW
from ringfence.report.chart import Chart, Panel

CELLS, OCCUPIED, PEOPLE, EXPONENT = 2000, 500, 10_000, 1.2
NOISE, HIGHEST = 4.0, 10_000.0  # sigma, and the upper end of the support
THRESHOLDS = (3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0)  # tau / sigma
PLOTTED = 60  # every count up to here is accounted for, whether or not a cell has it
ALPHA, DELTA = 2.0, 1e-5


def cell_counts() -> Tensor:
    """Counts that fall like rank^-1.2 over the occupied cells, the largest first; the others are empty."""
    weights = torch.arange(1, OCCUPIED + 1, dtype=torch.float64) ** -EXPONENT
    counts = torch.zeros(CELLS, dtype=torch.float64)
    counts[:OCCUPIED] = torch.round(PEOPLE * weights / weights.sum())
    return counts


def suppressing_law(threshold: float | Tensor) -> RectifiedGaussian:
    """The law of a release that suppresses what is below threshold * sigma."""
    return RectifiedGaussian(NOISE, (threshold * NOISE, HIGHEST))


def histogram(thresholds: Sequence[float] = THRESHOLDS, plotted: int = PLOTTED) -> DataFrame:
    """A row for every count and threshold (tau / sigma): what the release costs one person in such a cell.

    ``cells`` have this count, and each is ``shown`` with this probability.
    """
    counts = cell_counts()
    every = torch.cat((counts, torch.arange(plotted + 1).double())).unique()
    taus = torch.tensor(thresholds, dtype=torch.float64).repeat_interleave(len(every))
    theta = every.repeat(len(thresholds))
    law = suppressing_law(taus)
    return DataFrame(
        {
            "threshold": taus,
            "count": theta.long(),
            "cells": (counts == theta.unsqueeze(1)).sum(dim=1),
            "shown": cumulative((theta - law.lower) / NOISE),
            "epsilon": single_epsilons(law, theta, 1.0, DELTA),
            "gaussian_epsilon": gaussian_epsilon(1 / NOISE, DELTA),
            "renyi": worst_case_renyi(law, theta, 1.0, ALPHA) * (1 + ROUNDING) + UNDERFLOW,
            "gaussian_renyi": ALPHA / (2 * NOISE**2),
        }
    )


def utility(rows: DataFrame) -> DataFrame:
    """Utility and protection of the whole histogram for each threshold, on average over the noise.

    Cells are large with a count of tau or more, and small with a smaller one above 0. People and cells are
    spared if their epsilon is at most half the Gaussian's: the shares of them, empty cells included.
    """

    def of(rows: DataFrame) -> Series:
        count, tau = rows["count"], rows.name * NOISE
        shown = rows.cells * rows.shown
        spared = rows[rows.epsilon <= rows.gaussian_epsilon / 2]
        return Series(
            {
                "large_cells": rows.cells[count >= tau].sum(),
                "large_shown": shown[count >= tau].sum(),
                "small_shown": shown[(count > 0) & (count < tau)].sum(),
                "empty_shown": shown[count == 0].sum(),
                "people_spared": (spared.cells * spared["count"]).sum() / float(cell_counts().sum()),
                "cells_spared": spared.cells.sum() / CELLS,
            }
        )

    return rows.groupby("threshold").apply(of).reset_index()


def draw_histogram(thresholds: Sequence[float] = THRESHOLDS, plotted: int = PLOTTED) -> Drawn:
    """Panels of epsilon against a cell's count for three thresholds; then divergence, utility, coverage."""
    rows = histogram(thresholds, plotted)
    useful = utility(rows)
    chosen = (thresholds[0], thresholds[len(thresholds) // 2], thresholds[-1])
    drawn = rows[rows.threshold.isin(chosen) & (rows["count"] <= plotted)]
    shown = dict(list(drawn.groupby("threshold")))
    panels = (
        *(_people_panel(own, threshold) for threshold, own in shown.items()),
        _divergence_panel(shown),
        *_utility_panels(useful),
    )
    words = (
        f"τ = {row.threshold:g} {SIGMA}: {row.large_shown:.0f} of {row.large_cells:.0f} cells with τ or "
        f"more are shown, besides {row.small_shown:.0f} "
        f"smaller and {row.empty_shown:.2g} empty ones; {row.people_spared:.0%} of the people and "
        f"{row.cells_spared:.0%} of the cells pay at most half."
        for row in useful[useful.threshold.isin(chosen)].itertuples()
    )
    chart = Chart(
        "histogram",
        "A sparse histogram",
        "It is nearly all or nothing. Where a cell is shown with a chance well above δ, those in it pay "
        "as much as under the Gaussian; where the chance is below δ, nothing. So only cells some "
        f"4 {SIGMA} and more below τ gain.",
        panels,
        columns=3,
        details=f"{CELLS:,} cells, {CELLS - OCCUPIED:,} of them empty, about {PEOPLE:,} people; "
        f"{SIGMA} = {NOISE:g}. Clamping the Gaussian's histogram afterwards gives the same table: utility is "
        "equal, only the accounts differ. A person moves one cell by 1; ε is that of the cell, exact, both "
        f"signs and directions. {' '.join(words)} The divergence of order {ALPHA:g} falls much earlier than "
        "ε, which does not show in ε at this δ.",
    )
    return Drawn(chart, rows)


def _people_panel(rows: DataFrame, threshold: float) -> Panel:
    tau = threshold * NOISE
    return Panel(
        title=f"Suppressed below τ = {tau:g} ({threshold:g} {SIGMA})",
        x_label="count of the cell",
        y_label=f"ε of a person in it, δ = {DELTA:g}",
        lines=(
            curve("Gaussian, clamped afterwards", rows, "count", "gaussian_epsilon", mechanism="Gaussian"),
            curve("rectified", rows, "count", "epsilon"),
        ),
        y_from_zero=True,
        shaded=(0.0, tau),
        shaded_name="suppressed",
    )


def _divergence_panel(shown: dict[float, DataFrame]) -> Panel:
    lines = [
        curve(
            f"τ = {threshold:g} {SIGMA}",
            rows.assign(ratio=rows.renyi / rows.gaussian_renyi),
            "count",
            "ratio",
            mechanism="any",
            dashed=place == 1,
            points=place == 2,
        )
        for place, (threshold, rows) in enumerate(shown.items())
    ]
    return Panel(
        title=f"The same at order {ALPHA:g}",
        x_label="count of the cell",
        y_label="Rényi divergence, over the Gaussian's",
        lines=tuple(lines),
        y_from_zero=True,
        reference=1.0,
        reference_name="Gaussian",
    )


def _utility_panels(rows: DataFrame) -> tuple[Panel, Panel]:
    empty = rows[rows.empty_shown > 1e-3]
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
