"""Feature extraction on a full disk, read-only, with damaged parts or company; damaged files of features."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from experiments.features import extraction
from experiments.features.backbones import Backbone
from experiments.features.extraction import extract
from experiments.features.images.layouts import read_images
from ringfence.data.features import Features, read_features
from ringfence.files.journal import locked
from tests.faults.conditions import flipped, folder_for_anyone, no_room_beyond, put, read_only, some, tried

COUNT = 40


@pytest.fixture(autouse=True)
def backbone(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Three features an image, without transformers; ``images`` counts how many were looked at."""
    seen = {"images": 0}

    def forward(pictures: Sequence[Any]) -> torch.Tensor:
        seen["images"] += len(pictures)
        return torch.tensor(np.stack([picture.mean((0, 1)) / 7 for picture in pictures])).float()

    monkeypatch.setattr(
        extraction, "load_backbone", lambda name, *_: Backbone(name, "mean", 3, "0" * 64, "cpu", forward)
    )
    monkeypatch.setattr(extraction, "_BATCHES", 2)
    return seen


def images(folder: Path) -> Path:
    pictures = np.random.default_rng(0).integers(0, 256, (COUNT, 2, 2, 3), dtype=np.uint8)
    np.savez(folder / "images.npz", x_train=pictures, y_train=np.arange(COUNT) % 3)
    return folder / "images.npz"


def begun(folder: Path) -> tuple[Path, list[Path]]:
    """Where the features will be, and the parts that an interrupted run left."""

    def interrupt(split: str, share: float) -> None:
        if share == (COUNT - 4) / COUNT:
            raise KeyboardInterrupt

    out = folder / "f.npz"
    with pytest.raises(KeyboardInterrupt):
        extract(images(folder), "any", out, batch_size=4, progress=interrupt)
    return out, sorted((folder / "f.npz.parts").glob("*.npy"))


def test_a_full_disk_names_the_file_and_the_run_goes_on_when_there_is_room(
    tmp_path: Path, backbone: dict[str, Any]
) -> None:
    out, _ = begun(tmp_path)
    with no_room_beyond(600), pytest.raises(OSError, match=r"File too large: '.*f\.npz'$"):
        extract(tmp_path / "images.npz", "any", out, batch_size=4)  # the parts have room, the whole has not
    assert not out.exists()
    assert not list(tmp_path.rglob("*.tmp"))  # which would take what room there is
    backbone["images"] = 0
    extract(tmp_path / "images.npz", "any", out, batch_size=4)
    assert backbone["images"] == 0  # every part was there
    assert len(read_features(out).train_labels) == COUNT
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["f.npz", "images.npz"]


def test_a_read_only_folder_is_the_systems_error() -> None:
    with folder_for_anyone() as folder:
        data = images(folder)
        with read_only(folder), pytest.raises(PermissionError, match=r"f\.npz"):
            extract(data, "any", folder / "f.npz")


def test_flipped_bits_and_every_cut_of_a_part_are_noticed(tmp_path: Path) -> None:
    out, parts = begun(tmp_path)
    data = parts[1].read_bytes()
    for bit in some("part", 8 * len(data), 700):
        put(parts[1], flipped(data, bit))
        with pytest.raises(ValueError, match=r"train-000000008\.npy is damaged: delete it"):
            extraction._read_part(parts[1], (8, 3), "float16")
    for length in range(len(data)):
        put(parts[1], data[:length])
        with pytest.raises(ValueError, match=r"train-000000008\.npy is damaged: delete it"):
            extraction._read_part(parts[1], (8, 3), "float16")
    with pytest.raises(ValueError, match="is damaged"):
        extract(tmp_path / "images.npz", "any", out, batch_size=4)
    parts[1].unlink()
    extract(tmp_path / "images.npz", "any", out, batch_size=4)
    whole = extract(tmp_path / "images.npz", "any", tmp_path / "whole.npz", batch_size=4)
    assert out.read_bytes() == whole.read_bytes()


def test_damaged_settings_and_those_of_another_version_are_refused(tmp_path: Path) -> None:
    out, _ = begun(tmp_path)
    file = tmp_path / "f.npz.parts" / "settings.json"
    text = file.read_bytes()
    for bit in some("settings", 8 * len(text), 150):
        put(file, flipped(text, bit))
        _, why = tried(extraction._begin, file.parent, json.loads(text))
        # else it was white space
        assert "f.npz.parts" in why or json.loads(flipped(text, bit)) == json.loads(text)
    file.write_text(json.dumps({**json.loads(text), "format of the parts": 3}))
    with pytest.raises(ValueError, match=r"another format of the parts: .*\(it has 3, this run 2\)"):
        extract(tmp_path / "images.npz", "any", out, batch_size=4)


def test_one_run_at_a_time(tmp_path: Path) -> None:
    out, _ = begun(tmp_path)
    lock = locked(out)
    with pytest.raises(BlockingIOError, match=r"f\.npz is in use by another process"):
        extract(tmp_path / "images.npz", "any", out, batch_size=4)
    os.close(lock)  # as when its process is killed: the file is still there
    assert (tmp_path / "f.npz.lock").exists()
    extract(tmp_path / "images.npz", "any", out, batch_size=4)
    assert not (tmp_path / "f.npz.lock").exists()


def test_a_lock_that_was_removed_while_it_was_waited_for_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(path: Path) -> int:
        lock = locked(path)
        Path(f"{path}.lock").unlink()  # the other run ends between our open and our lock
        return lock

    monkeypatch.setattr(extraction, "locked", late)
    with pytest.raises(BlockingIOError, match="in use by another process until now: try again"):
        extract(images(tmp_path), "any", tmp_path / "f.npz")


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
    for bit in some(split, 8 * len(data), 1500):
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
    whole = np.stack(read_images(file).train.read(0, COUNT))
    for bit in some("images", 8 * len(data), 700):
        put(file, flipped(data, bit))
        found, why = tried(read_images, file)
        if not why:
            assert np.array_equal(found.train.labels, np.arange(COUNT) % 3)
            found, why = tried(found.train.read, 0, COUNT)
        assert "images.npz" in why or np.array_equal(np.stack(found), whole)
