"""What is special to the Gaussian: theta does not matter."""

import math

import pytest
import torch

import ringfence as rf
from tests.tensors import float64


def test_support_is_the_line() -> None:
    support = rf.Gaussian(1.0).support
    assert [float(end) for end in support.interval] == [-math.inf, math.inf]
    assert support.atoms == ()


def test_theta_does_not_matter() -> None:
    law, theta = rf.Gaussian(0.7), torch.linspace(-1e3, 1e3, 7, dtype=torch.float64)
    for values in (
        law.fisher_information(theta),
        law.renyi_divergence(theta, 0.2, 3.0),
        law.hockey_stick(theta, 0.2, 0.4),
    ):
        torch.testing.assert_close(values, values[:1].expand(7), rtol=1e-13, atol=0)


@pytest.mark.parametrize("sigma", [1.0, 0.4, 3.0])
@pytest.mark.parametrize("mu", [1e-6, 0.1, 1.0, 7.0])
def test_hockey_stick_is_the_known_profile(mu: float, sigma: float) -> None:
    """delta(epsilon) of mu-GDP (Balle and Wang 2018, Theorem 8), where it does not cancel."""
    epsilon = 0.3 * mu
    phi = torch.distributions.Normal(0.0, 1.0).cdf
    parts = phi(float64([mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu]))
    expected = float(parts[0] - math.exp(epsilon) * parts[1])
    assert float(rf.Gaussian(sigma).hockey_stick(0.0, mu * sigma, epsilon)) == pytest.approx(
        expected, rel=1e-9, abs=1e-15
    )
