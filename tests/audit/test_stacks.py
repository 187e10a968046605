"""Stacks hold every target once, with its own numbers."""

import pytest
import torch

from ringfence.audit.stacks import stacks
from ringfence.audit.targets import random_targets


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_stacks_keep_every_release_once() -> None:
    targets = random_targets(40, seeded(5))
    parts = list(stacks(targets, most=60))
    assert sorted(place for part in parts for place in part.places) == list(range(40))
    for part in parts:
        values = part.mechanism.fisher_information(part.theta)
        for total, place in zip(part.sums(values), part.places, strict=True):
            own = targets[place].mechanism.fisher_information(targets[place].theta).sum()
            assert float(total) == pytest.approx(float(own), rel=1e-12)
