"""Images in a .npz file: arrays of pixels, of which a few rows at a time are read."""

import errno
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np

from experiments.features.images.collection import ImageData, ImageSplit, Picture
from ringfence.data.features import open_archive, read_member


def read_archive(path: Path) -> ImageData:
    """Reads the labels of a .npz file of images, and checks the images once to their end.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     np.savez(Path(folder, "one.npz"), x_train=np.zeros((1, 4, 4), np.uint8), y_train=[0])
    ...     read_archive(Path(folder, "one.npz")).train.read(0, 1)[0].shape
    (4, 4, 3)
    """
    try:
        with open_archive(path) as archive:
            names = {name.removesuffix(".npy") for name in archive.namelist()}
            train = _split(path, archive, names, "train")
            test = _split(path, archive, names, "test") if {"x_test", "y_test"} & names else None
            given = read_member(path, archive, "classes.npy") if "classes" in names else None
    except (zipfile.BadZipFile, RuntimeError, OSError) as error:
        # damage may look like encryption, or point before the beginning of the file
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise
        raise ValueError(f"{path} is not a .npz file") from None
    splits = [train] if test is None else [train, test]
    count = 1 + max(int(split.labels.max()) for split in splits)
    classes = tuple(map(str, range(count) if given is None else given.tolist()))
    if len(classes) < count:
        raise ValueError(f"{path}: classes must name {count} classes, got {len(classes)}")
    return ImageData(train, test, classes, (path,))


def _split(path: Path, archive: zipfile.ZipFile, names: set[str], split: str) -> ImageSplit:
    for key in (f"x_{split}", f"y_{split}"):
        if key not in names:
            raise ValueError(f"{path} must hold x_{split} and y_{split}, got no {key}")
    with archive.open(f"x_{split}.npy") as member:
        shape, fortran, dtype = _header(path, f"x_{split}", member)
        start = member.tell()
        try:
            while member.read(1 << 20):  # the archive's checksum is compared at the end
                pass
        except (zipfile.BadZipFile, zlib.error, EOFError):
            raise ValueError(f"{path}: x_{split} is damaged or cut short") from None
    grey = len(shape) == 3
    if dtype != np.uint8 or fortran or not (grey or (len(shape) == 4 and shape[3] == 3)) or 0 in shape:
        wanted = "uint8 of shape (n, height, width, 3) or (n, height, width)"
        raise ValueError(f"{path}: x_{split} must be {wanted}, got {dtype} {list(shape)}")
    size = int(np.prod(shape[1:]))

    opened: list[IO[bytes]] = []  # it stays open: from its beginning, every row would read all before it

    def read(first: int, last: int) -> list[Picture]:
        # only these rows are read, because the whole array may be larger than the memory
        opened[:] = opened or [zipfile.ZipFile(path).open(f"x_{split}.npy")]  # noqa: SIM115
        try:
            opened[0].seek(start + first * size)
            data = opened[0].read((last - first) * size)
        except (zipfile.BadZipFile, zlib.error, EOFError):
            data = b""
        if len(data) != (last - first) * size:
            raise ValueError(f"{path}: x_{split} is damaged or cut short")
        rows = np.frombuffer(data, np.uint8).reshape(last - first, *shape[1:])
        return list(np.repeat(rows[..., None], 3, axis=3) if grey else rows)

    labels = read_member(path, archive, f"y_{split}.npy")
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels  # Keras has such columns
    if labels.dtype.kind not in "iu" or labels.shape != shape[:1]:
        got = f"{labels.dtype} {list(labels.shape)}"
        raise ValueError(f"{path}: y_{split} must be {shape[0]} integers, got {got}")
    if labels.min() < 0:
        raise ValueError(f"{path}: y_{split} must be >= 0, got {labels.min()}")
    return ImageSplit(labels.astype(np.int64), read)


def _header(path: Path, key: str, member: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        version = np.lib.format.read_magic(member)
        if version == (1, 0):
            return np.lib.format.read_array_header_1_0(member)
        return np.lib.format.read_array_header_2_0(member)
    except (ValueError, EOFError, zlib.error):
        raise ValueError(f"{path}: {key} cannot be read as an array") from None
