"""Pictures for the tests of images, in memory and in files."""

from pathlib import Path

import numpy as np
from PIL import Image

from experiments.features.images.collection import ImageData

RNG = np.random.default_rng(0)


def pictures(count: int, height: int = 32, width: int = 32) -> np.ndarray:
    return RNG.integers(0, 256, (count, height, width, 3), dtype=np.uint8)


def put(path: Path, value: int = 0, size: tuple[int, int] = (6, 4), mode: str = "RGB") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, (value,) * len(mode) if len(mode) > 1 else value).save(path)
    return path


def check(data: ImageData, images: np.ndarray, labels: list[int], cut: int) -> None:
    assert data.train.labels.dtype == np.int64
    assert data.train.labels.tolist() == labels[:cut]
    assert data.test is not None
    assert data.test.labels.tolist() == labels[cut:]
    for start, stop in [(0, cut), (cut // 2, cut), (1, 2), (cut - 1, cut), (0, 1)]:
        assert np.array_equal(data.train.read(start, stop), images[:cut][start:stop])
    assert np.array_equal(data.test.read(0, len(labels) - cut), images[cut:])
