"""Symmetric matrices that are a diagonal plus a low rank: upper bounds of trace and largest eigenvalue.

Roundings are charged as in ``singular_values.py``.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ringfence.numerics.rounding import UP
from ringfence.numerics.singular_values import gamma

_TOLERANCE = 4e-3  # how far above a lower bound of the largest eigenvalue the next trial is made
_TRIALS = 12
_TINY = 2.0**-1000  # more than underflow takes from any sum here
_SMALL = 1e-250  # an eigenvalue that is not worth a trial: its square may underflow


@dataclass(frozen=True)
class DiagonalPlusLowRank:
    """diag(D) + V^T M V for n examples, with V = [shared; unit vectors; own] and D >= 0.

    M has at most K negative eigenvalues, K being the number of shared rows.

    >>> one = torch.ones(1, 1, 2).double()  # D = 0, V = [(0, 0); (1, 1)], M = diag(0, 1)
    >>> middle = torch.tensor([[[0.0, 0.0], [0.0, 1.0]]]).double()
    >>> no_units = torch.zeros(1, 0, dtype=torch.int64)
    >>> matrix = DiagonalPlusLowRank(0 * one[0], 0 * one[0], no_units, one, middle)
    >>> 2 <= float(matrix.largest_eigenvalue()) <= 2.01, round(float(matrix.trace()), 9)
    (True, 2.0)
    """

    diagonal: Tensor  # D, (n, p)
    shared: Tensor  # (K, p)
    units: Tensor  # (n, q): the place of the 1 in each unit vector
    own: Tensor  # (n, l, p)
    middle: Tensor  # M, (n, m, m), m = K + q + l

    def trace(self) -> Tensor:
        """At least the trace of each matrix."""
        width, size = self.own.shape[2], self.middle.shape[1]
        gram = self._gram(torch.ones_like(self.diagonal))
        total = self.diagonal.sum(dim=1) * (1 + gamma(width)) + (self.middle * gram).sum(dim=(1, 2))
        return total + 2 * gamma(width + size**2 + 8) * self._low_rank_norm()

    def largest_eigenvalue(self) -> Tensor:
        """At least the largest eigenvalue of each matrix, and at most 0.5 % more.

        For a trial mu > max D let h be the largest eigenvalue, at least 0, of
        (mu - D)^-1/2 V^T M V (mu - D)^-1/2, which is also that of an m x m matrix. Then
        V^T M V <= h (mu - D), so that D + V^T M V is at most max D + h (mu - max D) if h <= 1, and at most
        h mu otherwise: every trial proves a bound. The Rayleigh quotient of the eigenvector is a lower
        bound of the largest eigenvalue, and also Newton's next trial, because 1 / h is concave in mu.

        M has at most K negative eigenvalues, so the largest eigenvalue is at least the (K + 1)-th largest
        entry of D. ``_flattened`` moves the entries above that one into M, and then no trial below max D
        is needed.
        """
        low_rank, top = self._low_rank_norm(), self.diagonal.amax(dim=1)
        best = top + low_rank  # holds without a trial
        going = ((low_rank > _TOLERANCE / 2 * top) & (best > _SMALL)).nonzero()[:, 0]
        rest = self._part(going)._flattened()
        peak = floor = rest.diagonal.amax(dim=1)
        trial = rest._first_trial(peak)
        for _ in range(_TRIALS):
            if not len(going):
                break
            ratio, quotient = rest._trial(trial)
            bound = torch.where(ratio <= 1, peak + ratio * (trial - peak), ratio * trial) * UP
            best[going] = torch.minimum(best[going], bound)
            floor = torch.maximum(floor, quotient)
            apart = (best[going] > (1 + 1.1 * _TOLERANCE) * floor).nonzero()[:, 0]
            going, rest, peak, floor = going[apart], rest._part(apart), peak[apart], floor[apart]
            trial = ((1 + _TOLERANCE) * floor).clamp(min=_SMALL)
        return best

    def _first_trial(self, peak: Tensor) -> Tensor:
        """The start of the search: it proves nothing, so it may be a guess that saves trials."""
        classes = len(self.shared)
        # half the trace of the part that the shared rows make
        shared = self.middle[:, :classes, :classes]
        guess = (shared * (self.shared @ self.shared.T)).sum(dim=(1, 2)) / 2
        return ((1 + _TOLERANCE) * peak + guess.clamp(min=0)).clamp(min=_SMALL)

    def _trial(self, trial: Tensor) -> tuple[Tensor, Tensor]:
        """h at mu = ``trial`` from above (infinite if not proved), and the eigenvector's Rayleigh quotient.

        With S = V (mu - D)^-1 V^T, h is the largest eigenvalue of L^T M L for a factor L L^T = S. It
        grows with S, so that any L with L L^T >= S gives an upper bound, however it was found.
        """
        inverse = 1 / (trial[:, None] - self.diagonal)
        norms, scale, factor, is_above = _factor_above(self._gram(inverse), self.diagonal.shape[1])
        weighted = scale * self.middle
        small = factor.mT @ weighted @ factor
        proved, largest, vector = _largest_eigenpair((small + small.mT) / 2)
        size = factor.shape[1]
        rounding = 2 * gamma(2 * size + 8) * size * torch.linalg.matrix_norm(weighted)
        ratio = torch.where(is_above, (proved + rounding) * UP, torch.inf)

        # the p-vector (mu - D)^-1 V^T M L y of the eigenvector y; its quotient is not rounded
        weights = ((self.middle * norms[:, None]) @ factor @ vector)[:, :, 0]
        length = (self._combined(weights) * inverse).square().sum(dim=1)
        quotient = trial - (1 - largest) * largest.square() / length
        return ratio, torch.where((largest > 0) & (length > 0), quotient, 0.0)

    def _gram(self, weights: Tensor) -> Tensor:
        """V diag(weights) V^T, (n, m, m); the first block of all examples is one product of matrices."""
        classes, width = self.shared.shape
        count, base = len(weights), classes + self.units.shape[1]
        result = torch.empty_like(self.middle)
        pairs = (self.shared[:, None] * self.shared).reshape(classes * classes, width)
        result[:, :classes, :classes] = (weights @ pairs.T).view(count, classes, classes)
        own = self.own * weights[:, None]
        result[:, base:, :classes] = own @ self.shared.T
        result[:, base:, base:] = own @ self.own.mT
        at = weights.gather(1, self.units)[:, :, None]
        result[:, classes:base, :classes] = self.shared.T[self.units] * at
        result[:, classes:base, classes:base] = (self.units[:, :, None] == self.units[:, None]) * at
        result[:, base:, classes:base] = own.gather(2, self.units[:, None].expand(-1, own.shape[1], -1))
        return result.tril() + result.tril(-1).mT

    def _combined(self, weights: Tensor) -> Tensor:
        """V^T weights."""
        first, unit, own = weights.split((len(self.shared), self.units.shape[1], self.own.shape[1]), dim=1)
        total: Tensor = first @ self.shared + (own[:, None] @ self.own)[:, 0]
        return total.scatter_add_(1, self.units, unit)

    def _low_rank_norm(self) -> Tensor:
        """At least the spectral norm of V^T M V: sum_ij |M_ij| |V_i| |V_j|."""
        rows = (
            torch.linalg.vector_norm(self.shared, dim=1).expand(len(self.own), -1),
            torch.ones_like(self.units, dtype=self.own.dtype),
            torch.linalg.vector_norm(self.own, dim=2),
        )
        norms = torch.cat(rows, dim=1)
        total: Tensor = (self.middle.abs() * norms[:, :, None] * norms[:, None]).sum(dim=(1, 2))
        return total * (1 + 4 * gamma(self.own.shape[2] + self.middle.shape[1] ** 2 + 8))

    def _flattened(self) -> "DiagonalPlusLowRank":
        """The same matrices: the largest entries of D lowered to the (K + 1)-th, the excess moved into M."""
        classes, width = self.shared.shape
        before = classes + self.units.shape[1]
        largest = self.diagonal.topk(min(classes + 1, width), dim=1)
        values = torch.nn.functional.pad(largest.values, (0, 1))[:, : classes + 1]  # after all comes 0
        above = values > (1 + _TOLERANCE / 8) * values[:, -1:]
        moved = int(above.sum(dim=1).amax()) if len(above) else 0
        level = values[:, moved : moved + 1]
        size = self.middle.shape[1] + moved
        kept = [place for place in range(size) if not before <= place < before + moved]
        middle = self.middle.new_zeros(len(self.own), size, size)
        place = torch.tensor(kept, device=middle.device)
        middle[:, place[:, None], place] = self.middle
        inner = middle[:, before : before + moved, before : before + moved]
        inner.copy_(torch.diag_embed(values[:, :moved] - level))
        return replace(
            self,
            diagonal=torch.minimum(self.diagonal, level),
            units=torch.cat((self.units, largest.indices[:, :moved]), dim=1),
            middle=middle,
        )

    def _part(self, which: Tensor) -> "DiagonalPlusLowRank":
        """The matrices of these examples."""
        if len(which) == len(self.own):
            return self
        own = (self.diagonal[which], self.shared, self.units[which], self.own[which], self.middle[which])
        return DiagonalPlusLowRank(*own)


def _factor_above(gram: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(norms, norms norms^T, L, where L L^T >= S is proved), S the Gram matrix scaled to unit diagonal.

    ``gram`` holds sums of ``width`` products. Entries of the scaled matrix err by 2 gamma(p + 8) and 4
    roundings. Raising its diagonal by more than their norm makes it an upper bound.
    """
    size = gram.shape[1]
    norms = gram.diagonal(dim1=1, dim2=2).sqrt() + _TINY**0.5
    scale = norms[:, :, None] * norms[:, None]
    raised = 8 * size * gamma(width + size + 16)
    identity = torch.eye(size, dtype=gram.dtype, device=gram.device)
    factor, missing = _cholesky(gram / scale + raised * identity)
    return norms, scale, factor, missing <= raised / 2


