"""How fast a divergence can change with theta: upper bounds over all theta.

Write f(theta) for the largest of D(theta || theta + s) and D(theta + s || theta) over s = +-c, and measure
theta in units of u = information_bound^(-1/2), which is at least sigma. Two facts carry everything here:

    0 <= f <= M = alpha c^2 / (2 u^2),        f'' >= -k f.

For exponential families, the Gaussian and the truncated law, k = 2: there f is alpha c^2 / 2 times an average
of the information I, and I'' = mu_4 - 3 mu_2^2 >= -2 I^2. For laws with atoms, whose u is sigma, k is the
constant of docs/curvature.md. The largest of several functions with this property has it too: where two of
them cross, f' jumps up.

Everywhere (Landau's inequality): |f'| <= sqrt(k) M. While f rises, f'^2 + k f^2 does not fall, because its
derivative is 2 f' (f'' + k f). f is bounded and so stops rising, and then the sum is at most k M^2. For a
falling f, read from right to left. For laws with atoms also, and less where (alpha - 1) M is small,
|f'| <= sqrt(k / e) (exp((alpha - 1) M) - 1) / (alpha - 1) (docs/curvature.md).

Where low <= f <= high on a stretch, one unit and more from its ends:
f'^2 <= k (high^2 - low^2) + (high - low)^2. Either f stops rising within the unit, as above, or it rises all
through it, by at most high - low, at a rate whose square is at least f'^2 - k (high^2 - low^2).

Between nodes h apart, where f <= m: f' <= rise of the next cell / h + (3/2) k m h, because
f + k m theta^2 / 2 is convex; and from below likewise, with the cell before.

Far from the ends of the support, by at least 15 u + 2 alpha c, f hardly varies. Write
nothing = exp(-15^2 / 2) alpha / (alpha - 1).

- Outside, an exponential family has f <= M / (15 + alpha c / u)^2: windows reach alpha c, and the information
  is at most 1 / distance^2, an exponential law's, because the density falls at least as fast as that law's.
- Outside, a law with atoms is a function of the Gaussian clamped at the nearer end, whose divergences are at
  most -log Phi(15) + exp(alpha (alpha - 1) c^2 / 2) Phi(-15 - alpha c) / (alpha - 1) <= nothing (sigma = 1).
- Inside, a law with a density has f >= M - nothing: the integral of p^alpha q^(1 - alpha) misses at most
  2 Phi(-15) of the Gaussian's.
"""

import math

import torch

from ringfence.accounting.divergence_sums import curvature
from ringfence.accounting.sensitivity import natural_unit
from ringfence.mechanisms.base import Mechanism
from ringfence.numerics.rounding import ROUNDING, UNDERFLOW

_FAMILY = 2.0  # the k of an exponential family
_NODES_PER_UNIT = 512
_MOST_NODES = 1 << 16
_COARSEST = 1 / 8  # of a unit: with nodes farther apart the bound that holds everywhere is as good
_FAR = 15.0  # units from the ends of the support, beyond which f hardly varies
_REACH = _FAR + 2  # of the nodes, in units: one unit for f to stop rising in, and two cells at the end
_LOCATION = 2.0**-51  # the relative rounding of theta + s, twice, for the two neighbours


def largest_share(mechanism: Mechanism, move: float, alpha: float) -> float:
    """An upper bound of the change of f when theta moves by at most ``move``, as a share of M.

    Guarantee: the bound holds for every theta, and covers the rounding of theta + s where f is evaluated.

    >>> from ringfence.mechanisms.truncated import TruncatedGaussian
    >>> 0.2957 <= largest_share(TruncatedGaussian(1.0, bound=8.0), 1e-3, 8.0) / 1e-3 <= 0.304
    True
    """
    unit = float(natural_unit(mechanism))
    _, farthest = _zones(mechanism, unit, move, alpha)
    share = steepness(mechanism, move, alpha) * ((move + _LOCATION * farthest) / unit)
    return min(1.0, share)  # f lies between 0 and M, and 1 is also what becomes of NaN


