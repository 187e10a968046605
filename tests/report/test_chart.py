"""Charts: what can be drawn and what is a gap, axes with few ticks, and looks that can be told apart."""

import math

import pytest

from ringfence.report.chart import (
    MOST_TICKS,
    Chart,
    Line,
    Panel,
    band,
    curve,
    drawn_values,
    log_ticks,
    looks,
    off_axes,
    range_from_zero,
)
from tests.report.samples import everything

INF, NAN = math.inf, math.nan


def of_line(line: Line, log: bool = False) -> Panel:
    return Panel("", "x", "y", (line,), y_log=log)


def drawn(values: tuple[float, ...]) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values]


def test_nan_is_a_silent_gap_and_what_is_off_the_axes_is_counted() -> None:
    line = Line("sign", (1.0, 2.0, 3.0, 4.0, NAN), (1.0, NAN, INF, 0.0, 1.0))
    assert drawn(curve(of_line(line), line).y) == [1.0, None, None, 0.0, None]
    assert off_axes(of_line(line)) == 1
    assert drawn(curve(of_line(line, log=True), line).y) == [1.0, None, None, None, None]
    assert off_axes(of_line(line, log=True)) == 2


def test_a_point_between_gaps_is_marked() -> None:
    line = Line("sign", tuple(map(float, range(100))), (*[1.0] * 50, NAN, 1.0, NAN, *[1.0] * 47))
    shape = curve(of_line(line), line)
    assert shape.isolated == (51,)
    assert 51 in shape.marked
    assert 8 <= len(shape.marked) <= 11


def test_all_points_of_a_short_line_are_marked() -> None:
    line = Line("sign", tuple(map(float, range(9))), (1.0,) * 9)
    assert curve(of_line(line), line, order=3).marked == tuple(range(9))


def test_a_band_breaks_at_nan_and_is_cut_where_the_axis_ends() -> None:
    line = Line(
        "sign", (1.0, 2.0, 3.0, 4.0), (1.0,) * 4, low=(0.5, NAN, 0.0, -INF), high=(2.0, 2.0, 2.0, INF)
    )
    assert [(stretch.x, stretch.low, stretch.high) for stretch in band(of_line(line, log=True), line)] == [
        ((1.0,), (0.5,), (2.0,)),
        ((3.0, 4.0), (0.5, 0.5), (2.0, 2.0)),
    ]


def test_lines_that_do_not_fit_are_refused() -> None:
    for columns, message in (
        (((),), "y of line 'a' must have 1 values, got 0"),
        (((1.0,), (), (1.0,)), "low of line 'a' must have 1 values, got 0"),
        (((1.0,), (1.0,)), "line 'a' must have low and high, or neither"),
    ):
        with pytest.raises(ValueError, match=message):
            Line("a", (1.0,), *columns)


def panel(
    *values: float, low: tuple[float, ...] | None = None, high: tuple[float, ...] | None = None
) -> Panel:
    return Panel("", "x", "y", (Line("sign", values, values, low, high),), x_log=True, y_log=True)


@pytest.mark.parametrize(
    ("ends", "ticks"),
    [
        ((0.001, 10.0), [0.001, 0.01, 0.1, 1, 10]),
        ((0.1, 5.0), [0.1, 0.2, 0.5, 1, 2, 5]),
        ((1.01, 1.99), [1, 1.2, 1.4, 1.6, 1.8, 2]),
        ((1e-30, 1e30), [1e-30, 1e-20, 1e-10, 1, 1e10, 1e20, 1e30]),
        ((1.01, 1.011), []),
    ],
)
def test_usual_ticks(ends: tuple[float, float], ticks: list[float]) -> None:
    assert log_ticks(panel(*ends), "x") == log_ticks(panel(*ends), "y") == ticks


def test_ticks_are_never_too_many() -> None:
    for start in range(-40, 40):
        for span in (1.5, 3.0, 10.0, 40.0, 1e3, 1e7, 1e20):
            low = 10 ** (start / 8)
            assert 2 <= len(log_ticks(panel(low, low * span), "x")) <= MOST_TICKS


def test_bands_references_and_shades_are_reached() -> None:
    shown = Panel("", "x", "y", (Line("sign", (1.0, math.nan), (2.0, 3.0), (1.5, 0.1), (2.5, math.inf)),),
                  reference=-1.0, shaded=(0.0, 9.0))  # fmt: skip
    assert (min(drawn_values(shown, "x")), max(drawn_values(shown, "x"))) == (0.0, 9.0)
    assert sorted(drawn_values(shown, "y")) == [-1.0, 1.5, 2.0, 2.5]
    assert range_from_zero(shown) == (-1.05, 2.625)


def test_nothing_to_reach() -> None:
    assert log_ticks(panel(), "x") == []
    assert range_from_zero(panel()) is None


def test_the_ends_of_what_floats_hold_have_ticks_or_none() -> None:
    for low, high in ((5e-324, 1.0), (1.0, 1.7976931348623157e308), (5e-324, 1.7976931348623157e308)):
        assert all(map(math.isfinite, log_ticks(panel(low, high), "x")))


def test_mechanisms_differ_in_colour_and_in_marker() -> None:
    names = ("Gaussian", "rectified", "truncated", "sign", "quantised")
    by_name = looks(everything())
    assert len({by_name[name].color for name in names}) == len({by_name[name].point for name in names}) == 5


def test_what_is_no_mechanism_gets_a_look_of_its_own() -> None:
    lines = tuple(Line(name, (), ()) for name in ("empty cells", "small cells", "large cells", "sign"))
    by_name = looks(Chart("", "", "", (Panel("", "", "", lines),)))
    assert len({by_name[line.looks_like] for line in lines}) == 4


def test_a_look_that_does_not_exist_is_refused_by_name() -> None:
    line = Line("bound = claim", (), (), mechanism="quantized")
    with pytest.raises(ValueError, match=r"line 'bound = claim' must be one of .*, got 'quantized'"):
        looks(Chart("", "", "", (Panel("", "", "", (line,)),)))
