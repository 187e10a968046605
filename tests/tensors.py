"""Tensors for tests."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


def float64(values: object) -> Tensor:
    """The values as they are; torch.tensor(values).double() would pass them through float32."""
    return torch.tensor(values, dtype=torch.float64)


@contextmanager
def double_by_default() -> Iterator[None]:
    """What is the same inside did not pass through torch's default dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
