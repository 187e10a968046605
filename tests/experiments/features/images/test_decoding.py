"""Every mode of an image becomes RGB; a broken image is named."""

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from experiments.features.images.decoding import decoded
from experiments.features.images.layouts import read_images
from tests.experiments.features.images.pictures import RNG, pictures, put


@pytest.mark.parametrize("mode", ["L", "LA", "RGBA", "P", "1", "CMYK", "I;16"])
def test_every_mode_becomes_rgb(mode: str, tmp_path: Path) -> None:
    colour = Image.fromarray(pictures(1, 6, 8)[0])
    if mode == "I;16":
        values = RNG.integers(0, 2**16, (6, 8)).astype(np.uint16)
        image, wanted = Image.fromarray(values), np.stack([values // 256] * 3, axis=2)
    else:
        image = colour.convert(mode)
        wanted = np.asarray(image.convert("RGBA").convert("RGB") if mode == "LA" else image.convert("RGB"))
    file = tmp_path / ("a.tiff" if mode == "CMYK" else "a.png")
    image.save(file)
    got = decoded(file)
    assert (got.dtype, got.shape) == (np.uint8, (6, 8, 3))
    assert np.array_equal(got, wanted)


def test_a_palette_with_transparency(tmp_path: Path) -> None:
    image = Image.fromarray(RNG.integers(0, 3, (4, 4), dtype=np.uint8))
    image.putpalette([1, 2, 3, 40, 50, 60, 7, 8, 9])
    image.save(tmp_path / "a.png", transparency=bytes([0, 128, 255]))
    assert set(map(tuple, decoded(tmp_path / "a.png").reshape(-1, 3).tolist())) <= {
        (1, 2, 3),
        (40, 50, 60),
        (7, 8, 9),
    }


@pytest.mark.parametrize("ending", ["png", "jpg"])
def test_a_broken_image_is_named(ending: str, tmp_path: Path) -> None:
    file = put(tmp_path / "cat" / f"1.{ending}", size=(200, 200))
    whole = file.read_bytes()
    data = read_images(tmp_path)
    for content in (whole[: len(whole) // 2], b"", b"no image", whole[:20] + b"\xff" * 40 + whole[60:]):
        file.write_bytes(content)
        with pytest.raises(ValueError, match=rf"^{re.escape(str(file))} cannot be read as an image"):
            data.train.read(0, 1)
    file.unlink()
    with pytest.raises(FileNotFoundError, match=re.escape(f"no such image: {file}")):
        data.train.read(0, 1)


def test_pixels_of_unknown_scale_are_refused(tmp_path: Path) -> None:
    Image.fromarray(np.ones((2, 2), np.float32)).save(tmp_path / "a.tiff")
    with pytest.raises(ValueError, match=r"a\.tiff has 32-bit pixels \(mode F\)"):
        decoded(tmp_path / "a.tiff")
