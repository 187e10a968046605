"""The paper's theorems, and those that replace its wrong ones, over the whole range.

``tests/test_properties.py`` checks amplification (never above the Gaussian) and growth with |shift| for
every law; here is what is said of particular laws and of limits.
"""

import itertools

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


@pytest.mark.parametrize("bound", BOUNDS)
def test_truncated_has_a_data_independent_factor(bound: float) -> None:
    """D <= I(0) alpha c^2 / 2 for every theta, sign, direction and order."""
    law = rf.TruncatedGaussian(1.0, bound)
    centre = float(law.fisher_information(0.0))
    for shift, alpha in itertools.product([1e-5, 0.1, -3.0], [1.01, 2.0, 64.0, 1024.0]):
        limit = centre * alpha * shift**2 / 2 * (1 + 1e-12)
        assert float(law.renyi_divergence(THETA, shift, alpha).max()) <= limit
        assert float(law.renyi_divergence(THETA + shift, -shift, alpha).max()) <= limit


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


# ------------------------------------------------------------------ limits


def test_quantised_tends_to_rectified_like_one_over_the_levels() -> None:
    """Theorem F.1: law, information and divergence; twice the levels, half the error."""
    theta = torch.tensor([-0.8, 0.0, 0.35, 1.4], dtype=torch.float64)
    rectified = rf.RectifiedGaussian(0.8, 1.0)
    errors = {"information": [], "divergence": [], "law": []}
    counts = [17, 33, 65, 129]
    for levels in counts:
        quantised = rf.QuantizedGaussian(0.8, 1.0, levels)
        information = rectified.fisher_information(theta) - quantised.fisher_information(theta)
        divergence = rectified.renyi_divergence(theta, 0.3, 4.0)
        divergence = divergence - quantised.renyi_divergence(theta, 0.3, 4.0)
        assert (information > 0).all()  # rounding loses information
        assert (divergence > 0).all()
        errors["information"].append(information)
        errors["divergence"].append(divergence)
        errors["law"].append(_distance_of_laws(quantised, rectified, theta))
    for name, by_levels in errors.items():
        for coarse, fine in itertools.pairwise(by_levels):
            assert ((fine / coarse > 0.44) & (fine / coarse < 0.56)).all(), name


def _distance_of_laws(
    quantised: rf.QuantizedGaussian, rectified: rf.RectifiedGaussian, theta: Tensor
) -> Tensor:
    """Largest gap between the two distribution functions, at the levels."""
    atoms = torch.stack(quantised.support.atoms)
    masses = quantised.log_prob(atoms.unsqueeze(1), theta).exp()
    torch.testing.assert_close(masses.sum(0), torch.ones_like(theta), rtol=1e-13, atol=0)
    reached = 0.5 * torch.erfc((theta - atoms.unsqueeze(1)) / float(rectified.sigma) / 2**0.5)
    return (masses.cumsum(0)[:-1] - reached[:-1]).abs().amax(0)


@pytest.mark.parametrize("make", [rf.RectifiedGaussian, rf.TruncatedGaussian])
def test_a_growing_bound_tends_to_the_gaussian(make: type) -> None:
    theta, gaussian = torch.tensor([-1.0, 0.0, 0.6], dtype=torch.float64), rf.Gaussian(1.0)
    gaps = []
    for bound in (3.0, 4.0, 5.0, 6.0, 7.0):
        law = make(1.0, bound)
        gap = gaussian.fisher_information(theta) - law.fisher_information(theta)
        gap = gap + gaussian.renyi_divergence(theta, 0.3, 3.0) - law.renyi_divergence(theta, 0.3, 3.0)
        gaps.append(float(gap.max()))
    assert all(fine < coarse / 4 for coarse, fine in itertools.pairwise(gaps))
    assert gaps[-1] < 1e-6


def test_a_shrinking_bound_turns_rectified_into_the_sign() -> None:
    theta, sign = torch.tensor([-2.0, 0.0, 0.6, 9.0], dtype=torch.float64), rf.StochasticSign(1.0)
    gaps = []
    for bound in (1e-1, 1e-2, 1e-3, 1e-4):
        law = rf.RectifiedGaussian(1.0, bound)
        information = law.fisher_information(theta) / sign.fisher_information(theta) - 1
        divergence = law.renyi_divergence(theta, 0.3, 3.0) / sign.renyi_divergence(theta, 0.3, 3.0)
        gaps.append(torch.maximum(information.abs(), (divergence - 1).abs()).max())
    assert all(fine < coarse / 5 for coarse, fine in itertools.pairwise(gaps))
    assert gaps[-1] < 2e-3


def test_two_levels_are_the_sign() -> None:
    """With the interval centred at 0 the one cut is at 0."""
    quantised, sign = rf.QuantizedGaussian(0.7, 3.0, 2), rf.StochasticSign(0.7)
    torch.testing.assert_close(
        quantised.fisher_information(THETA), sign.fisher_information(THETA), rtol=1e-12, atol=1e-300
    )
    torch.testing.assert_close(
        quantised.renyi_divergence(THETA, -0.2, 5.0),
        sign.renyi_divergence(THETA, -0.2, 5.0),
        rtol=1e-12,
        atol=1e-300,
    )
