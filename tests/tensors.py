"""Tensors for tests."""

import torch
from torch import Tensor


def float64(values: object) -> Tensor:
    """The values as they are; torch.tensor(values).double() would pass them through float32."""
    return torch.tensor(values, dtype=torch.float64)
