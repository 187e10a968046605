import pytest

from ringfence.paper.mean_estimation.chart import mean_estimation_chart
from ringfence.paper.mean_estimation.rows import MeanEstimationSettings, mean_estimation

SETTINGS = MeanEstimationSettings(
    records=100, dimensions=3, trials=2, means=(0.0, 0.6, 1.0), sigmas=(0.2, 0.4)
)


@pytest.fixture(scope="module")
def rows():
    return list(mean_estimation(SETTINGS))


def test_four_panels_a_noise_level(rows):
    chart = mean_estimation_chart(rows, SETTINGS)
    assert chart.name == "mean_estimation"
    assert len(chart.panels) == 8
    assert [len(panel.lines) for panel in chart.panels[:4]] == [4, 4, 3, 3]
    assert all(panel.reference == 1.0 for panel in chart.panels)


def test_lines_are_means_of_the_trials_within_their_band(rows):
    line = mean_estimation_chart(rows, SETTINGS).panels[4].lines[3]
    assert (line.name, line.mechanism, line.dashed) == ("truncated, a = 0.5", "truncated", True)
    assert line.x == SETTINGS.means
    ratios = [
        row.renyi / row.gaussian_renyi
        for row in rows
        if (row.comparison, row.mechanism, row.gaussian_sigma, row.bound, row.mean)
        == ("equal noise", "truncated", 0.4, 0.5, 0.6)
    ]
    assert len(ratios) == 2
    assert line.y[1] == pytest.approx(sum(ratios) / 2)
    assert (line.low[1], line.high[1]) == (min(ratios), max(ratios))


def test_the_caption_has_the_numbers(rows):
    caption = mean_estimation_chart(rows, SETTINGS).caption
    ratios = [
        row.renyi / row.gaussian_renyi
        for row in rows
        if (row.comparison, row.mechanism, row.gaussian_sigma) == ("equal error", "truncated", 0.4)
    ]
    assert f"{min(ratios):.2f} to {max(ratios):.2f}" in caption
    assert "n = 100, d = 3" in caption
