"""Figure 1 as a chart holds the rows, all of them."""

from ringfence.paper.motivation.chart import motivation_chart
from ringfence.paper.motivation.rows import MotivationSettings, motivation
from ringfence.report.image_files import paper_figure

SETTINGS = MotivationSettings(points=21)


def test_every_row_is_in_its_panel() -> None:
    rows = list(motivation(SETTINGS))
    chart = motivation_chart(rows, SETTINGS)
    assert [panel.title.split(",")[0] for panel in chart.panels] == [
        *["Fisher information loss"] * 2, *["Per-instance RDP"] * 2,
    ]  # fmt: skip
    assert not chart.sensitive
    for index, sigma in enumerate(SETTINGS.sigmas):
        eta, divergence = chart.panels[index], chart.panels[index + 2]
        solid = {line.name: line.y for line in divergence.lines if not line.dashed}
        dashed = {line.name.removesuffix(", one-sided"): line.y for line in divergence.lines if line.dashed}
        for line in eta.lines:
            mine = [row for row in rows if row.sigma == sigma and row.mechanism == line.name]
            assert line.x == tuple(row.theta for row in mine)
            assert line.y == tuple(row.fisher_information_loss for row in mine)
            assert solid[line.name] == tuple(row.renyi_worst for row in mine)
            assert dashed[line.name] == tuple(row.renyi_one_sided for row in mine)
        assert eta.shaded == divergence.shaded == (-SETTINGS.bound, SETTINGS.bound)


def test_one_legend_names_each_curve_once() -> None:
    (legend,) = paper_figure(motivation_chart(list(motivation(SETTINGS)), SETTINGS)).legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "Gaussian", "rectified", "truncated", "sign", "quantised, 5 levels",
        "paper's one-sided curve, D(θ‖θ+c) only", "support",
    ]  # fmt: skip
