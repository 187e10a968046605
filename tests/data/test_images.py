"""Every layout gives back the pictures that were put in; what is broken is named; no pickle is run."""

import os
import pickle
import re
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ringfence.data.images import ImageData, decoded, read_images
from ringfence.data.pickled_batch import read_batch

RNG = np.random.default_rng(0)


def pictures(count: int, height: int = 32, width: int = 32) -> np.ndarray:
    return RNG.integers(0, 256, (count, height, width, 3), dtype=np.uint8)


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


def check(data: ImageData, images: np.ndarray, labels: list[int], cut: int) -> None:
    assert data.train.labels.dtype == np.int64
    assert data.train.labels.tolist() == labels[:cut]
    assert data.test is not None
    assert data.test.labels.tolist() == labels[cut:]
    for start, stop in [(0, cut), (cut // 2, cut), (1, 2), (cut - 1, cut), (0, 1)]:
        assert np.array_equal(data.train.read(start, stop), images[:cut][start:stop])
    assert np.array_equal(data.test.read(0, len(labels) - cut), images[cut:])


def test_the_official_file_is_what_pickle_would_read(tmp_path: Path) -> None:
    content = {"labels": [6, 9, 200], "data": rows(pictures(3)), "filenames": ["a.png", "b.png"]}
    (tmp_path / "batch").write_bytes(python2(content))
    wanted = pickle.loads(python2(content).replace(b"numpy.core", b"numpy._core"), encoding="bytes")
    got = read_batch(tmp_path / "batch")
    assert got.keys() == {key.decode() for key in wanted}
    assert np.array_equal(got["data"], wanted[b"data"])
    assert got["labels"] == wanted[b"labels"]
    assert got["filenames"] == wanted[b"filenames"]


@pytest.mark.parametrize("write", [python2, python3, lambda content: pickle.dumps(content, protocol=3)])
def test_cifar10(write: Any, tmp_path: Path) -> None:
    images, labels = cifar10(tmp_path, write)
    data = read_images(tmp_path)
    check(data, images, labels, 15)
    assert data.classes == ("cat", "dog", "owl")
    assert len(data.files) == 7


def test_batches_with_bytes_as_keys_and_columns_first(tmp_path: Path) -> None:
    content = {b"labels": [1], b"data": np.asfortranarray(rows(pictures(2))), b"count": 70000}
    (tmp_path / "batch").write_bytes(python3(content))
    got = read_batch(tmp_path / "batch")
    assert np.array_equal(got["data"], content[b"data"])
    assert (got["labels"], got["count"]) == ([1], 70000)


def test_cifar100_has_its_fine_labels(tmp_path: Path) -> None:
    images, labels = pictures(5), [3, 0, 1, 2, 3]
    for name, chosen in (("train", slice(0, 3)), ("test", slice(3, 5))):
        batch = {"coarse_labels": [0] * 2, "fine_labels": labels[chosen], "data": rows(images[chosen])}
        (tmp_path / name).write_bytes(python2(batch))
    names = {"fine_label_names": ["a", "b", "c", "d"], "coarse_label_names": ["x"]}
    (tmp_path / "meta").write_bytes(python2(names))
    data = read_images(tmp_path)
    check(data, images, labels, 3)
    assert data.classes == ("a", "b", "c", "d")


class Shell:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.marker}",)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_a_malicious_pickle_is_refused_and_not_run(protocol: int, tmp_path: Path) -> None:
    cifar10(tmp_path / "data")
    marker = tmp_path / "ran"
    attack = pickle.dumps({"labels": [0], "data": Shell(marker)}, protocol=protocol)
    (tmp_path / "data" / "data_batch_2").write_bytes(attack)
    with pytest.raises(
        ValueError, match=r"data_batch_2 is not a CIFAR batch that can be read safely: "
    ) as error:
        read_images(tmp_path / "data")
    assert not marker.exists()
    if protocol in (2, 3):
        assert "it calls posix.system('touch" in str(error.value)
    pickle.loads(attack)  # the attack is a real one
    assert marker.exists()


CODEC = b"c_codecs\nencode\n"


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b"}U\x01aK\x01s.", None),
        (b"cbuiltins\neval\nX\x03\0\0\x001+1\x85R.", r"it calls builtins\.eval"),
        (CODEC + b"X\x01\0\0\0aX\x05\0\0\0rot13\x86R.", r"it calls _codecs\.encode"),
        (b"cnumpy\ndtype\nU\x02O8K\0K\1\x87R.", r"it calls numpy\.dtype\(b'O8'"),
        (b"cnumpy.core.multiarray\n_reconstruct\ncos\nsystem\nK\0\x85U\1b\x87R.", "it calls numpy.core"),
        (b"cos\nsystem\n.", "holds a _Name, not a dict"),
        (b"]K\x01a.", "holds a list, not a dict"),
        (b"}U\x01aK\x01", "."),
        (b".", "stack runs empty"),
        (b"}(K\x01u.", "zip"),
        (b"}]K\x01s.", "."),
        (b"h\x05.", "."),
        (b"}N}b.", "."),
        (b"(K\x01i", "."),
        (b"cos\nsystem\n}\x81.", "instruction NEWOBJ"),
        (b"\x8c\x02os\x8c\x06system\x93.", "instruction SHORT_BINUNICODE"),
    ],
)
def test_instructions_that_do_not_belong(body: bytes, complaint: str | None, tmp_path: Path) -> None:
    (tmp_path / "batch").write_bytes(b"\x80\x02" + body)
    if complaint is None:
        assert read_batch(tmp_path / "batch") == {"a": 1}
        return
    with pytest.raises(
        ValueError, match=rf"batch is not a CIFAR batch that can be read safely: .*{complaint}"
    ):
        read_batch(tmp_path / "batch")


