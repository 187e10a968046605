"""Exponential families: polynomials above the information, bounds against every entry evaluated."""

import math

import pytest
import torch
from torch import Tensor

import ringfence as rf
from ringfence.accounting.claim.conversion import DEFAULT_ORDERS
from ringfence.accounting.examples.accountant import ExampleAccountant
from ringfence.accounting.examples.information_polynomials import (
    _fit_above,
    hat_moments,
    polynomial_bound,
    upper_polynomials,
)
from tests.accounting.gradients import ORDERS, both, draws
from tests.tensors import float64

# centred, wide, narrow, off-centre with another sigma, one-sided
TRUNCATED = [
    (1.0, (-2.0, 2.0)),
    (1.0, (-5.0, 5.0)),
    (1.0, (-0.1, 0.1)),
    (0.5, (-0.2, 1.5)),
    (2.0, (-1.0, math.inf)),
]


@pytest.mark.parametrize(("sigma", "bound"), TRUNCATED)
def test_truncated_is_within_one_percent_and_never_below(sigma: float, bound: tuple[float, float]) -> None:
    theta, gradients = draws(2, 30, 1e-3)
    law = rf.TruncatedGaussian(sigma, bound)
    for spread, orders in ((0.7, DEFAULT_ORDERS[::6]), (3.0, ORDERS)):
        bounds, exact = both(law, spread * sigma * theta, sigma * gradients, orders)
        assert (bounds >= exact).all()
        assert (bounds <= 1.01 * exact).all()


@pytest.mark.parametrize(("sigma", "bound"), TRUNCATED)
def test_the_polynomials_are_above_the_information(sigma: float, bound: tuple[float, float]) -> None:
    law = rf.TruncatedGaussian(sigma, bound)
    theta = sigma * torch.cat((torch.linspace(-9, 9, 73), float64([-300.0, 1e4]))).double()
    coefficients, condition = upper_polynomials(law, theta)
    y = torch.linspace(-2.05, 2.05, 501, dtype=torch.float64).unsqueeze(1)
    polynomial = sum(coefficients[k] * y**k for k in range(len(coefficients)))
    information = law.fisher_information(theta + sigma * y) * sigma**2
    assert (polynomial >= information).all()
    assert (polynomial <= 1.01 * information).all()
    assert condition < 50


def test_hat_moments_are_those_of_the_triangular_law() -> None:
    from numpy.polynomial.legendre import leggauss

    nodes, weights = (float64(part) for part in leggauss(12))
    for alpha in (1.3, 2.0, 7.5):
        for variant, corners in (("add_forward", (1 - alpha, 0.0, 1.0)), ("add_backward", (0.0, 1.0, alpha))):
            low, mode, high = corners
            rising, falling = (low + (nodes + 1) / 2 * (mode - low), mode + (nodes + 1) / 2 * (high - mode))
            up = (rising - low) / (mode - low) * 2 / (high - low) * weights * (mode - low) / 2
            down = (high - falling) / (high - mode) * 2 / (high - low) * weights * (high - mode) / 2
            truth = [float((up * rising**k).sum() + (down * falling**k).sum()) for k in range(8)]
            got = hat_moments(float64([alpha]), variant).squeeze(1)
            assert got.tolist() == pytest.approx(truth, rel=1e-12, abs=1e-13)
            mirrored = hat_moments(float64([alpha]), variant.replace("add", "remove")).squeeze(1)
            assert mirrored.tolist() == pytest.approx([(-1) ** k * value for k, value in enumerate(truth)])


def test_orders_out_of_reach_get_what_holds_for_every_theta() -> None:
    law, gradients = rf.TruncatedGaussian(1.0, 2.0), float64([[0.5, 0.01], [0.01, -0.01]])
    theta = float64([1.0, -3.0])
    bounds, exact = both(law, theta, gradients, [4.0, 5.0, 64.0, 256.0])
    assert (bounds >= exact).all()
    ceiling = 0.5 * gradients.square().sum(dim=1) * law.information_bound()
    assert bounds[0, 0, 1:].tolist() == pytest.approx((ceiling[0] * float64([5.0, 64.0, 256.0])).tolist())
    assert (bounds[:, 0, 0] <= 1.01 * exact[:, 0, 0]).all()
    # an example with small entries keeps its own reach, whatever the others are
    assert (bounds[:, 1, :3] <= 1.01 * exact[:, 1, :3]).all()


