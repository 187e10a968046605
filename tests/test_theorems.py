"""The paper's theorems, and those that replace its wrong ones, over the whole range.

``tests/test_properties.py`` checks amplification (never above the Gaussian) and growth with |shift| for
every law, the contract the bound for every theta, ``tests/test_errata.py`` the limit of many levels; here is
what is said of particular laws.
"""

import pytest
import torch
from torch import Tensor

import ringfence as rf
from ringfence.numerics.normal import TruncatedNormal

THETA = torch.linspace(-60, 60, 481, dtype=torch.float64)
BOUNDS = [1e-3, 0.1, 0.5, 1.0, 2.0, 10.0]


def log_mass(theta: Tensor, bound: float) -> Tensor:
    width = torch.full_like(theta, 2 * bound)
    return TruncatedNormal(-bound - theta, bound - theta, width).log_mass()


@pytest.mark.parametrize("bound", BOUNDS)
def test_the_mass_of_an_interval_is_log_concave(bound: float) -> None:
    """Lemma A.2, by second differences (its one-line proof: Prekopa)."""
    step = 0.125
    fine = torch.arange(-12, 12, step, dtype=torch.float64)
    second = log_mass(fine, bound).diff(n=2)
    assert (second < 1e-12).all()
    # and it is minus the gap between the two informations, integrated
    information = rf.TruncatedGaussian(1.0, bound).fisher_information(fine[1:-1])
    torch.testing.assert_close(second / step**2, information - 1, rtol=0, atol=step**2)


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("make", [rf.RectifiedGaussian, rf.TruncatedGaussian])
def test_information_is_even_and_falls_with_distance(make: type, bound: float) -> None:
    values = make(1.0, bound).fisher_information(THETA)
    torch.testing.assert_close(values, values.flip(0), rtol=1e-11, atol=1e-300)
    half = values[THETA >= 0]
    assert (half.diff() <= 1e-12 * half[:-1]).all()
    assert float(half[0]) <= 1 + 1e-12


def test_the_same_factor_fails_for_rectified() -> None:
    """Up to 1.41 times at A = 0.1, alpha c = 10: use the Gaussian's bound there."""
    law = rf.RectifiedGaussian(1.0, 0.1)
    largest = law.renyi_divergence(THETA, 1.0, 10.0).max()
    ratio = float(largest / (5.0 * law.fisher_information(0.0)))
    assert 1.3 < ratio < 1.5


@pytest.mark.parametrize(("bound", "alpha", "shift"), [(0.5, 8, 1e-3), (2.0, 64, 1e-3), (1, 3, 0.4)])
def test_truncated_lies_between_informations_of_the_window(bound: float, alpha: float, shift: float) -> None:
    law = rf.TruncatedGaussian(1.0, bound)
    reach = alpha * shift
    low = law.fisher_information(THETA.abs() + reach)
    high = law.fisher_information((THETA.abs() - reach).clamp(min=0))
    for sign in (1, -1):
        for value in (
            law.renyi_divergence(THETA, sign * shift, alpha),
            law.renyi_divergence(THETA + sign * shift, -sign * shift, alpha),
        ):
            scaled = 2 * value / (alpha * shift**2)
            assert (scaled >= low * (1 - 1e-12)).all()
            assert (scaled <= high * (1 + 1e-12)).all()
