"""An example's features are estimated no better than 1 / eta^2, and as well as that."""

import pytest
import torch
from torch.nn.functional import one_hot

from ringfence import (
    Gaussian,
    QuantizedGaussian,
    RectifiedGaussian,
    StochasticSign,
    TruncatedGaussian,
    fisher_information_loss,
)
from ringfence.mechanisms.base import Mechanism
from tests.audit.reconstruction import audit_reconstruction, linear_jacobian
from tests.tensors import float64

LAWS = [
    Gaussian(0.7),
    RectifiedGaussian(1.0, bound=1.0),
    TruncatedGaussian(1.0, bound=(-1.0, 2.0)),
    StochasticSign(1.0),
    QuantizedGaussian(1.0, bound=2.0, levels=5),
]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_the_jacobian_is_that_of_the_sum_of_gradients() -> None:
    features, labels = torch.randn(1, 3, generator=seeded(), dtype=torch.float64), torch.tensor([1])
    zero = torch.zeros(4, 3, dtype=torch.float64)

    def theta(x: torch.Tensor) -> torch.Tensor:
        gradient = torch.softmax(x @ zero.T, dim=1) - one_hot(labels, 4)
        return (gradient.T @ x).flatten()

    expected = torch.autograd.functional.jacobian(theta, features).reshape(12, 3)
    assert torch.allclose(linear_jacobian(4, 3, 1), expected)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_the_bound_holds_and_is_attained(law: Mechanism) -> None:
    theta = 0.8 * torch.randn(6, generator=seeded(1), dtype=torch.float64)
    result = audit_reconstruction(law, theta, linear_jacobian(2, 3, 0), trials=10_000, generator=seeded(2))
    assert result.holds
    assert result.variance == pytest.approx(result.claim, rel=0.1)


@pytest.mark.parametrize("law", LAWS[:3], ids=lambda law: law.name)
def test_an_eta_that_is_too_small_is_seen(law: Mechanism) -> None:
    theta, jacobian = torch.zeros(6, dtype=torch.float64), linear_jacobian(2, 3, 0)
    eta = float(fisher_information_loss(law, theta, jacobian))
    for share, holds in ((0.8, False), (1.0, True)):
        result = audit_reconstruction(
            law, theta, jacobian, trials=10_000, generator=seeded(), eta=share * eta
        )
        assert result.holds is holds


def test_the_line_of_the_paper_is_seen() -> None:
    """|eta^T J| is 0 for J = (1, -1), as if nothing could be reconstructed (docs/errata.md, A6)."""
    jacobian, theta = float64([[1.0], [-1.0]]), torch.zeros(2, dtype=torch.float64)
    law = Gaussian(1.0)
    wrong = float((law.fisher_information(theta).sqrt() @ jacobian).norm())
    result = audit_reconstruction(law, theta, jacobian, trials=5000, generator=seeded(), eta=wrong)
    assert not result.holds
    assert audit_reconstruction(law, theta, jacobian, trials=5000, generator=seeded()).holds


def test_least_squares_under_the_gaussian() -> None:
    """The estimate of features from a simulated sum, the other examples known: variance 1 / eta^2."""
    jacobian, sigma = linear_jacobian(3, 2, 0), 0.5
    law, truth = Gaussian(sigma), float64([0.3, -0.4])
    theta = torch.randn(6, generator=seeded(), dtype=torch.float64) + jacobian @ truth
    released = law.sample(theta.expand(40_000, 6), generator=seeded(1))
    estimate = (released - theta) @ torch.linalg.pinv(jacobian).T + truth
    eta = float(fisher_information_loss(law, theta, jacobian))
    assert torch.allclose(estimate.mean(dim=0), truth, atol=5 / (eta * 200))
    assert torch.allclose(estimate.var(dim=0), torch.full((2,), 1 / eta**2).double(), rtol=0.05)
    result = audit_reconstruction(law, theta, jacobian, trials=40_000, generator=seeded(2))
    assert result.variance == pytest.approx(float(estimate.var(dim=0).mean()), rel=0.05)