def test_a_rough_information_is_refused() -> None:
    class Rough(rf.Gaussian):
        def _fisher_information(self, theta: Tensor, sigma: Tensor) -> Tensor:  # type: ignore[override]
            return torch.where(theta > 0.3, 1.0, 1e-6)

    with pytest.raises(FloatingPointError, match="not smooth enough"):
        ExampleAccountant(Rough(1.0)).step(torch.zeros(2), torch.ones(1, 2))


def test_parameters_may_differ_by_coordinate() -> None:
    theta, gradients = draws(3, 40, 1e-3)
    sigma, bound = torch.linspace(0.5, 2.0, 40).double(), torch.linspace(0.3, 4.0, 40).double()
    bounds, exact = both(rf.TruncatedGaussian(sigma, bound), theta, gradients * sigma)
    assert (bounds >= exact).all()
    assert (bounds <= 1.01 * exact).all()


def test_rounding_is_charged_as_far_as_the_polynomials_amplify_it(monkeypatch: pytest.MonkeyPatch) -> None:
    law, theta, orders = rf.TruncatedGaussian(1.0, 1.0), float64([0.3, -0.2]), float64([2.0, 8.0])
    block = float64([[1e-3, 2e-3]])
    plain = polynomial_bound(law, theta, orders)(block)
    coefficients, condition = upper_polynomials(law, theta)
    more = 1e9
    monkeypatch.setattr(
        "ringfence.accounting.examples.information_polynomials.upper_polynomials",
        lambda *_: (coefficients, more),
    )
    raised = polynomial_bound(law, theta, orders)(block)
    each = (2 + 64) * 2.0**-52
    assert condition >= 1
    torch.testing.assert_close(raised, plain * (1 + (more - condition) * each), rtol=1e-9, atol=0)


def test_the_condition_is_what_the_terms_add_up_to_against_their_sum() -> None:
    theta = float64([0.0, 0.7, -3.0])
    coefficients, condition = upper_polynomials(rf.TruncatedGaussian(1.0, 1.0), theta)
    degrees = torch.arange(8).double()
    y = torch.linspace(-2.05, 2.05, 2001).double().unsqueeze(1)
    least = ((y**degrees) @ coefficients).amin(dim=0)
    terms = (coefficients.abs() * 2.05 ** degrees.unsqueeze(1)).sum(dim=0)
    assert float((terms / least).max()) <= condition <= 1.5 * float((terms / least).max())


@pytest.mark.parametrize("curvature", [0.0, 0.1])
def test_the_fit_is_raised_by_what_may_happen_between_two_points(curvature: float) -> None:
    """I at most its chord + h^2 M / 4, M itself; the fit at least its chord - h^2 max|Q''| / 8."""
    y = torch.linspace(-1, 1, 541).double() * (2.05 + 1 / 16)
    information = (0.5 + curvature * y**2).unsqueeze(0)
    fitted, lowest = _fit_above(information, rf.TruncatedGaussian(1.0, 1.0))
    square = float(y[1] - y[0]) ** 2
    around = torch.stack([information[0, i - 1 : i + 2].max() for i in range(1, 540)])
    most = information[0, 1:-1] + square / 4 * around / (1 - square / 4)
    factor = float((most / (information[0, 1:-1] - square / 8 * 2 * curvature)).max())
    assert factor > 1 + 1e-5
    expected = [factor * 0.5, 0.0, factor * curvature, *[0.0] * 5]
    assert fitted[0].tolist() == pytest.approx(expected, rel=0, abs=1e-8)
    assert float(fitted[0, 0]) == pytest.approx(expected[0], rel=1e-8, abs=0)
    assert float(lowest) == pytest.approx(factor * (0.5 - square / 4 * curvature), rel=1e-7, abs=0)


def test_two_coordinates_have_their_own_parameters_in_their_own_order() -> None:
    theta, sigma = float64([3.0, -1.0]), float64([1.0, 2.0])
    together, _ = upper_polynomials(rf.TruncatedGaussian(sigma, 1.5), theta)
    for j in range(2):
        alone, _ = upper_polynomials(rf.TruncatedGaussian(sigma[j], 1.5), theta[j : j + 1])
        torch.testing.assert_close(together[:, j : j + 1], alone, rtol=1e-12, atol=0)
