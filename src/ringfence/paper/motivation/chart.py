"""Figure 1 as a chart: panels of the Fisher information loss, then of the Renyi divergence."""

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ringfence.paper.motivation.rows import MotivationRow, MotivationSettings
from ringfence.report.chart import Chart, Line, Panel

if TYPE_CHECKING:
    pass

_LABELS = {0.5: "½", 1.0: "1"}
_CAPTION = (
    "What one coordinate gives away, against where it lies. The Gaussian gives away the same everywhere; "
    "with a bounded support far less leaves where theta is far outside. Solid: the true worst case over both "
    "signs of the shift and both directions. Dashed: the paper's one-sided curve, too low where they part."
)

Curves = dict[str, list[MotivationRow]]


def motivation_chart(rows: Sequence[MotivationRow], settings: MotivationSettings) -> Chart:
    """Solid: the true worst case. Dashed: the paper's one-sided curve, too low where they part.

    >>> from ringfence.paper.motivation.rows import motivation
    >>> settings = MotivationSettings(points=3)
    >>> chart = motivation_chart(list(motivation(settings)), settings)
    >>> len(chart.panels), chart.panels[2].y_label
    (4, 'ε at order 2, sensitivity 1')
    """
    by_sigma: dict[float, Curves] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        by_sigma[row.sigma][row.mechanism].append(row)
    divergence = f"ε at order {settings.alpha:g}, sensitivity {settings.sensitivity:g}"
    left = (
        _panel("Fisher information loss", sigma, "η", _information(curves), settings)
        for sigma, curves in by_sigma.items()
    )
    right = (
        _panel("Per-instance RDP", sigma, divergence, _divergence(curves), settings)
        for sigma, curves in by_sigma.items()
    )
    return Chart(
        name="motivation",
        title="What each mechanism gives away",
        caption=_CAPTION,
        panels=(*left, *right),
        columns=2 * len(by_sigma),
    )


def _panel(
    title: str, sigma: float, y_label: str, lines: tuple[Line, ...], settings: MotivationSettings
) -> Panel:
    return Panel(
        title=f"{title}, \N{GREEK SMALL LETTER SIGMA} = {_LABELS.get(sigma, f'{sigma:g}')}",
        x_label="θ",
        y_label=y_label,
        lines=lines,
        y_from_zero=True,
        shaded=(-settings.bound, settings.bound),
        shaded_name="support",
    )


def _information(curves: Curves) -> tuple[Line, ...]:
    return tuple(
        Line(name, _theta(rows), tuple(row.fisher_information_loss for row in rows))
        for name, rows in curves.items()
    )


def _divergence(curves: Curves) -> tuple[Line, ...]:
    worst = (
        Line(name, _theta(rows), tuple(row.renyi_worst for row in rows)) for name, rows in curves.items()
    )
    one_sided = (
        Line(
            f"{name}, one-sided",
            _theta(rows),
            tuple(row.renyi_one_sided for row in rows),
            dashed=True,
            in_legend=False,
        )
        for name, rows in curves.items()
    )
    said_once = Line("paper's one-sided curve, D(θ‖θ+c) only", (), (), mechanism="any", dashed=True)
    return (*worst, *one_sided, said_once)


def _theta(rows: list[MotivationRow]) -> tuple[float, ...]:
    return tuple(row.theta for row in rows)
