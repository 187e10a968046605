"""Figure 3 as data: ratios where both arrive, the gray line at 1, and words for those that do not."""

import math

import pytest

from ringfence.paper.comparison.chart import frontier_chart, ratio_chart
from ringfence.paper.comparison.comparison import compare
from tests.paper.comparison.test_comparison import sweep

RESULT = compare(
    sweep("gaussian", 1.0) + sweep("truncated", 0.5, best=0.6) + sweep("rectified", 1.5), step=0.01
)


def test_the_ratio_has_a_panel_a_data_set_and_a_line_a_law() -> None:
    chart = ratio_chart([RESULT, RESULT])
    assert len(chart.panels) == 2
    panel = chart.panels[0]
    assert (panel.title, panel.reference) == ("toy, fair search", 1.0)
    assert [line.name for line in panel.lines] == ["truncated", "rectified"]
    truncated, rectified = panel.lines
    assert max(truncated.x) == pytest.approx(60)  # where it ends
    assert max(rectified.x) == pytest.approx(90)
    assert min(truncated.x) == min(rectified.x) == pytest.approx(45)  # half of the best
    assert truncated.y[0] == pytest.approx(0.5, rel=0.1)
    for line in panel.lines:
        assert line.low is not None
        assert line.high is not None
        assert all(math.isfinite(value) for value in (*line.x, *line.y, *line.low, *line.high))
    assert chart.sensitive
    assert "Highest target reached on toy: Gaussian 90 %, truncated 60 %, rectified 90 %." in chart.caption


def test_the_frontier_rises() -> None:
    [panel] = frontier_chart([RESULT]).panels
    assert panel.x_log
    assert [line.name for line in panel.lines] == ["Gaussian", "truncated", "rectified"]
    for line in panel.lines:
        assert list(line.x) == sorted(line.x)
        assert list(line.y) == sorted(line.y)
    assert panel.lines[0].y[-1] == pytest.approx(89)  # the test accuracy, not the one it was chosen by
