"""The quantised Gaussian mechanism: the noisy value is rounded to one of a few levels."""

import torch
from torch import Tensor

from ringfence import checks
from ringfence.checks import Bound, Real
from ringfence.mechanisms import pieces
from ringfence.mechanisms.base import Mechanism, Support
from ringfence.mechanisms.secure import Levels, Normal
from ringfence.noise import Draws
from ringfence.numerics.normal import TruncatedNormal, density, hazard

_MOST_LEVELS = 1 << 16  # beyond, the rectified law is the same and needs no table of cells


class QuantizedGaussian(Mechanism):
    """The nearest of ``levels`` equally spaced points of [lower, upper] to theta + N(0, sigma^2).

    The cell of a level reaches half way to its neighbours, the two outer cells to infinity. As
    the levels grow the law tends to the rectified one; the paper's k-bit quantiser has k + 1
    levels (docs/errata.md, A9).

    Guarantee: a function of the Gaussian release, hence never worse than it.

    >>> mechanism = QuantizedGaussian(sigma=1.0, bound=2.0, levels=5)
    >>> [float(atom) for atom in mechanism.support.atoms]
    [-2.0, -1.0, 0.0, 1.0, 2.0]
    """

    name, label = "quantized", "quantised"
    atoms_alone = True

    def __init__(self, sigma: Real, bound: Bound, levels: int) -> None:
        self.sigma = checks.positive("sigma", sigma)
        self.lower, self.upper = checks.interval("bound", bound, bounded=True)
        self.levels = checks.count("levels", levels, at_least=2, at_most=_MOST_LEVELS)

    @property
    def support(self) -> Support:
        index = torch.arange(self.levels, dtype=self.lower.dtype, device=self.lower.device)
        points = Levels(self.lower.unsqueeze(-1), self.upper.unsqueeze(-1), self.levels).point(index)
        return Support(interval=None, atoms=points.unbind(-1))

    def outcomes(self, shift: Tensor) -> int:
        return self.levels

    def distribution(self, theta: Tensor, sigma: Tensor, lower: Tensor, upper: Tensor) -> Normal:
        return Normal(theta, sigma)

    def public_points(self, sigma: Tensor, lower: Tensor, upper: Tensor) -> Levels:
        return Levels(lower, upper, self.levels)

    def _sample(self, draws: Draws, theta: Tensor, sigma: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
        noisy = theta + sigma * draws.normals_like(theta, sigma, lower, upper)
        levels = Levels(lower, upper, self.levels)
        return levels.point(levels.nearest(noisy))

    def _log_prob(self, value: Tensor, theta: Tensor, sigma: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
        levels = Levels(lower, upper, self.levels)
        index = levels.nearest(value)
        start = torch.where(index == 0, -torch.inf, levels.cut(index - 1))
        end = torch.where(index == self.levels - 1, torch.inf, levels.cut(index))
        mass = TruncatedNormal(*pieces.standardized(theta, sigma, start, end)).log_mass()
        # A level drawn in float64 and rounded to float32 is still that level.
        rounding = 4 * torch.finfo(value.dtype).eps * torch.maximum(lower.abs(), upper.abs())
        on_level = (value - levels.point(index)).abs() <= rounding
        return torch.where(on_level, mass, -torch.inf)

    def _fisher_information(self, theta: Tensor, sigma: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
        """sum_i (dP_i / dtheta)^2 / P_i over the cells (Theorem F.1 with its proof corrected)."""
        first, last, inner = self._cells(theta, sigma, lower, upper)
        total = density(first) * hazard(-first) + density(last) * hazard(last)
        if inner is not None:
            # dP_i / dtheta = P_i E_i[X - theta] / sigma^2
            total = total + (torch.exp(inner.log_mass()) * inner.mean().square()).sum(dim=0)
        return total / (sigma * sigma)

    def _masses(
        self, theta: Tensor, sigma: Tensor, lower: Tensor, upper: Tensor, shift: Tensor
    ) -> tuple[Tensor, Tensor]:
        """log P and log P/Q of every cell, the two outer cells first."""
        first, last, inner = self._cells(theta, sigma, lower, upper)
        shift = shift / sigma
        log_p, rho = pieces.atoms(first, last, shift)
        if inner is not None:
            inner_rho = pieces.log_mass_ratio(inner, shift)
            log_p = torch.cat((log_p, inner.log_mass().expand_as(inner_rho)))
            rho = torch.cat((rho, inner_rho))
        return log_p, pieces.sharpened(log_p, rho)

    def _cells(
        self, theta: Tensor, sigma: Tensor, lower: Tensor, upper: Tensor
    ) -> tuple[Tensor, Tensor, TruncatedNormal | None]:
        """The first and the last cut seen from theta, and the cells between them, one row for each cell."""
        index = torch.arange(self.levels - 1, dtype=theta.dtype, device=theta.device)
        index = index.view(-1, *(1,) * theta.dim())
        cuts = (Levels(lower, upper, self.levels).cut(index) - theta) / sigma
        if self.levels == 2:
            return cuts[0], cuts[0], None
        width = (upper - lower) / (self.levels - 1) / sigma
        inner = TruncatedNormal(cuts[:-1], cuts[1:], width)
        return cuts[0], cuts[-1], inner
