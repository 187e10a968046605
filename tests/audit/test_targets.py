"""Targets: settings of every law, and of every value of its settings that an attack tries."""

import math

import torch

from ringfence import Mechanism, Sensitivity
from ringfence.audit.targets import random_targets


def test_every_law_is_attacked_with_every_value_of_its_settings() -> None:
    targets = random_targets(200, torch.Generator().manual_seed(1))
    for name, law in Mechanism.known().items():
        own = [target.mechanism for target in targets if target.mechanism.name == name]
        assert len(own) >= 200 // len(Mechanism.known())
        for setting, values in law.attacked_settings.items():
            assert {mechanism.settings()[setting] for mechanism in own} == set(values)


def test_the_same_seed_gives_the_same_targets() -> None:
    first, again = (random_targets(12, torch.Generator().manual_seed(4)) for _ in range(2))
    assert [target.name for target in first] == [target.name for target in again]
    assert all(torch.equal(one.theta, two.theta) for one, two in zip(first, again, strict=True))


def test_records_that_move_few_coordinates_or_a_length_are_among_them() -> None:
    targets = random_targets(160, torch.Generator().manual_seed(0))
    own = [target for target in targets if isinstance(target.sensitivity, Sensitivity)]
    for name in Mechanism.known():
        sizes = [target.sensitivity for target in own if target.mechanism.name == name]
        assert {size.norm is None for size in sizes} == {True, False}
    for target in own:
        move, size = target.move, target.sensitivity
        assert int((move > 0).sum()) <= (size.at_most or len(move))
        assert float(move.norm()) <= (size.norm or math.inf) * (1 + 1e-12)
        assert bool((move <= size.farthest).all())
