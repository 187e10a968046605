"""Charts: lines that fit together, and looks that can be told apart."""

import pytest

from ringfence.report.chart import Chart, Line, Panel, looks
from tests.report.samples import everything


def test_lines_that_do_not_fit_are_refused() -> None:
    for columns, message in (
        (((),), "y of line 'a' must have 1 values, got 0"),
        (((1.0,), (), (1.0,)), "low of line 'a' must have 1 values, got 0"),
        (((1.0,), (1.0,)), "line 'a' must have low and high, or neither"),
    ):
        with pytest.raises(ValueError, match=message):
            Line("a", (1.0,), *columns)


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
