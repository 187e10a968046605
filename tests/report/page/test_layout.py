"""Charts for plotly.js, checked against plotly's own schema."""

import json
import math

import plotly.graph_objects as plotly
import pytest

from ringfence.report.chart import Chart, Line, Panel
from ringfence.report.page.layout import page_chart
from tests.report.samples import HOSTILE, bars, everything, hostile_chart


@pytest.mark.parametrize("chart", [everything(), bars(), hostile_chart(), Chart("nothing", "", "", ())])
def test_plotly_knows_every_property(chart: Chart) -> None:
    drawing = page_chart(chart)
    json.dumps(drawing, allow_nan=False)
    for layout in drawing["layouts"].values():
        plotly.Figure(drawing["data"], layout)  # raises on what is not in its schema


def test_everything_is_drawn() -> None:
    drawing = page_chart(everything())
    traces = drawing["data"]
    named = {trace["name"]: trace for trace in traces if trace["showlegend"]}
    assert list(named) == [
        "Gaussian", "rectified", "truncated", "sign", "quantised, 5 levels", "cells, empty",
    ]  # fmt: skip
    drawn = {trace["name"]: trace for trace in traces if not trace["showlegend"] and trace["xaxis"] == "x"}
    assert drawn["Gaussian"]["y"] == [0.5, None, 0.1, 0.01]
    assert drawn["Gaussian"]["marker"]["size"] == [7, 0, 0, 0]
    assert drawn["rectified"]["y"] == [0.4, 0.2, 0.1, None]
    assert drawn["rectified"]["customdata"][2] == [0.0, None]
    assert "sign" not in drawn  # nothing but its entry in the legend
    assert named["truncated"]["line"]["dash"]
    assert named["quantised, 5 levels"]["mode"] == "markers"
    again = next(trace for trace in traces if trace["name"] == "rectified, again")
    assert again["legendgroup"] == "rectified"
    fill = next(trace for trace in traces if trace.get("fill"))
    assert len(fill["x"]) == 9
    assert None not in fill["y"][:8]

    layout = drawing["layouts"][2]
    assert layout["xaxis"]["type"] == layout["yaxis"]["type"] == "log"
    low, high = layout["yaxis2"]["range"]
    assert low == pytest.approx(1.05 * min(math.sin(k) for k in range(40)))  # below zero only as values are
    assert high == pytest.approx(2.1)
    assert "not drawn: 2 off the axes" in [note["text"] for note in layout["annotations"]]
    assert [shape["name"] for shape in layout["shapes"] if shape["showlegend"]] == [
        "usual epsilons",
        "a coin",
    ]


def test_panels_do_not_overlap_however_many_are_side_by_side() -> None:
    for columns, layout in page_chart(everything())["layouts"].items():
        boxes = [(*layout[f"xaxis{n}"]["domain"], *layout[f"yaxis{n}"]["domain"]) for n in ("", "2", "3")]
        assert len({box[0] for box in boxes}) == columns
        for one in range(3):
            for other in range(one):
                a, b = boxes[one], boxes[other]
                assert a[1] <= b[0] or b[1] <= a[0] or a[3] <= b[2] or b[3] <= a[2]
        assert all(0 <= edge <= 1 for box in boxes for edge in box)


def test_texts_are_escaped_for_plotly() -> None:
    written = json.dumps(page_chart(hostile_chart()))
    groups = written.count(f'"legendgroup": "{HOSTILE}"') + written.count(
        f'"legendgroup": "%{{x}} {HOSTILE}"'
    )
    assert written.count("<script>") == groups  # an identifier, never shown
    assert "%{x} " not in written.replace('"legendgroup": "%{x} ', "")


def test_a_lone_panel_does_not_repeat_the_title() -> None:
    panel = Panel("one", "x", "y", (Line("sign", (1.0,), (math.e,)),))
    assert not page_chart(Chart("", "one", "", (panel,)))["layouts"][1]["annotations"]
    assert page_chart(Chart("", "two", "", (panel,)))["layouts"][1]["annotations"]


def test_a_log_axis_has_the_ticks_of_image_files() -> None:
    panel = Panel("", "x", "y", (Line("sign", (1.0, 2.0), (0.01, 10.0)),), y_log=True)
    layout = page_chart(Chart("", "", "", (panel,)))["layouts"][1]
    assert layout["xaxis"]["type"] == "linear"
    assert layout["yaxis"]["ticktext"] == ["0.01", "0.1", "1", "10"]


def test_bars_have_whiskers_and_names() -> None:
    drawing = page_chart(bars())
    shown, hidden, *entries = drawing["data"]
    assert {trace["type"] for trace in drawing["data"]} == {"bar"}
    assert (shown["y"], hidden["y"]) == ([3.0, 5.0, None], [None, None, 2.0])
    assert shown["error_y"]["array"] == [1.5, 1.0, None]
    assert shown["error_y"]["arrayminus"] == [1.0, 1.0, None]
    assert shown["customdata"] == ["a $", "&lt;b&gt;", "c"]
    assert [entry["name"] for entry in entries] == ["count", "below 2"]
    axis = drawing["layouts"][1]["xaxis"]
    assert (axis["tickvals"], axis["ticktext"]) == ([0, 1, 2], ["a $", "&lt;b&gt;", "c"])
    assert drawing["layouts"][1]["yaxis"]["range"] == (0.0, 42.0)


def test_long_numbers_make_room_for_the_name_of_their_axis() -> None:
    panel = Panel("", "region", "mean of income", (Line("sign", (1.0, 2.0), (21_000.0, 26_000.0)),))
    layout = page_chart(Chart("", "", "", (panel, panel), columns=2))["layouts"][2]
    assert [layout[axis]["automargin"] for axis in ("yaxis", "yaxis2")] == [True, False]
