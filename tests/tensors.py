"""Tensors for tests."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from unittest.mock import patch

import torch
from torch import Tensor

from ringfence.mechanisms import secure
from ringfence.noise import Noise


def float64(values: object) -> Tensor:
    """The values as they are; torch.tensor(values).double() would pass them through float32."""
    return torch.tensor(values, dtype=torch.float64)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@contextmanager
def double_by_default() -> Iterator[None]:
    """What is the same inside did not pass through torch's default dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def seeded_releases(seed: int = 7) -> Iterator[None]:
    """Secure releases inside draw from seeds: this one, the next, and so on."""
    seeds = count(seed)
    with patch.object(secure, "Noise", lambda: Noise(next(seeds))):
        yield
