"""Single examples: the numbers of the probe that was trained, for the examples that were picked."""

import math
import random

import numpy as np
import pytest
import torch

from experiments.single_examples import distribution_chart, single_examples
from experiments.sweep.data import SweepData
from experiments.sweep.settings import SweepSetting

SETTINGS = {
    "Gaussian": SweepSetting("gaussian", 0.1, 20.0, learning_rate=4.0, steps=2),
    "rectified": SweepSetting("rectified", 0.1, 20.0, learning_rate=4.0, steps=2, bound=4.0),
}


@pytest.fixture
def data() -> SweepData:
    generator = torch.Generator().manual_seed(3)
    labels = torch.arange(60) % 3
    features = torch.randn(60, 4, generator=generator) + labels.unsqueeze(1)
    return SweepData(3, torch.ones(4, dtype=torch.float64), (features, labels), None, (features, labels), "")


def test_every_example_that_is_asked_for_has_a_row_a_law(data: SweepData) -> None:
    runs = list(single_examples(data, SETTINGS, 1e-5, examples=10))
    assert all(run.claim.epsilon >= run.claim.per_instance.epsilon > 0 for run in runs)
    assert {run.mechanism: run.setting for run in runs} == SETTINGS
    rows = [row for run in runs for row in run.rows]
    assert [row.mechanism for row in rows] == ["Gaussian"] * 10 + ["rectified"] * 10
    assert [row.example for row in rows[:10]] == [row.example for row in rows[10:]]
    assert all(row.epsilon > 0 for row in rows)
    assert all(row.eta >= 0 for row in rows)  # 0 where every coordinate is clamped: nothing moves
    assert sum(row.eta > 0 for row in rows) > 10
    # clamping never costs more, and here the noise is the same
    assert max(row.epsilon for row in rows[10:]) <= max(row.epsilon for row in rows[:10]) * (1 + 1e-6)


def test_numbers_do_not_depend_on_who_else_is_measured(data: SweepData) -> None:
    some, every = (
        {row.example: row for run in single_examples(data, SETTINGS, 1e-5, examples=n) for row in run.rows}
        for n in (7, 1000)
    )
    assert len(every) == 60
    for example, row in some.items():
        np.testing.assert_allclose(row.epsilon, every[example].epsilon, rtol=1e-9)
        np.testing.assert_allclose(row.eta, every[example].eta, rtol=6e-3)  # certified to 0.5 %


def test_progress_ends_at_one(data: SweepData) -> None:
    seen: list[tuple[str, float]] = []
    list(single_examples(data, SETTINGS, 1e-5, examples=2, progress=lambda *told: seen.append(told)))
    assert seen == [("single examples", 0.5), ("single examples", 1.0)]


@pytest.mark.parametrize("log", [False, True])
def test_counts_of_the_distribution_are_numpys(log: bool) -> None:
    generator = random.Random(5)
    values = {
        name: [generator.lognormvariate(mu, 1) for _ in range(500)]
        for name, mu in (("sign", 0), ("rectified", 1))
    }
    (panel,) = distribution_chart("h", "t", "c", values, x_label="epsilon", bins=17, x_log=log).panels
    everything = [value for numbers in values.values() for value in numbers]
    space = np.geomspace if log else np.linspace
    edges = space(min(everything), max(everything), 18)
    for line in panel.lines:
        counts, _ = np.histogram(values[line.name], edges)
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
