"""Training in torch alone: what is released, what it costs, what is refused."""

import math

import pytest
import torch

import ringfence as rf
from ringfence.training.linear import (
    LinearRun,
    accurate_residuals,
    clipped_gradients,
    relative_error,
    residuals,
    shares_and_others,
    train_linear,
)

FEATURES = torch.randn(300, 5, generator=torch.Generator().manual_seed(0))
LABELS = (FEATURES[:, 0] > 0).long() + (FEATURES[:, 1] > 1).long()


def train(**changes: object) -> LinearRun:
    arguments = {
        "features": FEATURES,
        "labels": LABELS,
        "classes": 3,
        "mechanism": rf.TruncatedGaussian(0.5, 30.0),
        "clip": rf.Clamp(0.1),
        "learning_rate": 10.0,
        "steps": 4,
        "public_size": 300,
        "seed": 1,
        **changes,
    }
    return train_linear(**arguments)


def test_theta_is_the_sum_of_clipped_gradients_and_is_what_is_charged() -> None:
    run = train()
    account = rf.PerInstanceAccountant(rf.TruncatedGaussian(0.5, 30.0), 0.1)
    for step in run.trajectory:
        each = torch.cat(list(clipped_gradients(step.weights, FEATURES, LABELS, rf.Clamp(0.1))))
        assert float(each.abs().max()) <= 0.1
        assert torch.allclose(each.sum(dim=0).view(3, 5), step.theta, atol=1e-4)
        account.step(step.theta)
    assert torch.equal(run.account.forward, account.forward)
    assert torch.equal(run.account.backward, account.backward)


def test_the_update_is_the_release_over_a_public_constant() -> None:
    """The same releases with another number of examples move the weights the same way."""
    run = train(steps=1, mechanism=rf.Gaussian(1e-6))
    moved = -run.weights * 300 / 10.0
    assert torch.allclose(moved, run.trajectory[0].theta, atol=1e-4)
    half = train(steps=1, mechanism=rf.Gaussian(1e-6), features=FEATURES[:150], labels=LABELS[:150])
    assert torch.allclose(-half.weights * 300 / 10.0, half.trajectory[0].theta, atol=1e-4)


def test_momentum_adds_what_came_before() -> None:
    """And without a seed the noise is fresh."""
    run, again = (train(steps=2, momentum=0.5, mechanism=rf.Gaussian(1e-6), seed=None) for _ in range(2))
    assert not torch.equal(run.weights, again.weights)
    first, second = (step.theta for step in run.trajectory)
    assert torch.allclose(run.weights, -(first + second + 0.5 * first) * 10.0 / 300, atol=1e-5)


def test_a_learning_rate_that_overflows_is_refused_by_name() -> None:
    """Gave weights of infinity, or a NaN among residuals; a row of zeros has no score that overflows."""
    rows, labels = torch.cat((1e4 * FEATURES, torch.zeros(1, 5))), torch.cat((LABELS, LABELS[:1]))
    data = {"features": rows, "labels": labels}
    for rate in (1e27, 1e30, 1e300):
        with pytest.raises(ValueError, match="learning_rate must be smaller"):
            train(**data, learning_rate=rate, public_size=1e-9)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": LABELS + 1}, r"labels must be integers in 0 \.\. 2, got 3\.0 at index"),
        ({"labels": LABELS[:10]}, "labels must be 300 numbers, got shape"),
        ({"labels": [0.5] * 300}, r"labels must be integers in 0 \.\. 2, got 0\.5 at index \[0\]"),
        ({"features": FEATURES.where(FEATURES < 2, math.nan)}, "features must not be NaN"),
        ({"features": FEATURES[:0], "labels": LABELS[:0]}, "not be empty"),
        ({"features": FEATURES[:, 0]}, r"features must have shape \(n, p\) and not be empty, got \[300\]"),
        ({"classes": 0}, "classes must be at least 1, got 0"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"learning_rate": 0.0}, "learning_rate must be > 0"),
        ({"learning_rate": torch.ones(3)}, "learning_rate must be a single number"),
        ({"public_size": -5}, "public_size must be > 0"),
        ({"momentum": 1.0}, r"momentum must be in \[0, 1\), got 1\.0"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"clip": 0.1}, r"clip must be a Clip, got 0\.1"),
        ({"mechanism": None}, "mechanism must be a ringfence mechanism .*, got None"),
        ({"mechanism": rf.Gaussian(torch.ones(7))}, "shapes do not broadcast"),
        ({"mechanism": rf.Gaussian(torch.ones(2, 3, 5))}, r"of shape \[3, 5\], its own is \[2, 3, 5\]"),
    ],
)
def test_bad_input_is_refused_before_anything_is_released(
    changes: dict[str, object], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringfence.training.linear.run_noise", None)  # noise would be an error
    with pytest.raises((TypeError, ValueError), match=message):
        train(**changes)


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
