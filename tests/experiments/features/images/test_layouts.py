"""What has none of the layouts is named."""

from pathlib import Path

import pytest

from experiments.features.images.layouts import read_images


def test_neither_a_folder_nor_a_file_of_images(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nothing"):
        read_images(tmp_path / "nothing")
    (tmp_path / "cifar.tar.gz").write_text("")
    with pytest.raises(ValueError, match=r"cifar\.tar\.gz must be a \.npz file or a folder"):
        read_images(tmp_path / "cifar.tar.gz")
