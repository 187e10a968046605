"""Residuals of softmax regression: against autograd, and against 60 digits."""

import torch

from ringfence.training.linear.residuals import (
    accurate_residuals,
    relative_error,
    residuals,
    shares_and_others,
)
from tests.training.linear.test_regression import FEATURES, LABELS


def test_residuals_are_the_gradient_of_the_loss() -> None:
    weights = torch.randn(3, 5, generator=torch.Generator().manual_seed(2)).requires_grad_()
    loss = torch.nn.functional.cross_entropy(FEATURES @ weights.T, LABELS, reduction="sum")
    loss.backward()
    ours = residuals(weights.detach(), FEATURES, LABELS).T @ FEATURES
    assert torch.allclose(weights.grad, ours, atol=1e-3)


def test_the_error_of_residuals_is_bounded() -> None:
    """float64 against 60 digits, with scores up to 700 and shares down to 1e-300."""
    from mpmath import mp, mpf

    generator = torch.Generator().manual_seed(1)
    features = torch.randn(20, 6, generator=generator, dtype=torch.float64) * 10
    weights = torch.randn(4, 6, generator=generator, dtype=torch.float64) * 3
    labels = torch.randint(0, 4, (20,), generator=generator)
    found = accurate_residuals(*shares_and_others(weights, features), labels)
    error = relative_error(weights, torch.linalg.vector_norm(features, dim=1))
    with mp.workdps(60):
        for i in range(20):
            row = [mpf(value) for value in features[i].tolist()]
            scores = [sum(a * mpf(b) for a, b in zip(row, w, strict=True)) for w in weights.tolist()]
            odds = [mp.exp(score) for score in scores]
            for k in range(4):
                others = sum(odd for j, odd in enumerate(odds) if j != k)
                exact = (-others if k == labels[i] else odds[k]) / sum(odds)
                assert abs(mpf(float(found[i, k])) - exact) <= mpf(float(error[i])) * abs(exact)
    assert torch.allclose(found, residuals(weights, features, labels), rtol=0, atol=1e-12)
