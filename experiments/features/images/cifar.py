"""CIFAR-10 and CIFAR-100, the python version: batches of images in pickles that are not unpickled."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.features.images.collection import ImageData, ImageSplit, Picture
from experiments.features.images.pickled_batch import read_batch


def read_cifar(path: Path, train: Sequence[str], test: str, meta: str, key: str) -> ImageData:
    """Reads the labels of the batches ``train`` and ``test``, and the names of the classes from ``meta``.

    ``key`` is "label" in CIFAR-10 and "fine_label" in CIFAR-100.

    >>> read_cifar(Path("nothing"), ["train"], "test", "meta", "fine_label")
    Traceback (most recent call last):
    FileNotFoundError: no such file: nothing/train
    """
    files = [path / name for name in (*train, test, meta)]
    for file in files:
        if not file.is_file():
            raise FileNotFoundError(f"no such file: {file}")
    names = read_batch(files[-1]).get(f"{key}_names")
    if not isinstance(names, list) or not all(isinstance(name, bytes | str) for name in names):
        raise ValueError(f"{files[-1]} must hold {key}_names")
    classes = tuple(name.decode("latin-1") if isinstance(name, bytes) else name for name in names)

    @lru_cache(maxsize=1)  # five files of 30 MB are read in order, and one at a time is held
    def batch(file: Path) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        content = read_batch(file)
        labels, data = content.get(f"{key}s"), content.get("data")
        if not isinstance(labels, list) or not all(type(label) is int for label in labels):
            raise ValueError(f"{file} must hold a list {key}s of integers")
        if not isinstance(data, np.ndarray) or data.shape != (len(labels), 3072) or not labels:
            got = list(data.shape) if isinstance(data, np.ndarray) else type(data).__name__
            raise ValueError(f"{file}: data must have shape [{len(labels)}, 3072], got {got}")
        if not 0 <= min(labels) <= max(labels) < len(classes):
            bad = next(label for label in labels if not 0 <= label < len(classes))
            raise ValueError(f"{file}: {key}s must be from 0 to {len(classes) - 1}, got {bad}")
        return np.array(labels, np.int64), data

    def split(chosen: list[Path]) -> ImageSplit:
        labels = [batch(file)[0] for file in chosen]
        ends = np.cumsum([len(part) for part in labels])

        def picture(index: int) -> Picture:
            at = int(np.searchsorted(ends, index, side="right"))
            row = batch(chosen[at])[1][index - int(ends[at])]  # counted from the end of the batch
            return np.ascontiguousarray(row.reshape(3, 32, 32).transpose(1, 2, 0))

        return ImageSplit(
            np.concatenate(labels), lambda start, stop: [picture(i) for i in range(start, stop)]
        )

    return ImageData(split(files[:-2]), split([files[-2]]), classes, tuple(files))
