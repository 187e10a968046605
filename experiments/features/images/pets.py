"""Oxford-IIIT Pet: a folder of images, and lists that say which of them is a cat or dog of which breed."""

from pathlib import Path

import numpy as np

from experiments.features.images.collection import ImageData, ImageSplit
from experiments.features.images.decoding import decoder


def read_pets(path: Path) -> ImageData:
    """Reads the lists trainval.txt and test.txt, and finds the images that they name.

    >>> read_pets(Path("nothing"))
    Traceback (most recent call last):
    FileNotFoundError: [Errno 2] No such file or directory: 'nothing/annotations/trainval.txt'
    """
    names: dict[int, str] = {}
    train_files, train = _pet_list(path, "trainval.txt", names)
    test_files, test = _pet_list(path, "test.txt", names)
    for label in range(max(names) + 1):
        if not np.any(train.labels == label):
            raise ValueError(f"{path / 'annotations' / 'trainval.txt'} has no image of class {label + 1}")
    classes = tuple(names[label] for label in range(len(names)))
    return ImageData(train, test, classes, tuple(train_files + test_files))


def _pet_list(path: Path, name: str, names: dict[int, str]) -> tuple[list[Path], ImageSplit]:
    file = path / "annotations" / name
    files, labels = [], []
    for number, line in enumerate(file.read_text().splitlines(), 1):
        words = line.split()
        if not words or line.startswith("#"):
            continue
        if len(words) != 4 or not words[1].isdecimal() or int(words[1]) < 1 or "/" in words[0]:
            raise ValueError(f"{file}:{number} must be NAME CLASS-ID SPECIES BREED-ID, got {line!r}")
        image = path / "images" / f"{words[0]}.jpg"
        if not image.is_file():
            raise FileNotFoundError(f"{file}:{number} names an image that is missing: {image}")
        files.append(image)
        labels.append(int(words[1]) - 1)
        breed = names.setdefault(labels[-1], words[0].rpartition("_")[0])
        if breed != words[0].rpartition("_")[0]:
            raise ValueError(f"{file}:{number} gives class {words[1]} to {words[0]}, earlier it was {breed}")
    if not files:
        raise ValueError(f"{file} names no images")
    return files, ImageSplit(np.array(labels, np.int64), decoder(files))
