"""The largest singular value of a dense matrix, from above.

An eigensolver only proposes. What proves is a Cholesky factorisation whose result is multiplied out again, so
that no library has to be trusted. Sums of products err by ``gamma``.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ringfence.numerics.blocks import at_once
from ringfence.numerics.rounding import UNIT, UP, gamma

_SMALLEST = 2.0**-1022  # products below it lose digits: it is charged once for each product
_NUMBERS = 1 << 22  # float64 numbers held at once


def cholesky(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """L, and a bound of the norm of matrix - L L^T, infinite where L was not found: checked, not trusted.

    >>> factor, missing = cholesky(4 * torch.eye(2).double()[None])
    >>> factor[0].tolist(), bool(missing < 1e-13)
    ([[2.0, 0.0], [0.0, 2.0]], True)
    """
    size = matrix.shape[2]
    factor, failed = torch.linalg.cholesky_ex(matrix)
    factor = torch.where((failed == 0)[:, None, None], factor, 0.0)
    rounding = 2 * gamma(size + 4) * factor.square().sum(dim=(1, 2)) + size * size * _SMALLEST
    missing: Tensor = torch.linalg.matrix_norm(matrix - factor @ factor.mT) * UP + rounding
    return factor, torch.where(failed == 0, missing, torch.inf)


def largest_eigenvalues(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(the largest eigenvalue, at least 0, from above; the same as computed; its eigenvector), of (n, k, k).

    m I - matrix = L L^T proves that no eigenvalue is above m, up to what the factorisation misses. The upper
    bound is infinite where it fails.

    >>> upper, computed, _ = largest_eigenvalues(torch.diag(torch.tensor([1.0, 3.0])).double()[None])
    >>> bool(3 <= upper < 3 + 1e-12), float(computed)
    (True, 3.0)
    """
    size = matrix.shape[1]
    values, vectors = _eigenvectors(matrix)
    largest = values[:, -1].clamp(min=0)
    slack = gamma(size + 8) * size * torch.linalg.matrix_norm(matrix) + size * size * _SMALLEST
    proposed = largest + 8 * slack
    identity = torch.eye(size, dtype=matrix.dtype, device=matrix.device)
    _, unproved = cholesky(proposed[:, None, None] * identity - matrix)
    return proposed + unproved, largest, vectors[:, :, -1:]


def _eigenvectors(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors. GPU libraries give up on some matrices that LAPACK solves."""
    try:
        values, vectors = torch.linalg.eigh(matrix)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        values, vectors = (part.to(matrix.device) for part in torch.linalg.eigh(matrix.cpu()))
    return values, vectors


@dataclass(frozen=True)
class Gram:
    """A^T A of n matrices as floats hold it, and an upper bound of the spectral norm of its rounding error.

    >>> gram = Gram.of(torch.ones(2).double(), torch.tensor([[[1.0], [-1.0]]]).double())
    >>> round(float(gram.largest_eigenvalue()), 9), round(float(gram.trace()), 9)
    (2.0, 2.0)
    """

    matrix: Tensor  # (n, k, k)
    error: Tensor  # (n,)

    @staticmethod
    def of(weights: Tensor, matrices: Tensor, *, of_rows: bool = False) -> "Gram":
        """The Gram matrices of A = diag(weights) M, or of A^T if ``of_rows``.

        ``weights`` is (d,) and ``matrices``, which hold the M, is (n, d, p).
        |computed - exact| <= gamma |A|^T |A| entrywise, and the norm of the right-hand side is at
        most the trace of A^T A. The factor 2 pays for using the computed trace.
        """
        rows = matrices.mT if of_rows else matrices
        count, length, size = rows.shape
        step = at_once(_NUMBERS, each=count * size)
        total = weights.new_zeros(count, size, size)
        for start in range(0, length, step):
            part = slice(start, start + step)
            block = rows[:, part].double() * (weights if of_rows else weights[part, None])
            total.baddbmm_(block.mT, block)
        if not bool(torch.isfinite(total).all()):
            raise ValueError("jacobian must be smaller: the squares of its weighted entries overflow")
        # length additions, two weightings, one product
        error = 2 * gamma(length + 3) * _trace(total) + size * length * _SMALLEST
        is_nonzero = torch.linalg.vector_norm(matrices, math.inf, dim=(1, 2)) > 0
        return Gram(total, torch.where(is_nonzero, error, 0.0))

    def plus(self, other: "Gram") -> "Gram":
        """The Gram matrix of the rows of both. The addition rounds every entry once."""
        total = self.matrix.to(other.matrix.device) + other.matrix
        error = self.error.to(other.error.device) + other.error
        return Gram(total, (error + 4 * UNIT * _trace(total)) * (1 + 4 * UNIT))

    def trace(self) -> Tensor:
        """At least the trace of the exact A^T A. Entries of the diagonal err relatively, as its sum does."""
        size = self.matrix.shape[2]
        return (_trace(self.matrix) * (1 + gamma(size)) + self.error) * UP

    def largest_eigenvalue(self) -> Tensor:
        """At least the largest eigenvalue of the exact A^T A, and at most its trace.

        Large matrices are faster to solve on the CPU, whose libraries also solve all of them.
        """
        # powers of two, near the trace: dividing by them is exact, and keeps squares representable
        traces = _trace(self.matrix).clamp(min=_SMALLEST).tolist()
        scale = torch.tensor([2.0 ** (math.frexp(trace)[1] - 1) for trace in traces], dtype=torch.float64)
        matrix = self.matrix.cpu() / scale[:, None, None]
        most = _trace(matrix) * (1 + 2 * gamma(matrix.shape[2] + 2))
        upper = torch.minimum(largest_eigenvalues(matrix)[0], most) * scale + self.error.cpu()
        return (upper * (1 + 4 * UNIT)).to(self.matrix.device)


def _trace(matrix: Tensor) -> Tensor:
    total: Tensor = matrix.diagonal(dim1=1, dim2=2).sum(1)
    return total


def squared_norms(weights: Tensor, matrices: Tensor, *, trace: bool = False) -> Tensor:
    """At least the squared spectral norm, or the squared Frobenius norm, of diag(weights) M, for (n, d, p).

    It comes from the smaller of the two Gram matrices.

    >>> one, matrix = torch.ones(2).double(), torch.tensor([[[1.0], [-1.0]]]).double()
    >>> 2 <= float(squared_norms(one, matrix)) < 2 + 1e-12
    True
    """
    of_rows = matrices.shape[1] < matrices.shape[2]
    some = matrices.split(at_once(_NUMBERS, each=matrices[0].numel()))
    grams = (Gram.of(weights, part, of_rows=of_rows) for part in some)
    return torch.cat([gram.trace() if trace else gram.largest_eigenvalue() for gram in grams])
