"""CIFAR-10 and CIFAR-100 give back the pictures that were put in; a wrong or malicious batch is named."""

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from experiments.features.images.layouts import read_images
from tests.experiments.features.images.batches import cifar10, python2, python3, rows
from tests.experiments.features.images.pictures import check, pictures


@pytest.mark.parametrize("write", [python2, python3, lambda content: pickle.dumps(content, protocol=3)])
def test_cifar10(write: Any, tmp_path: Path) -> None:
    images, labels = cifar10(tmp_path, write)
    data = read_images(tmp_path)
    check(data, images, labels, 15)
    assert data.classes == ("cat", "dog", "owl")
    assert len(data.files) == 7


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
