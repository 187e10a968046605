"""Charts: lines that fit together, looks that can be told apart, files and SVG for pages."""

import math
import sys
from base64 import b64decode
from pathlib import Path
from typing import Any

import numpy
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import is_color_like

from ringfence.report.chart import Chart, Line, Panel, looks
from ringfence.report.drawing import paper_figure, save_chart, svg_address
from tests.faults.conditions import no_room_beyond
from tests.report.samples import bars, everything, hostile_chart

INF, NAN = math.inf, math.nan
LEGEND = [
    "Gaussian",
    "rectified",
    "truncated",
    "sign",
    "usual epsilons",
    "a coin",
    "quantised, 5 levels",
    "cells, empty",
]


def test_mechanisms_differ_in_colour_and_in_marker() -> None:
    names = ("Gaussian", "rectified", "truncated", "sign", "quantised")
    by_name = looks(everything())
    assert len({by_name[name].color for name in names}) == len({by_name[name].point for name in names}) == 5


def test_what_is_no_mechanism_gets_a_look_of_its_own() -> None:
    lines = tuple(Line(name, (), ()) for name in ("sign", *"abcdefgh"))
    by_name = looks(Chart("", "", "", (Panel("", "", "", lines),)))
    assert len({by_name[line.looks_like] for line in lines}) == 9
    assert all(is_color_like(look.color) for look in by_name.values())


def test_everything_is_drawn() -> None:
    figure = paper_figure(everything())
    assert figure.get_size_inches().tolist() == pytest.approx([6.6, 7.6])
    first, second, _, unused = figure.axes
    assert (first.get_xscale(), first.get_yscale()) == ("log", "log")
    assert seen_ticks(first) == [0.01, 0.1, 1, 10]
    assert second.get_ylim()[1] == pytest.approx(2.1)
    assert not unused.axison
    gaussian, rectified, truncated, sign, reference = first.lines
    assert list(gaussian.get_markevery()) == [0]  # alone between the axis and a gap
    assert numpy.isnan(numpy.asarray(rectified.get_ydata())).tolist() == [False, False, False, True]
    assert truncated.get_linestyle() == "--"
    assert list(truncated.get_markevery()) == [3]  # which stands alone: dashes have no other markers
    assert len(sign.get_xdata()) == 0
    assert list(reference.get_ydata()) == [0.5, 0.5]
    assert len(first.collections) == 1  # the band
    assert [text.get_text() for text in first.texts] == ["not drawn: 2 off the axes"]
    assert second.lines[0].get_linestyle() == "None"
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == LEGEND
    assert {text.get_fontsize() for text in legend.get_texts()} == {9}
    assert second.get_title() == "linear axes, with a title that\ntakes more than one line"
    figure.draw_without_rendering()
    assert (
        0.5 < legend.get_window_extent().width / figure.bbox.width < 1
    )  # as many columns as there is room for


def seen_ticks(place: Axes) -> list[float]:
    low, high = place.get_xlim()
    return [tick for tick in place.get_xticks().tolist() if low <= tick <= high]


def of_line(line: Line, *, log: bool = False, **options: Any) -> Axes:
    (place,) = paper_figure(Chart("", "", "", (Panel("", "x", "y", (line,), y_log=log, **options),))).axes
    return place


@pytest.mark.parametrize("log", [False, True])
def test_nan_is_a_silent_gap_and_what_is_off_the_axes_is_counted(log: bool) -> None:
    place = of_line(Line("sign", (1.0, 2.0, 3.0, 4.0, NAN), (1.0, NAN, INF, 0.0, 1.0)), log=log)
    shown = numpy.isfinite(numpy.asarray(place.lines[0].get_ydata())).tolist()
    assert shown == [True, False, False, not log, False]
    assert [text.get_text() for text in place.texts] == [f"not drawn: {1 + log} off the axes"]


def test_a_point_between_gaps_is_marked_and_long_lines_have_few_markers() -> None:
    marked = [
        list(of_line(Line("sign", tuple(map(float, range(len(y)))), y)).lines[0].get_markevery())
        for y in ((*[1.0] * 50, NAN, 1.0, NAN, *[1.0] * 47), (1.0,) * 9)
    ]
    assert 51 in marked[0]
    assert 8 <= len(marked[0]) <= 11
    assert marked[1] == list(range(9))


