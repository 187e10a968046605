"""Images in folders, one folder for each class."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.features.images.collection import ImageData, ImageSplit
from experiments.features.images.decoding import decoder

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".webp")


def read_folders(path: Path) -> ImageData:
    """Finds the images in the folders of ``path``: CLASS, or train/CLASS and perhaps test/CLASS.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     Path(folder, "cat").mkdir()
    ...     Path(folder, "cat", "tom.png").touch()
    ...     read_folders(Path(folder)).classes
    ('cat',)
    """
    folders = _subfolders(path)
    if "train" not in folders:
        classes = tuple(folders)
        files, train = _classes(path, classes, classes)
        return ImageData(train, None, classes, tuple(files))
    if set(folders) - {"train", "test"}:
        raise ValueError(f"{path} must hold train and perhaps test, got also {', '.join(folders)}")
    classes = tuple(_subfolders(path / "train"))
    files, train = _classes(path / "train", classes, classes)
    if "test" not in folders:
        return ImageData(train, None, classes, tuple(files))
    test_files, test = _classes(path / "test", tuple(_subfolders(path / "test")), classes)
    return ImageData(train, test, classes, tuple(files + test_files))


def _subfolders(path: Path) -> list[str]:
    names = sorted(entry.name for entry in path.iterdir() if entry.is_dir() and entry.name[0] != ".")
    if not names:
        raise ValueError(f"{path} must hold a folder for each class, got none")
    return names


def _classes(path: Path, chosen: Sequence[str], classes: Sequence[str]) -> tuple[list[Path], ImageSplit]:
    files: list[Path] = []
    labels: list[int] = []
    for name in chosen:
        if name not in classes:
            raise ValueError(f"{path / name}: there are no training images of this class")
        found = sorted(file for file in (path / name).iterdir() if file.suffix.lower() in ENDINGS)
        if not found:
            raise ValueError(f"{path / name} holds no images ({', '.join(ENDINGS)})")
        files += found
        labels += [classes.index(name)] * len(found)
    return files, ImageSplit(np.array(labels, np.int64), decoder(files))
