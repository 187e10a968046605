"""Divergences of laws that are made of pieces: atoms, and perhaps a stretch of density.

P and Q give piece i the masses P_i and Q_i; ``log_p`` and ``rho = log(P_i / Q_i)`` hold one row a
piece. Everything is a sum of non-negative terms in log space, so that nothing cancels, underflows
or overflows (docs/notation.md).
"""

import math

import torch
from torch import Tensor

from ringfence.numerics.normal import log_tail, log_tail_ratio
from ringfence.numerics.truncated_normal import TruncatedNormal

# A piece is heavy above this mass: well over a half, so that rounding never makes two of them so.
_HEAVY = math.log(0.6)


def renyi(log_p: Tensor, rho: Tensor, alpha: Tensor, inner: Tensor | None = None) -> Tensor:
    """D_alpha(P || Q) from the masses of the pieces.

    ``inner`` is (alpha - 1) times the divergence of the two laws conditioned on piece 0, where
    that is more than an atom. By the chain rule

        exp((alpha - 1) D) - 1 = sum_i Q_i f(P_i / Q_i) + P_0^alpha Q_0^(1 - alpha) (e^inner - 1),

    f(r) = r^alpha - 1 - alpha (r - 1) >= 0.
    """
    terms = log_p - rho + log_excess(rho, alpha)
    if inner is not None:
        term = log_p[0] + (alpha - 1) * rho[0] + _log_expm1(inner)
        terms = torch.cat((terms, term.unsqueeze(0)))
    total = torch.logsumexp(terms, dim=0)
    return torch.logaddexp(torch.zeros_like(total), total) / (alpha - 1)


def hockey_stick(log_p: Tensor, rho: Tensor, epsilon: Tensor) -> Tensor:
    """sum_i max(P_i - e^epsilon Q_i, 0) over atoms."""
    margin = (rho - epsilon).clamp(min=0)  # a piece with P_i <= e^epsilon Q_i is not in the set
    return (torch.exp(log_p) * -torch.expm1(-margin)).sum(dim=0)


def below_threshold(
    lower: Tensor, upper: Tensor, width: Tensor, shift: Tensor, threshold: Tensor
) -> tuple[TruncatedNormal, Tensor]:
    """The stretch of [lower, upper] where p > e^epsilon q, and 1 - e^epsilon Q / P on it.

    For an upward shift the log ratio falls linearly and crosses epsilon at the threshold, so it
    exceeds epsilon by shift (threshold - x).
    """
    right = torch.minimum(upper, threshold)
    empty = right <= lower
    right = torch.where(empty, upper, right)
    part = TruncatedNormal(lower, right, torch.where(right == upper, width, right - lower))
    value = part.shortfall(torch.maximum(threshold, right), shift)
    return part, torch.where(empty, 0.0, value)


