"""Attacks on decisions: honest laws stand, a law that claims the noise it does not add falls."""

from tests.audit.decisions import audit_polls
from tests.tensors import seeded


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
