"""The splits of a sweep: the validation part is not trained on, and changes with nothing but its seed."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.sweep.data import sweep_data
from experiments.sweep.fair_search import FairSearch
from experiments.sweep.settings import Grid
from ringfence.data.features import Features
from ringfence.data.projection import PublicProjection

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


def test_public_statistics_and_an_intercept(tmp_path: Path) -> None:
    public = Features(np.array([[0, 0], [2, 0]], np.float32), np.array([0, 1]))
    grid = replace(GRID, center=None, scale=None, intercept=True)
    data = sweep_data(DATA, grid, "paper", public)
    assert np.allclose(data.train[0][:, :2].numpy(), (DATA.train_features - [1, 0]) / [1, 1])
    assert data.train[0][:, 2].tolist() == [1.0] * 60
    assert data.attributes.tolist() == [1.0, 1.0, 0.0]
    file = tmp_path / "public.npz"
    np.savez(file, train_features=public.train_features, train_labels=public.train_labels)
    named = sweep_data(DATA, replace(grid, public_statistics=str(file)), "paper")
    assert named.train[0].equal(data.train[0])


def test_a_projection_comes_first(tmp_path: Path) -> None:
    public = Features(RNG.normal(size=(40, 2)).astype(np.float32) * [1, 3], np.arange(40) % 3)
    projection = PublicProjection.of(public.train_features, 1, whiten=True)
    projection.save(tmp_path / "P.npz")
    grid = replace(GRID, public_projection=str(tmp_path / "P.npz"))
    data = sweep_data(DATA, grid, "paper")
    assert np.allclose(data.train[0].numpy(), (projection(DATA.train_features) - 2) / 4, rtol=1e-5)
    assert np.allclose(data.test[0].numpy(), (projection(DATA.test_features) - 2) / 4, rtol=1e-5)
    assert np.allclose(data.attributes, projection.rates / 4, rtol=1e-12)
    assert data.fingerprint != sweep_data(DATA, GRID, "paper").fingerprint
    both = sweep_data(DATA, replace(grid, center=None, scale=None), "paper", public)
    # the projected public features have mean 0 and standard deviation 1, by which nothing changes
    assert np.allclose(both.train[0].numpy(), projection(DATA.train_features), rtol=1e-4, atol=1e-4)
    PublicProjection.of(DATA.train_features, 1).save(tmp_path / "own.npz")
    with pytest.raises(ValueError, match="public_projection must be of other features than the private ones"):
        sweep_data(DATA, replace(GRID, public_projection=str(tmp_path / "own.npz")), "paper")


def test_rows_of_length_1_by_themselves() -> None:
    grid = replace(GRID, unit_rows=True, intercept=True)
    data = sweep_data(DATA, grid, "paper")
    before = (DATA.train_features - 2) / 4
    lengths = np.linalg.norm(before, axis=1, keepdims=True)
    assert np.allclose(data.train[0][:, :2].numpy(), before / lengths, atol=1e-6)
    assert data.train[0][:, 2].tolist() == [1.0] * 60  # the intercept comes after
    few = replace(DATA, train_features=DATA.train_features[:3], train_labels=DATA.train_labels[:3])
    assert sweep_data(few, grid, "paper").train[0].equal(data.train[0][:3])


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
    with pytest.raises(ValueError, match=r"train labels must be in 0 \.\. 1, got 2 at index 2"):
        sweep_data(DATA, replace(GRID, classes=2), "paper")
    assert sweep_data(DATA, replace(GRID, classes=7), "paper").classes == 7


def test_a_sweep_without_a_test_split_is_refused() -> None:
    with pytest.raises(ValueError, match="a sweep needs a test split, the features have none"):
        sweep_data(Features(DATA.train_features, DATA.train_labels), GRID, "paper")