@pytest.mark.filterwarnings("ignore:invalid escape sequence")  # of pickletools, in what was text
def test_random_damage_is_a_value_error_or_another_picture(tmp_path: Path) -> None:
    good = python2({"labels": [6, 9], "data": RNG.integers(0, 256, (2, 8), dtype=np.uint8)})
    for _ in range(2000):
        damaged = bytearray(good[: RNG.integers(1, len(good) + 1)])
        damaged[RNG.integers(len(damaged))] = RNG.integers(256)
        (tmp_path / "batch").write_bytes(damaged)
        with suppress(ValueError):  # and nothing else
            assert isinstance(read_batch(tmp_path / "batch"), dict)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"labels": [0, 3, 1]}, "labels must be from 0 to 2, got 3"),
        ({"labels": [0, 1]}, r"data must have shape \[2, 3072\], got \[3, 3072\]"),
        ({"labels": "text"}, "must hold a list labels of integers"),
        ({"data": "text"}, r"data must have shape \[3, 3072\], got bytes"),
    ],
)
def test_a_wrong_batch_is_named(change: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    cifar10(tmp_path)
    batch = {"labels": [0, 1, 2], "data": rows(pictures(3)), **change}
    (tmp_path / "data_batch_3").write_bytes(python2(batch))
    with pytest.raises(ValueError, match=rf"data_batch_3:? {complaint}"):
        read_images(tmp_path)
    (tmp_path / "data_batch_3").unlink()
    with pytest.raises(FileNotFoundError, match="data_batch_3"):
        read_images(tmp_path)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz(save: Any, tmp_path: Path) -> None:
    images, labels = pictures(9, 4, 5), [0, 2, 1, 2, 0, 1, 1, 2, 0]
    arrays = {"x_train": images[:6], "y_train": np.array(labels[:6], np.uint8)}
    arrays |= {"x_test": images[6:], "y_test": np.array(labels[6:])[:, None]}
    save(tmp_path / "a.npz", **arrays)
    data = read_images(tmp_path / "a.npz")
    check(data, images, labels, 6)
    assert data.classes == ("0", "1", "2")
    save(tmp_path / "a.npz", **arrays, classes=np.array(["cat", "dog", "owl"]))
    assert read_images(tmp_path / "a.npz").classes == ("cat", "dog", "owl")


def test_a_grey_npz_and_one_without_a_test_split(tmp_path: Path) -> None:
    grey = pictures(3)[..., 0]
    np.savez(tmp_path / "a.npz", x_train=grey, y_train=[0, 1, 0])
    data = read_images(tmp_path / "a.npz")
    assert data.test is None
    assert np.array_equal(data.train.read(1, 3), np.stack([grey[1:]] * 3, axis=3))


X, Y = pictures(2), np.array([0, 1])


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"y_train": Y}, "must hold x_train and y_train, got no x_train"),
        ({"x_train": X, "y_train": Y, "x_test": X}, "must hold x_test and y_test, got no y_test"),
        ({"x_train": X / 255, "y_train": Y}, "x_train must be uint8 .*, got float64"),
        ({"x_train": X[..., :2], "y_train": Y}, r"got uint8 \[2, 32, 32, 2\]"),
        ({"x_train": X[:0], "y_train": Y[:0]}, r"got uint8 \[0, 32, 32, 3\]"),
        ({"x_train": X, "y_train": Y[:1]}, r"y_train must be 2 integers, got int64 \[1\]"),
        ({"x_train": X, "y_train": Y / 2}, "y_train must be 2 integers, got float64"),
        ({"x_train": X, "y_train": Y - 1}, "y_train must be >= 0, got -1"),
        ({"x_train": X, "y_train": Y, "classes": ["cat"]}, "classes must name 2 classes, got 1"),
        ({"x_train": X, "y_train": np.array([{}, {}])}, "y_train cannot be read as an array"),
    ],
)
def test_what_is_wrong_in_an_npz_is_named(arrays: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(ValueError, match=complaint) as error:
        read_images(tmp_path / "a.npz")
    assert str(error.value).startswith(str(tmp_path / "a.npz"))


def put(path: Path, value: int = 0, size: tuple[int, int] = (6, 4), mode: str = "RGB") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, (value,) * len(mode) if len(mode) > 1 else value).save(path)
    return path


