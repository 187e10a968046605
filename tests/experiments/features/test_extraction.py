"""What is written is what the backbone gives, and the same to the byte however the run was interrupted."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from experiments.features import extraction
from experiments.features.backbones import Backbone, load_backbone
from experiments.features.extraction import extract
from experiments.features.images.layouts import read_images
from ringfence.data.features import read_features
from tests.experiments.features.images.pictures import pictures, put
from tests.experiments.features.images.test_pets import pets
from tests.forks import ended

TRAIN, TEST = 83, 21


def means(pictures: Sequence[np.ndarray]) -> torch.Tensor:
    """Three features an image: how red, green and blue it is, in [0, 1]."""
    return torch.tensor(np.stack([picture.mean((0, 1)) / 255 for picture in pictures])).float()


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A backbone that needs no transformers; its parts can be changed."""
    parts = {"forward": means, "fingerprint": "0" * 64, "calls": 0}

    def forward(pictures: Sequence[np.ndarray]) -> torch.Tensor:
        parts["calls"] += 1
        return parts["forward"](pictures)

    def load(name: str, pooling: str | None, device: str | None) -> Backbone:
        return Backbone(name, pooling or "mean", 3, parts["fingerprint"], device or "cpu", forward)

    monkeypatch.setattr(extraction, "load_backbone", load)
    monkeypatch.setattr(extraction, "_BATCHES", 2)
    return parts


@pytest.fixture
def images(tmp_path: Path) -> Path:
    rng = np.random.default_rng(1)
    arrays = {"x_train": pictures(TRAIN, 5, 4), "y_train": rng.integers(0, 3, TRAIN)}
    arrays |= {"x_test": pictures(TEST, 5, 4), "y_test": rng.integers(0, 3, TEST)}
    np.savez(tmp_path / "images.npz", **arrays, classes=np.array(["cat", "dog", "owl"]))
    return tmp_path / "images.npz"


def test_the_file_holds_the_features(fake: dict[str, Any], images: Path, tmp_path: Path) -> None:
    seen: list[tuple[str, float]] = []
    out = extract(images, "any", tmp_path / "f.npz", batch_size=8, progress=lambda *args: seen.append(args))
    assert out == tmp_path / "f.npz"
    raw, made = np.load(images), np.load(out)
    names = ["train_features", "train_labels", "test_features", "test_labels", "classes"]
    assert made.files == names
    assert made["train_features"].dtype == np.float16
    assert made["classes"].tolist() == ["cat", "dog", "owl"]
    data = read_features(out)
    assert data.test_features is not None
    assert data.test_labels is not None
    for split, features, labels in (
        ("train", data.train_features, data.train_labels),
        ("test", data.test_features, data.test_labels),
    ):
        wanted = raw[f"x_{split}"].mean((1, 2)) / 255
        assert np.abs(features - wanted).max() < 5e-4  # float16 near 1/2
        assert np.array_equal(labels, raw[f"y_{split}"])
    assert not (tmp_path / "f.npz.parts").exists()
    assert seen == [("train", min(8 * i, TRAIN) / TRAIN) for i in range(1, 12)] + [
        ("test", done / TEST) for done in (8, 16, TEST)
    ]
    with pytest.raises(FileExistsError, match=r"f\.npz is there already"):
        extract(images, "any", out)


