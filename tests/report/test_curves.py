"""What can be drawn and what is a gap."""

import math

import pytest

from ringfence.report.chart import Line, Panel
from ringfence.report.curves import band, curve, off_axes

INF, NAN = math.inf, math.nan


def panel(line: Line, log: bool = False) -> Panel:
    return Panel("", "x", "y", (line,), y_log=log)


def drawn(values: tuple[float, ...]) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values]


def test_nan_is_a_silent_gap_and_what_is_off_the_axes_is_counted() -> None:
    line = Line("sign", (1.0, 2.0, 3.0, 4.0, NAN), (1.0, NAN, INF, 0.0, 1.0))
    assert drawn(curve(panel(line), line).y) == [1.0, None, None, 0.0, None]
    assert off_axes(panel(line)) == 1
    assert drawn(curve(panel(line, log=True), line).y) == [1.0, None, None, None, None]
    assert off_axes(panel(line, log=True)) == 2


def test_a_point_between_gaps_is_marked() -> None:
    line = Line("sign", tuple(map(float, range(100))), (*[1.0] * 50, NAN, 1.0, NAN, *[1.0] * 47))
    shape = curve(panel(line), line)
    assert shape.isolated == (51,)
    assert 51 in shape.marked
    assert 8 <= len(shape.marked) <= 11


def test_all_points_of_a_short_line_are_marked() -> None:
    line = Line("sign", tuple(map(float, range(9))), (1.0,) * 9)
    assert curve(panel(line), line, order=3).marked == tuple(range(9))


def test_a_band_breaks_at_nan_and_is_cut_where_the_axis_ends() -> None:
    line = Line(
        "sign", (1.0, 2.0, 3.0, 4.0), (1.0,) * 4, low=(0.5, NAN, 0.0, -INF), high=(2.0, 2.0, 2.0, INF)
    )
    assert [(stretch.x, stretch.low, stretch.high) for stretch in band(panel(line, log=True), line)] == [
        ((1.0,), (0.5,), (2.0,)),
        ((3.0, 4.0), (0.5, 0.5), (2.0, 2.0)),
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (Line("a", (1.0,), ()), "y of line 'a' must have 1 values, got 0"),
        (Line("a", (1.0,), (1.0,), low=(), high=(1.0,)), "low of line 'a' must have 1 values, got 0"),
        (Line("a", (1.0,), (1.0,), low=(1.0,)), "line 'a' must have low and high, or neither"),
    ],
)
def test_lines_that_do_not_fit_are_refused(line: Line, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        curve(panel(line), line)
