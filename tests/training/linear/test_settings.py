"""The settings of one linear run are refused by name, and give its noise."""

from typing import Any

import pytest

from tests.training.linear.test_grid import setting


def test_noise_belongs_to_the_seed_the_setting_and_the_data() -> None:
    words = {
        one.noise(data, 100.0, 3).at(0).word()
        for one in (setting(), setting(seed=2), setting(steps=4), setting(momentum=0.5))
        for data in (b"one", b"other")
    }
    assert len(words) == 8
    assert setting().noise(b"one", 100.0, 3).at(0).word() in words


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"learning_rate": 0.0}, "learning_rate must be > 0"),
        ({"momentum": 1.0}, r"momentum must be in \[0, 1\), got 1\.0"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"mechanism": None}, "mechanism must be a ringfence mechanism, got None"),
        ({"clip": 0.1}, r"clip must be a Clip, got 0\.1"),
    ],
)
def test_bad_settings_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        setting(**changes)
