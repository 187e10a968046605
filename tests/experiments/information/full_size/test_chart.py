"""The chart: whole rounds only, means over seeds, and the paper's numbers on the axis they belong to."""

import pytest

from experiments.information.full_size.chart import full_size_chart, points_of
from experiments.information.rows import InformationRow
from tests.experiments.information.full_size import toys
from tests.report.samples import assert_readable

ROWS = [
    *toys.whole_round(0, 0.8, 4.0),
    *toys.whole_round(1, 0.6, 2.0)[:1],
    toys.row("rectified", 1, 0.6, 1.0),
    *toys.whole_round(1, 0.6, 2.0)[2:],
    toys.row("rectified", 1, 0.8, 2.0, seed=1),
    *toys.whole_round(2, 0.9, 0.1)[:3],  # the last method has not had its turn
]


def test_points_are_means_over_seeds_in_whole_rounds() -> None:
    chart = full_size_chart(ROWS)
    assert chart.sensitive
    assert [panel.title for panel in chart.panels] == [
        "Network, largest η",
        "Network, median η",
        "Network, largest η, the paper's estimate of the trace",
        "Network, median η, the paper's estimate of the trace",
    ]
    points = {line.name: line for line in chart.panels[0].lines if line.points}
    assert points["rectified"].x == (4.0, 1.5)
    assert points["rectified"].y == pytest.approx((80, 70))
    assert points["Gaussian, L2 clip"].x == (4.0, 2.0)


def test_the_papers_numbers_stand_beside_its_own_estimate() -> None:
    marks = [
        [(line.x, line.y) for line in panel.lines if "paper" in line.name]
        for panel in full_size_chart(ROWS).panels
    ]
    assert marks == [[], [], [((7.97,), (75.0,)), ((12.07,), (75.0,))], []]


def test_the_caption_says_how_many_and_what_came_out() -> None:
    chart = full_size_chart(ROWS)
    assert_readable(chart)
    caption = chart.details
    assert "2 settings for every method" in caption
    assert "8 of these 8 learned enough" in caption
    assert "for the 1 that were on a frontier" in caption
    # at 75 %, three quarters of the way from 2 to 4, or half of that from 1.5 to 4, in logarithms
    assert (
        "Largest η at 75 %: Gaussian 3.36; rectified 2.45; truncated 3.36; Gaussian, L2 clip 3.36." in caption
    )
    # the rectified law's line passes 70 to 80 %, in the middle of which its share is 2.45 / 3.36
    assert "that both reach), rectified 0.73 and 0.73; truncated 1.00 and 1.00;" in caption
    poor = full_size_chart(toys.whole_round(0, 0.5, 1.0)).details
    assert "Gaussian not (at most 50 %)" in poor


def test_the_probe_is_drawn_first_and_no_round_is_refused() -> None:
    laws = ("Gaussian", "rectified", "Gaussian, clamped")
    probe = [InformationRow("linear probe", law, "", 0.8, 0.8, "spectral", 0.2, 0.1) for law in laws]
    assert_readable(full_size_chart(ROWS, probe))
    assert [panel.title for panel in full_size_chart(ROWS, probe).panels][:2] == [
        "Linear probe, largest η",
        "Linear probe, median η",
    ]
    with pytest.raises(ValueError, match="rows must hold a whole round"):
        full_size_chart(ROWS[:3])
    assert points_of([toys.row("rectified", 0, 0.5, None)], "spectral") == []
