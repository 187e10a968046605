import pytest

from experiments.histogram.chart import histogram_chart
from experiments.histogram.rows import HistogramSettings, histogram
from tests.report.samples import assert_readable

SETTINGS = HistogramSettings(thresholds=(3.0, 4.0, 5.0, 8.0), plotted=30)


@pytest.fixture(scope="module")
def result():
    return histogram(SETTINGS)


def test_panels(result):
    chart = histogram_chart(result, SETTINGS)
    assert (chart.name, len(chart.panels), chart.columns) == ("histogram", 6, 3)
    assert [panel.shaded for panel in chart.panels[:3]] == [(0.0, 12.0), (0.0, 20.0), (0.0, 32.0)]


def test_lines_are_the_rows(result):
    gaussian, rectified = histogram_chart(result, SETTINGS).panels[1].lines
    assert rectified.x == gaussian.x == tuple(float(count) for count in range(31))
    expected = tuple(row.epsilon for row in result.people if row.threshold == 5.0 and row.count <= 30)
    assert rectified.y == expected
    assert len(set(gaussian.y)) == 1  # the same for everyone


def test_the_caption_has_the_numbers_of_what_is_shown(result):
    chart = histogram_chart(result, SETTINGS)
    assert_readable(chart)
    last = result.utility[-1]
    assert f"{last.people_spared:.0%} of the people" in chart.details
    assert f"{last.large_shown:.0f} of {last.large_cells} cells" in chart.details
    assert "τ = 4 " not in chart.details
