"""Oxford-IIIT Pet; wrong lines of its lists are named."""

from pathlib import Path

import numpy as np
import pytest

from experiments.features.images.layouts import read_images
from tests.experiments.features.images.pictures import put


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
