"""A collection of images with labels: what every layout is read into."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Picture = NDArray[np.uint8]  # (height, width, 3)


@dataclass(frozen=True)
class ImageSplit:
    """The labels of one split, (n,) in int64, and ``read(start, stop)``, which decodes those images to RGB.

    Images of one split may differ in size.

    >>> black = np.zeros((2, 2, 3), np.uint8)
    >>> len(ImageSplit(np.array([1, 0]), lambda start, stop: [black] * (stop - start)).read(0, 2))
    2
    """

    labels: NDArray[np.int64]
    read: Callable[[int, int], list[Picture]]


@dataclass(frozen=True)
class ImageData:
    """A training split and perhaps a test split; label k means ``classes[k]``; ``files`` are all files found.

    >>> one = ImageSplit(np.array([0]), lambda start, stop: [])
    >>> ImageData(one, None, ("cat",), ()).classes
    ('cat',)
    """

    train: ImageSplit
    test: ImageSplit | None
    classes: tuple[str, ...]
    files: tuple[Path, ...]
