"""Symmetric matrices that are a diagonal plus a low rank: upper bounds of trace and largest eigenvalue."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

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
    middle: Tensor  # M, (n, K + l, K + l)

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

        No trial is below max D. M has at most K negative eigenvalues, so the largest eigenvalue is at least
        the (K + 1)-th largest entry of D. Where it is below max D, ``_flattened`` moves the entries above
        that one into M.
        """
        best, near = self._bounds()
        if not bool(near.all()):
            rest = self._part(~near)._flattened()
            best[~near] = torch.minimum(best[~near], rest._bounds()[0])
        return best

    def _bounds(self) -> tuple[Tensor, Tensor]:
        """Bounds by trials above max D, and whether each is known to be near the largest eigenvalue."""
        low_rank, (top, place) = self._low_rank_norm(), self.diagonal.max(dim=1)
        here = torch.cat((self.shared.T[place], self.own[torch.arange(len(place)), :, place]), dim=1)
        # hold without a trial; the lower bound is the matrix's own entry where D is largest
        best, floor = top + low_rank, top + (here[:, None] @ self.middle @ here[:, :, None])[:, 0, 0]
        aim = 1 + 1.1 * _TOLERANCE
        going = ((low_rank > _TOLERANCE / 2 * top) & (best > _SMALL)).nonzero()[:, 0]
        rest, peak = self._part(going), top[going]
        trial = rest._first_trial(peak)
        for _ in range(_TRIALS):
            if not len(going):
                break
            ratio, quotient = rest._trial(trial)
            bound = torch.where(ratio <= 1, peak + ratio * (trial - peak), ratio * trial) * UP
            best[going] = torch.minimum(best[going], bound)
            floor[going] = torch.maximum(floor[going], quotient)
            following = ((1 + _TOLERANCE) * torch.maximum(floor[going], peak)).clamp(min=_SMALL)
            apart = (best[going] > aim * floor[going]) & (following != trial)
            going, rest, peak, trial = going[apart], rest._part(apart), peak[apart], following[apart]
        return best, (best <= aim * floor) | (best <= _SMALL)

    def _flattened(self) -> "DiagonalPlusLowRank":
        """The same matrices: the largest entries of D lowered to the (K + 1)-th, the excess moved into M."""
        classes, width = self.shared.shape
        largest = self.diagonal.topk(min(classes + 1, width), dim=1)
        values = pad(largest.values, (0, 1))[:, : classes + 1]  # after all comes 0
        excess = values[:, :-1] - values[:, -1:]
        units = one_hot(largest.indices[:, :classes], width).to(self.own)
        middle = pad(self.middle, (0, excess.shape[1], 0, excess.shape[1]))
        middle[:, -excess.shape[1] :, -excess.shape[1] :] = torch.diag_embed(excess)
        diagonal = torch.minimum(self.diagonal, values[:, -1:])
        return DiagonalPlusLowRank(diagonal, self.shared, torch.cat((self.own, units), dim=1), middle)

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
        """V diag(weights) V^T; the first block of all examples is one product of matrices."""
        classes, width = self.shared.shape
        result = torch.empty_like(self.middle)
        pairs = (self.shared[:, None] * self.shared).reshape(classes * classes, width)
        result[:, :classes, :classes] = (weights @ pairs.T).view(-1, classes, classes)
        own = self.own * weights[:, None]
        result[:, classes:, :classes] = own @ self.shared.T
        result[:, classes:, classes:] = own @ self.own.mT
        return result.tril() + result.tril(-1).mT

    def _combined(self, weights: Tensor) -> Tensor:
        """V^T weights."""
        classes = len(self.shared)
        return weights[:, :classes] @ self.shared + (weights[:, None, classes:] @ self.own)[:, 0]

    def _low_rank_norm(self) -> Tensor:
        """At least the spectral norm of V^T M V: sum_ij |M_ij| |V_i| |V_j|."""
        shared = torch.linalg.vector_norm(self.shared, dim=1).expand(len(self.own), -1)
        norms = torch.cat((shared, torch.linalg.vector_norm(self.own, dim=2)), dim=1)
        total: Tensor = (self.middle.abs() * norms[:, :, None] * norms[:, None]).sum(dim=(1, 2))
        return total * (1 + 4 * gamma(self.own.shape[2] + self.middle.shape[1] ** 2 + 8))

    def _part(self, which: Tensor) -> "DiagonalPlusLowRank":
        """The matrices of these examples."""
        return DiagonalPlusLowRank(self.diagonal[which], self.shared, self.own[which], self.middle[which])


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
