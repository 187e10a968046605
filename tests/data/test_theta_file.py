"""A theta from a file: a vector of floats, and files that hold none are refused."""

from pathlib import Path

import numpy as np
import pytest
import torch

from ringfence.data.theta_file import read_theta
from tests.shell import ringfence


@pytest.mark.parametrize(
    ("kind", "read"), [("f4", torch.float32), ("f8", torch.float64), ("i2", torch.float64)]
)
def test_any_array_of_numbers_is_a_vector(kind: str, read: torch.dtype, tmp_path: Path) -> None:
    np.save(tmp_path / "theta.npy", np.arange(6, dtype=kind).reshape(2, 3).T)
    theta = read_theta(tmp_path / "theta.npy")
    assert theta.dtype == read
    assert theta.tolist() == [0, 3, 1, 4, 2, 5]


def test_the_command_line_refuses_files_that_are_not_arrays(tmp_path: Path) -> None:
    (tmp_path / "text.npy").write_text("no array")
    np.save(tmp_path / "empty.npy", np.zeros(0))
    np.save(tmp_path / "words.npy", np.array(["a"]))
    for name, complaint in (
        ("text.npy", "is not a .npy file of numbers"),
        ("empty.npy", "must hold at least one coordinate, got none"),
        ("words.npy", "must hold numbers, got <U1"),
        ("missing.npy", "No such file or directory"),
    ):
        run = ringfence("account", tmp_path / name, "--sigma", 1, "--bound", 2, "--sensitivity", 5e-3)
        assert run.returncode == 2
        assert complaint in run.stderr