def steepness(mechanism: Mechanism, move: float, alpha: float) -> float:
    """An upper bound of |df/dtheta| over all theta, in units of M / u: at most sqrt(k).

    It is infinite for a law of whole numbers, whose divergences have kinks.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> steepness(Gaussian(1.0), 1e-3, 8.0)
    0.0
    """
    if mechanism.whole:
        return math.inf
    unit = float(natural_unit(mechanism))
    jump = move / unit
    most = 0.5 * alpha * jump * jump
    bend = _bend(mechanism, jump, alpha)
    everywhere = math.sqrt(bend)
    tilt = (alpha - 1) * most
    if not mechanism.exponential_family and tilt < 1:  # with a larger tilt this bound is the larger one
        everywhere *= math.exp(-0.5) * (math.expm1(tilt) / tilt if tilt else 1.0) * (1 + ROUNDING)
    if not 0 < most < math.inf:
        return everywhere
    zones, _ = _zones(mechanism, unit, move, alpha)
    if not zones:
        return 0.0  # a density on the whole line: the Gaussian
    nothing = math.exp(-0.5 * _FAR * _FAR) * alpha / (alpha - 1) / most
    outside = (1 / (_FAR + alpha * jump)) ** 2 if mechanism.exponential_family else nothing
    far = max(math.sqrt(bend + 1) * outside, math.sqrt(2 * bend * nothing + nothing * nothing))
    near = (_between_nodes(mechanism, zone, unit, move, alpha, most) for zone in zones)
    return min(everywhere, max(far, *near))


def _bend(mechanism: Mechanism, jump: float, alpha: float) -> float:
    """k in f'' >= -k f, in natural units."""
    if mechanism.exponential_family:
        return _FAMILY
    order, size = (torch.tensor(value, dtype=torch.float64) for value in (alpha, jump))
    return float(curvature(order, size))


def _zones(
    mechanism: Mechanism, unit: float, move: float, alpha: float
) -> tuple[list[tuple[float, float]], float]:
    """The stretches outside which f hardly varies, and the largest |theta| in them."""
    reach = _REACH * unit + 2 * alpha * move
    ends = [float(value) for value in mechanism.turning_points()]
    dense = mechanism.support.interval is not None
    zones = [(end - reach, end + reach) for end in ends if math.isfinite(end)]
    if len(zones) == 2 and (not dense or zones[0][1] >= zones[1][0]):
        zones = [(zones[0][0], zones[1][1])]
    return zones, max((abs(end) for zone in zones for end in zone), default=0.0)


def _between_nodes(
    mechanism: Mechanism, zone: tuple[float, float], unit: float, move: float, alpha: float, most: float
) -> float:
    """The bound of |f'| in a zone, from values at nodes; infinite where there are too few nodes to say."""
    length = (zone[1] - zone[0]) / unit
    if not 0 < length <= _COARSEST * _MOST_NODES:
        return math.inf
    count = min(_MOST_NODES, math.ceil(length * _NODES_PER_UNIT)) + 1
    theta = torch.linspace(*zone, count, dtype=torch.float64)
    spacing = torch.diff(theta) / unit
    widest, narrowest = float(spacing.max()), float(spacing.min())
    if narrowest < 0.5 * widest:  # so far from 0 that float64 cannot tell nodes apart
        return math.inf
    order = torch.tensor([alpha], dtype=torch.float64)
    # D(theta + s || theta) is the other sign's, seen from theta + s
    values = torch.stack([mechanism.renyi_curve(theta, s, order)[0] for s in (move, -move)]) / most
    rise = torch.diff(values) / spacing
    steepest = rise.abs().unfold(1, 2, 1).amax(dim=2)
    bend = _bend(mechanism, move / unit, alpha)
    if bend * widest**2 > 1:
        return math.inf
    # between nodes f is at most this multiple of its largest value at the nodes
    highest = values.unfold(1, 3, 1).amax(dim=2) / (1 - bend * widest**2 / 6)
    rounding = 2 * (ROUNDING + UNDERFLOW / most) / narrowest
    return float((steepest + 1.5 * bend * widest * highest).max()) * (1 + ROUNDING) + rounding
