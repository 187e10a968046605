"""Attacks on decisions: honest laws stand, a law that claims the noise it does not add falls."""

from dataclasses import replace

import pytest
import torch

import ringfence as rf
from ringfence.mechanisms.decision import Decision
from tests.audit.decisions import DecisionTarget, audit_decisions, audit_polls, random_decisions
from tests.tensors import seeded

COUNTS, MOVE = torch.tensor([[6.0, 5.0, 1.0], [-1.0, 1.0, 0.0]], dtype=torch.float64)
LAWS = (
    *(rf.NoisyWinner(1.0), rf.GumbelWinner(1.0)),
    rf.ConfidentWinner(1.0, threshold=6.0, threshold_sigma=1.0),
)


def test_no_claim_falls() -> None:
    generator = seeded(4)
    targets = random_decisions(16, generator)
    found = audit_decisions(targets, trials=1000, generator=generator, confidence=0.999)
    assert all(result.holds for result in found)
    assert sum(result.epsilon_lower > 0 for result in found) > 4
    assert all(result.claims["exact"] <= result.claims["Rényi"] * (1 + 1e-9) for result in found)


@pytest.mark.parametrize("law", LAWS)
def test_the_attack_comes_close_and_a_sampler_with_less_noise_falls(
    law: Decision, monkeypatch: pytest.MonkeyPatch
) -> None:
    less = type(law)(**{**{name: getattr(law, name) for name in law.fields()}, law.fields()[0]: 0.5})
    target = DecisionTarget(law, COUNTS, MOVE, delta=0.01)
    [honest] = audit_decisions([target], trials=40_000, generator=seeded(), confidence=0.99)
    assert 0.75 * honest.claims["exact"] < honest.epsilon_lower <= honest.claims["exact"]
    draws = type(law)._sample
    monkeypatch.setattr(type(law), "_sample", lambda _, *arguments: draws(less, *arguments))
    [found] = audit_decisions([target], trials=20_000, generator=seeded(), confidence=0.999)
    assert "exact" in found.violated


def test_both_directions_are_claimed() -> None:
    """The claim of a move is that of the move back: whoever is in either dataset is protected."""
    there = DecisionTarget(LAWS[0], COUNTS, torch.tensor([0.0, 0.0, -1.0], dtype=torch.float64), delta=1e-3)
    back = replace(there, counts=COUNTS + there.move, move=-there.move)
    assert there.claims == pytest.approx(back.claims, rel=1e-9)


def test_no_claim_of_labels_and_winners_falls_to_an_exact_attack() -> None:
    """Every outcome of all queries is enumerated: the promise, the Rényi sums and the tight number stand."""
    found = audit_polls(15, generator=seeded(1))
    assert all(result.holds for result in found)
    for kind in range(3):
        closest = max(
            one.epsilon_lower / one.claims["tight"] for one in found[kind::3] if one.claims["tight"]
        )
        assert closest > 0.8, kind


def test_labels_and_winners_with_half_of_their_noise_fall() -> None:
    found = audit_polls(12, generator=seeded(2), noise=0.5)
    for kind in range(3):
        assert any("tight" in result.violated for result in found[kind::3]), kind
