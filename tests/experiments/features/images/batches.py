"""CIFAR batches as Python 2 and 3 wrote them."""

import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np

from tests.experiments.features.images.pictures import RNG, pictures


def rows(images: np.ndarray) -> np.ndarray:
    """As CIFAR has them: 1,024 reds, then greens, then blues."""
    return np.stack([np.concatenate([image[..., c].ravel() for c in range(3)]) for image in images])


def python3(content: dict[Any, Any]) -> bytes:
    """Protocol 2, with the name that numpy 1 gave its arrays."""
    data = pickle.dumps(content, protocol=2)
    return data.replace(b"numpy._core.multiarray", b"numpy.core.multiarray")


def python2(content: dict[str, Any]) -> bytes:
    """What Python 2's cPickle and numpy 1 wrote for the official files, instruction by instruction."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value

    def value(item: Any) -> bytes:
        if isinstance(item, str):
            return text(item.encode())
        if isinstance(item, int):
            return b"K" + bytes([item])
        if isinstance(item, list):
            return b"](" + b"".join(map(value, item)) + b"e"
        shape = b"".join(b"M" + struct.pack("<H", size) for size in item.shape) + b"\x86"
        dtype = b"cnumpy\ndtype\nq\x0a" + text(b"u1") + b"K\x00K\x01\x87Rq\x0b"
        dtype += b"(K\x03" + text(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        raw = item.tobytes()
        return (
            b"cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08K\x00\x85"
            + text(b"b")
            + b"\x87Rq\x09(K\x01"
            + shape
            + dtype
            + b"\x89T"
            + struct.pack("<i", len(raw))
            + raw
            + b"tb"
        )

    items = b"".join(text(key.encode()) + value(content[key]) for key in content)
    return b"\x80\x02}q\x01(" + items + b"u."


def cifar10(folder: Path, write: Any = python2) -> tuple[np.ndarray, list[int]]:
    images, labels = pictures(17), RNG.integers(0, 3, 17).tolist()
    folder.mkdir(exist_ok=True)
    for i in range(6):
        name = f"data_batch_{i + 1}" if i < 5 else "test_batch"
        chosen = slice(3 * i, 3 * i + 3)
        batch = {"batch_label": name, "labels": labels[chosen], "data": rows(images[chosen])}
        (folder / name).write_bytes(write({**batch, "filenames": ["a.png"] * len(labels[chosen])}))
    (folder / "batches.meta").write_bytes(
        write({"num_cases_per_batch": 3, "label_names": ["cat", "dog", "owl"]})
    )
    return images, labels
