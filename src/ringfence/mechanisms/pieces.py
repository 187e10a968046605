"""Divergences of laws that are made of pieces: atoms, and perhaps a stretch of density.

Everything is seen from theta, in units of sigma (``standardized``). P and Q give piece i the masses P_i and
Q_i; ``log_p`` and ``rho = log(P_i / Q_i)`` hold one row for each piece. Everything is a sum of non-negative
terms in log space, so that nothing cancels, underflows or overflows (docs/notation.md).
"""

import math

import torch
from torch import Tensor

from ringfence.numerics.normal import TruncatedNormal, log_tail, log_tail_ratio

# A piece is heavy above this mass: well over a half, so that rounding never makes two of them so.
_HEAVY = math.log(0.6)
_SHORT = 8192  # up to this many numbers two calls cost more than one of twice the length


def far(like: Tensor) -> float:
    """A distance so large that every tail beyond it is exactly zero, while its square is finite.

    >>> far(torch.zeros(1)), far(torch.zeros(1, dtype=torch.float64))
    (1e+18, 1e+100)
    """
    return 1e100 if like.dtype == torch.float64 else 1e18


def standardized(theta: Tensor, sigma: Tensor, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(lower, upper, width) of an interval, seen from theta in units of sigma; infinite ends become far ones.

    The width is formed from the bounds themselves: a difference of the standardized ends would have lost
    the digits that matter when the interval is narrow and far away.

    >>> [float(x) for x in standardized(*(torch.tensor(x) for x in (1.0, 2.0, 0.0, 5.0)))]
    [-0.5, 2.0, 2.5]
    """
    limit = far(theta)
    return (
        ((lower - theta) / sigma).clamp(-limit, limit),
        ((upper - theta) / sigma).clamp(-limit, limit),
        ((upper - lower) / sigma).clamp(max=2 * limit),
    )


def upward(shift: Tensor, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """|shift| and the interval, reflected where the shift was downward.

    >>> [float(x) for x in upward(*(torch.tensor(x) for x in (-1.0, 0.0, 5.0)))]
    [1.0, -5.0, -0.0]
    """
    down = shift < 0
    return shift.abs(), torch.where(down, -upper, lower), torch.where(down, -lower, upper)


def renyi(log_p: Tensor, rho: Tensor, alpha: Tensor, inner: Tensor | None = None) -> Tensor:
    """D_alpha(P || Q) from the masses of the pieces.

    ``inner`` is (alpha - 1) times the divergence of the two laws conditioned on piece 0, where
    that is more than an atom. By the chain rule

        exp((alpha - 1) D) - 1 = sum_i Q_i f(P_i / Q_i) + P_0^alpha Q_0^(1 - alpha) (e^inner - 1),

    f(r) = r^alpha - 1 - alpha (r - 1) >= 0.

    >>> p, q = torch.tensor([[0.5], [0.5]]), torch.tensor([[0.25], [0.75]])
    >>> round(float(renyi(p.log(), (p / q).log(), torch.tensor([2.0]))), 4)  # log(1 + 1/3)
    0.2877
    """
    terms = log_p - rho + log_excess(rho, alpha)
    if inner is not None:
        term = log_p[0] + (alpha - 1) * rho[0] + log_expm1(inner)
        terms = torch.cat((terms, term.unsqueeze(0)))
    total = torch.logsumexp(terms, dim=0)
    return torch.logaddexp(torch.zeros_like(total), total) / (alpha - 1)


def hockey_stick(log_p: Tensor, rho: Tensor, epsilon: Tensor) -> Tensor:
    """The sum of max(P_i - e^epsilon Q_i, 0) over atoms.

    >>> p, q = torch.tensor([[0.5], [0.5]]), torch.tensor([[0.25], [0.75]])
    >>> round(float(hockey_stick(p.log(), (p / q).log(), torch.tensor([0.0]))), 4)
    0.25
    """
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
    ends, shifts = torch.stack((-lower, upper)), torch.stack((shift, -shift))
    calls = 1 if max(ends.numel(), shifts.numel()) <= _SHORT else 2  # both at once would leave the cache
    parts = zip(ends.chunk(calls), shifts.chunk(calls), strict=True)
    rho = torch.cat([log_tail_ratio(end, move) for end, move in parts])
    return log_p.expand_as(rho), rho


def log_mass_ratio(stretch: TruncatedNormal, shift: Tensor) -> Tensor:
    """The log of the mass of a stretch under N(0, 1) over its mass under N(shift, 1)."""
    return shift * (0.5 * shift - stretch.mean()) - stretch.log_mgf(shift)[0]


def loss_moments(log_p: Tensor, rho: Tensor, density: tuple[TruncatedNormal, Tensor] | None = None) -> Tensor:
    """Rows: variance, third and fourth central moment of L = log p/q under P, and sup L - inf L.

    The pieces are atoms, and perhaps a density between two of them, given by its stretch and the shift: there
    L = shift^2 / 2 - shift x is linear in the output x. Atoms whose mass underflows are left out.
    """
    mass = torch.exp(log_p)
    loss = torch.where(mass > 0, rho, 0.0)  # 0 is within the range of L
    mean, ends = (mass * loss).sum(dim=0), [*loss]
    if density is not None:
        stretch, shift = density
        inner_mass = torch.exp(stretch.log_mass())
        ends += [shift * (0.5 * shift - end) for end in (stretch.lower, stretch.upper)]
        inner_mean = torch.where(inner_mass > 0, shift * (0.5 * shift - stretch.mean()), 0.0)
        mean = mean + inner_mass * inner_mean
    moments = [(mass * (loss - mean) ** k).sum(dim=0) for k in (2, 3, 4)]
    if density is not None:
        # with d = E L - mean on the stretch and Y = L - E L, expand (d + Y)^k and use E Y = 0; the central
        # moments of L are (-shift)^k times those of x
        second, third, fourth = stretch.central_moments()
        second, third, fourth = shift**2 * second, -(shift**3) * third, shift**4 * fourth
        away = inner_mean - mean
        square = away * away
        inner = (
            square + second,
            away * (square + 3 * second) + third,
            square * (square + 6 * second) + 4 * away * third + fourth,
        )
        moments = [own + inner_mass * more for own, more in zip(moments, inner, strict=True)]
    losses = torch.stack(torch.broadcast_tensors(*ends))
    extent = losses.amax(dim=0) - losses.amin(dim=0)
    return torch.stack((*moments, extent.expand_as(moments[0])))


def sharpened(log_p: Tensor, rho: Tensor) -> Tensor:
    """rho, with a sharper entry for a piece that holds most of the mass.

    The ratio of such a piece is so close to 1 that only what all the others gained or lost still shows it.
    This is for laws of atoms alone: where the heavy piece has an inside, that tells far more than its mass.
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
    one = torch.ones_like(alpha)
    geometric, bound, negligible = [one], 0.5, torch.finfo(rho.dtype).eps / 8
    while bound * len(geometric) > negligible:
        geometric.append(torch.addcdiv(one, geometric[-1], alpha))
        bound *= largest / (len(geometric) + 1)
    scaled, total = alpha * rho, geometric.pop()
    while geometric:
        # Horner: (G_J y / (J+2) + G_{J-1}) y / (J+1) + ..., one operation a step
        value = 1 / (len(geometric) + 2)
        total = torch.addcmul(geometric.pop(), scaled, total, value=value)
    return total.mul_(rho * rho).mul_(0.5 * alpha * (alpha - 1)).log_()


def _log_excess_by_exponentials(rho: Tensor, alpha: Tensor) -> Tensor:
    """log f(e^rho) with the larger exponential taken out, so that nothing overflows."""
    above = rho.clamp(min=0)
    rest = (alpha - 1) * above
    upper = torch.expm1(-above) * torch.exp(-rest) * (alpha - 1) - torch.expm1(-rest)
    below = rho.clamp(max=0)
    lower = torch.exp(below) * torch.expm1((alpha - 1) * below) - (alpha - 1) * torch.expm1(below)
    return alpha * above + torch.log(torch.where(rho > 0, upper, lower))


def log_expm1(x: Tensor) -> Tensor:
    """log(e^x - 1) for x >= 0, -inf at 0.

    >>> log_expm1(torch.tensor([0.0, 1.0, 800.0])).round(decimals=3).tolist()
    [-inf, 0.5410000085830688, 800.0]
    """
    return x + torch.log(-torch.expm1(-x))
