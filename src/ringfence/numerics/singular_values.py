"""The largest singular value of a dense matrix, between two numbers that are proved.

u = 2^-53 is the unit roundoff and gamma(m) = m u / (1 - m u) bounds the relative error of a sum
of m products, whatever the order of the additions (Higham 2002, section 3.1).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ringfence.numerics.blocks import at_once

UNIT = 2.0**-53
_SMALLEST = 2.0**-1022  # products below it lose digits: it is charged once for each product
_NUMBERS = 1 << 22  # float64 numbers held at once
_ROWS = 4096  # rows summed at once: gamma grows with this, not with the number of rows
DENSE_LIMIT = 4096  # a Gram matrix is formed and factorised where the smaller side is at most this


def gamma(count: int) -> float:
    """count u / (1 - count u): bounds the relative error of a sum of ``count`` products.

    >>> gamma(2) / UNIT
    2.0000000000000004
    """
    return count * UNIT / (1 - count * UNIT)


@dataclass(frozen=True)
class SingularValueBounds:
    """lower <= largest singular value <= upper, except with ``failure_probability``.

    The lower bound always holds.

    >>> bounds = SingularValueBounds(lower=torch.tensor(2.0), upper=torch.tensor(2.5))
    >>> float(bounds.gap), bounds.failure_probability
    (0.25, 0.0)
    """

    lower: Tensor
    upper: Tensor
    failure_probability: float = 0.0

    @property
    def gap(self) -> Tensor:
        """The relative distance of the two bounds, upper / lower - 1."""
        return torch.where(self.upper > 0, self.upper / self.lower - 1, 0.0)


@dataclass(frozen=True)
class Gram:
    """A^T A of n matrices as floats hold it, and an upper bound of the spectral norm of its rounding error.

    >>> gram = Gram.of(torch.ones(2).double(), torch.tensor([[[1.0], [-1.0]]]).double())
    >>> round(float(gram.upper()), 9), round(float(gram.lower()), 9)
    (2.0, 2.0)
    """

    matrix: Tensor  # (n, k, k); eigensolvers read the lower triangle
    error: Tensor  # (n,)

    @staticmethod
    def of(weights: Tensor, matrices: Tensor, *, of_rows: bool = False) -> "Gram":
        """The Gram matrices of A = diag(weights) M, or of A^T if ``of_rows``.

        ``weights`` is (d,) and ``matrices``, which hold the M, is (n, d, p).
        |computed - exact| <= gamma |A|^T |A| entrywise, and the norm of the right-hand side is at
        most the trace of A^T A. The factor 2 pays for using the computed trace.
        """
        count, size, length = len(matrices), *(matrices.shape[:0:-1] if not of_rows else matrices.shape[1:])
        step = min(_ROWS, at_once(_NUMBERS, each=count * size))
        total = weights.new_zeros(count, size, size)
        for start in range(0, length, step):
            part = slice(start, start + step)
            if of_rows:
                block = (weights[:, None] * matrices[:, :, part].double()).mT
            else:
                block = weights[part, None] * matrices[:, part].double()
            total.baddbmm_(block.mT, block)
        if not bool(torch.isfinite(total).all()):
            raise ValueError("jacobian must be smaller: the squares of its weighted entries overflow")
        roundings = min(step, length) + math.ceil(length / step) + 3  # 3: two weightings and 1
        error = 2 * gamma(roundings) * _trace(total) + size * length * _SMALLEST
        return Gram(total, torch.where(_nonzero(matrices), error, 0.0))

    def plus(self, other: "Gram") -> "Gram":
        """The Gram matrix of the rows of both. The addition rounds every entry once."""
        total = self.matrix.to(other.matrix.device) + other.matrix
        error = self.error.to(other.error.device) + other.error
        return Gram(total, (error + 4 * UNIT * _trace(total)) * (1 + 4 * UNIT))

    def upper(self) -> Tensor:
        """At least the largest eigenvalue of the exact A^T A.

        An eigensolver only proposes a value m. A Cholesky factorisation of m I - G that runs to its end
        proves it, up to 2 gamma(k + 2) k m, with k the size (Rump 2006, Theorem 2.3). A value that is not
        proved is raised until one is, or until it reaches the trace, which is always an upper bound. This
        runs on a CPU, because some GPU libraries invert blocks, which the theorem does not cover.
        """
        matrix, trace = self.matrix.cpu(), _trace(self.matrix).cpu()
        size = matrix.shape[2]
        margin = 2 * gamma(size + 2) * size
        ceiling = trace * (1 + 2 * gamma(size + 2))
        top = torch.linalg.eigvalsh(matrix)[:, -1].clamp(min=_SMALLEST)
        growth = torch.full_like(trace, margin)
        while True:
            trial = top * (1 + growth)
            shifted = trial[:, None, None] * torch.eye(size, dtype=matrix.dtype) - matrix
            proved = (torch.linalg.cholesky_ex(shifted).info == 0) | (trial >= ceiling)
            if bool(proved.all()):
                break
            growth = torch.where(proved, growth, 4 * growth)
        bound = torch.minimum(trial * (1 + 2 * margin), ceiling)
        return ((bound + self.error.cpu()) * (1 + 4 * UNIT)).to(self.matrix.device)

    def lower(self) -> Tensor:
        """At most the largest eigenvalue of the exact A^T A: a Rayleigh quotient, rounded down."""
        size = self.matrix.shape[2]
        vector = torch.linalg.eigh(self.matrix).eigenvectors[:, :, -1:]
        quotient: Tensor = (vector.mT @ self.matrix @ vector / (vector.mT @ vector)).reshape(-1)
        return (quotient - self.error - 4 * gamma(2 * size + 4) * _trace(self.matrix)).clamp(min=0)


def _trace(matrix: Tensor) -> Tensor:
    total: Tensor = matrix.diagonal(dim1=1, dim2=2).sum(1)
    return total


def _nonzero(matrices: Tensor) -> Tensor:
    largest: Tensor = torch.linalg.vector_norm(matrices, math.inf, dim=(1, 2))
    return largest > 0


def squared_frobenius(weights: Tensor, matrices: Tensor) -> Tensor:
    """At least |diag(weights) M|_F^2, for each M of (n, d, p).

    >>> round(float(squared_frobenius(torch.ones(2).double(), torch.ones(1, 2, 3).double())), 9)
    6.0
    """
    count, height, width = matrices.shape
    total = weights.new_zeros(count)
    step = at_once(_NUMBERS, each=count * width)
    for start in range(0, height, step):
        part = slice(start, start + step)
        total += (weights[part, None] * matrices[:, part].double()).square_().sum((1, 2))
    slack = 2 * gamma(min(step, height) * width + math.ceil(height / step) + 4)
    return torch.where(_nonzero(matrices), total * (1 + slack) + height * width * _SMALLEST, 0.0)


def dense_bounds(weights: Tensor, matrices: Tensor) -> SingularValueBounds:
    """Bounds of the largest singular value of diag(weights) M for each M of (n, d, p), without randomness.

    They come from the smaller of the two Gram matrices, or from ``norm_bounds`` above ``DENSE_LIMIT``.

    >>> bounds = dense_bounds(torch.ones(2).double(), torch.tensor([[[1.0], [-1.0]]]).double())
    >>> bool(bounds.lower**2 <= 2 <= bounds.upper**2), bool(bounds.gap < 1e-12)
    (True, True)
    """
    if min(matrices.shape[1:]) > DENSE_LIMIT:
        each = [norm_bounds(weights, matrix) for matrix in matrices]
        lower, upper = (torch.stack(ends) for ends in zip(*((b.lower, b.upper) for b in each), strict=True))
        return SingularValueBounds(lower, upper)
    grams = list(_grams(weights, matrices))
    lower = torch.cat([gram.lower() for gram in grams]).sqrt() * (1 - 2 * UNIT)
    return SingularValueBounds(lower, _root(torch.cat([gram.upper() for gram in grams])))


def upper_bounds(weights: Tensor, matrices: Tensor) -> Tensor:
    """The upper bound of ``dense_bounds`` alone, at half the cost.

    >>> round(float(upper_bounds(torch.ones(2).double(), torch.eye(2).double()[None])), 9)
    1.0
    """
    if min(matrices.shape[1:]) > DENSE_LIMIT:
        return dense_bounds(weights, matrices).upper
    return _root(torch.cat([gram.upper() for gram in _grams(weights, matrices)]))


def _grams(weights: Tensor, matrices: Tensor) -> Iterator[Gram]:
    of_rows = matrices.shape[1] < matrices.shape[2]
    for some in matrices.split(at_once(_NUMBERS, each=matrices[0].numel())):
        yield Gram.of(weights, some, of_rows=of_rows)


def _root(square: Tensor) -> Tensor:
    return square.sqrt() * (1 + 2 * UNIT)


def norm_bounds(weights: Tensor, matrix: Tensor) -> SingularValueBounds:
    """Bounds from norms alone, in one pass over the matrix.

    The lower bound is the largest norm of a row or column, the upper one the smaller of the Frobenius
    norm and sqrt(|A|_1 |A|_inf).

    >>> bounds = norm_bounds(torch.ones(2).double(), torch.eye(2).double())
    >>> round(float(bounds.lower), 9), round(float(bounds.upper), 9)
    (1.0, 1.0)
    """
    height, width = matrix.shape
    row_sums, row_squares = torch.empty_like(weights), torch.empty_like(weights)
    column_sums, column_squares = weights.new_zeros(width), weights.new_zeros(width)
    step = at_once(_NUMBERS, each=width)
    for start in range(0, height, step):
        part = slice(start, start + step)
        block = (weights[part, None] * matrix[part].double()).abs()
        row_sums[part], row_squares[part] = block.sum(1), block.square().sum(1)
        column_sums += block.sum(0)
        column_squares += block.square().sum(0)
    slack = gamma(height + width + 8)
    lower = torch.maximum(row_squares.max(), column_squares.max()).sqrt() * (1 - slack)
    upper = torch.minimum(row_squares.sum().sqrt(), row_sums.max().sqrt() * column_sums.max().sqrt())
    lost = math.sqrt(height * width * _SMALLEST) * bool(_nonzero(matrix[None]))
    return SingularValueBounds(lower, upper * (1 + 2 * slack) + lost)
