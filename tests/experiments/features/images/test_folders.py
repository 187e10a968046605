"""Folders of classes, with and without splits."""

from pathlib import Path

import numpy as np
import pytest

from experiments.features.images.layouts import read_images
from tests.experiments.features.images.pictures import put


def test_folders_of_classes(tmp_path: Path) -> None:
    put(tmp_path / "dog" / "b.JPG", 200, (9, 5))
    put(tmp_path / "cat" / "2.png", 20)
    put(tmp_path / "cat" / "1.jpeg", 10)
    (tmp_path / "cat" / "notes.txt").write_text("no image")
    (tmp_path / ".cache").mkdir()
    data = read_images(tmp_path)
    assert data.classes == ("cat", "dog")
    assert data.train.labels.tolist() == [0, 0, 1]
    assert data.test is None
    assert [(p.shape, p.dtype, int(p.mean())) for p in data.train.read(0, 3)] == [
        ((4, 6, 3), np.uint8, 10),
        ((4, 6, 3), np.uint8, 20),
        ((5, 9, 3), np.uint8, 200),
    ]


def test_folders_of_splits(tmp_path: Path) -> None:
    for i, name in enumerate(("train/cat", "train/dog", "train/owl", "test/owl", "test/cat")):
        put(tmp_path / name / "1.png", i)
    data = read_images(tmp_path)
    assert data.classes == ("cat", "dog", "owl")
    assert data.test is not None
    assert data.test.labels.tolist() == [0, 2]
    assert [int(p.max()) for p in data.test.read(0, 2)] == [4, 3]
    put(tmp_path / "test" / "fox" / "1.png")
    with pytest.raises(ValueError, match=r"test/fox: there are no training images of this class"):
        read_images(tmp_path)
    put(tmp_path / "val" / "fox" / "1.png")
    with pytest.raises(ValueError, match="must hold train and perhaps test, got also test, train, val"):
        read_images(tmp_path)


def test_empty_classes_and_no_classes(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must hold a folder for each class, got none"):
        read_images(tmp_path)
    put(tmp_path / "cat" / "1.png")
    (tmp_path / "dog").mkdir()
    with pytest.raises(ValueError, match=r"dog holds no images \(\.png"):
        read_images(tmp_path)
