"""Images to train on from scratch: they lie on the device as bytes, and batches are gathered there."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

from experiments.features.images.collection import ImageSplit
from experiments.features.images.layouts import read_images
from experiments.sweep.data import SweepData, fingerprint, parts
from experiments.sweep.fair_search import FairSearch

CIFAR10 = "cifar10-images"
_CIFAR10_FILE = Path("cifar10.npz")
_CENTER, _SCALE = 0.5, 0.25  # public constants: pixels, from 0 to 1, are shifted and divided by them


def image_file(name: str) -> Path:
    """The file or folder that ``name`` stands for: cifar10-images is cifar10.npz in the present folder.

    >>> image_file("mine.npz").name
    'mine.npz'
    """
    path = _CIFAR10_FILE if name == CIFAR10 else Path(name)
    if name == CIFAR10 and not path.exists():
        raise FileNotFoundError(
            f"{CIFAR10} needs {path} in the present folder: save CIFAR-10 there with numpy.savez as x_train "
            "and x_test, uint8 of shape (n, 32, 32, 3), y_train and y_test; or name another file or folder"
        )
    return path


def image_data(path: Path, search: FairSearch) -> SweepData:
    """Reads images of one size, (n, height, width, channels) in bytes; part is kept back as ``search`` says.

    Guarantee: the only number taken from the private images is how many of them are trained on; it counts as
    public, as does the number of classes.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "ten.npz"
    ...     x, y = np.zeros((10, 8, 8, 3), np.uint8), np.arange(10) % 2
    ...     np.savez(file, x_train=x, y_train=y, x_test=x, y_test=y)
    ...     data = image_data(file, FairSearch(validation=0.2))
    >>> data.train[0].shape, data.classes
    (torch.Size([8, 8, 8, 3]), 2)
    """
    found = read_images(path)
    if found.test is None:
        raise ValueError(f"{path} must have test images, got none")
    x, y = _arrays(path, found.train)
    test = _arrays(path, found.test)
    if x.shape[1:] != test[0].shape[1:]:
        raise ValueError(f"{path}: test images must be of {list(x.shape[1:])}, got {list(test[0].shape[1:])}")
    stay, back = parts(len(x), search)
    images, labels = torch.from_numpy(x), torch.from_numpy(y)
    return SweepData(
        classes=len(found.classes),
        attributes=torch.full((1,), 1 / (255 * _SCALE), dtype=torch.float64),
        train=(images[stay], labels[stay]),
        validation=(images[back], labels[back]),
        test=(torch.from_numpy(test[0]), torch.from_numpy(test[1])),
        fingerprint=fingerprint(x, y, *test),
    )


def _arrays(path: Path, split: ImageSplit) -> tuple[Any, Any]:
    pictures = split.read(0, len(split.labels))
    shapes = {picture.shape for picture in pictures}
    if len(shapes) > 1:
        raise ValueError(f"{path}: images must be of one size, got {sorted(shapes)[:2]}")
    return np.stack(pictures), split.labels


def pixels(images: Tensor) -> Tensor:
    """Bytes (n, height, width, channels) as what a network takes, in the layout that convolutions like best.

    >>> pixels(torch.full((2, 8, 8, 3), 255, dtype=torch.uint8))[0, 0, 0, 0]
    tensor(2.)
    """
    return (images.permute(0, 3, 1, 2).float() / 255 - _CENTER) / _SCALE


class GatheredImages(Dataset[Any]):
    """Images whose batches are gathered where they lie, all at once.

    >>> data = GatheredImages(torch.zeros(5, 8, 8, 3, dtype=torch.uint8), torch.arange(5))
    >>> [images, labels] = data.__getitems__([4, 1])
    >>> images.shape, labels
    (torch.Size([2, 3, 8, 8]), tensor([4, 1]))
    """

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self._images, self._labels = images, labels

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> list[Tensor]:
        return [part[0] for part in self.__getitems__([index])]

    def __getitems__(self, indices: Sequence[int]) -> list[Tensor]:
        """The batch with these indices."""
        chosen = torch.tensor(indices, dtype=torch.int64)
        if self._images.is_cuda:
            chosen = chosen.pin_memory().to(self._images.device, non_blocking=True)
        return [pixels(self._images[chosen]), self._labels[chosen]]


def gathering_loader(part: tuple[Tensor, Tensor], batch_size: int) -> DataLoader[Any]:
    """A loader whose batches are those of ``GatheredImages``, as they are."""
    return DataLoader(GatheredImages(*part), batch_size=batch_size, collate_fn=_collated)


def _collated(batch: list[Any]) -> Any:
    return batch if isinstance(batch[0], Tensor) else default_collate(batch)  # of single examples
