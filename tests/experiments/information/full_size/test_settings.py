"""However far the list of settings is worked through, whole rounds are a fair search."""

from dataclasses import replace

import pytest

from experiments.information.full_size.settings import METHODS, FullSizeSettings, methods

SETTINGS = FullSizeSettings()


def test_any_first_part_is_a_fair_search() -> None:
    rounds = SETTINGS.rounds(12, steps_per_epoch=225)
    assert SETTINGS.rounds(5, 225) == rounds[:5]  # whatever follows
    for one in rounds:
        assert tuple(setting.label for setting in one) == methods()
        assert [(setting.mechanism, setting.clip_kind) for setting in one] == list(METHODS)
        clamped = one[:3]
        shared = {(s.clip, s.noise_multiplier, s.learning_rate, s.steps) for s in clamped}
        assert len(shared) == 1
        assert one[0].bound is None
        assert one[1].bound == one[2].bound
        assert one[3].steps == one[0].steps
    assert {one[0].steps for one in rounds} == {2250, 4500}
    assert len({setting.key for one in rounds for setting in one}) == 48


def test_the_ranges_are_those_that_were_asked_for() -> None:
    for one in SETTINGS.rounds(64, 1):
        assert all(0.1 <= setting.clip <= 2 and 1 <= setting.noise_multiplier <= 30 for setting in one[:3])
        assert one[1].bound / one[1].sigma > 0.299  # type: ignore[operator]
        assert 0.1 <= one[3].clip <= 10
        assert 0.05 <= one[3].noise_multiplier <= 1


def test_rows_are_compared_if_all_but_the_numbers_of_rounds_and_seeds_is_the_same() -> None:
    more = replace(SETTINGS, search=replace(SETTINGS.search, settings=999))
    assert more.identity() == replace(SETTINGS, seeds=(0,)).identity() == SETTINGS.identity()
    wider = replace(SETTINGS, search=replace(SETTINGS.search, clip=(0.1, 3.0)))
    assert len({one.identity() for one in (SETTINGS, wider, replace(SETTINGS, moments=4))}) == 3


def test_bad_settings_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="epochs must be at least 1, got 0"):
        replace(SETTINGS, epochs=(0,))
    with pytest.raises(ValueError, match="seeds must not be empty"):
        replace(SETTINGS, seeds=())
