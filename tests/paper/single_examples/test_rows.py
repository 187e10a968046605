"""Single examples: the numbers of the probe that was trained, for the examples that were picked."""

import numpy as np
import pytest
import torch

from ringfence.paper.single_examples.rows import single_examples
from ringfence.paper.sweep.data import SweepData
from ringfence.paper.sweep.settings import SweepSetting

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
    assert all("do not publish" in run.statement for run in runs)
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
    seen: list[float] = []
    list(single_examples(data, SETTINGS, 1e-5, examples=2, progress=seen.append))
    assert seen == [0.5, 1.0]
