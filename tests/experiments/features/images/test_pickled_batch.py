"""Batches are what pickle would read; whatever else a pickle can do is refused and not run."""

import pickle
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from experiments.features.images.pickled_batch import read_batch
from tests.experiments.features.images.batches import python2, python3, rows
from tests.experiments.features.images.pictures import RNG, pictures


def test_the_official_file_is_what_pickle_would_read(tmp_path: Path) -> None:
    content = {"labels": [6, 9, 200], "data": rows(pictures(3)), "filenames": ["a.png", "b.png"]}
    (tmp_path / "batch").write_bytes(python2(content))
    wanted = pickle.loads(python2(content).replace(b"numpy.core", b"numpy._core"), encoding="bytes")
    got = read_batch(tmp_path / "batch")
    assert got.keys() == {key.decode() for key in wanted}
    assert np.array_equal(got["data"], wanted[b"data"])
    assert got["labels"] == wanted[b"labels"]
    assert got["filenames"] == wanted[b"filenames"]


def test_batches_with_bytes_as_keys_and_columns_first(tmp_path: Path) -> None:
    content = {b"labels": [1], b"data": np.asfortranarray(rows(pictures(2))), b"count": 70000}
    (tmp_path / "batch").write_bytes(python3(content))
    got = read_batch(tmp_path / "batch")
    assert np.array_equal(got["data"], content[b"data"])
    assert (got["labels"], got["count"]) == ([1], 70000)


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


def test_a_name_with_an_escape_that_means_nothing_is_refused(tmp_path: Path) -> None:
    """Was a DeprecationWarning of Python's own decoder."""
    (tmp_path / "batch").write_bytes(b"\x80\x02c\\_codecs\nencode\n.")
    with pytest.raises(ValueError, match="is not a CIFAR batch that can be read safely"):
        read_batch(tmp_path / "batch")
