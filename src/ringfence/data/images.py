"""Image collections with labels: found first, decoded a few at a time, nothing in them is run.

    FILE.npz             x_train, y_train and perhaps x_test, y_test, classes; x is uint8 of shape
                         (n, height, width, 3) or, grey, (n, height, width)
    CIFAR-10, CIFAR-100  the folder of the python version: data_batch_1 to 5 and test_batch, or train and test
    Oxford-IIIT Pet      images/*.jpg, annotations/trainval.txt and test.txt
    folders              CLASS/*.png or .jpg, or train/CLASS/... and perhaps test/CLASS/...

CIFAR's files are pickles, which are not unpickled (``read_batch``).
"""

import errno
import struct
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringfence.data.features import open_archive, read_member
from ringfence.data.pickled_batch import read_batch

Picture = NDArray[np.uint8]  # (height, width, 3)

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".webp")


@dataclass(frozen=True)
class ImageSplit:
    """Labels (n,) in int64, and ``read(start, stop)`` that decodes those images, any size, RGB.

    >>> black = np.zeros((2, 2, 3), np.uint8)
    >>> len(ImageSplit(np.array([1, 0]), lambda start, stop: [black] * (stop - start)).read(0, 2))
    2
    """

    labels: NDArray[np.int64]
    read: Callable[[int, int], list[Picture]]


@dataclass(frozen=True)
class ImageData:
    """A training and perhaps a test split; label k is ``classes[k]``; ``files`` are all that was found.

    >>> one = ImageSplit(np.array([0]), lambda start, stop: [])
    >>> ImageData(one, None, ("cat",), ()).classes
    ('cat',)
    """

    train: ImageSplit
    test: ImageSplit | None
    classes: tuple[str, ...]
    files: tuple[Path, ...]


