import pytest

from experiments.votes.chart import votes_chart
from experiments.votes.rows import PUBLISHABLE, TIGHT, VotesRow, VotesSettings
from tests.report.samples import assert_readable

SETTINGS = VotesSettings(sigmas=(8.0, 16.0))


@pytest.fixture(scope="module")
def chart():
    found = {"data-independent": 4.0, PUBLISHABLE: 2.0, "per-instance, Rényi": 1.25, TIGHT: 1.0}
    rows = [
        VotesRow(
            name,
            sigma,
            sigma / 1000,
            epsilon / sigma,
            0.8 * epsilon / sigma,
            1.6 * epsilon / sigma,
            4 / sigma,
        )
        for sigma in SETTINGS.sigmas
        for name, epsilon in found.items()
    ]
    return votes_chart(rows, SETTINGS)


def test_lines_are_the_rows(chart):
    errors, ratios = chart.panels
    assert [line.name.split(",")[0].split(" ")[0] for line in errors.lines] == [
        "data-independent",
        "publishable",
        "per-instance",
        "per-instance",
    ]
    assert (errors.lines[3].x, errors.lines[3].y) == ((1 / 16, 1 / 8), (0.016, 0.008))
    assert [line.y for line in ratios.lines] == [(2.0, 2.0), (3.2, 3.2), (4.0, 4.0)]
    assert ratios.lines[0].low == (1.25, 1.25)
    assert ratios.lines[0].high == (2.5, 2.5)


def test_what_is_sensitive_says_so(chart):
    assert [("sensitive" in line.name) for line in chart.panels[0].lines] == [False, False, True, True]


def test_the_caption_has_the_numbers_and_the_source(chart):
    assert_readable(chart)
    for said in (
        "0.8% of the answers",
        "ε is 0.5 for every dataset, 0.125 for this one (0.157 by",
        "and 0.25 if",
        "CC BY 4.0",
    ):
        assert said in chart.caption
