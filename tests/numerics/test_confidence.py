"""Upper confidence bounds of a mean: coverage, and each of the three inequalities where it is best."""

import math

import pytest
import torch

from ringfence.numerics.confidence import upper_confidence_bound


def bound(values: torch.Tensor, failure_probability: float = 1e-6) -> float:
    ceiling = torch.zeros((), dtype=torch.float64)
    return float(upper_confidence_bound(values.double().log(), ceiling, failure_probability).exp())


def test_formulas_where_each_is_the_smallest() -> None:
    share = 1e-6 / 3
    level = torch.full((200,), 0.9, dtype=torch.float64)
    assert bound(level) == pytest.approx(1 - 0.1 * share ** (1 / 200), abs=0, rel=1e-9)  # Markov
    spread = torch.tensor([0.01, 0.99], dtype=torch.float64).repeat(500)
    mean = 0.5 + math.sqrt(math.log(1 / share) / 2000)
    assert bound(spread) == pytest.approx(mean, abs=0, rel=1e-9)  # Hoeffding
    rare, n = torch.full((100_000,), 1e-4, dtype=torch.float64), 100_000
    rare[::100] = 1.0  # a few values at the ceiling
    wide = math.log(2 / share)
    bernstein = rare.mean() + torch.sqrt(2 * wide / n * rare.var()) + 7 * wide / (3 * (n - 1))
    assert bound(rare) == pytest.approx(float(bernstein), abs=0, rel=1e-9)


def test_never_above_the_ceiling_nor_below_the_mean() -> None:
    values = torch.rand(50, generator=torch.Generator().manual_seed(0))
    assert float(values.mean()) < bound(values) <= 1
    assert bound(torch.ones(50)) == 1


def test_ceiling_of_zero_and_values_beyond_float_range() -> None:
    ceilings = torch.tensor([-torch.inf, -2000.0, 2000.0], dtype=torch.float64)
    result = upper_confidence_bound((ceilings - 0.5).expand(10, 3), ceilings, 1e-3)
    assert float(result[0]) == -math.inf
    assert bool((result[1:] > ceilings[1:] - 0.5).all() and (result[1:] <= ceilings[1:]).all())


@pytest.mark.parametrize("power", [0.02, 1.0, 8.0])
def test_covers_the_mean(power: float) -> None:
    """2,000 runs at failure probability 0.1: at most 0.1 of them may miss, allowing 4 deviations."""
    draws = torch.rand(40, 2000, generator=torch.Generator().manual_seed(1), dtype=torch.float64) ** power
    result = upper_confidence_bound(draws.log(), torch.zeros(2000).double(), 0.1).exp()
    true = 1 / (power + 1)
    assert float((result < true).double().mean()) < 0.1 + 4 * math.sqrt(0.09 / 2000)
    assert float((draws.mean(dim=0) < true).double().mean()) > 0.3  # what no confidence term would do


def test_values_above_the_ceiling_count_as_the_ceiling() -> None:
    values = torch.linspace(0.01, 1.6, 500, dtype=torch.float64)
    for failing in (0.5, 1e-6):
        above, at = (
            upper_confidence_bound(some.log(), torch.zeros(()).double(), failing)
            for some in (values, values.clamp(max=1))
        )
        assert float(above) == float(at)
