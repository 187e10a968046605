import pytest

from experiments.mean_estimation.chart import mean_estimation_chart
from experiments.mean_estimation.rows import MeanEstimationSettings, mean_estimation
from tests.report.samples import assert_readable

SETTINGS = MeanEstimationSettings(
    records=100, dimensions=3, trials=2, means=(0.0, 0.6, 1.0), sigmas=(0.1, 0.4)
)


@pytest.fixture(scope="module")
def rows():
    return list(mean_estimation(SETTINGS))


def test_four_panels_a_noise_level_but_for_those_that_are_flat(rows):
    chart = mean_estimation_chart(rows, SETTINGS)
    assert_readable(chart)
    assert chart.name == "mean_estimation"
    assert [panel.title.split("= ")[-1] for panel in chart.panels] == ["0.4"] * 4 + ["0.1"] * 3
    assert [len(panel.lines) for panel in chart.panels[:4]] == [5, 5, 3, 3]
    assert all(panel.reference == 1.0 for panel in chart.panels)
    assert "flat at 1: Cost at equal error, a = 1, \N{GREEK SMALL LETTER SIGMA} = 0.1." in chart.details


def test_lines_are_means_of_the_trials_within_their_band(rows):
    line = mean_estimation_chart(rows, SETTINGS).panels[0].lines[3]
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
    chart = mean_estimation_chart(rows, SETTINGS)
    ratios = [
        row.renyi / row.gaussian_renyi
        for row in rows
        if (row.comparison, row.mechanism, row.gaussian_sigma) == ("equal error", "truncated", 0.4)
    ]
    assert f"{min(ratios):.2f} to {max(ratios):.2f}" in chart.caption
    assert "n = 100, d = 3" in chart.details
