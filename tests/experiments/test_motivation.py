"""Figure 1: the numbers behind it, and that the chart holds all of them."""

import numpy as np
import pytest
from pandas import DataFrame

from experiments.motivation import BOUND, SIGMAS, draw_motivation, motivation
from ringfence.report.drawing import paper_figure


@pytest.fixture(scope="module")
def rows() -> DataFrame:
    return motivation(points=81)


def test_every_mechanism_has_every_theta(rows: DataFrame) -> None:
    assert (rows.groupby(["mechanism", "sigma"]).size() == 81).all()
    assert rows.mechanism.nunique() == 5


def test_the_gaussian_is_flat_and_above_all(rows: DataFrame) -> None:
    own = rows[rows.mechanism == "Gaussian"]
    np.testing.assert_allclose(own.fisher_information_loss, 1 / own.sigma)
    np.testing.assert_allclose(own.renyi_worst, 1 / own.sigma**2)
    assert (own.renyi_worst == own.renyi_one_sided).all()
    assert (rows.fisher_information_loss <= (1 + 1e-12) / rows.sigma).all()
    assert (rows.renyi_one_sided <= rows.renyi_worst).all()
    assert (rows.renyi_worst <= (1 + 1e-12) / rows.sigma**2).all()


def test_the_worst_case_is_even_and_the_one_sided_curve_is_not(rows: DataFrame) -> None:
    for name in ("rectified", "truncated", "sign"):
        own = rows[(rows.mechanism == name) & (rows.sigma == 1.0)]
        np.testing.assert_allclose(own.renyi_worst, own.renyi_worst[::-1], rtol=1e-9)
        assert (own.renyi_worst / own.renyi_one_sided).max() > 1.5


def test_far_from_the_support_bounded_mechanisms_give_little(rows: DataFrame) -> None:
    far = rows[rows.mechanism.isin(["rectified", "sign"]) & (rows.sigma == 0.5) & (rows.theta == -4)]
    assert len(far) == 2
    assert (far.fisher_information_loss < 1e-3).all()


def test_every_row_is_in_its_panel_and_one_legend_names_each_curve_once() -> None:
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
            mine = rows[(rows.sigma == sigma) & (rows.mechanism == line.name)]
            assert line.x == tuple(mine.theta)
            assert line.y == tuple(mine.fisher_information_loss)
            assert solid[line.name] == tuple(mine.renyi_worst)
            assert dashed[line.name] == tuple(mine.renyi_one_sided)
        assert eta.shaded == divergence.shaded == (-BOUND, BOUND)
    (legend,) = paper_figure(chart).legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "Gaussian", "rectified", "truncated", "sign", "quantised, 5 levels",
        "support", "paper's one-sided curve, D(θ‖θ+c) only",
    ]  # fmt: skip
