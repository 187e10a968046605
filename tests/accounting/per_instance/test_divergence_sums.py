"""Evaluated sums: both signs, both directions, what is charged for rounding; and how D bends."""

import itertools

import pytest
import torch

import ringfence as rf
from ringfence.accounting.per_instance.divergence_sums import (
    both_directions,
    exact_sums,
    exact_sums_of_many,
    worse_sign,
)
from ringfence.accounting.per_instance.setting import Setting
from tests.accounting.drawing import draw
from tests.mechanisms.cases import CASES, Case
from tests.tensors import float64

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@every_case
def test_exact_sums_are_sums_of_the_worse_sign(case: Case) -> None:
    law, theta, c = case.make(1.0, -1.0, 1.0), draw(50), 0.2
    forward, backward = exact_sums(law, theta, float64(c), float64([3.0]))[:, 0]
    ways = [
        [law.renyi_divergence(theta, s, 3.0) for s in (c, -c)],
        [law.renyi_divergence(theta + s, -s, 3.0) for s in (c, -c)],
    ]
    for got, (up, down) in zip((forward, backward), ways, strict=True):
        assert float(got) == pytest.approx(float(torch.maximum(up, down).sum()), rel=1e-10, abs=0)
        assert float(got) >= float(torch.maximum(up.sum(), down.sum()))


@every_case
def test_between_nodes_the_divergence_stays_under_the_raised_chord(case: Case) -> None:
    """D'' >= -4 D in units of sigma is proved (docs/curvature.md); this is what was ever measured."""
    width = 1 / 32
    for low, high in ((-0.02, 0.02), (-1.0, 1.0), (-5.0, 5.0)):
        law = case.make(1.0, low, high)
        theta = torch.arange(low - 6, high + 6, width, dtype=torch.float64)
        for c, alpha, backward in itertools.product((1e-3, 1.0), (1.1, 8.0, 256.0), (False, True)):
            value = worse_sign(law, theta, float64(c), float64([alpha]), backward)[0]
            seen = value[1:-1] > 1e-200
            curvature = (value[2:] - 2 * value[1:-1] + value[:-2]) / width**2 / value[1:-1]
            assert float(curvature[seen].min()) > -0.8


def test_what_is_charged_for_rounding_is_1e_11() -> None:
    two = exact_sums(rf.Gaussian(1.0), float64([0.0]), float64(1.0), float64([2.0]))  # 1, exactly
    assert two.tolist() == [[1 + 1e-11], [1 + 1e-11]]


@every_case
def test_both_directions_are_the_worse_sign_of_each(case: Case) -> None:
    given = case.make(1.0, -1.0, 1.0), draw(20), float64(0.2), float64([3.0, 8.0])
    forward, backward = both_directions(*given)
    assert torch.equal(forward, worse_sign(*given, backward=False))
    assert torch.equal(backward, worse_sign(*given, backward=True))


def test_exact_sums_of_many_are_those_of_each() -> None:
    orders = float64([1.1, 8.0, 1024.0])
    laws = [case.make(sigma, -1.0, 1.5) for case in CASES for sigma in (0.8, 0.3)]
    settings = [Setting.of(law, size) for law, size in zip(laws, [1e-3, 0.3] * len(CASES), strict=True)]
    theta = 0.4 * draw(len(laws), 100)
    for setting, row, got in zip(settings, theta, exact_sums_of_many(settings, theta, orders), strict=True):
        exact = exact_sums(setting.mechanism, row, float64(setting.sensitivity), orders)
        assert torch.allclose(got, exact, rtol=1e-11, atol=0)
