"""The rule for settings that are not given: its numbers, and what it may look at."""

import math
from inspect import signature

import pytest

import ringfence as rf
from ringfence.training.probe.default_settings import DefaultSettings, default_settings


def rule(mu: float, size: float = 1000, features: int = 100, **changes: bool) -> DefaultSettings:
    return default_settings(mu, size, features, 10, **{"centred": False, "unit_rows": True, **changes})


@pytest.mark.parametrize(
    ("mu", "share", "centred_share"),
    # noise of the mean as a length, sqrt(100) / (1000 mu): 0.6, 0.4, 0.1 and 0.01
    [(1 / 60, 0.0, 0.0), (1 / 40, 0.15, 0.0), (0.1, 0.1, 0.05), (1.0, 0.05, 0.05)],
)
def test_the_share_of_the_mean_falls_with_its_noise(mu: float, share: float, centred_share: float) -> None:
    assert rule(mu).share == pytest.approx(share)
    assert rule(mu, centred=True).share == pytest.approx(centred_share)
    assert rule(mu, unit_rows=False).share == 0.0


def test_the_weights_go_until_the_noise_in_a_score_is_1_4_or_to_the_cap() -> None:
    assert rule(0.1).movement == pytest.approx(1.4 * math.sqrt(0.9) * 0.1 * 1000)
    assert rule(100.0).movement == 30_000
    assert (rule(0.1).clip, rule(0.1).steps, rule(0.1).momentum) == (rf.Norm(0.1), 32, 0.5)


def test_the_rule_sees_public_numbers_only() -> None:
    assert list(signature(default_settings).parameters) == [
        *("mu", "public_size", "features", "classes", "centred", "unit_rows")
    ]
