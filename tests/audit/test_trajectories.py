"""Training runs with and without a record: told apart no better than claimed."""

import pytest
import torch

from ringfence import Clamp, Gaussian, RectifiedGaussian
from ringfence.mechanisms.base import Mechanism
from ringfence.training.linear import data_digest, run_noise, train_linear
from tests.audit import trajectories
from tests.audit.result import AuditResult
from tests.audit.trajectories import audit_training
from tests.tensors import float64

GENERATOR = torch.Generator().manual_seed(0)
DATA = (torch.randn(6, 2, generator=GENERATOR, dtype=torch.float64), torch.tensor([0, 1, 0, 1, 0, 1]))
RECORD = (torch.full((1, 2), 6.0, dtype=torch.float64), torch.tensor([0]))


def audited(law: Mechanism, runs: int, steps: int = 3, clip: float = 0.5) -> AuditResult:
    how = {"mechanism": law, "clip": Clamp(clip), "learning_rate": 1.0, "steps": steps, "public_size": 6}
    return audit_training(DATA, RECORD, 2, **how, delta=0.01, runs=runs, seed=5)  # type: ignore[arg-type]


def test_the_gaussian_is_nearly_told_apart_as_well_as_claimed() -> None:
    result = audited(Gaussian(1.0), 1000)
    assert result.holds
    assert result.epsilon_lower > 0.3 * result.claims["data-independent"]
    # more steps are told apart better
    assert result.epsilon_lower > audited(Gaussian(1.0), 600, steps=1).epsilon_lower


def test_losses_are_those_of_the_trajectory() -> None:
    """Against ``train_linear``, whose trajectory has theta at every step."""
    law, clip = RectifiedGaussian(1.0, bound=2.0), Clamp(0.5)
    settings = {"mechanism": law, "clip": clip, "learning_rate": 0.7, "public_size": 6.0}
    run = train_linear(*DATA, 2, steps=3, seed=1, **settings)  # type: ignore[arg-type]
    found = trajectories._losses([run], DATA, RECORD, law, clip, 6 / 0.7)
    noise = run_noise(1, data_digest(*DATA), law, clip, (0.7, 3, 6.0, 0.0, 2))
    expected = 0.0
    for number, step in enumerate(run.trajectory):
        released = law.sample(step.theta, generator=noise.at(number))
        residual = torch.softmax(RECORD[0] @ step.weights.T, dim=1) - float64([[1.0, 0.0]])
        moved = (residual.T @ RECORD[0]).clamp(-0.5, 0.5)
        ratio = law.log_prob(released, step.theta) - law.log_prob(released, step.theta + moved)
        expected += float(ratio.sum())
    assert float(found) == pytest.approx(expected, rel=1e-9)
    assert abs(expected) > 0.01


def test_an_account_of_too_few_steps_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accounts that forget what was realised: the ex-post claim falls."""
    monkeypatch.setattr(trajectories, "ex_post_epsilon", lambda orders, worst, delta: 0.05)
    result = audited(Gaussian(1.0), 200)
    assert result.violated == ("ex-post",)
    assert result.exceeded is not None
    assert result.exceeded > 0.65  # on both sides: with the record and without
