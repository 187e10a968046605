"""Symmetric matrices that are a diagonal plus a low rank: upper bounds of trace and largest eigenvalue."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ringfence.numerics.rounding import UP, gamma
from ringfence.numerics.singular_values import cholesky, largest_eigenvalues

_TOLERANCE = 4e-3  # how far above a lower bound of the largest eigenvalue the next trial is made
_TRIALS = 12
_SMALL = 1e-250  # an eigenvalue that is not worth a trial: its square may underflow


@dataclass(frozen=True)
class DiagonalPlusLowRank:
    """diag(D) + V^T M V for n examples, with V = [shared; own] and D >= 0.

    M has at most K negative eigenvalues, K being the number of shared rows.

    >>> one = torch.ones(1, 1, 2).double()  # D = 0, V = [(0, 0); (1, 1)], M = diag(0, 1)
    >>> middle = torch.tensor([[[0.0, 0.0], [0.0, 1.0]]]).double()
    >>> matrix = DiagonalPlusLowRank(0 * one[0], 0 * one[0], one, middle)
    >>> 2 <= float(matrix.largest_eigenvalue()) <= 2.01, round(float(matrix.trace()), 9)
    (True, 2.0)
    """

    diagonal: Tensor  # D, (n, p)
    shared: Tensor  # (K, p)
    own: Tensor  # (n, l, p)
    middle: Tensor  # M, (n, m, m), m = K + l + q
    units: Tensor | None = None  # (n, q): V ends in these unit vectors, given by the place of their 1

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
        proved, largest, vector = largest_eigenvalues((small + small.mT) / 2)
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
        count, base = len(weights), classes + self.own.shape[1]
        result = torch.empty_like(self.middle)
        pairs = (self.shared[:, None] * self.shared).reshape(classes * classes, width)
        result[:, :classes, :classes] = (weights @ pairs.T).view(count, classes, classes)
        own = self.own * weights[:, None]
        result[:, classes:base, :classes] = own @ self.shared.T
        result[:, classes:base, classes:base] = own @ self.own.mT
        if self.units is not None:
            at = weights.gather(1, self.units)[:, :, None]
            result[:, base:, :classes] = self.shared.T[self.units] * at
            places = self.units[:, None].expand(-1, own.shape[1], -1)
            result[:, base:, classes:base] = own.gather(2, places).mT
            result[:, base:, base:] = (self.units[:, :, None] == self.units[:, None]) * at
        return result.tril() + result.tril(-1).mT

    def _combined(self, weights: Tensor) -> Tensor:
        """V^T weights."""
        classes, base = len(self.shared), len(self.shared) + self.own.shape[1]
        total = weights[:, :classes] @ self.shared + (weights[:, None, classes:base] @ self.own)[:, 0]
        return total if self.units is None else total.scatter_add_(1, self.units, weights[:, base:])

    def _low_rank_norm(self) -> Tensor:
        """At least the spectral norm of V^T M V: sum_ij |M_ij| |V_i| |V_j|. V has no unit vectors here."""
        shared = torch.linalg.vector_norm(self.shared, dim=1).expand(len(self.own), -1)
        norms = torch.cat((shared, torch.linalg.vector_norm(self.own, dim=2)), dim=1)
        total: Tensor = (self.middle.abs() * norms[:, :, None] * norms[:, None]).sum(dim=(1, 2))
        return total * (1 + 4 * gamma(self.own.shape[2] + self.middle.shape[1] ** 2 + 8))

    def _flattened(self) -> "DiagonalPlusLowRank":
        """The same matrices: the largest entries of D lowered to the (K + 1)-th, the excess moved into M."""
        classes, width = self.shared.shape
        largest = self.diagonal.topk(min(classes + 1, width), dim=1)
        values = torch.nn.functional.pad(largest.values, (0, 1))[:, : classes + 1]  # after all comes 0
        above = values > (1 + _TOLERANCE / 8) * values[:, -1:]
        moved = int(above.sum(dim=1).amax()) if len(above) else 0
        level = values[:, moved : moved + 1]
        middle = torch.nn.functional.pad(self.middle, (0, moved, 0, moved))
        excess = middle.diagonal(dim1=1, dim2=2)[:, middle.shape[1] - moved :]
        excess.copy_(values[:, :moved] - level)
        return replace(
            self,
            diagonal=torch.minimum(self.diagonal, level),
            units=largest.indices[:, :moved],
            middle=middle,
        )

    def _part(self, which: Tensor) -> "DiagonalPlusLowRank":
        """The matrices of these examples."""
        if len(which) == len(self.own):
            return self
        units = None if self.units is None else self.units[which]
        return DiagonalPlusLowRank(
            self.diagonal[which], self.shared, self.own[which], self.middle[which], units
        )


def _factor_above(gram: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(norms, norms norms^T, L, where L L^T >= S is proved), S the Gram matrix scaled to unit diagonal.

    ``gram`` holds sums of ``width`` products. Entries of the scaled matrix err by 2 gamma(p + 8) and 4
    roundings. Raising its diagonal by more than their norm makes it an upper bound.
    """
    size = gram.shape[1]
    norms = gram.diagonal(dim1=1, dim2=2).sqrt() + 2.0**-500  # not 0 where the square underflows
    scale = norms[:, :, None] * norms[:, None]
    raised = 8 * size * gamma(width + size + 16)
    identity = torch.eye(size, dtype=gram.dtype, device=gram.device)
    factor, missing = cholesky(gram / scale + raised * identity)
    return norms, scale, factor, missing <= raised / 2