def read_images(path: Path) -> ImageData:
    """The images at ``path``, in one of the layouts above; which one is seen from its names.

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
        return _npz(path)
    if not path.is_dir():
        raise ValueError(f"{path} must be a .npz file or a folder of images")
    if (path / "data_batch_1").is_file():
        return _cifar(path, [f"data_batch_{i}" for i in range(1, 6)], "test_batch", "batches.meta", "label")
    if (path / "train").is_file():
        return _cifar(path, ["train"], "test", "meta", "fine_label")
    if (path / "annotations").is_dir():
        return _pets(path)
    return _folders(path)


def _npz(path: Path) -> ImageData:
    try:
        with open_archive(path) as archive:
            names = {name.removesuffix(".npy") for name in archive.namelist()}
            train = _npz_split(path, archive, names, "train")
            test = _npz_split(path, archive, names, "test") if {"x_test", "y_test"} & names else None
            given = read_member(path, archive, "classes.npy") if "classes" in names else None
    except (zipfile.BadZipFile, RuntimeError, OSError) as error:
        # damage may look like encryption, or lead before the beginning of the file
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise
        raise ValueError(f"{path} is not a .npz file") from None
    splits = [train] if test is None else [train, test]
    count = 1 + max(int(split.labels.max()) for split in splits)
    classes = tuple(map(str, range(count) if given is None else given.tolist()))
    if len(classes) < count:
        raise ValueError(f"{path}: classes must name {count} classes, got {len(classes)}")
    return ImageData(train, test, classes, (path,))


def _npz_split(path: Path, archive: zipfile.ZipFile, names: set[str], split: str) -> ImageSplit:
    for key in (f"x_{split}", f"y_{split}"):
        if key not in names:
            raise ValueError(f"{path} must hold x_{split} and y_{split}, got no {key}")
    with archive.open(f"x_{split}.npy") as member:
        shape, fortran, dtype = _header(path, f"x_{split}", member)
        start = member.tell()
        try:
            while member.read(1 << 20):  # once to the end, where the archive's checksum is compared
                pass
        except (zipfile.BadZipFile, zlib.error, EOFError):
            raise ValueError(f"{path}: x_{split} is damaged or cut short") from None
    grey = len(shape) == 3
    if dtype != np.uint8 or fortran or not (grey or (len(shape) == 4 and shape[3] == 3)) or 0 in shape:
        wanted = "uint8 of shape (n, height, width, 3) or (n, height, width)"
        raise ValueError(f"{path}: x_{split} must be {wanted}, got {dtype} {list(shape)}")
    size = int(np.prod(shape[1:]))

    def read(first: int, last: int) -> list[Picture]:
        # the rows alone, out of the archive: the whole array may be larger than memory
        with zipfile.ZipFile(path) as archive, archive.open(f"x_{split}.npy") as member:
            try:
                member.seek(start + first * size)
                data = member.read((last - first) * size)
            except (zipfile.BadZipFile, zlib.error, EOFError):
                data = b""
        if len(data) != (last - first) * size:
            raise ValueError(f"{path}: x_{split} is damaged or cut short")
        rows = np.frombuffer(data, np.uint8).reshape(last - first, *shape[1:])
        return list(np.repeat(rows[..., None], 3, axis=3) if grey else rows)

    labels = read_member(path, archive, f"y_{split}.npy")
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels  # as Keras has them
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


def _cifar(path: Path, train: Sequence[str], test: str, meta: str, key: str) -> ImageData:
    files = [path / name for name in (*train, test, meta)]
    for file in files:
        if not file.is_file():
            raise FileNotFoundError(f"no such file: {file}")
    names = read_batch(files[-1]).get(f"{key}_names")
    if not isinstance(names, list) or not all(isinstance(name, bytes | str) for name in names):
        raise ValueError(f"{files[-1]} must hold {key}_names")
    classes = tuple(name.decode("latin-1") if isinstance(name, bytes) else name for name in names)

    @lru_cache(maxsize=1)  # five files of 30 MB, read in order: one is held at a time
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
            row = batch(chosen[at])[1][index - int(ends[at])]  # from the end: the same row
            return np.ascontiguousarray(row.reshape(3, 32, 32).transpose(1, 2, 0))

        return ImageSplit(
            np.concatenate(labels), lambda start, stop: [picture(i) for i in range(start, stop)]
        )

    return ImageData(split(files[:-2]), split([files[-2]]), classes, tuple(files))


def _pets(path: Path) -> ImageData:
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
    return files, ImageSplit(np.array(labels, np.int64), _decoder(files))


def _folders(path: Path) -> ImageData:
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
    return files, ImageSplit(np.array(labels, np.int64), _decoder(files))


def _decoder(files: Sequence[Path]) -> Callable[[int, int], list[Picture]]:
    return lambda start, stop: [decoded(file) for file in files[start:stop]]


def decoded(path: Path) -> Picture:
    """An image file as RGB, (height, width, 3); grey, palettes and 16 bits are converted, alpha is dropped.

    >>> from tempfile import TemporaryDirectory
    >>> from PIL import Image
    >>> with TemporaryDirectory() as folder:
    ...     Image.new("L", (3, 2), 7).save(Path(folder) / "grey.png")
    ...     decoded(Path(folder) / "grey.png")[0].tolist()
    [[7, 7, 7], [7, 7, 7], [7, 7, 7]]
    """
    try:
        pillow = import_module("PIL.Image")
    except ModuleNotFoundError:
        raise ModuleNotFoundError("image files need Pillow: pip install 'ringfence[data]'") from None
    broken = (OSError, SyntaxError, ValueError, EOFError, struct.error, pillow.DecompressionBombError)
    try:
        with pillow.open(path) as image:
            mode = image.mode
            if mode.startswith("I;16"):  # Pillow would clip at 255
                image = pillow.fromarray((np.asarray(image) >> 8).astype(np.uint8))
            elif mode == "P" and "transparency" in image.info:
                image = image.convert("RGBA")
            if mode not in ("I", "F"):
                return np.array(image.convert("RGB"))
    except FileNotFoundError:
        raise FileNotFoundError(f"no such image: {path}") from None
    except broken as error:
        raise ValueError(f"{path} cannot be read as an image: {error}") from None
    raise ValueError(f"{path} has 32-bit pixels (mode {mode}): their scale is not known")
