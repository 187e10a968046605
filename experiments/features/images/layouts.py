"""The layout of a collection of images is recognised by the names of its files and folders."""

from pathlib import Path

from experiments.features.images.archive import read_archive
from experiments.features.images.cifar import read_cifar
from experiments.features.images.collection import ImageData
from experiments.features.images.folders import read_folders
from experiments.features.images.pets import read_pets


def read_images(path: Path) -> ImageData:
    """Finds the images at ``path``, in one of the layouts that ``experiments.features.images`` lists.

    >>> import numpy as np
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "two.npz"
    ...     np.savez(file, x_train=np.zeros((2, 32, 32, 3), np.uint8), y_train=[0, 1])
    ...     data = read_images(file)
    ...     len(data.train.labels), data.train.read(1, 2)[0].shape, data.test, data.classes
    (2, (32, 32, 3), None, ('0', '1'))
    """
    if not path.exists():
        raise FileNotFoundError(f"no such file or folder: {path}")
    if path.suffix == ".npz" and path.is_file():
        return read_archive(path)
    if not path.is_dir():
        raise ValueError(f"{path} must be a .npz file or a folder of images")
    if (path / "data_batch_1").is_file():
        return read_cifar(
            path, [f"data_batch_{i}" for i in range(1, 6)], "test_batch", "batches.meta", "label"
        )
    if (path / "train").is_file():
        return read_cifar(path, ["train"], "test", "meta", "fine_label")
    if (path / "annotations").is_dir():
        return read_pets(path)
    return read_folders(path)
