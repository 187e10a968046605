"""The splits of a sweep: the validation part is not trained on, and changes with nothing but its seed."""

from dataclasses import replace

import numpy as np
import pytest

from experiments.sweep.data import sweep_data
from experiments.sweep.settings import FairSearch, Grid
from ringfence.data.features import Features

GRID = Grid("toy", ("gaussian",), (0.1,), (10.0,), (1.0,), (4.0,), (5,), center=2.0, scale=4.0)
RNG = np.random.default_rng(0)


def features(count: int = 60) -> Features:
    # a feature that names the example
    x = np.stack((np.arange(count), RNG.normal(size=count)), axis=1).astype(np.float32)
    return Features(x, np.arange(count) % 3, x[:10] + 1000, np.arange(10) % 3)


DATA = features()


def names(x: object) -> set[float]:
    return set((x[:, 0] * 4 + 2).round().tolist())  # type: ignore[index]


def test_the_paper_trains_on_everything() -> None:
    data = sweep_data(DATA, GRID, "paper")
    assert data.validation is None
    assert names(data.train[0]) == set(range(60))
    assert np.allclose(data.train[0].numpy(), (DATA.train_features - 2) / 4)
    assert data.attributes.tolist() == [0.25, 0.25]


def test_a_fair_search_keeps_some_back() -> None:
    data, again = (sweep_data(DATA, GRID, "fair") for _ in range(2))
    assert data.validation is not None
    assert again.validation is not None
    kept = names(data.validation[0])
    assert len(kept) == 6
    assert names(data.train[0]) | kept == set(range(60))
    assert not names(data.train[0]) & kept
    assert kept == names(again.validation[0])
    assert data.validation[1].tolist() == [int(name) % 3 for name in sorted(kept)]
    other = sweep_data(DATA, replace(GRID, fair=FairSearch(seed=1)), "fair")
    assert other.validation is not None
    assert names(other.validation[0]) != kept


def test_public_statistics() -> None:
    public = Features(np.array([[0, 0], [2, 0]], np.float32), np.array([0, 1]))
    data = sweep_data(DATA, replace(GRID, center=None, scale=None), "paper", public)
    assert np.allclose(data.train[0].numpy(), (DATA.train_features - [1, 0]) / [1, 1])
    assert data.attributes.tolist() == [1.0, 1.0]


def test_the_private_features_themselves_are_refused() -> None:
    free = replace(GRID, center=None, scale=None)
    copy = Features(DATA.train_features.copy(), DATA.train_labels)
    narrow = Features(DATA.train_features[:, :1], DATA.train_labels)
    public = Features(DATA.train_features + 1, DATA.train_labels)
    for grid, given, message in (
        (free, copy, "must be of other features than the private ones"),
        (free, narrow, "must be of 2 features, got 1"),
        (replace(free, center=0.0), public, "must not be given together"),
        (replace(free, scale=1.0), public, "must not be given together"),
    ):
        with pytest.raises(ValueError, match=message):
            sweep_data(DATA, grid, "paper", given)


def test_fingerprints_tell_data_and_statistics_apart() -> None:
    first = sweep_data(DATA, GRID, "paper").fingerprint
    assert sweep_data(DATA, GRID, "paper").fingerprint == first
    labels = DATA.train_labels.copy()
    labels[0] = 2
    changed = [
        sweep_data(replace(DATA, train_labels=labels), GRID, "paper"),
        sweep_data(DATA, replace(GRID, center=0.0), "paper"),
        sweep_data(features(), GRID, "paper"),
    ]
    assert len({first, *(data.fingerprint for data in changed)}) == 4


def test_labels() -> None:
    words = replace(DATA, train_labels=np.array(["b", "a"] * 30), test_labels=np.array(["b", "c"] * 5))
    data = sweep_data(words, GRID, "paper")
    assert data.classes == 2
    assert data.test[1].tolist() == [1, -1] * 5  # a label that training never saw is never right
    with pytest.raises(ValueError, match=r"classes is for labels 0, 1, \.\.\., got 3 where labels are text"):
        sweep_data(words, replace(GRID, classes=3), "paper")
    with pytest.raises(ValueError, match=r"labels must be integers in 0 \.\. 1, got 2\.0 at index"):
        sweep_data(DATA, replace(GRID, classes=2), "paper")
    assert sweep_data(DATA, replace(GRID, classes=7), "paper").classes == 7


def test_a_sweep_without_a_test_split_is_refused() -> None:
    with pytest.raises(ValueError, match="a sweep needs a test split, the features have none"):
        sweep_data(Features(DATA.train_features, DATA.train_labels), GRID, "paper")
