"""Single examples: the numbers of the probe that was trained, for the examples that were picked."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch

from experiments.comparison import CLAMPED, Candidate, Comparison, Point
from experiments.single_examples import distribution_chart, like_for_like, single_examples
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
    (panel,) = distribution_chart("h", "t", "c", values, x_label="epsilon", x_log=log).panels
    everything = [value for numbers in values.values() for value in numbers]
    space = np.geomspace if log else np.linspace
    edges = space(min(everything), max(everything), 31)
    for line in panel.lines:
        counts, _ = np.histogram(values[line.name], edges)
        assert line.x[1:-1:2] == pytest.approx(edges[:-1], rel=1e-12)
        assert line.y[1:-1:2] == line.y[2::2][:30] == tuple(counts)
        assert line.y[0] == line.y[-1] == 0
        assert sum(line.y[1:-1:2]) == 500
    (same,) = distribution_chart("h", "t", "", {"sign": [3.0, 3.0]}, x_label="").panels
    assert max(same.lines[0].y) == 2


def _comparison(**reached: int) -> Comparison:
    """Laws that reach this many of 20 targets, 5 % apart, each with a setting of its own there."""
    targets = tuple(0.05 * (i + 1) for i in range(20))
    candidates = []
    for law, count in reached.items():
        wide = {"gaussian": None, "truncated": 1.0}.get(law, 4.0)
        settings = [SweepSetting(law, 0.1, 10.0 + i, 1.0, 5 + i, bound=wide) for i in range(count)]
        points = [
            Point(target, 1.0, 0.9, setting, None) for target, setting in zip(targets, settings, strict=False)
        ]
        candidates.append(Candidate(law, "clamp", "per-instance", (1.0, 1.0, 1.0), tuple(points)))
    return Comparison("toy", targets, 0.5, candidates[0], tuple(candidates), True, 1, 1e-5)


def test_every_law_gets_the_setting_with_the_widest_bound_a_little_below_where_the_last_one_arrives() -> None:
    comparison = _comparison(gaussian=20, truncated=12, rectified=12)
    clamped = replace(comparison.candidates[2], law=CLAMPED, points=())  # no run of its own
    target, chosen = like_for_like(replace(comparison, candidates=(*comparison.candidates, clamped)))
    assert target == pytest.approx(0.5)  # 0.6 is the last in common, 0.51 its share
    base = SweepSetting("rectified", 0.1, 19.0, 1.0, 14, bound=4.0)
    assert chosen == {
        "gaussian": replace(base, mechanism="gaussian", bound=None),
        "truncated": replace(base, mechanism="truncated"),
        "rectified": base,
    }
    assert like_for_like(_comparison(gaussian=0)) == (0.0, {})
