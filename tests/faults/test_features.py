"""Damaged files of features and of images are noticed, or what is read is unchanged."""

from pathlib import Path

import numpy as np
import pytest

from experiments.features import read_images
from ringfence.data.features import Features, read_features
from tests.faults.conditions import flipped, put, some, tried

COUNT = 40


def images(folder: Path) -> Path:
    pictures = np.random.default_rng(0).integers(0, 256, (COUNT, 2, 2, 3), dtype=np.uint8)
    np.savez(folder / "images.npz", x_train=pictures, y_train=np.arange(COUNT) % 3)
    return folder / "images.npz"


def same(one: Features, two: Features) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(two, name)) for name in one.__dataclass_fields__)


@pytest.mark.parametrize("split", ["train", "train and test"])
def test_a_flipped_bit_in_a_file_of_features_is_noticed_or_changes_nothing(
    tmp_path: Path, split: str
) -> None:
    rng, file = np.random.default_rng(0), tmp_path / "f.npz"
    arrays = {"train_features": rng.normal(size=(6, 3)).astype(np.float16), "train_labels": np.arange(6) % 2}
    if split != "train":
        arrays |= {"test_features": arrays["train_features"] + 1, "test_labels": arrays["train_labels"]}
    np.savez(file, **arrays)
    data, whole = file.read_bytes(), read_features(file)
    for bit in some(split, 8 * len(data), 600):
        put(file, flipped(data, bit))
        found, why = tried(read_features, file)
        assert "f.npz" in why or same(found, whole), bit
    for length in range(0, len(data), 7):
        put(file, data[:length])
        with pytest.raises(ValueError, match=r"f\.npz"):
            read_features(file)


def test_a_flipped_bit_in_a_file_of_images_is_noticed_or_changes_nothing(tmp_path: Path) -> None:
    file = images(tmp_path)
    data = file.read_bytes()
    whole, labels = read_images(file).splits["train"]
    for bit in some("images", 8 * len(data), 700):
        put(file, flipped(data, bit))
        found, why = tried(read_images, file)
        assert "images.npz" in why or (
            np.array_equal(found.splits["train"][0], whole)
            and np.array_equal(found.splits["train"][1], labels)
        )
