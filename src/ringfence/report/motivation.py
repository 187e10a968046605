"""Draws Figure 1: two panels of the Fisher information loss, two of the Renyi divergence."""

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ringfence.experiments.motivation import MotivationRow, MotivationSettings
from ringfence.report.figures import new_figure, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SIGMA = "\N{GREEK SMALL LETTER SIGMA}"
_LABELS = {0.5: "½", 1.0: "1"}


def motivation_figure(rows: Sequence[MotivationRow], settings: MotivationSettings) -> "Figure":
    """Solid: the true worst case. Dashed: the paper's one-sided curve, too low where they part."""
    by_sigma: dict[float, dict[str, list[MotivationRow]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        by_sigma[row.sigma][row.mechanism].append(row)

    figure = new_figure(3.3 * 2 * len(by_sigma), 4.0)
    axes = figure.subplots(1, 2 * len(by_sigma), squeeze=False)[0]
    for index, (sigma, curves) in enumerate(by_sigma.items()):
        left, right = axes[index], axes[index + len(by_sigma)]
        _information(left, curves)
        _divergence(right, curves, settings)
        for panel, title in ((left, "Fisher information loss"), (right, "Per-instance RDP")):
            panel.set_title(f"{title}, {_SIGMA} = {_LABELS.get(sigma, f'{sigma:g}')}", fontsize=11)
            panel.set_xlabel("θ")
            panel.set_ylim(bottom=0)
            panel.grid(alpha=0.25, linewidth=0.6)
            band = panel.axvspan(-settings.bound, settings.bound, color="#000000", alpha=0.06, linewidth=0)

    handles, labels = axes[0].get_legend_handles_labels()
    dashed = axes[-1].plot([], [], color="#555555", linestyle="--", label="one-sided")[0]
    figure.legend(
        [*handles, dashed, band],
        [*labels, "paper's one-sided curve, D(θ‖θ+c) only", "support"],
        loc="outside lower center",
        ncols=7,
        frameon=False,
        fontsize=9,
    )
    return figure


def _information(panel: "Axes", curves: dict[str, list[MotivationRow]]) -> None:
    for order, (name, rows) in enumerate(curves.items()):
        theta = [row.theta for row in rows]
        eta = [row.fisher_information_loss for row in rows]
        panel.plot(theta, eta, label=name, markevery=_every(rows, order), **style(name))
    panel.set_ylabel("η")


def _divergence(panel: "Axes", curves: dict[str, list[MotivationRow]], settings: MotivationSettings) -> None:
    for order, (name, rows) in enumerate(curves.items()):
        theta = [row.theta for row in rows]
        look = style(name)
        panel.plot(theta, [row.renyi_worst for row in rows], markevery=_every(rows, order), **look)
        look.update(linestyle="--", marker="", linewidth=1.0)
        panel.plot(theta, [row.renyi_one_sided for row in rows], **look)
    panel.set_ylabel(f"ε at order {settings.alpha:g}, sensitivity {settings.sensitivity:g}")


def _every(rows: list[MotivationRow], order: int) -> tuple[int, int]:
    """A marker now and then, at other places for each curve."""
    step = max(1, len(rows) // 8)
    return (order * step // 5, step)
