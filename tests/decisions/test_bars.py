"""Released tables as bars."""

import math

import numpy as np
import pytest

import ringfence as rf
from ringfence.decisions.bars import MOST_BARS, bar_chart
from tests.report.samples import assert_readable


def test_panels_share_their_axis_and_hidden_numbers_are_gray() -> None:
    table = rf.release_counts(np.array([[100, 2], [3, 40]]), suppress_below=20, sigma=2.0)
    chart = table.chart()
    assert [panel.title for panel in chart.panels] == ["dimension 0: 0", "dimension 0: 1"]
    shown, gray = chart.panels[0].lines
    assert (math.isnan(shown.y[0]), math.isnan(shown.y[1])) == (False, True)
    assert (math.isnan(gray.y[0]), gray.y[1]) == (True, 20.0)
    assert gray.name == "below 20, not shown"
    assert chart.panels[0].y_also == chart.panels[1].y_also
    assert shown.high is not None
    assert shown.high[0] - shown.y[0] == pytest.approx(table.errors[0, 0])
    assert not chart.sensitive
    assert_readable(chart)


def test_many_rows_are_numbered_instead_of_named() -> None:
    labels = [(str(number),) for number in range(100)]
    (panel,) = bar_chart("t", "c", "count", ["cell"], labels, [1.0] * 100, [(0.0, 2.0)] * 100).panels
    assert (panel.x_names, panel.x_label) == ((), "row of the table")
    assert panel.lines[0].x[:2] == (1.0, 2.0)


def test_a_single_number_is_a_bar_too() -> None:
    (panel,) = bar_chart("t", "c", "count", [], [()], [5.0], [(4.0, 6.0)]).panels
    assert panel.x_names == ("",)


def test_of_very_many_rows_the_first_are_drawn() -> None:
    """Groups were found in quadratic time, and every bar takes matplotlib a millisecond."""
    many = 100_000
    labels = [(str(number), "a") for number in range(many)]
    (panel,) = (
        made := bar_chart("t", "c", "count", ["x", "y"], labels, [1.0] * many, [(0, 2)] * many)
    ).panels
    assert len(panel.lines[0].x) == MOST_BARS
    assert made.caption == "c The first 2,000 of 100,000 rows are drawn."
    votes = rf.release_votes(np.ones((3, MOST_BARS + 1)), sigma=500.0).chart()
    assert "The first 2,000 of 2,001 questions are drawn." in votes.caption
    assert {len(line.x) for line in votes.panels[0].lines} == {MOST_BARS}
