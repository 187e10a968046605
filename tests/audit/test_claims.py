"""Claims for many targets at once are those of the accountant."""

import pytest
import torch

from ringfence import PerInstanceAccountant, Sensitivity
from ringfence.audit.claims import printed_claims
from ringfence.audit.targets import random_targets


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_batched_claims_are_those_of_the_accountant() -> None:
    targets = random_targets(15, seeded(2))
    assert any(isinstance(target.sensitivity, Sensitivity) for target in targets)
    for target, claim in zip(targets, printed_claims(targets), strict=True):
        account = PerInstanceAccountant(target.mechanism, target.sensitivity)
        account.step(target.theta)
        guarantee = account.guarantee(target.delta)
        assert claim["per-instance"] == pytest.approx(guarantee.per_instance.epsilon, rel=1e-12)
        assert claim["data-independent"] == guarantee.epsilon