def test_a_band_breaks_at_nan_and_is_cut_where_the_axis_ends() -> None:
    x, low, high = (1.0, 2.0, 3.0, 4.0, 5.0), (0.5, 0.5, NAN, 0.0, -INF), (2.0, 2.0, 2.0, 2.0, INF)
    (band,) = of_line(Line("sign", x, (1.0,) * 5, low=low, high=high), log=True).collections
    corners = [path.vertices for path in band.get_paths()]
    ends = [(each.min(axis=0).tolist(), each.max(axis=0).tolist()) for each in corners]
    assert ends == [([1.0, 0.5], [2.0, 2.0]), ([4.0, 0.5], [5.0, 2.0])]


def test_a_y_axis_from_zero_reaches_whiskers_references_and_what_is_negative() -> None:
    line = Line("sign", (1.0, NAN), (2.0, 3.0), (1.5, 0.1), (2.5, INF))
    assert of_line(line, y_from_zero=True, reference=-1.0).get_ylim() == pytest.approx((-1.05, 2.625))


@pytest.mark.parametrize(("top", "shown"), [(5000.0, "2,000"), (500.0, "200")])
def test_thousands_have_commas(top: float, shown: str) -> None:
    place = of_line(Line("sign", (1.0, 2.0), (0.0, top)), y_from_zero=True)
    assert shown in [label.get_text() for label in place.get_yticklabels()]


def test_log_axes_have_a_few_plain_ticks() -> None:
    for start in range(-40, 40, 23):
        for span in (1.2, 1.5, 3.0, 10.0, 40.0, 1e3, 1e7, 1e20):
            ends = (low := 10 ** (start / 8), low * span)
            assert 2 <= len(seen_ticks(of_line(Line("sign", ends, ends), x_log=True))) <= 9, ends


def test_the_same_bytes_each_time(tmp_path: Path) -> None:
    first, second = save_chart(bars(), tmp_path / "a"), save_chart(bars(), tmp_path / "b")
    assert [path.name for path in first] == ["bars.png", "bars.pdf"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert first[0].read_bytes().startswith(b"\x89PNG")
    assert first[1].read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(
    "panels",
    [
        (Panel("$a$ and $", "$\\frac$", "$$", (Line("$x_{", (1.0,), (1.0,)),)),),
        hostile_chart().panels,
        (),
        (Panel("", "", "", (), x_log=True, y_log=True),),
    ],
)
def test_dollars_tags_and_nothing_can_be_drawn(panels: tuple[Panel, ...], tmp_path: Path) -> None:
    assert len(save_chart(Chart("odd", "", "", panels), tmp_path)) == 2


def test_matplotlib_missing_is_said_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ModuleNotFoundError, match=r"ringfence\[report\]"):
        paper_figure(everything())


def test_bars_have_whiskers_names_and_a_common_reach() -> None:
    (place,) = paper_figure(bars()).axes
    assert [bar.get_height() for bar in place.patches] == [3.0, 5.0, 2.0]
    assert [bar.get_hatch() for bar in place.patches] == [None, None, "////"]  # what is not shown
    assert {round(bar.get_width(), 9) for bar in place.patches} == {0.8}
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


@pytest.mark.parametrize("phone", [False, True])
def test_a_page_has_the_same_drawing_whose_text_is_text(phone: bool) -> None:
    start, _, drawn = svg_address(everything(), phone).partition(",")
    assert start == "data:image/svg+xml;base64"
    text = b64decode(drawn).decode()
    for words in (*LEGEND, "not drawn: 2 off the axes"):
        assert f">{words}</text>" in text
    assert float(text.split('viewBox="0 0 ')[1].split()[0]) == pytest.approx(72 * (3.5 if phone else 6.6))
    assert svg_address(bars(), phone) == svg_address(bars(), phone)  # the same each time


def test_many_names_below_bars_make_a_panel_wide_and_very_many_are_left_out_in_turn() -> None:
    for many, width, shown in ((30, 7, range(30)), (60, 9, range(0, 60, 2))):
        names = tuple(f"region {k}" for k in range(many))
        line = Line("sign", tuple(map(float, range(many))), (1.0,) * many, bars=True)
        chart = Chart("", "", "", (Panel("", "x", "y", (line,), x_names=names),))
        assert paper_figure(chart).get_figwidth() == pytest.approx(width)
        (place,) = paper_figure(chart).axes
        assert [label.get_text() for label in place.get_xticklabels()] == [names[at] for at in shown]


def test_bars_of_whole_numbers_have_whole_ticks_and_short_names_lie_flat() -> None:
    line = Line("sign", (0.0, 1.0), (1.0, 2.0), bars=True)
    place = of_line(line, x_names=("no", "yes"))
    assert all(tick.is_integer() for tick in place.get_yticks().tolist())
    assert [label.get_rotation() for label in place.get_xticklabels()] == [0, 0]
