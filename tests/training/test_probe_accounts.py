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


def test_what_is_released_before_training_is_in_the_account() -> None:
    probe = fitted(clip=0.05)
    sums, plan = probe._training.sums, probe._training.plan
    assert list(sums) == ["magnitudes", "moments 1", "moments 2", "classes"]
    assert probe.guarantee(1e-5).steps == 36
    by_hand = rf.PerInstanceAccountant(probe.mechanism_, 0.05)
    lengths = 5**0.5, 0.45 * 5**0.5, 0.45 * 5**0.5, 1.0
    for each, length in zip(sums.values(), lengths, strict=True):
        moves = plan.moves(each.planned.clip)
        assert moves.norm == pytest.approx(length, rel=1e-12)
        by_hand.step(each.theta, mechanism=each.planned.law, sensitivity=moves)
    for step in probe._training.run.trajectory:
        by_hand.step(step.theta)
    assert probe.account_.guarantee(1e-5) == by_hand.guarantee(1e-5)
    planned = probe.planned_cost(FEATURES, LABELS)
    assert planned.epsilon(1e-5) == pytest.approx(probe.guarantee(1e-5).epsilon, rel=1e-9)


def test_the_rounding_of_secure_sums_before_training_is_charged() -> None:
    probe = fitted(secure=True, public_size=120, random_state=None)
    zcdp = 0.0
    for each in probe._training.sums.values():
        moves = probe._training.plan.moves(each.planned.clip)
        assert 1 < moves.norm / each.planned.clip.norm < 1 + 1e-5
        zcdp += (moves.norm / float(each.planned.law.sigma)) ** 2 / 2
    zcdp += 32 * (probe._training.run.sensitivity.norm / float(probe.mechanism_.sigma)) ** 2 / 2
    assert zcdp == pytest.approx(probe.account_.gaussian_zcdp, rel=1e-10)
    assert zcdp == pytest.approx(probe._training.plan.account().gaussian_zcdp, rel=1e-10)


def test_every_examples_own_epsilon_has_all_sums_in_it() -> None:
    probe = fitted(clip=0.05)
    run, epsilons = probe._training, probe.example_epsilons(1e-5)
    without = rf.ExampleAccountant(probe.mechanism_)
    for step in run.run.trajectory:
        gradients = clipped_gradients(step.weights, run.data.features, run.data.labels, rf.Clamp(0.05))
        without.step(step.theta.reshape(-1), gradients)
    assert (epsilons > without.epsilons(1e-5).numpy()).all()
    assert epsilons.max() <= probe.guarantee(1e-5).per_instance.ex_post_epsilon * (1 + 1e-9)


@pytest.mark.parametrize("kind", ["spectral", "trace"])
def test_information_goes_through_the_scaling_of_rows(kind: Any) -> None:
    """Against the jacobian of everything that one row adds to, by autograd, at a clip that does nothing."""
    scale = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    changes = {"public_scale": scale, "public_center": 0.25, "private_scaling": False}
    probe = fitted(clip=2.0, steps=2, mechanism="gaussian", **changes)
    run = probe._training
    law, eta = probe.mechanism_, probe.fisher_information_loss(kind)

    def everything(record: torch.Tensor, label: int) -> torch.Tensor:
        row = (record - 0.25) / torch.from_numpy(scale)
        row = torch.cat((row / row.norm(), torch.tensor([0.3]).double()))
        parts = []
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


def test_information_is_not_claimed_where_features_were_counted() -> None:
    with pytest.raises(ValueError, match="fisher_information_loss needs private_scaling to be False"):
        fitted().fisher_information_loss()


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


@pytest.mark.parametrize("alike", [True, False])
def test_of_unit_rows_magnitudes_and_mean_are_released_and_charged(alike: bool) -> None:
    probe = fitted(target_epsilon=0.1, unit_rows=True if alike else None)
    assert probe.unit_rows_
    sums, data = probe._training.sums, probe._training.data
    assert list(sums) == ([] if alike else ["relative magnitudes"]) + ["mean", "classes"]
    assert (probe.magnitudes_ is None) == alike
    divided = FEATURES if alike else FEATURES / probe.magnitudes_
    rows = divided / np.linalg.norm(divided, axis=1, keepdims=True)
    for each, length in zip(sums.values(), ([] if alike else [4 * 5**0.5]) + [1.0, 1.0], strict=True):
        norm = probe._training.plan.moves(each.planned.clip).norm
        assert norm == pytest.approx(length, rel=1e-12)
        parts = torch.cat(list(each.parts()))
        assert torch.allclose(parts.sum(dim=0), each.theta)
        assert float(parts.norm(dim=1).max()) <= norm
    assert np.allclose(torch.cat(list(sums["mean"].parts())).numpy(), rows, atol=1e-6)
    assert probe.guarantee(1e-5).epsilon == pytest.approx(0.1, rel=0.01)
    worst = probe.guarantee(1e-5).per_instance.ex_post_epsilon
    assert probe.example_epsilons(1e-5).max() <= worst * (1 + 1e-9)
    scores = probe.decision_function(FEATURES)
    assert np.allclose(scores, rows @ probe.coef_.T + probe.intercept_, atol=1e-5)
    trained = (data.features.double() @ probe._training.run.weights.double().T).numpy()
    short = data.features[:, :-1].norm(dim=1).numpy() < 0.99
    assert np.allclose(scores[short], trained[short], atol=1e-4)
