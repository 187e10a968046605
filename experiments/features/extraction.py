"""Images go through a frozen backbone into a file of features, chunk by chunk: an interrupted run goes on.

Finished chunks lie in the folder FILE.npz.parts, each with its checksum, beside a settings.json that says
which images, backbone and settings they belong to. The last step puts them together. The file is the same to
the byte however often the run was interrupted.
"""

import hashlib
import io
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.features.backbones import Backbone, load_backbone
from experiments.features.images.collection import ImageData, ImageSplit
from experiments.features.images.layouts import read_images
from experiments.progress import Progress
from ringfence.checks import count
from ringfence.files.atomic import replacing
from ringfence.files.journal import locked

DTYPES = ("float16", "uint8")

_BATCHES = 16  # batches in a chunk, which is the work that a kill can cost
_CHECKSUM = hashlib.sha256().digest_size


def extract(
    images: Path,
    backbone: str,
    out: Path,
    *,
    batch_size: int = 64,
    device: str | None = None,
    dtype: str = "float16",
    pooling: str | None = None,
    progress: Progress | None = None,
) -> Path:
    """Writes the features of ``images`` (see ``read_images``) under ``backbone`` to the .npz file ``out``.

    The file holds train_features, train_labels, perhaps test_features, test_labels, and classes, as
    ``read_features`` reads them. With ``dtype`` uint8 it holds q_train, y_train and so on instead, where q
    stands for the feature 6 (q / 255)^2: these are public levels for features in [0, 6], like those of ReLU6,
    and features outside are refused. ``progress`` hears the name of a split and the share that is done.

    After a kill at any moment, the same call goes on after the last finished chunk. Chunks of other images,
    of another backbone or of other settings are refused by name, and so is a second call at the same time.

    Guarantee: a row depends on its own image and on public things alone. Nothing is fitted to the data.

    >>> extract(Path("photos"), "hf:google/vit-large-patch16-384", Path("features.npy"))
    Traceback (most recent call last):
    ValueError: out must end in .npz, got features.npy
    """
    images, out = Path(images), Path(out)
    count("batch_size", batch_size, at_least=1)
    if out.suffix != ".npz":
        raise ValueError(f"out must end in .npz, got {out}")
    if dtype not in DTYPES:
        raise ValueError(f"dtype must be float16 or uint8, got {dtype!r}")
    parts = out.with_name(f"{out.name}.parts")
    if out.exists() and not parts.exists():
        raise FileExistsError(f"{out} is there already")
    if not out.parent.is_dir():
        raise FileNotFoundError(f"no such folder: {out.parent}")
    data = read_images(images)
    model = load_backbone(backbone, pooling, device)
    settings = _settings(images, data, model, batch_size, dtype)
    with _alone(out):
        _begin(parts, settings)
        arrays = _arrays(parts, data, model, batch_size, dtype, progress)
        with replacing(out, scratch=parts) as file:
            # numpy dates every member 1980, so that the bytes depend on the arrays alone
            np.savez(file, **arrays)  # type: ignore[arg-type]
        _remove(parts)
    return out


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Keeps other runs away from ``out``. The run removes the lock; the next run does where it was killed."""
    lock = locked(out)
    try:
        if not os.fstat(lock).st_nlink:
            raise BlockingIOError(f"{out} was in use by another process until now: try again")
        try:
            yield
        finally:
            Path(f"{out}.lock").unlink(missing_ok=True)
    finally:
        os.close(lock)


def _arrays(
    parts: Path, data: ImageData, model: Backbone, batch_size: int, dtype: str, progress: Progress | None
) -> dict[str, NDArray[Any]]:
    """Returns the arrays of the file by their names."""
    arrays: dict[str, NDArray[Any]] = {}
    for name, split in (("train", data.train), ("test", data.test)):
        if split is not None:
            plain = (f"{name}_features", f"{name}_labels")
            features, labels = (f"q_{name}", f"y_{name}") if dtype == "uint8" else plain
            arrays[features] = _features(parts, name, split, model, batch_size, dtype, progress)
            arrays[labels] = split.labels
    arrays["classes"] = np.array(data.classes, dtype=np.str_)
    return arrays


def _settings(
    images: Path, data: ImageData, model: Backbone, batch_size: int, dtype: str
) -> dict[str, str | int]:
    """Everything that the bytes of the file depend on: batches and devices round the last bit differently."""
    digest = hashlib.sha256()
    for file in data.files:
        status = file.stat()
        name = file.relative_to(images) if file != images else file.name
        digest.update(f"{name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    for split in (data.train, data.test):
        digest.update(b"labels" + (split.labels.tobytes() if split else b""))
    return {
        "format of the parts": 2,  # parts of format 1 had no checksums
        "images": digest.hexdigest(),
        "backbone": model.fingerprint,
        "pooling": model.pooling,
        "dtype": dtype,
        "batch_size": batch_size,
        "device": model.device,
        **{library: _version(library) for library in ("torch", "transformers", "pillow")},
    }


def _version(library: str) -> str:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return "none"


def _begin(parts: Path, settings: dict[str, str | int]) -> None:
    """Makes the folder of parts, or makes sure that a run with these settings began it."""
    parts.mkdir(exist_ok=True)
    file = parts / "settings.json"
    if not file.exists():
        foreign = [entry for entry in sorted(parts.iterdir()) if entry.suffix != ".tmp"]
        if foreign:
            raise ValueError(f"{parts} must be empty or a run's, got {foreign[0].name} and no settings.json")
        _write(file, json.dumps(settings, indent=1).encode())
    try:
        begun = json.loads(file.read_text())
        different = next((key for key in settings if begun.get(key) != settings[key]), None)
    except (ValueError, AttributeError):
        raise ValueError(f"{file} is not the settings of a run") from None
    if different is not None:
        raise ValueError(
            f"{parts} was begun with another {different}: finish that run, or delete the folder"
            f" (it has {begun.get(different)}, this run {settings[different]})"
        )


def _features(
    parts: Path,
    name: str,
    split: ImageSplit,
    model: Backbone,
    batch_size: int,
    dtype: str,
    progress: Progress | None,
) -> NDArray[Any]:
    total, chunk = len(split.labels), batch_size * _BATCHES
    chunks = []
    for start in range(0, total, chunk):
        stop = min(start + chunk, total)
        file = parts / f"{name}-{start:09d}.npy"
        if not file.exists():
            rows = []
            for at in range(start, stop, batch_size):
                end = min(at + batch_size, stop)
                rows.append(_stored(model(split.read(at, end)), dtype, f"{name} image {at}"))
                if progress is not None and end < stop:
                    progress(name, end / total)
            _write_array(file, np.concatenate(rows))
        chunks.append(_read_part(file, (stop - start, model.width), dtype))
        if progress is not None:
            progress(name, stop / total)
    return np.concatenate(chunks)


def _read_part(file: Path, shape: tuple[int, int], dtype: str) -> NDArray[Any]:
    content = file.read_bytes()
    data, checksum = content[:-_CHECKSUM], content[-_CHECKSUM:]
    if hashlib.sha256(data).digest() != checksum:
        raise ValueError(f"{file} is damaged: delete it, and the run makes it again")
    values: NDArray[Any] = np.load(io.BytesIO(data), allow_pickle=False)
    if values.shape != shape or values.dtype != dtype:
        raise ValueError(f"{file} must hold {dtype} {list(shape)}, got {values.dtype} {list(values.shape)}")
    return values


def _stored(values: NDArray[np.float32], dtype: str, where: str) -> NDArray[Any]:
    """Returns the features as the file holds them; a value that does not fit is refused and not clipped."""
    low, high = (0.0, 6.0) if dtype == "uint8" else (-65504.0, 65504.0)
    outside = ~((values >= low) & (values <= high))  # which is also true of NaN
    if outside.any():
        got = values[outside][0]
        raise ValueError(
            f"dtype {dtype} holds features from {low:g} to {high:g}, got {got} in a batch from {where}"
        )
    if dtype == "uint8":
        levels: NDArray[np.uint8] = np.rint(255 * np.sqrt(values / 6)).astype(np.uint8)
        return levels
    return values.astype(np.float16)


def _write_array(path: Path, values: NDArray[Any]) -> None:
    data = io.BytesIO()
    np.save(data, values)
    _write(path, data.getvalue() + hashlib.sha256(data.getvalue()).digest())


def _write(path: Path, data: bytes) -> None:
    with replacing(path) as file:
        file.write(data)


def _remove(parts: Path) -> None:
    """Removes the parts, the settings last: a folder that a kill leaves half empty still says whose it is."""
    for file in sorted(parts.iterdir(), key=lambda file: file.name == "settings.json"):
        file.unlink()
    parts.rmdir()
