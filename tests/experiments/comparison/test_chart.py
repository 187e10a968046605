"""Figure 3 as data: ratios where both arrive, the gray line at 1, and words for those that do not."""

import math

import pytest

from experiments.comparison.chart import frontier_chart, ratio_chart, winner_chart
from experiments.comparison.comparison import compare
from experiments.comparison.winner import winner
from tests.experiments.comparison.test_comparison import sweep
from tests.experiments.comparison.test_winner import rows
from tests.report.samples import assert_readable

RESULT = compare(
    sweep("gaussian", 1.0) + sweep("truncated", 0.5, best=0.6) + sweep("rectified", 1.5), step=0.01
)


def test_the_ratio_has_a_panel_a_data_set_and_a_line_a_law() -> None:
    same = compare(sweep("gaussian", 1.0) + sweep("truncated", 1.0), step=0.01)
    chart = ratio_chart([RESULT, same, RESULT])
    assert len(chart.panels) == 2  # nothing is drawn of what is the same
    assert "every law takes what the Gaussian takes: toy, fair search." in chart.details
    assert_readable(chart)
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
    assert "Highest target reached on toy: Gaussian 90 %, truncated 60 %, rectified 90 %." in chart.details


def test_colours_are_laws_and_dashes_the_clamp_where_there_are_two_clips() -> None:
    swept = (
        rows("gaussian", 1.0, "norm")
        + rows("sign", 0.5, "norm")
        + rows("gaussian", 3.0)
        + rows("rectified", 2.0)
    )
    chart = winner_chart([winner(swept, resamples=20)])
    assert_readable(chart)
    [panel] = chart.panels
    shown = [(line.name, line.dashed, line.in_legend) for line in panel.lines]
    assert ("sign", False, True) in shown
    assert ("rectified", True, False) in shown
    assert shown[-1] == ("coordinates clamped", True, True)
    alone = winner_chart([winner(rows("gaussian", 1.0), resamples=20)])
    assert [(line.name, line.dashed) for line in alone.panels[0].lines] == [("Gaussian", False)]


def test_the_frontier_rises() -> None:
    [panel] = frontier_chart([RESULT]).panels
    assert panel.x_log
    assert [line.name for line in panel.lines] == ["Gaussian", "truncated", "rectified"]
    for line in panel.lines:
        assert list(line.x) == sorted(line.x)
        assert list(line.y) == sorted(line.y)
    assert panel.lines[0].y[-1] == pytest.approx(89)  # the test accuracy, not the one it was chosen by
