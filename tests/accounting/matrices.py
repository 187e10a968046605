"""Largest singular values by numpy, and jacobians that must be refused."""

import math

import numpy as np
import torch
from torch import Tensor

import ringfence as rf
from ringfence.numerics.operators import BatchedOperator
from ringfence.numerics.rounding import gamma
from tests.tensors import float64

# numpy's own rounding: the ends are tighter than it for small matrices
SVD = 1e-13
# what certifying adds at these sizes, above the 1e-12 allowed for the information itself
TIGHT = 2e-12

BAD_JACOBIANS = [
    ({"jacobian": float64([[math.nan], [1.0]])}, r"jacobian must not be NaN, got nan at index \[0, 0\]"),
    ({"jacobian": float64([[1.0], [math.inf]])}, r"jacobian must be finite, got inf at index \[1, 0\]"),
    ({"jacobian": torch.ones(2)}, r"jacobian must be \(d, p\) or \(n, d, p\) and not empty, got shape \[2\]"),
    ({"jacobian": torch.ones(2, 0)}, r"not empty, got shape \[2, 0\]"),
    ({"jacobian": torch.ones(0, 2, 1)}, r"not empty, got shape \[0, 2, 1\]"),
    ({"jacobian": torch.ones(3, 1)}, r"jacobian must have a row for each of theta's 2 coordinates, got 3"),
    ({"theta": float64([0.0, math.nan])}, r"theta must not be NaN, got nan at index \[1\]"),
    ({"theta": torch.zeros(0)}, r"jacobian must have a row for each of theta's 0 coordinates, got 2"),
]


def ones(size: int) -> Tensor:
    return torch.ones(size, dtype=torch.float64)


def batched(matrices: Tensor) -> BatchedOperator:
    """Dense matrices, (n, d, p), as an operator: | |A| |v| | <= sqrt(min(d, p)) ||A|| ||v||, times gamma."""
    matrices = matrices.double()
    count, *shape = matrices.shape
    return BatchedOperator(
        count,
        tuple(shape),
        lambda vectors: (matrices @ vectors[:, :, None])[:, :, 0],
        lambda vectors: (vectors[:, None] @ matrices)[:, 0],
        gamma(max(shape)) * math.sqrt(min(shape)),
    )


def largest(weights: Tensor, matrix: Tensor) -> float:
    """The largest singular value of diag(weights) matrix."""
    return float(np.linalg.svd((weights[:, None] * matrix.double()).numpy(), compute_uv=False)[0])


def exact(law: rf.Mechanism, theta: Tensor, jacobian: Tensor) -> float:
    """The Fisher information loss of a record."""
    return largest(law.fisher_information(theta.double()).sqrt().reshape(-1), jacobian)


def holds(bound: Tensor, truth: float, excess: float = TIGHT) -> bool:
    """Not below, but for numpy's rounding, and not much above."""
    return truth * (1 - 1e-14) <= float(bound) <= truth * (1 + excess)
