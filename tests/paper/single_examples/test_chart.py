"""Distributions over examples, against numpy's."""

import math
import random

import numpy
import pytest

from ringfence.paper.single_examples.chart import distribution_chart


@pytest.mark.parametrize("log", [False, True])
def test_counts_are_numpys(log: bool) -> None:
    generator = random.Random(5)
    values = {
        name: [generator.lognormvariate(mu, 1) for _ in range(500)]
        for name, mu in (("sign", 0), ("rectified", 1))
    }
    (panel,) = distribution_chart("h", "t", "c", values, x_label="epsilon", bins=17, x_log=log).panels
    everything = [value for numbers in values.values() for value in numbers]
    space = numpy.geomspace if log else numpy.linspace
    edges = space(min(everything), max(everything), 18)
    for line in panel.lines:
        counts, _ = numpy.histogram(values[line.name], edges)
        assert line.x[1:-1:2] == pytest.approx(edges[:-1], rel=1e-12)
        assert line.y[1:-1:2] == line.y[2::2][:17] == tuple(counts)
        assert line.y[0] == line.y[-1] == 0
        assert sum(line.y[1:-1:2]) == 500


def test_what_is_in_no_bin_is_said() -> None:
    values = {"sign": [1.0, 2.0, math.inf, math.nan, 0.0]}
    chart = distribution_chart("h", "t", "Caption.", values, x_label="epsilon", x_log=True)
    assert chart.caption.startswith("Caption. In no bin: 3")
    assert sum(chart.panels[0].lines[0].y[1:-1:2]) == 2


def test_equal_values_and_none_at_all() -> None:
    (panel,) = distribution_chart("h", "t", "", {"sign": [3.0, 3.0]}, x_label="", bins=4).panels
    assert max(panel.lines[0].y) == 2
    assert distribution_chart("h", "t", "", {"sign": []}, x_label="").panels[0].lines[0].x == ()
    with pytest.raises(ValueError, match="bins must be at least 1, got 0"):
        distribution_chart("h", "t", "", {}, x_label="", bins=0)
