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
from tests.tensors import float64, seeded

LAWS = [
    Gaussian(0.7),
    RectifiedGaussian(1.0, bound=1.0),
    TruncatedGaussian(1.0, bound=(-1.0, 2.0)),
    StochasticSign(1.0),
    QuantizedGaussian(1.0, bound=2.0, levels=5),
]


def test_the_jacobian_is_that_of_the_sum_of_gradients() -> None:
    features, labels = torch.randn(1, 3, generator=seeded(), dtype=torch.float64), torch.tensor([1])
    zero = torch.zeros(4, 3, dtype=torch.float64)

    def theta(x: torch.Tensor) -> torch.Tensor:
        gradient = torch.softmax(x @ zero.T, dim=1) - one_hot(labels, 4)
        return (gradient.T @ x).flatten()

    expected = torch.autograd.functional.jacobian(theta, features).reshape(12, 3)
    assert torch.allclose(linear_jacobian(4, 3, 1), expected)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_the_bound_holds_is_attained_and_a_larger_one_falls(law: Mechanism) -> None:
    theta = 0.8 * torch.randn(6, generator=seeded(1), dtype=torch.float64)
    result = audit_reconstruction(law, theta, linear_jacobian(2, 3, 0), trials=10_000, generator=seeded(2))
    assert result.holds
    assert result.variance == pytest.approx(result.claim, rel=0.1)
    eta = 0.8 * float(fisher_information_loss(law, theta, linear_jacobian(2, 3, 0)))
    less = audit_reconstruction(
        law, theta, linear_jacobian(2, 3, 0), trials=10_000, generator=seeded(2), eta=eta
    )
    assert not less.holds


def test_the_line_of_the_paper_is_seen() -> None:
    """|eta^T J| is 0 for J = (1, -1), as if nothing could be reconstructed (docs/errata.md, A6)."""
    jacobian, theta = float64([[1.0], [-1.0]]), torch.zeros(2, dtype=torch.float64)
    law = Gaussian(1.0)
    wrong = float((law.fisher_information(theta).sqrt() @ jacobian).norm())
    result = audit_reconstruction(law, theta, jacobian, trials=5000, generator=seeded(), eta=wrong)
    assert not result.holds
    assert audit_reconstruction(law, theta, jacobian, trials=5000, generator=seeded()).holds
