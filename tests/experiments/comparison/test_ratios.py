"""Ratios of epsilons at equal accuracy, and their bands."""

import numpy as np
import pytest

from experiments.comparison.frontier import Tried
from experiments.comparison.ratios import band, median, ratios, resampled


def test_who_does_not_arrive_has_an_infinite_ratio_and_who_arrives_alone_has_none() -> None:
    never = np.inf
    found = ratios(np.array([2.0, never, 1.0, never, 0.0]), np.array([1.0, 1.0, never, never, 0.0]))
    assert found[:3].tolist() == [2.0, np.inf, 0.0]
    assert np.isnan(found[3])
    assert found[4] == 1.0


def test_more_candidates_widen_the_band() -> None:
    draws = np.random.default_rng(0).lognormal(size=(4000, 1))
    ones = np.ones(1)
    found = {"law": (ones, ones), "reference": (ones, ones)}
    drawn = {"law": draws, "reference": np.ones((4000, 1))}
    one, many = (median(found, drawn, "law", "reference", np.array([True]), count) for count in (1, 10))
    assert one[0] == many[0] == 1.0
    assert many[1] < one[1] < 1 < one[2] < many[2]
    assert one[1] == pytest.approx(np.exp(-1.96), rel=0.1)


def test_a_band_ends_at_values_that_were_seen() -> None:
    assert band(np.array([1.0, 2.0, np.nan, np.inf])) == (1.0, np.inf)


def test_a_resample_never_beats_all_settings_together() -> None:
    epsilon = np.array([[1.0, 3.0], [2.0, 2.0]])
    one = Tried([None, None], np.ones((2, 2)), np.ones((2, 2)), epsilon)  # type: ignore[list-item]
    drawn = resampled({"law": one}, np.array([0.5]), 200, np.random.default_rng(0))["law"]
    assert set(drawn.reshape(-1)) == {1.0, 2.0, 3.0}  # 1.0 where both seeds drawn are the lucky one
