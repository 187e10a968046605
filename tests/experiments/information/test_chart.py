import pytest

from experiments.comparison import CLAMPED
from experiments.information.chart import eta_ratio, information_chart
from experiments.information.rows import InformationRow, InformationSettings
from ringfence.report.drawing import paper_figure
from tests.report.samples import assert_readable


def row(model, mechanism, chosen, tested, eta):
    return InformationRow(model, mechanism, "", chosen, tested, "trace", eta, eta / 4)


ROWS = [
    row("linear probe", "Gaussian", 0.5, 0.52, 0.01),
    row("linear probe", "Gaussian", 0.8, 0.79, 0.1),
    row("linear probe", "Gaussian", 0.7, 0.90, 0.2),  # beaten where it counts
    row("linear probe", "rectified", 0.8, 0.81, 0.05),
    row("linear probe", CLAMPED, 0.8, 0.81, 0.06),
    row("network", "Gaussian", 0.8, 0.8, 0.2),
    row("network", "truncated", 0.9, 0.9, 0.1),
]


def test_two_panels_a_model_of_points_and_frontiers():
    chart = information_chart(ROWS, InformationSettings())
    assert chart.sensitive
    assert [panel.title for panel in chart.panels] == [
        "Linear probe, largest η (trace)",
        "Linear probe, median η (trace)",
        "Network, largest η (trace)",
        "Network, median η (trace)",
    ]
    panel = chart.panels[0]
    assert panel.x_log
    points = [line for line in panel.lines if line.points]
    curves = {line.name: line for line in panel.lines if not line.points}
    assert [line.name for line in points] == ["Gaussian", "rectified"]  # a clamped run is a rectified one
    assert points[0].x == (0.01, 0.1, 0.2)
    assert curves["Gaussian"].x == (0.01, 0.1)
    assert curves["Gaussian"].y == pytest.approx((52, 79))  # on the test split
    assert curves[CLAMPED].dashed
    assert curves[CLAMPED].mechanism == "Gaussian"
    assert chart.panels[1].lines[0].x == (0.0025, 0.025, 0.05)
    assert len(paper_figure(chart).axes) == 4


def test_ratios_are_medians_over_accuracies():
    probe = [one for one in ROWS if one.model == "linear probe"]
    # from 40 %: 11 accuracies up to 50 % at 0.05 / 0.01, 30 up to 80 % at 0.05 / 0.1
    assert eta_ratio(probe, "rectified", lambda row: row.max_eta) == pytest.approx(0.5)
    assert eta_ratio(probe[:1] + probe[3:], "rectified", lambda row: row.max_eta) == pytest.approx(5)
    assert eta_ratio(probe, "sign", lambda row: row.max_eta) is None
    assert eta_ratio([], "sign", lambda row: row.max_eta) is None


def test_the_caption_says_what_came_out():
    chart = information_chart(ROWS, InformationSettings())
    assert_readable(chart)
    assert "rectified 0.50 and 0.50; Gaussian, clamped 0.60 and 0.60." in chart.details
    assert "truncated 0.50 and 0.50." in chart.details
    assert "12 Poisson batches of 80" in chart.details
    assert "Dashed" in chart.caption
    alone = information_chart(ROWS[:2], InformationSettings())
    assert "nothing to compare" in alone.details
    assert "Poisson" not in alone.details
    assert "Dashed" not in alone.caption + alone.details
