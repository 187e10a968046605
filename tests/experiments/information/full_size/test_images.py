"""Batches that are gathered on the device are the images of the file, scaled by public constants."""

from pathlib import Path

import numpy as np
import pytest
import torch

from experiments.information.full_size.images import gathering_loader, image_data, image_file, pixels
from tests.experiments.information.full_size import toys

SEARCH = toys.SETTINGS.search


def test_the_parts_are_those_of_the_file(tmp_path: Path) -> None:
    given = toys.arrays()
    data = image_data(toys.image_file(tmp_path), SEARCH)
    assert data.validation is not None
    assert [len(part[1]) for part in (data.train, data.validation, data.test)] == [225, 25, 70]
    both = torch.cat([data.train[0], data.validation[0]]).numpy()
    assert sorted(map(bytes, both)) == sorted(map(bytes, given["x_train"]))
    changed = given["x_test"].copy()
    changed[0, 0, 0, 0] ^= 1
    assert image_data(toys.image_file(tmp_path, x_test=changed), SEARCH).fingerprint != data.fingerprint


def test_a_batch_is_what_single_examples_are(tmp_path: Path) -> None:
    data = image_data(toys.image_file(tmp_path), SEARCH)
    loader = gathering_loader(data.train, batch_size=40)
    images, labels = next(iter(loader))
    assert images.is_contiguous(memory_format=torch.channels_last)
    expected = (data.train[0][:40].numpy().astype(np.float64) / 255 - 0.5) / 0.25
    np.testing.assert_allclose(images.permute(0, 2, 3, 1).numpy(), expected, atol=1e-6)
    assert torch.equal(labels, data.train[1][:40])
    assert torch.equal(loader.dataset[7][0], images[7])
    empty = loader.dataset.__getitems__([])  # type: ignore[attr-defined]
    assert [list(part.shape) for part in empty] == [[0, 3, 8, 8], [0]]
    assert torch.equal(loader.collate_fn([loader.dataset[3]])[0], images[3:4])


def test_eta_is_about_pixels_that_are_four_apart() -> None:
    ends = torch.tensor([0, 255], dtype=torch.uint8).reshape(2, 1, 1, 1)
    assert float(pixels(ends)[1] - pixels(ends)[0]) == 4


def test_what_is_missing_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"needs cifar10.npz in the present folder: .* numpy.savez"):
        image_file("cifar10-images")
    np.savez("cifar10.npz", x_train=np.zeros((4, 8, 8, 3), np.uint8), y_train=np.arange(4))
    assert image_file("cifar10-images") == Path("cifar10.npz")
    with pytest.raises(ValueError, match=r"cifar10.npz must have test images, got none"):
        image_data(Path("cifar10.npz"), SEARCH)