def _largest_eigenpair(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(the largest eigenvalue, at least 0, from above; the same as computed; its eigenvector as computed).

    The eigensolver only proposes. A Cholesky factorisation of proposed I - matrix proves, up to what the
    factorisation misses (infinite if it fails).
    """
    size = matrix.shape[1]
    values, vectors = _eigenvectors(matrix)
    largest = values[:, -1].clamp(min=0)
    slack = gamma(size + 8) * size * torch.linalg.matrix_norm(matrix) + _TINY
    proposed = largest + 8 * slack
    identity = torch.eye(size, dtype=matrix.dtype, device=matrix.device)
    _, unproved = _cholesky(proposed[:, None, None] * identity - matrix)
    return proposed + unproved, largest, vectors[:, :, -1:]


def _eigenvectors(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors. GPU libraries give up on some matrices that LAPACK solves."""
    try:
        values, vectors = torch.linalg.eigh(matrix)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        values, vectors = (part.to(matrix.device) for part in torch.linalg.eigh(matrix.cpu()))
    return values, vectors


def _cholesky(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """L, and a bound of the norm of matrix - L L^T, infinite where L was not found: checked, not trusted."""
    size = matrix.shape[2]
    factor, failed = torch.linalg.cholesky_ex(matrix)
    factor = torch.where((failed == 0)[:, None, None], factor, 0.0)
    rounding = 2 * gamma(size + 4) * (factor.square().sum(dim=(1, 2)) + _TINY)
    missing: Tensor = torch.linalg.matrix_norm(matrix - factor @ factor.mT) * UP + rounding
    return factor, torch.where(failed == 0, missing, torch.inf)
