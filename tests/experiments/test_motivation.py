"""Figure 1: the numbers behind it, and that the chart holds all of them."""

from functools import cache

import pytest

from experiments.motivation import BOUND, SIGMAS, MotivationRow, draw_motivation, motivation
from ringfence.report.drawing import paper_figure


@cache
def rows() -> list[MotivationRow]:
    return motivation(points=81)


def curve(mechanism: str, sigma: float) -> list[MotivationRow]:
    return [row for row in rows() if row.mechanism == mechanism and row.sigma == sigma]


def test_every_mechanism_has_every_theta() -> None:
    assert len(rows()) == 2 * 5 * 81
    assert len({row.mechanism for row in rows()}) == 5


def test_the_gaussian_is_flat_and_above_all() -> None:
    for sigma in SIGMAS:
        for row in curve("Gaussian", sigma):
            assert row.fisher_information_loss == pytest.approx(1 / sigma)
            assert row.renyi_worst == row.renyi_one_sided == pytest.approx(1 / sigma**2)
    for row in rows():
        assert row.fisher_information_loss <= (1 + 1e-12) / row.sigma
        assert row.renyi_one_sided <= row.renyi_worst <= (1 + 1e-12) / row.sigma**2


def test_the_worst_case_is_even_and_the_one_sided_curve_is_not() -> None:
    for name in ("rectified", "truncated", "sign"):
        points = curve(name, 1.0)
        for row, mirrored in zip(points, reversed(points), strict=True):
            assert row.renyi_worst == pytest.approx(mirrored.renyi_worst, rel=1e-9, abs=0)
        assert max(row.renyi_worst / row.renyi_one_sided for row in points) > 1.5


def test_far_from_the_support_bounded_mechanisms_give_little() -> None:
    for name in ("rectified", "sign"):
        assert curve(name, 0.5)[0].fisher_information_loss < 1e-3


def test_every_row_is_in_its_panel() -> None:
    drawn = draw_motivation(points=21)
    chart, rows = drawn.chart, drawn.rows
    assert [panel.title.split(",")[0] for panel in chart.panels] == [
        *["Fisher information loss"] * 2, *["Per-instance RDP"] * 2,
    ]  # fmt: skip
    for index, sigma in enumerate(SIGMAS):
        eta, divergence = chart.panels[index], chart.panels[index + 2]
        solid = {line.name: line.y for line in divergence.lines if not line.dashed}
        dashed = {line.name.removesuffix(", one-sided"): line.y for line in divergence.lines if line.dashed}
        for line in eta.lines:
            mine = [row for row in rows if row.sigma == sigma and row.mechanism == line.name]
            assert line.x == tuple(row.theta for row in mine)
            assert line.y == tuple(row.fisher_information_loss for row in mine)
            assert solid[line.name] == tuple(row.renyi_worst for row in mine)
            assert dashed[line.name] == tuple(row.renyi_one_sided for row in mine)
        assert eta.shaded == divergence.shaded == (-BOUND, BOUND)


def test_one_legend_names_each_curve_once() -> None:
    (legend,) = paper_figure(draw_motivation(points=21).chart).legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "Gaussian", "rectified", "truncated", "sign", "quantised, 5 levels",
        "support", "paper's one-sided curve, D(θ‖θ+c) only",
    ]  # fmt: skip