def test_folders_of_classes(tmp_path: Path) -> None:
    put(tmp_path / "dog" / "b.JPG", 200, (9, 5))
    put(tmp_path / "cat" / "2.png", 20)
    put(tmp_path / "cat" / "1.jpeg", 10)
    (tmp_path / "cat" / "notes.txt").write_text("no image")
    (tmp_path / ".cache").mkdir()
    data = read_images(tmp_path)
    assert data.classes == ("cat", "dog")
    assert data.train.labels.tolist() == [0, 0, 1]
    assert data.test is None
    assert [(p.shape, p.dtype, int(p.mean())) for p in data.train.read(0, 3)] == [
        ((4, 6, 3), np.uint8, 10),
        ((4, 6, 3), np.uint8, 20),
        ((5, 9, 3), np.uint8, 200),
    ]


def test_folders_of_splits(tmp_path: Path) -> None:
    for i, name in enumerate(("train/cat", "train/dog", "train/owl", "test/owl", "test/cat")):
        put(tmp_path / name / "1.png", i)
    data = read_images(tmp_path)
    assert data.classes == ("cat", "dog", "owl")
    assert data.test is not None
    assert data.test.labels.tolist() == [0, 2]
    assert [int(p.max()) for p in data.test.read(0, 2)] == [4, 3]
    put(tmp_path / "test" / "fox" / "1.png")
    with pytest.raises(ValueError, match=r"test/fox: there are no training images of this class"):
        read_images(tmp_path)
    put(tmp_path / "val" / "fox" / "1.png")
    with pytest.raises(ValueError, match="must hold train and perhaps test, got also test, train, val"):
        read_images(tmp_path)


def test_empty_classes_and_no_classes(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must hold a folder for each class, got none"):
        read_images(tmp_path)
    put(tmp_path / "cat" / "1.png")
    (tmp_path / "dog").mkdir()
    with pytest.raises(ValueError, match=r"dog holds no images \(\.png"):
        read_images(tmp_path)
    with pytest.raises(FileNotFoundError, match="nothing"):
        read_images(tmp_path / "nothing")
    (tmp_path / "cifar.tar.gz").write_text("")
    with pytest.raises(ValueError, match=r"cifar\.tar\.gz must be a \.npz file or a folder"):
        read_images(tmp_path / "cifar.tar.gz")


def pets(folder: Path) -> Path:
    for i, name in enumerate(("Abyssinian_1", "Abyssinian_2", "great_pyrenees_7", "great_pyrenees_10")):
        put(folder / "images" / f"{name}.jpg", 50 * i, (7 + i, 5))
    (folder / "annotations").mkdir()
    (folder / "annotations" / "trainval.txt").write_text("great_pyrenees_7 2 2 1\nAbyssinian_2 1 1 1\n")
    (folder / "annotations" / "test.txt").write_text(
        "#Image CLASS-ID\nAbyssinian_1 1 1 1\ngreat_pyrenees_10 2 2 1\n"
    )
    return folder


def test_pets(tmp_path: Path) -> None:
    data = read_images(pets(tmp_path))
    assert data.classes == ("Abyssinian", "great_pyrenees")
    assert data.train.labels.tolist() == [1, 0]
    assert [p.shape for p in data.train.read(0, 2)] == [(5, 9, 3), (5, 8, 3)]
    assert data.test is not None
    assert data.test.labels.tolist() == [0, 1]
    assert [int(np.median(p)) for p in data.test.read(0, 2)] == [0, 150]
    assert len(data.files) == 4


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("Abyssinian_9 1 1 1", r"trainval\.txt:2 names an image that is missing: .*Abyssinian_9\.jpg"),
        (
            "Abyssinian_2 1 1",
            r"trainval\.txt:2 must be NAME CLASS-ID SPECIES BREED-ID, got 'Abyssinian_2 1 1'",
        ),
        ("Abyssinian_2 0 1 1", r"trainval\.txt:2 must be NAME"),
        ("../Abyssinian_2 1 1 1", r"trainval\.txt:2 must be NAME"),
        ("Abyssinian_2 2 1 1", r"gives class 2 to Abyssinian_2, earlier it was great_pyrenees"),
        ("", r"trainval\.txt has no image of class 1"),
    ],
)
def test_wrong_labels_of_pets_are_named(line: str, complaint: str, tmp_path: Path) -> None:
    file = pets(tmp_path) / "annotations" / "trainval.txt"
    file.write_text(f"great_pyrenees_7 2 2 1\n{line}\n")
    with pytest.raises((ValueError, FileNotFoundError), match=complaint):
        read_images(tmp_path)
    file.unlink()
    with pytest.raises(FileNotFoundError, match="trainval"):
        read_images(tmp_path)


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


def test_a_name_with_an_escape_that_means_nothing_is_refused(tmp_path: Path) -> None:
    """Was a DeprecationWarning of Python's own decoder."""
    (tmp_path / "batch").write_bytes(b"\x80\x02c\\_codecs\nencode\n.")
    with pytest.raises(ValueError, match="is not a CIFAR batch that can be read safely"):
        read_batch(tmp_path / "batch")
