"""The charts of Figure 4: frontiers on the test split, whole rounds only, and what came out in words."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure
from pandas import DataFrame

from experiments.comparison import CLAMPED
from experiments.drawing import Drawn
from experiments.information import chart as figure
from experiments.information.__main__ import main
from experiments.information.chart import eta_ratio, information_figure, network_chart, network_points
from experiments.information.probe import COLUMNS
from ringfence.report.drawing import paper_figure
from tests.experiments.information import toys
from tests.report.samples import assert_readable


def row(mechanism: str, chosen: float, tested: float, eta: float) -> tuple[Any, ...]:
    return ("linear probe", mechanism, "", chosen, tested, "trace", eta, eta / 4)


_ROWS = [
    row("Gaussian", 0.5, 0.52, 0.01),
    row("Gaussian", 0.8, 0.79, 0.1),
    row("Gaussian", 0.7, 0.90, 0.2),  # beaten where it counts
    row("rectified", 0.6, 0.6, 0.005),
    row("rectified", 0.8, 0.81, 0.05),
    row(CLAMPED, 0.6, 0.6, 0.006),
    row(CLAMPED, 0.8, 0.81, 0.06),
]
PROBE = DataFrame(_ROWS, columns=COLUMNS)
_NETWORKS = [
    *toys.whole_round(0, 0.8, 4.0),
    *toys.whole_round(1, 0.6, 2.0)[:1],
    toys.row("rectified", 1, 0.6, 1.0),
    *toys.whole_round(1, 0.6, 2.0)[2:],
    toys.row("rectified", 1, 0.8, 2.0, seed=1),
    *toys.whole_round(2, 0.9, 0.1)[:3],  # the last method has not had its turn
]
NETWORKS = toys.frame(_NETWORKS)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Drawn:
    """Figure 4 of rows that are given: nothing is trained."""
    monkeypatch.setattr(figure, "probe_rows", lambda *_: PROBE)
    monkeypatch.setattr(figure, "_digit_networks", lambda: toys.frame(toys.whole_round(0, 0.8, 4.0)))
    return information_figure()


def test_two_panels_a_model_and_kind_of_points_and_frontiers(drawn: Drawn) -> None:
    chart, rows = drawn.chart, drawn.rows
    assert [panel.title for panel in chart.panels] == [
        "Linear probe, largest η (trace)",
        "Linear probe, median η (trace)",
        "Network, largest η",
        "Network, median η",
        "Network, largest η, the paper's estimate of the trace",
        "Network, median η, the paper's estimate of the trace",
    ]
    assert list(rows.kind[len(PROBE) :]) == ["spectral"] * 4 + ["estimate"] * 4
    panel = chart.panels[0]
    assert panel.x_log
    points = [line for line in panel.lines if line.points]
    curves = {line.name: line for line in panel.lines if not line.points}
    assert [line.name for line in points] == ["Gaussian", "rectified"]  # a clamped run is a rectified one
    assert points[0].x == (0.01, 0.1, 0.2)
    assert curves["Gaussian"].x == (0.01, 0.1)
    assert curves["Gaussian"].y == pytest.approx((52, 79))  # on the test split
    assert curves[CLAMPED].dashed
    assert curves[CLAMPED].mechanism == "Gaussian"
    assert chart.panels[1].lines[0].x == (0.0025, 0.025, 0.05)
    assert len(paper_figure(chart).axes) == 6


def test_ratios_are_medians_over_accuracies_that_both_lines_pass() -> None:
    # from 60 to 80 % the rectified line rises from 0.005 to 0.05, the Gaussian's from 0.0215 to 0.1
    assert eta_ratio(PROBE, "rectified", "max_eta") == pytest.approx(0.341, abs=1e-3)
    assert eta_ratio(PROBE.drop([1, 2]), "rectified", "max_eta") is None
    assert eta_ratio(PROBE[:0], "sign", "max_eta") is None


def test_the_caption_says_what_came_out(drawn: Drawn) -> None:
    chart = drawn.chart
    assert_readable(chart)
    assert "that both reach), rectified 0.34 and 0.34; Gaussian, clamped 0.41 and 0.41." in chart.details
    assert "1 settings for every method" in chart.details
    assert "Dashed" in chart.caption


def test_runs_whose_clip_flattens_everything_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    flat = PROBE[:2].assign(median_eta=[0.0, 0.1])
    monkeypatch.setattr(figure, "probe_rows", lambda *_: flat)
    drawn = information_figure(data=object())  # the data of others has no network
    chart = drawn.chart
    assert drawn.rows is flat
    assert "In 1 of the runs the median η is 0" in chart.details
    assert "Poisson" not in chart.details


def test_points_are_means_over_seeds_in_whole_rounds() -> None:
    chart = network_chart(NETWORKS)
    points = {line.name: line for line in chart.panels[0].lines if line.points}
    assert points["rectified"].x == (4.0, 1.5)
    assert points["rectified"].y == pytest.approx((80, 70))
    assert points["Gaussian, L2 clip"].x == (4.0, 2.0)
    assert network_points(toys.frame([toys.row("rectified", 0, 0.5, None)]), "spectral").empty


def test_the_papers_numbers_stand_beside_its_own_estimate() -> None:
    marks = [
        [(line.x, line.y) for line in panel.lines if "paper" in line.name]
        for panel in network_chart(NETWORKS).panels
    ]
    assert marks == [[], [], [((7.97,), (75.0,)), ((12.07,), (75.0,))], []]


def test_the_caption_of_networks_says_how_many_and_what_came_out() -> None:
    chart = network_chart(NETWORKS)
    assert_readable(chart)
    caption = chart.details
    assert "2 settings for every method" in caption
    assert "8 of these 8 learned enough" in caption
    assert "for the 1 that were on a frontier" in caption
    # at 75 %, three quarters of the way from 2 to 4, or half of that from 1.5 to 4, in logarithms
    assert (
        "Largest η at 75%: Gaussian 3.36; rectified 2.45; truncated 3.36; Gaussian, L2 clip 3.36." in caption
    )
    # the rectified law's line passes 70 to 80 %, in the middle of which its share is 2.45 / 3.36
    assert "that both reach), rectified 0.73 and 0.73; truncated 1.00 and 1.00;" in caption
    assert "Gaussian not (at most 50%)" in network_chart(toys.frame(toys.whole_round(0, 0.5, 1.0))).details


def test_the_probe_is_drawn_first_and_no_round_is_refused() -> None:
    chart = network_chart(NETWORKS, PROBE)
    assert_readable(chart)
    assert chart.panels[0].title == "Linear probe, largest η (trace)"
    with pytest.raises(ValueError, match="rows must hold a whole round"):
        network_chart(NETWORKS[:3])


def test_csv_files_are_enough_to_draw(swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Figure, "savefig", lambda self, file, **_: file.write(b"drawn"))
    probe = tmp_path / "information.csv"
    PROBE.assign(model=["linear probe", *["network"] * (len(PROBE) - 1)]).to_csv(probe, index=False)
    main(["--draw", str(swept), "--out", str(tmp_path / "new"), "--probe", str(probe)])
    assert len(list((tmp_path / "new").iterdir())) == 3
    assert "Largest η at 75%" in (tmp_path / "new" / "network_information.txt").read_text()
    assert list(pd.read_csv("docs/results/information_cifar10.csv")) == COLUMNS
