"""Every format gives the same arrays; whatever is wrong is named with its file and key."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from ringfence.data.features import read_features, read_theta

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(5, 3)).astype(np.float16), np.array([0, 2, 1, 2, 0], dtype=np.uint8)
X_TEST, Y_TEST = RNG.normal(size=(2, 3)).astype(np.float16), np.array([1, 2], dtype=np.uint8)
NAMES = [
    ("features", "labels", "test_features", "test_labels"),
    ("train_features", "train_labels", "test_features", "test_labels"),
    ("x_train", "y_train", "x_test", "y_test"),
    ("f_train", "y_train", "f_test", "y_test"),
]


def npz(path: Path, arrays: dict[str, Any]) -> Path:
    np.savez(path.with_suffix(".npz"), **arrays)
    return path.with_suffix(".npz")


def parquet(path: Path, columns: dict[str, Any]) -> Path:
    pq.write_table(pa.table(columns), path.with_suffix(".parquet"))
    return path.with_suffix(".parquet")


@pytest.mark.parametrize("names", NAMES)
def test_arrays_under_every_set_of_names(names: tuple[str, ...], tmp_path: Path) -> None:
    arrays = dict(zip(names, (X, Y, X_TEST, Y_TEST), strict=True))
    data = read_features(npz(tmp_path / "data", arrays))
    assert data.train_features.dtype == np.float32
    assert data.train_labels.dtype == np.int64
    for given, wanted in zip(
        (data.train_features, data.train_labels, data.test_features, data.test_labels),
        (X, Y, X_TEST, Y_TEST),
        strict=True,
    ):
        assert np.array_equal(given, wanted)
    data = read_features(npz(tmp_path / "data", {key: arrays[key] for key in names[:2]}))
    assert np.array_equal(data.train_features, X)
    assert (data.test_features, data.test_labels) == (None, None)


def test_quantised_features(tmp_path: Path) -> None:
    q = np.arange(256, dtype=np.uint8).reshape(64, 4)
    data = read_features(npz(tmp_path / "data", {"q_train": q, "y_train": np.arange(64)}))
    assert data.train_features.dtype == np.float32
    for got, level in zip(data.train_features.ravel().tolist(), q.ravel().tolist(), strict=True):
        assert got == pytest.approx(6 * (level / 255) ** 2, rel=1e-6)


LISTS = {
    "list": pa.array(X.tolist(), pa.list_(pa.float32())),
    "large list": pa.array(X.tolist(), pa.large_list(pa.float64())),
    "fixed size": pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), 3),
}


@pytest.mark.parametrize("kind", LISTS)
def test_parquet_lists(kind: str, tmp_path: Path) -> None:
    file = parquet(tmp_path / "a", {"features": LISTS[kind], "label": Y, "number": Y})
    data = read_features(file)
    assert np.array_equal(data.train_features, X)
    assert np.array_equal(data.train_labels, Y)
    assert data.test_features is None


def test_parquet_columns_splits_and_text_labels(tmp_path: Path) -> None:
    words = np.array(["cat", "dog", "owl"])[Y]
    columns = {
        "name": list("abcde"),  # not a number: left alone
        "one": X[:, 0],
        "label": pa.array(words).dictionary_encode(),
        "two": X[:, 1],
        "three": (100 * X[:, 2]).astype(np.int8),
        "split": ["train", "test", "train", "train", "test"],
    }
    data = read_features(parquet(tmp_path / "a", columns))
    wanted = np.stack((X[:, 0], X[:, 1], (100 * X[:, 2]).astype(np.int8)), axis=1)
    train = [0, 2, 3]
    assert np.array_equal(data.train_features, wanted[train])
    assert data.train_labels.tolist() == words[train].tolist()
    assert np.array_equal(data.test_features, wanted[[1, 4]])
    assert data.test_labels is not None
    assert data.test_labels.tolist() == words[[1, 4]].tolist()


BAD = X.astype(np.float32)
BAD[2, 1] = np.nan


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"labels": Y}, "must hold features under one of features, train_features, x_train.*none of them"),
        ({"features": X, "labels": Y, "x_train": X}, "got features, x_train"),
        ({"features": X}, "both features and labels, got features alone"),
        ({"x_train": X, "y_train": Y, "x_test": X}, "both x_test and y_test, got x_test alone"),
        ({"x_train": X, "y_train": Y, "y_test": Y}, "both x_test and y_test, got y_test alone"),
        ({"features": X, "labels": Y[:4]}, "features holds 5 examples, labels 4"),
        ({"features": X[0], "labels": Y}, r"features must have shape \(n, p\) and not be empty, got \[3\]"),
        ({"features": X[:0], "labels": Y[:0]}, r"not be empty, got \[0, 3\]"),
        ({"features": X, "labels": X}, r"labels must have shape \(n,\), got \[5, 3\]"),
        ({"features": X, "labels": Y.astype(float)}, "labels must hold integers, got float64"),
        ({"features": X > 0, "labels": Y}, "features must hold numbers, got bool"),
        ({"features": BAD, "labels": Y}, r"features must be finite in float32, got nan at index \[2, 1\]"),
        (
            {"features": X.astype(np.float64) + 1e39, "labels": Y},
            r"features must be finite in float32, got 1e\+39 at index",
        ),
        ({"q_train": X, "y_train": Y}, "q_train must be uint8, got float"),
        ({"features": X, "labels": Y.astype(np.uint64) + 2**63}, "labels must fit int64"),
        (
            {"x_train": X, "y_train": Y, "x_test": X[:, :2].copy(), "y_test": Y},
            "x_train and x_test must be as wide, got 3 and 2",
        ),
    ],
)
def test_what_is_wrong_is_named(arrays: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    file = npz(tmp_path / "data", arrays)
    with pytest.raises(ValueError, match=complaint) as error:
        read_features(file)
    assert str(error.value).startswith(str(file))


GOOD = {"features": X.tolist(), "label": Y.tolist()}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"label": None}, "must have one column label, got 0"),
        ({"label": [0, 1, None, 1, 1]}, "label must not have missing values, got 1"),
        ({"label": [0.5] * 5}, "labels must hold integers, got float64"),
        ({"features": None}, "must have a column features or columns of numbers, got neither"),
        ({"features": [[1.0, 2.0], [1.0], [], [1.0], [1.0]]}, r"of one length, got lengths \[0, 1, 2\]"),
        ({"features": [1.0] * 5}, "features must be lists of one length"),
        ({"features": [None, *X.tolist()[1:]]}, "features must not have missing values, got 1"),
        ({"features": [[1.0, None]] * 5}, "features must not have missing values, got 5"),
        ({"features": [["a"]] * 5}, "features must hold numbers, got object"),
        ({"split": ["train"] * 4 + ["dev"]}, "split must be train or test, got 'dev'"),
        ({"split": ["test"] * 5}, "features must have shape"),
        ({"features": None, "a": [1.0, 2.0, None, 3.0, 4.0]}, "a must not have missing values, got 1"),
    ],
)
def test_what_is_wrong_in_parquet_is_named(change: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    columns = {key: value for key, value in {**GOOD, **change}.items() if value is not None}
    file = parquet(tmp_path / "data", columns)
    with pytest.raises(ValueError, match=complaint) as error:
        read_features(file)
    assert str(error.value).startswith(str(file))


@pytest.mark.parametrize("ending", [".npz", ".parquet", ".csv"])
def test_files_that_are_something_else(ending: str, tmp_path: Path) -> None:
    file = tmp_path / f"text{ending}"
    file.write_text("no array " * 100)
    with pytest.raises(ValueError, match=r"text\.\w+ (is not a|must end in)"):
        read_features(file)
    if ending != ".csv":
        with pytest.raises(FileNotFoundError, match="missing"):
            read_features(tmp_path / f"missing{ending}")


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("a pickle was run",))


def test_nothing_in_a_file_is_run(tmp_path: Path) -> None:
    pickles = np.array([Bomb()], dtype=object)
    with pytest.raises(ValueError, match="features cannot be read as an array of numbers"):
        read_features(npz(tmp_path / "a", {"features": pickles, "labels": Y}))
    np.save(tmp_path / "b.npy", pickles)
    with pytest.raises(ValueError, match=r"b\.npy is not a \.npy file of numbers"):
        read_theta(tmp_path / "b.npy")
    np.save(tmp_path / "c.npy", X)
    (tmp_path / "c.npy").rename(tmp_path / "c.npz")
    with pytest.raises(ValueError, match=r"c\.npz is not a \.npz file of arrays"):
        read_features(tmp_path / "c.npz")


def test_a_missing_pyarrow_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        ModuleNotFoundError, match=r"^\.parquet files need pyarrow: pip install 'ringfence\[tables\]'$"
    ):
        read_features(Path("a.parquet"))


@pytest.mark.parametrize(
    ("kind", "read"), [("f4", torch.float32), ("f8", torch.float64), ("i2", torch.float64)]
)
def test_any_array_of_numbers_is_a_vector(kind: str, read: torch.dtype, tmp_path: Path) -> None:
    np.save(tmp_path / "theta.npy", np.arange(6, dtype=kind).reshape(2, 3).T)
    theta = read_theta(tmp_path / "theta.npy")
    assert theta.dtype == read
    assert theta.tolist() == [0, 3, 1, 4, 2, 5]


@pytest.mark.parametrize(
    ("values", "complaint"),
    [(np.zeros(0), "at least one coordinate, got none"), (np.array(["a"]), "numbers, got <U1")],
)
def test_what_is_no_vector_of_numbers_is_refused(values: Any, complaint: str, tmp_path: Path) -> None:
    np.save(tmp_path / "theta.npy", values)
    with pytest.raises(ValueError, match=rf"theta\.npy must hold .*{complaint}"):
        read_theta(tmp_path / "theta.npy")
