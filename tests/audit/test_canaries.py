"""Canaries in one run: the published numbers, power without noise, and no claim that falls."""

from collections.abc import Callable

import pytest
import torch
from scipy.stats import binom
from torch import nn

from ringfence import Clamp, Gaussian, LinearProbe, PrivacyEngine, TruncatedGaussian
from ringfence.audit.canaries import (
    Canaries,
    audit_engine_canaries,
    audit_probe_canaries,
    one_run_epsilon,
    one_run_p_value,
)
from ringfence.audit.lower_bound import AuditResult
from ringfence.mechanisms.base import Mechanism

WIDTH, CLASSES, COUNT = 200, 4, 150
Attack = Callable[..., AuditResult]


def test_the_p_value_is_their_loop() -> None:
    """The definition, term by term."""
    canaries, guesses, right, epsilon, delta = 50, 40, 33, 0.8, 1e-3
    chance = 2.718281828459045**epsilon / (1 + 2.718281828459045**epsilon)
    mass = [binom.pmf(k, guesses, chance) for k in range(guesses + 1)]
    worst = max(sum(mass[right - i : right]) / i for i in range(1, right + 1))
    expected = sum(mass[right:]) + 2 * canaries * delta * worst
    assert one_run_p_value(canaries, guesses, right, epsilon, delta) == pytest.approx(expected)


def test_p_values_grow_with_epsilon_and_delta_and_fall_with_right_guesses() -> None:
    values = [one_run_p_value(100, 50, 40, epsilon, 1e-4) for epsilon in (0.0, 0.5, 1.0, 2.0, 5.0)]
    assert values == sorted(values)
    assert one_run_p_value(100, 50, 40, 1.0, 1e-2) > one_run_p_value(100, 50, 40, 1.0, 1e-4)
    assert one_run_p_value(100, 50, 45, 1.0, 1e-4) < one_run_p_value(100, 50, 40, 1.0, 1e-4)
    assert one_run_p_value(100, 50, 0, 1.0, 1e-4) == 1
    with pytest.raises(ValueError, match="must not fall"):
        one_run_p_value(100, 50, 51, 1.0, 1e-4)


def test_randomised_response_is_refuted_no_more_often_than_allowed() -> None:
    """The tight case: guesses that are right with chance e^eps / (1 + e^eps), 4,000 times."""
    epsilon, guesses = 1.0, 100
    chance = 1 / (1 + 2.718281828459045**-epsilon)
    draws = torch.rand(4000, guesses, generator=torch.Generator().manual_seed(0))
    counts = (draws < chance).sum(dim=1).tolist()
    bounds = {right: one_run_epsilon(guesses, guesses, right, 0.0, 0.9) for right in set(counts)}
    above = sum(bounds[right] > epsilon for right in counts) / 4000
    assert 0.03 < above < 0.1


def test_guesses_are_the_ends_of_the_ranking() -> None:
    canaries = Canaries(torch.zeros(4, 1), torch.zeros(4).long(), torch.tensor([True, False, True, False]))
    scores = torch.tensor([3.0, -3.0, -1.0, 1.0])
    assert canaries.right_guesses(scores, 2) == 2
    assert canaries.right_guesses(scores, 4) == 2
    with pytest.raises(ValueError, match="guesses must be from 2"):
        canaries.right_guesses(scores, 5)


def _data(seed: int) -> tuple[torch.Tensor, torch.Tensor, Canaries]:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(50, WIDTH, generator=generator)
    labels = torch.randint(CLASSES, (50,), generator=generator)
    return features, labels, Canaries.random(COUNT, WIDTH, CLASSES, 1.0, generator)


def probe_audit(law: Mechanism, seed: int = 0) -> AuditResult:
    probe = LinearProbe(
        law, 0.02, 1.0, steps=2, public_size=125, public_classes=range(CLASSES), random_state=seed
    )
    return audit_probe_canaries(probe, *_data(seed), guesses=100, delta=1e-5)


def engine_audit(law: Mechanism, seed: int = 0) -> AuditResult:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(WIDTH, 8), nn.Tanh(), nn.Linear(8, CLASSES))
    engine = PrivacyEngine(law, Clamp(0.02), sampling="full", public_size=125, seed=seed)
    return audit_engine_canaries(
        engine, model, *_data(seed), learning_rate=1.0, epochs=2, batch_size=64, guesses=100, delta=1e-5
    )


@pytest.mark.parametrize("audit", [probe_audit, engine_audit])
@pytest.mark.parametrize("law", [Gaussian(0.4), TruncatedGaussian(1.0, bound=2.0)])
def test_claims_hold(audit: Attack, law: Mechanism) -> None:
    assert all(audit(law, seed).holds for seed in range(2))


@pytest.mark.parametrize("audit", [probe_audit, engine_audit])
def test_without_noise_nearly_every_guess_is_right_and_with_much_none_tells(audit: Attack) -> None:
    result = audit(Gaussian(1e-3))
    assert result.epsilon_lower > 2
    # so much that the claim of a run with noise would fall
    assert result.epsilon_lower > audit(Gaussian(4.0)).claims["data-independent"]
    assert audit(Gaussian(100.0)).epsilon_lower < 0.2


def test_what_depends_on_the_coins_must_be_public() -> None:
    data = _data(0)
    probe = LinearProbe(Gaussian(1.0), 0.02, public_classes=range(CLASSES))
    with pytest.raises(ValueError, match="public_size"):
        audit_probe_canaries(probe, *data, guesses=10, delta=1e-5)
    engine = PrivacyEngine(Gaussian(1.0), Clamp(0.02), sampling="full")
    how = {"learning_rate": 1.0, "epochs": 1, "batch_size": 64, "guesses": 10, "delta": 1e-5}
    with pytest.raises(ValueError, match="public_size"):
        audit_engine_canaries(engine, nn.Linear(WIDTH, CLASSES), *data, **how)
