"""Accounts are made when somebody asks, and are those that training would have made."""

from typing import Any

import numpy as np
import pytest
import torch

import ringfence as rf
from ringfence.training.linear import clipped_gradients
from ringfence.training.probe import unit_rows

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 3, 120)
FEATURES = (RNG.normal(size=(120, 5)) + 2 * np.eye(3, 5)[LABELS] + 1.0).astype(np.float32)
SETTINGS: dict[str, Any] = {"clip": rf.Clamp(0.05), "learning_rate": 4.0, "steps": 3}


def fitted(**changes: Any) -> rf.LinearProbe:
    arguments = {"target_epsilon": 2.0, "target_delta": 1e-5, "random_state": 0, **changes}
    return rf.LinearProbe(**arguments).fit(FEATURES, LABELS)


def with_law(**changes: Any) -> rf.LinearProbe:
    given = {"mechanism": rf.RectifiedGaussian(1.0, 2.0), "target_epsilon": None, "target_delta": None}
    return fitted(**SETTINGS, **given, **changes)


def test_an_account_is_made_when_it_is_asked_for_and_anew_after_another_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(rf.PerInstanceAccountant, "step", None)
        probe = with_law()
    first = probe.guarantee(1e-5)
    assert probe.account_ is probe.account_
    assert probe.set_params(steps=6).fit(FEATURES, LABELS).guarantee(1e-5).epsilon > first.epsilon


def test_the_private_mean_is_in_the_account_and_in_the_predictions() -> None:
    probe = fitted(clip=0.05)
    mean = probe._training.mean
    assert probe.guarantee(1e-5).steps == 33
    by_hand = rf.PerInstanceAccountant(probe.mechanism_, 0.05)
    by_hand.step(mean.theta, mechanism=mean.law, sensitivity=rf.Sensitivity(norm=1.0))
    for step in probe._training.run.trajectory:
        by_hand.step(step.theta)
    assert probe.account_.guarantee(1e-5) == by_hand.guarantee(1e-5)
    rows = FEATURES / np.linalg.norm(FEATURES, axis=1, keepdims=True) - probe.mean_
    scores = rows / np.linalg.norm(rows, axis=1, keepdims=True) @ probe.coef_.T
    assert np.allclose(probe.decision_function(FEATURES), scores, atol=1e-6)


def test_every_examples_own_epsilon_has_the_mean_in_it() -> None:
    probe = fitted(clip=0.05)
    run, epsilons = probe._training, probe.example_epsilons(1e-5)
    without = rf.ExampleAccountant(probe.mechanism_)
    for step in run.run.trajectory:
        gradients = clipped_gradients(step.weights, run.data.features, run.data.labels, run.clip)
        without.step(step.theta.reshape(-1), gradients)
    assert (epsilons > without.epsilons(1e-5).numpy()).all()
    assert epsilons.max() <= probe.guarantee(1e-5).per_instance.ex_post_epsilon * (1 + 1e-9)


@pytest.mark.parametrize("kind", ["spectral", "trace"])
@pytest.mark.parametrize("centred", [False, True])
def test_information_goes_through_the_scaling_of_rows(centred: bool, kind: Any) -> None:
    """Against the jacobian of everything that one row adds to, by autograd, at a clip that does nothing."""
    scale = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    changes = {"public_scale": scale, "public_center": 0.25, "target_epsilon": 30.0 if centred else 0.2}
    probe = fitted(clip=2.0, steps=2, mechanism="gaussian", **changes)
    run = probe._training
    assert (run.mean is not None) == centred or pytest.fail("the rule has changed: choose another target")
    law, eta = probe.mechanism_, probe.fisher_information_loss(kind)

    def everything(record: torch.Tensor, label: int) -> torch.Tensor:
        row = (record - 0.25) / torch.from_numpy(scale)
        row = row / row.norm()
        parts = []
        if run.mean is not None:
            parts.append(row / run.mean.law.sigma)
            row = row - run.mean.center
            row = row / row.norm()
        for step in run.run.trajectory:
            residual = torch.softmax(step.weights.double() @ row, 0) - torch.eye(3).double()[label]
            parts.append((residual[:, None] * row / law.sigma).reshape(-1))
        return torch.cat(parts)

    for i in range(0, 120, 10):
        record = torch.from_numpy(FEATURES[i]).double()
        jacobian = torch.autograd.functional.jacobian(lambda r, i=i: everything(r, int(LABELS[i])), record)
        values = torch.linalg.svdvals(jacobian)
        truth = float(values[0] if kind == "spectral" else (values.square().mean()).sqrt())
        assert truth <= eta[i] <= 20 * truth


def test_information_is_about_records_as_they_were_given() -> None:
    """Records that are four times as long give the same rows, and move them a quarter as far."""
    probes = [rf.LinearProbe(target_epsilon=30.0, target_delta=1e-5, random_state=0) for _ in range(2)]
    short, long = (probe.fit(k * FEATURES, LABELS) for probe, k in zip(probes, (1, 4), strict=True))
    assert short._training.mean is not None, "the rule has changed: choose another target"
    expected = short.fisher_information_loss() / 4
    assert long.fisher_information_loss() == pytest.approx(expected, rel=1e-12)


def test_rows_are_scaled_to_the_last_bit_as_if_they_were_alone() -> None:
    rows = torch.randn(50, 37, generator=torch.Generator().manual_seed(0)).double()
    rows[3], rows[4], rows[5] = 0.0, rows[4] * 1e300, rows[5] * 1e-300
    together, lengths = unit_rows(rows)
    for i in range(50):
        assert torch.equal(unit_rows(rows[i : i + 1])[0][0], together[i])
    exact = rows[6:].norm(dim=1)
    assert torch.allclose(lengths[6:], exact, rtol=1e-14)
    one = together.norm(dim=1)
    assert float(one[3]) == 0.0
    assert torch.allclose(one[[0, 1, 2, 4, 5]], torch.ones(5).double(), rtol=1e-14)
