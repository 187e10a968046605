"""Axes: few ticks, and room above what is drawn."""

import math

import pytest

from ringfence.report.axes import MOST_TICKS, drawn_values, log_ticks, range_from_zero
from ringfence.report.chart import Line, Panel


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
