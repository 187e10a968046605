"""Reads a theta, what is released before noise, from a file."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ringfence.data.features import read_array


def read_theta(path: Path) -> Tensor:
    """The numbers of a .npy file as a vector; integers become float64.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     np.save(Path(folder) / "theta.npy", np.array([[1, 2]]))
    ...     read_theta(Path(folder) / "theta.npy")
    tensor([1., 2.], dtype=torch.float64)
    """
    values = read_array(path)
    if values.dtype.kind not in "fiu":
        raise ValueError(f"{path} must hold numbers, got {values.dtype}")
    if values.dtype not in (np.float32, np.float64):
        values = values.astype(np.float64)
    if values.size == 0:
        raise ValueError(f"{path} must hold at least one coordinate, got none")
    return torch.from_numpy(np.ascontiguousarray(values)).reshape(-1)
