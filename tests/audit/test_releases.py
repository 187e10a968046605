"""Attacks on releases: no claim falls, every planted flaw does, and settings of every law are attacked."""

import math
from typing import Any

import pytest
import torch

from ringfence import (
    Gaussian,
    Mechanism,
    RectifiedGaussian,
    Sensitivity,
    StochasticSign,
    TruncatedGaussian,
    privacy_profile,
)
from tests.audit import planted
from tests.audit.releases import (
    SETTINGS,
    Target,
    audit_release,
    audit_releases,
    example,
    printed_claims,
    random_targets,
    with_profiles,
)
from tests.audit.result import AuditResult
from tests.tensors import float64, seeded


def attack(target: Target, **others: Any) -> AuditResult:
    settings = {"confidence": 0.999, "claims": printed_claims, **others}
    return audit_release(target, trials=20_000, generator=seeded(), **settings)


def test_no_claim_falls_in_many_settings() -> None:
    generator = seeded(2)
    targets = random_targets(40, generator)  # `make audit` attacks 5,000
    results = audit_releases(targets, trials=500, generator=generator, confidence=0.99)
    assert [result.violated for result in results if not result.holds] == []
    # the attack is not idle: a good part of the bounds say something
    assert sum(result.epsilon_lower > 0.1 for result in results) > 15
    assert {target.theta.numel() for target in targets} >= {1, 2, 5}
    assert max(target.theta.numel() for target in targets) > 40


def test_the_tight_profile_holds_and_is_nearly_reached() -> None:
    target = Target(TruncatedGaussian(1.0, bound=1.0), float64([0.5]), 2.0, 0.01)
    profile = privacy_profile(target.mechanism, target.theta, target.sensitivity)
    result = audit_release(target, trials=50_000, generator=seeded())
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

        target = Target(law, theta, 1.0, 0.05)
        bound = audit_release(target, trials=50_000, generator=seeded(), claims=printed_claims).epsilon_lower
        assert delta(bound) > 0.05 > delta(bound + 0.3)


FLAWS: dict[str, tuple[Target, dict[str, Any]]] = {
    "one-sided": (planted.one_sided_target(), {"claims": planted.wrong_one_sided_claims}),
    "profile": (
        planted.tail_target(),
        {"sampler": planted.wrong_sampler_without_tails, "claims": with_profiles},
    ),
    "quadrature": (planted.wide_target(), {"claims": planted.wrong_quadrature_claims}),
}


@pytest.mark.parametrize("name", FLAWS)
def test_a_planted_flaw_is_seen_and_what_is_right_stands(name: str) -> None:
    target, flaw = FLAWS[name]
    wrong = attack(target, **flaw)
    assert name in wrong.violated
    assert wrong.epsilon_lower > 3 * wrong.claims[name]
    assert attack(target).holds
    inside = Target(TruncatedGaussian(1.0, bound=2.0), float64([0.3]), 1.0, 1e-3)  # where no flaw shows
    harmless = Target(Gaussian(1.0), float64([-2.0]), 1.0, 1e-3) if name == "one-sided" else inside
    assert attack(harmless, **flaw).holds


def test_every_law_is_attacked_with_every_value_of_its_settings() -> None:
    targets = random_targets(200, seeded(1))
    for name, law in Mechanism.known().items():
        own = [target.mechanism for target in targets if target.mechanism.name == name]
        assert len(own) >= 200 // len(Mechanism.known())
        for setting in example(law, 1.0, 2.0).settings():
            assert {mechanism.settings()[setting] for mechanism in own} == {*SETTINGS[setting]}


def test_records_that_move_few_coordinates_or_a_length_are_among_them() -> None:
    targets = random_targets(160, seeded(0))
    own = [target for target in targets if isinstance(target.sensitivity, Sensitivity)]
    for name in Mechanism.known():
        sizes = [target.sensitivity for target in own if target.mechanism.name == name]
        assert {size.norm is None for size in sizes} == {True, False}
    for target in own:
        move, size = target.move, target.sensitivity
        assert int((move > 0).sum()) <= (size.at_most or len(move))
        assert float(move.norm()) <= (size.norm or math.inf) * (1 + 1e-12)
        assert bool((move <= size.farthest).all())


def test_a_record_moves_the_coordinates_that_tell_most() -> None:
    theta = float64([3.0, 0.0, -3.0])
    for size, moves in (
        (Sensitivity(each=1.0, at_most=1), [0.0, 1.0, 0.0]),
        (Sensitivity(norm=2.0), [2.0, 0.0, 0.0]),
    ):
        assert Target(StochasticSign(1.0), theta, size, delta=1e-5).move.tolist() == moves
