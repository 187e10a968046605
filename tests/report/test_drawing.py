"""Charts drawn by matplotlib: files, and SVG for pages."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy
import pytest

from ringfence.report.chart import Chart, Line, Panel
from ringfence.report.drawing import page_drawing, paper_figure, save_chart
from tests.faults.conditions import no_room_beyond
from tests.report.samples import bars, everything, hostile_chart


def test_everything_is_drawn() -> None:
    figure = paper_figure(everything())
    first, second, _, unused = figure.axes
    assert (first.get_xscale(), first.get_yscale()) == ("log", "log")
    assert first.get_xticks().tolist() == [0.01, 0.1, 1, 10]
    assert second.get_ylim()[1] == pytest.approx(2.1)
    assert not unused.axison
    gaussian, rectified, truncated, sign, reference = first.lines
    assert list(gaussian.get_markevery()) == [0]  # alone between the axis and a gap
    assert numpy.isnan(numpy.asarray(rectified.get_ydata())).tolist() == [False, False, False, True]
    assert truncated.get_linestyle() == "--"
    assert len(sign.get_xdata()) == 0
    assert list(reference.get_ydata()) == [0.5, 0.5]
    assert len(first.collections) == 1  # the band
    assert [text.get_text() for text in first.texts] == ["not drawn: 2 off the axes"]
    assert second.lines[0].get_linestyle() == "None"
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "Gaussian", "rectified", "truncated", "sign", "quantised, 5 levels", "cells, empty",
        "usual epsilons", "a coin",
    ]  # fmt: skip


def test_the_same_bytes_each_time(tmp_path: Path) -> None:
    first, second = save_chart(everything(), tmp_path / "a"), save_chart(everything(), tmp_path / "b")
    assert [path.name for path in first] == ["everything.png", "everything.pdf"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert first[0].read_bytes().startswith(b"\x89PNG")
    assert first[1].read_bytes().startswith(b"%PDF")


def test_dollars_and_tags_are_text(tmp_path: Path) -> None:
    line = Line("$x_{", (1.0,), (1.0,))
    save_chart(Chart("dollars", "", "", (Panel("$a$ and $", "$\\frac$", "$$", (line,)),)), tmp_path)
    save_chart(hostile_chart(), tmp_path)


def test_a_chart_without_panels_or_lines(tmp_path: Path) -> None:
    save_chart(Chart("nothing", "", "", ()), tmp_path)
    save_chart(Chart("empty", "", "", (Panel("", "", "", (), x_log=True, y_log=True),)), tmp_path)


def test_matplotlib_missing_is_said_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ModuleNotFoundError, match=r"ringfence\[report\]"):
        paper_figure(everything())


@pytest.mark.parametrize("name", ["", "..", "a/b", "/etc/passwd"])
def test_a_name_does_not_leave_the_folder(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="name must be a file name"):
        save_chart(replace(everything(), name=name), tmp_path)


def test_bars_have_whiskers_names_and_a_common_reach() -> None:
    (place,) = paper_figure(bars()).axes
    assert [bar.get_height() for bar in place.patches] == [3.0, 5.0, 2.0]
    assert [label.get_text() for label in place.get_xticklabels()] == ["a \\$", "<b>", "c"]
    (whiskers,) = place.collections
    assert [path.vertices[:, 1].tolist() for path in whiskers.get_paths()] == [[2.0, 4.5], [4.0, 6.0]]
    assert place.get_ylim()[1] == pytest.approx(1.05 * 40)


def test_a_full_disk_leaves_the_old_chart(tmp_path: Path) -> None:
    (tmp_path / "bars.png").write_text("old")
    with no_room_beyond(2000), pytest.raises(OSError, match=r"File too large: '.*bars\.png'"):
        save_chart(bars(), tmp_path)
    assert (tmp_path / "bars.png").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_page_has_a_drawing_per_panel_and_a_sample_per_name() -> None:
    drawing = page_drawing(everything(), "figure")
    assert [title for title, _ in drawing.panels] == [panel.title for panel in everything().panels]
    assert [name for name, _ in drawing.legend] == [
        "Gaussian", "rectified", "truncated", "sign", "quantised, 5 levels", "cells, empty",
        "usual epsilons", "a coin",
    ]  # fmt: skip
    assert "not drawn: 2 off the axes" in drawing.panels[0][1]
    assert page_drawing(everything(), "figure") == drawing


def test_a_lone_panel_does_not_repeat_the_title() -> None:
    panel = Panel("one", "x", "y", (Line("sign", (1.0,), (2.0,)),))
    assert [page_drawing(Chart("", name, "", (panel,)), "a").panels[0][0] for name in ("one", "two")] == [
        "", "one",
    ]  # fmt: skip


def test_many_names_below_bars_make_a_panel_wide() -> None:
    names = tuple(f"region {k}" for k in range(60))
    line = Line("sign", tuple(map(float, range(60))), (1.0,) * 60, bars=True)
    chart = Chart("", "", "", (Panel("", "x", "y", (line,), x_names=names),))
    assert paper_figure(chart).get_figwidth() == pytest.approx(13)
    assert 'viewBox="0 0 936 ' in page_drawing(chart, "a").panels[0][1]
