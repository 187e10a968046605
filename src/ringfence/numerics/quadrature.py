"""Gauss-Legendre rules whose nodes and weights are correctly rounded doubles."""

import math
from decimal import Decimal, localcontext
from functools import lru_cache

import torch
from torch import Tensor


@lru_cache(maxsize=64)
def _rule(count: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Nodes and weights on [0, 1], by Newton's method in 40 digits.

    The usual double-precision routines have errors near 1e-14, which would be the largest error of this
    package.
    """
    nodes, weights = [], []
    with localcontext() as context:
        context.prec = 40
        for index in range(count):
            # The usual starting point: its three digits are enough for Newton's method to converge
            # quadratically.
            root = Decimal(math.cos(math.pi * (index + 0.75) / (count + 0.5)))
            for _ in range(6):
                before, value = Decimal(1), root
                for degree in range(2, count + 1):
                    before, value = (
                        value,
                        ((2 * degree - 1) * root * value - (degree - 1) * before) / degree,
                    )
                slope = count * (root * value - before) / (root * root - 1)
                root -= value / slope
            nodes.append(float((1 - root) / 2))
            weights.append(float(1 / ((1 - root * root) * slope * slope)))
    return tuple(nodes), tuple(weights)


def gauss_legendre(count: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes in (0, 1), ascending, and weights that sum to 1, as tensors like ``like``, not to be changed.

    >>> nodes, weights = gauss_legendre(8, torch.zeros(1, dtype=torch.float64))
    >>> round(float((weights * nodes**15).sum()) * 16, 14)  # exact up to degree 15
    1.0
    """
    if count < 2:
        raise ValueError(f"count must be at least 2, got {count}")
    return _tensors(count, like.dtype, like.device)


@lru_cache(maxsize=256)
def _tensors(count: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """The rule as tensors, which are made once: a GPU would wait for them at every call."""
    nodes, weights = (torch.tensor(numbers, dtype=dtype, device=device) for numbers in _rule(count))
    return nodes, weights
