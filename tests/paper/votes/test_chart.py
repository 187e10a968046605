import math

import pytest

from ringfence.paper.votes.chart import votes_chart
from ringfence.paper.votes.rows import VotesSettings, votes

SETTINGS = VotesSettings(
    margins=(0.05, 0.2),
    questions=(1, 10),
    errors=(0.05, 0.01),
    curve_errors=(0.1, 0.01),
    sigma_margins=(0.05, 0.4),
)


@pytest.fixture(scope="module")
def rows():
    return list(votes(SETTINGS))


def test_panels(rows):
    chart = votes_chart(rows, SETTINGS)
    assert (chart.name, len(chart.panels)) == ("votes", 2 + 2 + 1)
    assert [line.mechanism for line in chart.panels[0].lines] == [
        "Gaussian",
        "sign",
        "rectified",
        "truncated",
    ]
    assert chart.panels[0].lines[1].y == (0.01, 0.1)  # by error
    for panel in chart.panels:
        for line in panel.lines:
            assert all(0 < value < math.inf for value in (*line.x, *line.y))


def test_ratios_are_the_rows(rows):
    panel = votes_chart(rows, SETTINGS).panels[3]
    line = next(line for line in panel.lines if line.name == "sign, 1 question")
    expected = {
        row.margin: row.ratio
        for row in rows
        if (row.comparison, row.mechanism, row.questions, row.error) == ("equal error", "sign", 1, 0.01)
    }
    assert dict(zip(line.x, line.y, strict=True)) == expected
    assert line.dashed


def test_free_answers_are_left_out(rows):
    line = votes_chart(rows, SETTINGS).panels[-1].lines[0]
    assert line.x == (0.05,)  # a margin of 40 % is certain: epsilon is 0


def test_the_caption_has_the_numbers(rows):
    ratios = [
        row.ratio
        for row in rows
        if (row.comparison, row.mechanism, row.questions, row.error) == ("equal error", "sign", 10, 0.01)
    ]
    assert f"{min(ratios):.1f} to {max(ratios):.1f} at 0.01" in votes_chart(rows, SETTINGS).caption
