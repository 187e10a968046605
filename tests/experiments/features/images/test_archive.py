"""A .npz file gives back the pictures that were put in; what is wrong in it is named."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.features.images.layouts import read_images
from tests.experiments.features.images.pictures import check, pictures


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz(save: Any, tmp_path: Path) -> None:
    images, labels = pictures(9, 4, 5), [0, 2, 1, 2, 0, 1, 1, 2, 0]
    arrays = {"x_train": images[:6], "y_train": np.array(labels[:6], np.uint8)}
    arrays |= {"x_test": images[6:], "y_test": np.array(labels[6:])[:, None]}
    save(tmp_path / "a.npz", **arrays)
    data = read_images(tmp_path / "a.npz")
    check(data, images, labels, 6)
    assert data.classes == ("0", "1", "2")
    save(tmp_path / "a.npz", **arrays, classes=np.array(["cat", "dog", "owl"]))
    assert read_images(tmp_path / "a.npz").classes == ("cat", "dog", "owl")


def test_a_grey_npz_and_one_without_a_test_split(tmp_path: Path) -> None:
    grey = pictures(3)[..., 0]
    np.savez(tmp_path / "a.npz", x_train=grey, y_train=[0, 1, 0])
    data = read_images(tmp_path / "a.npz")
    assert data.test is None
    assert np.array_equal(data.train.read(1, 3), np.stack([grey[1:]] * 3, axis=3))


X, Y = pictures(2), np.array([0, 1])


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"y_train": Y}, "must hold x_train and y_train, got no x_train"),
        ({"x_train": X, "y_train": Y, "x_test": X}, "must hold x_test and y_test, got no y_test"),
        ({"x_train": X / 255, "y_train": Y}, "x_train must be uint8 .*, got float64"),
        ({"x_train": X[..., :2], "y_train": Y}, r"got uint8 \[2, 32, 32, 2\]"),
        ({"x_train": X[:0], "y_train": Y[:0]}, r"got uint8 \[0, 32, 32, 3\]"),
        ({"x_train": X, "y_train": Y[:1]}, r"y_train must be 2 integers, got int64 \[1\]"),
        ({"x_train": X, "y_train": Y / 2}, "y_train must be 2 integers, got float64"),
        ({"x_train": X, "y_train": Y - 1}, "y_train must be >= 0, got -1"),
        ({"x_train": X, "y_train": Y, "classes": ["cat"]}, "classes must name 2 classes, got 1"),
        ({"x_train": X, "y_train": np.array([{}, {}])}, "y_train cannot be read as an array"),
    ],
)
def test_what_is_wrong_in_an_npz_is_named(arrays: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(ValueError, match=complaint) as error:
        read_images(tmp_path / "a.npz")
    assert str(error.value).startswith(str(tmp_path / "a.npz"))


def test_going_through_a_file_reads_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = pictures(300, 8, 8)
    np.savez_compressed(tmp_path / "a.npz", x_train=images, y_train=np.zeros(300, int))
    split = read_images(tmp_path / "a.npz").train
    read = 0
    plain = zipfile.ZipExtFile._read1  # type: ignore[attr-defined]

    def counted(self: Any, size: int) -> bytes:
        nonlocal read
        read += len(data := plain(self, size))
        return data

    monkeypatch.setattr(zipfile.ZipExtFile, "_read1", counted)
    rows = [split.read(first, first + 10) for first in range(0, 300, 10)]
    assert np.array_equal(np.concatenate(rows), images)
    assert read <= 2 * images.nbytes
    assert np.array_equal(split.read(5, 7), images[5:7])  # and back again
