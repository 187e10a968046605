"""Image files become arrays of RGB pixels."""

import struct
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

import numpy as np

from experiments.features.images.collection import Picture


def decoder(files: Sequence[Path]) -> Callable[[int, int], list[Picture]]:
    """Returns the ``read`` of an ``ImageSplit`` whose images are these files.

    >>> decoder([Path("missing.png")])(0, 0)
    []
    """
    return lambda start, stop: [decoded(file) for file in files[start:stop]]


def decoded(path: Path) -> Picture:
    """Reads an image file as RGB, (height, width, 3).

    Grey values, palettes and 16 bits are converted; transparency is dropped.

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
        raise ModuleNotFoundError("image files need Pillow: pip install 'ringfence[experiments]'") from None
    broken = (OSError, SyntaxError, ValueError, EOFError, struct.error, pillow.DecompressionBombError)
    try:
        with pillow.open(path) as image:
            mode = image.mode
            if mode.startswith("I;16"):  # because Pillow would clip at 255
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