def atoms(lower: Tensor, upper: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """log P and log P/Q of {X <= lower} and {X >= upper}: P = N(0, 1), Q = N(shift, 1)."""
    log_p = torch.stack((log_tail(-lower), log_tail(upper)))
    rho = torch.stack((log_tail_ratio(-lower, shift), log_tail_ratio(upper, -shift)))
    return log_p.expand_as(rho), rho


def log_mass_ratio(stretch: TruncatedNormal, shift: Tensor) -> Tensor:
    """log of the mass of a stretch under N(0, 1) over that under N(shift, 1)."""
    return shift * (0.5 * shift - stretch.mean()) - stretch.log_mgf(shift)[0]


def loss_moments(log_p: Tensor, rho: Tensor, density: tuple[TruncatedNormal, Tensor] | None = None) -> Tensor:
    """Rows: variance, third and fourth central moment of L = log p/q under P, and sup L - inf L.

    Atoms, and perhaps a density between two of them: its stretch and the shift, L = shift^2 / 2 - shift x.
    It adds its own moments to those of its mean. Atoms whose mass underflows are left out.
    """
    mass = torch.exp(log_p)
    rho = torch.where(mass > 0, rho, 0.0)  # 0 is within the range of L
    mean = (mass * rho).sum(dim=0)
    if density is not None:
        stretch, shift = density
        middle = torch.exp(stretch.log_mass())
        inside = torch.where(middle > 0, shift * (0.5 * shift - stretch.mean()), 0.0)
        mean = mean + middle * inside
    away = rho - mean
    rows = [(mass * away**k).sum(dim=0) for k in (2, 3, 4)]
    ends = torch.stack((rho.amax(dim=0), rho.amin(dim=0)))
    if density is not None:
        second, third, fourth = stretch.central_moments()
        second, third, fourth = shift**2 * second, -(shift**3) * third, shift**4 * fourth
        inside = inside - mean
        square = inside * inside
        rows[0] = rows[0] + middle * (square + second)
        rows[1] = rows[1] + middle * (inside * (square + 3 * second) + third)
        rows[2] = rows[2] + middle * (square * (square + 6 * second) + 4 * inside * third + fourth)
        edges = torch.stack(torch.broadcast_tensors(*(shift * (0.5 * shift - x) for x in stretch.ends)))
        ends = torch.stack(
            (torch.maximum(ends[0], edges.amax(dim=0)), torch.minimum(ends[1], edges.amin(dim=0)))
        )
    return torch.stack((*rows, (ends[0] - ends[1]).expand_as(rows[0])))


def sharpened(log_p: Tensor, rho: Tensor) -> Tensor:
    """rho with the entry of a piece that holds most of the mass replaced by a sharper one.

    Its ratio is so close to 1 that only what all the others gained or lost still shows it. For
    laws of atoms alone; where the heavy piece has an inside, that tells far more than its mass.
    """
    heavy = (log_p > _HEAVY) & (rho.abs() < 0.5)
    if not bool(heavy.any()):
        return rho
    larger = torch.exp(log_p + (-rho).clamp_(min=0))  # of P_i and Q_i
    gained = torch.expm1(-rho.abs()).mul_(larger).mul_(-torch.sign(rho))  # P_i - Q_i
    others = gained.masked_fill_(heavy, 0.0).sum(dim=0)
    sharper = -torch.log1p(others * torch.exp(-log_p))
    return torch.where(heavy, sharper, rho)


def log_excess(rho: Tensor, alpha: Tensor) -> Tensor:
    """log f(e^rho), f(r) = r^alpha - 1 - alpha (r - 1), to relative accuracy; -inf at rho = 0."""
    scaled = (alpha * rho).abs()
    small = scaled < 1
    if bool(small.all()):
        return _log_excess_by_series(rho, alpha, float(scaled.amax()))
    direct = _log_excess_by_exponentials(rho, alpha)
    if not bool(small.any()):
        return direct
    series = _log_excess_by_series(torch.where(small, rho, 0.0), alpha, 1.0)
    return torch.where(small, series, direct)


def _log_excess_by_series(rho: Tensor, alpha: Tensor, largest: float) -> Tensor:
    """alpha (alpha-1) rho^2 sum_j G_j (alpha rho)^j / (j+2)!,  G_j = sum_{i<=j} alpha^-i <= j+1."""
    scaled = alpha * rho
    geometric = torch.ones_like(alpha)
    term = torch.full_like(scaled, 0.5)
    total = term.clone()
    j, bound, negligible = 0, 0.5, torch.finfo(rho.dtype).eps / 8
    while bound * (j + 1) > negligible:
        j += 1
        bound *= largest / (j + 2)
        geometric = 1 + geometric / alpha
        term.mul_(scaled).div_(j + 2)
        total.addcmul_(geometric, term)
    return total.mul_(rho * rho).mul_(alpha * (alpha - 1)).log_()


def _log_excess_by_exponentials(rho: Tensor, alpha: Tensor) -> Tensor:
    """The same with the larger exponential taken out, so that nothing overflows."""
    above = rho.clamp(min=0)
    rest = (alpha - 1) * above
    upper = torch.expm1(-above) * torch.exp(-rest) * (alpha - 1) - torch.expm1(-rest)
    below = rho.clamp(max=0)
    lower = torch.exp(below) * torch.expm1((alpha - 1) * below) - (alpha - 1) * torch.expm1(below)
    return alpha * above + torch.log(torch.where(rho > 0, upper, lower))


def _log_expm1(x: Tensor) -> Tensor:
    """log(e^x - 1) for x >= 0, -inf at 0."""
    return x + torch.log(-torch.expm1(-x))