def test_features_are_their_owners_alone(fake: dict[str, Any], images: Path, tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        out = extract(images, "fake", tmp_path / "f.npz")
    finally:
        os.umask(old)
    assert out.stat().st_mode & 0o777 == 0o600


def test_interrupted_after_every_batch_it_gives_the_same_bytes(
    fake: dict[str, Any], images: Path, tmp_path: Path
) -> None:
    whole = extract(images, "any", tmp_path / "whole.npz", batch_size=8).read_bytes()
    calls = fake["calls"]
    for stop in range(calls):
        fake["calls"] = 0
        out = tmp_path / f"{stop}.npz"

        def interrupt(split: str, share: float, stop: int = stop) -> None:
            if fake["calls"] > stop:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            extract(images, "any", out, batch_size=8, progress=interrupt)
        assert not out.exists()
        fake["calls"] = 0
        assert extract(images, "any", out, batch_size=8).read_bytes() == whole
        assert fake["calls"] <= calls - stop // 2 * 2 + 1  # finished chunks of two batches are not made again
        assert not (tmp_path / f"{stop}.npz.parts").exists()


def killed(images: Path, out: Path, when: str, number: int) -> None:
    """Extracts features and dies just before it calls ``when`` for the n-th time."""
    extraction.load_backbone = lambda name, *_: Backbone(name, "mean", 3, "0" * 64, "cpu", means)
    extraction._BATCHES = 2
    owner = Path if when == "unlink" else os
    call, calls = getattr(owner, when), iter(range(1, number))

    def dying(*args: Any, **kwargs: Any) -> Any:
        if next(calls, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args, **kwargs)

    setattr(owner, when, dying)
    extract(images, "any", out, batch_size=8)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL on this system")
@pytest.mark.parametrize(("when", "number"), [("fsync", 1), ("replace", 4), ("unlink", 3), ("unlink", 9)])
def test_killed_at_a_bad_moment(
    when: str, number: int, fake: dict[str, Any], images: Path, tmp_path: Path
) -> None:
    """Before the settings are safe, half way, and while the parts are being removed."""
    out = tmp_path / "f.npz"
    assert ended(killed, images, out, when, number) == -signal.SIGKILL
    assert (tmp_path / "f.npz.parts").exists()
    assert out.exists() == (when == "unlink")
    whole = extract(images, "any", tmp_path / "whole.npz", batch_size=8)
    assert extract(images, "any", out, batch_size=8).read_bytes() == whole.read_bytes()
    assert not (tmp_path / "f.npz.parts").exists()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["f.npz", "images.npz", "whole.npz"]


def begun(fake: dict[str, Any], images: Path, out: Path) -> None:
    def interrupt(split: str, share: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        extract(images, "any", out, batch_size=8, progress=interrupt)


def test_parts_of_another_run_are_refused_by_name(fake: dict[str, Any], images: Path, tmp_path: Path) -> None:
    out = tmp_path / "f.npz"
    begun(fake, images, out)
    for change, name in (
        ({"batch_size": 4}, "batch_size"),
        ({"pooling": "cls"}, "pooling"),
        ({"dtype": "uint8"}, "dtype"),
        ({"device": "cuda"}, "device"),
    ):
        with pytest.raises(ValueError, match=rf"f\.npz\.parts was begun with another {name}: "):
            extract(images, "any", out, **{"batch_size": 8, **change})
    fake["fingerprint"] = "1" * 64
    with pytest.raises(ValueError, match=r"was begun with another backbone: .*it has 0000.*, this run 1111"):
        extract(images, "any", out, batch_size=8)
    fake["fingerprint"] = "0" * 64
    arrays = dict(np.load(images))
    np.savez(images, **{**arrays, "y_train": arrays["y_train"][::-1]})
    with pytest.raises(ValueError, match="was begun with another images: "):
        extract(images, "any", out, batch_size=8)


def test_a_folder_that_is_not_of_a_run_is_left_alone(
    fake: dict[str, Any], images: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "f.npz.parts"
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")
    with pytest.raises(ValueError, match=r"must be empty or a run's, got thesis\.txt and no settings\.json"):
        extract(images, "any", tmp_path / "f.npz")
    (folder / "settings.json").write_text("[]")
    with pytest.raises(ValueError, match=r"settings\.json is not the settings of a run"):
        extract(images, "any", tmp_path / "f.npz")
    assert (folder / "thesis.txt").read_text() == "years of work"


def test_a_damaged_part_is_named(fake: dict[str, Any], images: Path, tmp_path: Path) -> None:
    out = tmp_path / "f.npz"

    def late(split: str, share: float) -> None:
        if share > 16 / TRAIN:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        extract(images, "any", out, batch_size=8, progress=late)
    (part,) = (tmp_path / "f.npz.parts").glob("*.npy")
    content = part.read_bytes()
    part.write_bytes(content[:-1])
    with pytest.raises(ValueError, match=r"train-000000000\.npy is damaged"):
        extract(images, "any", out, batch_size=8)
    extraction._write_array(part, np.zeros((16, 4), np.float16))
    with pytest.raises(ValueError, match=r"must hold float16 \[16, 3\], got float16 \[16, 4\]"):
        extract(images, "any", out, batch_size=8)


def test_bytes_are_the_levels_that_read_features_knows(
    fake: dict[str, Any], images: Path, tmp_path: Path
) -> None:
    fake["forward"] = lambda pictures: 6 * means(pictures)
    out = extract(images, "any", tmp_path / "f.npz", dtype="uint8")
    assert np.load(out).files == ["q_train", "y_train", "q_test", "y_test", "classes"]
    wanted = 6 * np.load(images)["x_train"].mean((1, 2)) / 255
    spacing = 12 * np.sqrt(wanted / 6) / 255  # of the levels 6 (q / 255)^2 around each value
    assert (np.abs(read_features(out).train_features - wanted) <= 0.51 * spacing + 1e-4).all()


@pytest.mark.parametrize(
    ("dtype", "value", "complaint"),
    [
        ("uint8", -0.5, "dtype uint8 holds features from 0 to 6, got -0.5 in a batch from train image 0"),
        ("uint8", 6.5, "got 6.5"),
        ("float16", 7e4, "dtype float16 holds features from -65504 to 65504, got 70000"),
        ("float16", np.nan, "got nan"),
    ],
)
def test_what_does_not_fit_is_refused(
    dtype: str, value: float, complaint: str, fake: dict[str, Any], images: Path, tmp_path: Path
) -> None:
    fake["forward"] = lambda pictures: torch.full((len(pictures), 3), value)
    with pytest.raises(ValueError, match=complaint):
        extract(images, "any", tmp_path / "f.npz", dtype=dtype)


def test_wrong_arguments_are_named_before_anything_is_read(fake: dict[str, Any], tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    for settings, complaint in (
        ({"out": tmp_path / "f.npy"}, "out must end in .npz"),
        ({"dtype": "float64"}, "dtype must be float16 or uint8, got 'float64'"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"out": missing / "f.npz"}, "no such folder: .*missing"),
        ({}, "no such file or folder: .*missing"),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=complaint):
            extract(missing, "any", **{"out": tmp_path / "f.npz", **settings})
    assert list(tmp_path.iterdir()) == []


def test_a_broken_image_keeps_what_is_done(fake: dict[str, Any], tmp_path: Path) -> None:
    for i in range(9):
        put(tmp_path / "photos" / "cat" / f"{i}.png", 10 * i)
    broken = tmp_path / "photos" / "cat" / "7.png"
    good = broken.read_bytes()
    times = broken.stat()
    broken.write_bytes(good[:30] + bytes(len(good) - 30))
    os.utime(broken, ns=(times.st_atime_ns, times.st_mtime_ns))
    out = tmp_path / "f.npz"
    with pytest.raises(ValueError, match=r"7\.png cannot be read as an image"):
        extract(tmp_path / "photos", "any", out, batch_size=2)
    assert len(list((tmp_path / "f.npz.parts").glob("train-*.npy"))) == 1
    broken.write_bytes(good)
    os.utime(broken, ns=(times.st_atime_ns, times.st_mtime_ns))
    data = read_features(extract(tmp_path / "photos", "any", out, batch_size=2))
    assert np.allclose(data.train_features[:, 0] * 255, np.arange(9) * 10, atol=0.1)
    assert data.test_features is None


def test_pictures_to_features_with_a_real_model(tmp_path: Path) -> None:
    """The whole way: photos of several sizes, a BEiT that was saved, a run that is interrupted."""
    pytest.importorskip("transformers")
    from tests.data.test_backbones import beit

    photos, model = pets(tmp_path / "pets"), str(beit(tmp_path / "beit", use_mean_pooling=True))

    def interrupt(split: str, share: float) -> None:
        if split == "test":
            raise KeyboardInterrupt

    whole = extract(photos, model, tmp_path / "whole.npz", batch_size=1)
    with pytest.raises(KeyboardInterrupt):
        extract(photos, model, tmp_path / "f.npz", batch_size=1, progress=interrupt)
    out = extract(photos, model, tmp_path / "f.npz", batch_size=1)
    assert out.read_bytes() == whole.read_bytes()
    data, backbone = read_features(out), load_backbone(model)
    wanted = backbone(read_images(photos).train.read(0, 2)).astype(np.float16)
    assert np.allclose(data.train_features, wanted, atol=1e-2)
    assert data.train_labels.tolist() == [1, 0]
    assert np.ptp(data.train_features, axis=0).max() > 0.1
    begun_with = extract(photos, model, tmp_path / "cls.npz", pooling="cls")
    assert not np.allclose(read_features(begun_with).train_features, wanted, atol=1e-2)
