"""No claim falls to the distinguisher, and every planted flaw does."""

import pytest
import torch

from ringfence import Gaussian, RectifiedGaussian, StochasticSign, TruncatedGaussian, privacy_profile
from ringfence.audit.attacks.distinguisher import audit_release, audit_targets
from ringfence.audit.claims import printed_claims
from ringfence.audit.result import AuditResult
from ringfence.audit.targets import Target, random_targets
from ringfence.mechanisms.base import Mechanism
from tests.tensors import float64


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def attack(target: Target, **others: object) -> AuditResult:
    return audit_targets([target], trials=20_000, generator=seeded(), confidence=0.999, **others)[0]  # type: ignore[arg-type]


def test_no_claim_falls_in_many_settings() -> None:
    generator = seeded(2)
    targets = random_targets(70, generator)  # `make audit` attacks 5,000
    results = audit_targets(targets, trials=500, generator=generator, confidence=0.99, claims=printed_claims)
    assert [result.violated for result in results if not result.holds] == []
    # the attack is not idle: a good part of the bounds say something
    assert sum(result.epsilon_lower > 0.1 for result in results) > 29
    assert {target.theta.numel() for target in targets} >= {1, 2, 5, 10}
    assert max(target.theta.numel() for target in targets) > 40


def test_the_tight_profile_holds_and_is_nearly_reached() -> None:
    target = Target(TruncatedGaussian(1.0, bound=1.0), float64([0.5]), 2.0, 0.01)
    profile = privacy_profile(target.mechanism, target.theta, target.sensitivity)
    [result] = audit_targets([target], trials=100_000, generator=seeded(), confidence=0.99)
    assert result.claims["profile"] == profile.epsilon(0.01)
    assert result.holds
    assert result.epsilon_lower > 0.8 * result.claims["profile"]


@pytest.mark.parametrize("law", [RectifiedGaussian(1.0, bound=1.0), StochasticSign(1.0), Gaussian(1.0)])
def test_the_worst_of_both_signs_and_directions_is_attacked(law: Mechanism) -> None:
    """In one dimension the exact epsilon is known: the bound comes near it from below, on either side."""
    for place in (1.5, -1.5):
        theta = float64([place])
        sides = [(theta, 1.0), (theta, -1.0), (theta + 1, -1.0), (theta - 1, 1.0)]

        def delta(epsilon: float, sides: list[tuple[torch.Tensor, float]] = sides) -> float:
            return max(float(law.hockey_stick(at, shift, epsilon)) for at, shift in sides)

        bound = audit_release(
            law, theta, 1.0, 0.05, trials=50_000, generator=seeded(), confidence=0.99, claims=printed_claims
        ).epsilon_lower
        assert delta(bound) > 0.05 > delta(bound + 0.3)


def test_a_wrong_sigma_is_seen() -> None:
    """A sampler with half of the noise that was accounted for."""

    def quieter(mechanism: Mechanism, theta: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        return Gaussian(0.5 * mechanism.sigma).sample(theta, generator=generator)

    target = Target(Gaussian(1.0), float64([0.0, 1.0]), 1.0, 0.01)
    assert not attack(target, sampler=quieter).holds
    assert attack(target).holds


def test_the_same_seed_gives_the_same_audit() -> None:
    first, again = (
        audit_targets(
            random_targets(5, seeded(1)), trials=50, generator=seeded(), confidence=0.9, claims=printed_claims
        )
        for _ in range(2)
    )
    assert first == again


def test_the_confidence_is_shared_among_settings() -> None:
    targets = random_targets(5, seeded())
    results = audit_targets(
        targets, trials=10, generator=seeded(), confidence=0.95, claims=lambda some: [{} for _ in some]
    )
    assert [round(result.confidence, 12) for result in results] == [0.99] * 5
