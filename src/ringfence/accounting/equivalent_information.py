"""Equivalent information: bounds every divergence up to a given move, whatever the size of the move.

    rho(theta) = sup over 0 < |s| <= c of 2 D_alpha(theta, s) / (alpha s^2),

both signs, for each direction and order. Then D(theta_j, v_j) <= (alpha / 2) rho_j v_j^2 for every move v,
and what is left to find is the largest sum of rho_j v_j^2: a knapsack (``sensitivity.filled``).

The supremum is bounded by half octaves: over moves from c / sqrt 2 to c, from c / 2 to c / sqrt 2 and so on,
from values at moves c, c / r, c / r^2 and so on. Theta and s are in units of sigma. Between two moves, a < b
with b / a = r:

- D(theta || theta + s) is convex in s, because the masses and densities of every law here are log-concave in
  the location. So it lies below its chord, and the largest chord(s) / s^2 is known in closed form.
- D(theta + s || theta) + alpha s^2 / (2 (alpha - 1)) is convex in s, because second derivatives of
  log-masses by the location are at least -1. So D is at most alpha (s - a)(b - s) / (2 (alpha - 1)) above
  its chord.
- D grows with s in both directions, so that rho on the stretch is at most r^2 times its value at b.

Where alpha s is at most a tenth, 2 D / (alpha s^2) hardly varies and is taken to be at most 1.001 times the
larger of its values at both ends; at 0 it is the Fisher information. This part is checked numerically and not
proved (docs/guarantees.md). No value is above what the law proves for every theta.
"""

import math
from functools import reduce
from itertools import pairwise

import torch
from torch import Tensor

from ringfence.accounting.divergence_sums import Tabulated, natural_unit, pushes, recentre
from ringfence.mechanisms.base import Mechanism
from ringfence.numerics.rounding import ROUNDING, UNDERFLOW

_OVERSHOOT = 0.1**2 / 4.4  # 0.23 %: by how much chords over moves 1.1 apart may raise the result
HALF_OCTAVE = math.sqrt(0.5)  # the shortest moves of a half octave as a share of the longest
SMALL = 0.1  # alpha s, below which the quotient is taken from both ends
_SMALL_MARGIN = 1.001
_LOWEST = 0.02  # order - 1, below which moves are no longer taken closer together


def equivalent_information(mechanism: Mechanism, theta: Tensor, farthest: Tensor, orders: Tensor) -> Tensor:
    """Upper bounds of rho, forward and backward: (2, orders, shape of theta).

    ``farthest`` is c. All parameters broadcast against theta.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> from ringfence.mechanisms.sign import StochasticSign
    >>> one, orders = torch.ones(1, dtype=torch.float64), torch.tensor([2.0, 64.0], dtype=torch.float64)
    >>> equivalent_information(Gaussian(2.0), one, one, orders)[:, :, 0].round(decimals=9).tolist()
    [[0.25, 0.25], [0.25, 0.25]]
    >>> equivalent_information(StochasticSign(1.0), 3 * one, one, orders)[0, :, 0].round(decimals=3).tolist()
    [0.053, 0.818]
    """
    result = half_octave_information(mechanism, theta, farthest, orders)
    reach = orders * _widest(mechanism, farthest)
    while bool((further := (reach > SMALL) & torch.isfinite(reach)).any()):
        farthest, reach = farthest * HALF_OCTAVE, reach * HALF_OCTAVE
        more = half_octave_information(mechanism, theta, farthest, orders[further])
        chosen = further.to(result.device)
        result[:, chosen] = torch.maximum(result[:, chosen], more)
    return result


def half_octave_information(mechanism: Mechanism, theta: Tensor, farthest: Tensor, orders: Tensor) -> Tensor:
    """The same bounds for moves of c / sqrt 2 to c alone, and for all up to c at orders with alpha c <= 1/10.

    >>> from ringfence.mechanisms.sign import StochasticSign
    >>> one, order = torch.ones(1, dtype=torch.float64), torch.tensor([64.0], dtype=torch.float64)
    >>> moves = (1.0, 0.5, 0.25)
    >>> found = [half_octave_information(StochasticSign(1.0), 3 * one, move * one, order) for move in moves]
    >>> [round(float(forward), 3) for forward, _ in found]
    [0.153, 0.279, 0.49]
    """
    mechanism, theta = recentre(mechanism, theta)
    sigma = mechanism.sigma.to(theta)
    most = (sigma / natural_unit(mechanism).to(theta)).square()  # in units of sigma: the Gaussian's 1 or less
    widest, farthest = _widest(mechanism, farthest), farthest.to(theta)
    own = (theta, farthest, *mechanism.parameters().values())
    shape = torch.broadcast_shapes(*(value.shape for value in own))
    at_zero = mechanism.fisher_information(theta) * sigma.square()
    result = torch.empty(2, len(orders), *shape, dtype=theta.dtype, device=theta.device)
    small = orders * widest <= SMALL
    for chosen in (small, ~small & (orders < 2), ~small & (orders >= 2)):
        if not bool(chosen.any()):
            continue
        some, where = orders[chosen], chosen.to(theta.device)
        halves = (0.5 * some.to(theta)).view(-1, *(1,) * len(shape))
        moves = 0 if chosen is small else math.ceil(math.log(HALF_OCTAVE) / -math.log(_closest(some)))
        ratio = HALF_OCTAVE ** (-1 / max(1, moves))
        for backward in (False, True):
            at = [
                _quotients(mechanism, theta.expand(shape), farthest / ratio**k, some, halves, backward)
                for k in range(moves + 1)
            ]
            if chosen is small:
                bound = _SMALL_MARGIN * torch.maximum(at[0].amax(dim=0), at_zero)
            else:
                bounds = (_between(*ends, halves, ratio, backward).amax(dim=0) for ends in pairwise(at))
                bound = reduce(torch.maximum, bounds)
            result[int(backward), where] = bound
    bounded: Tensor = torch.minimum(result * (1 + ROUNDING), most) / sigma.square()
    return bounded


# A value takes many divergences: every eighth node is evaluated, and chords over 1/16 sigma are raised by
# 0.26 %.
EQUIVALENT_INFORMATION = Tabulated(equivalent_information, stride=8)
HALF_OCTAVE_INFORMATION = Tabulated(half_octave_information, stride=8)


def _widest(mechanism: Mechanism, farthest: Tensor) -> float:
    """The longest move in units of sigma."""
    moves = farthest.double().cpu() / mechanism.sigma.double().cpu()
    return float(moves.max()) if moves.numel() else 0.0


def _closest(orders: Tensor) -> float:
    """The largest ratio of neighbouring moves.

    At orders below 2, where the second bound of the backward direction is larger, moves are closer together.
    """
    gap = math.sqrt(4 * _OVERSHOOT * min(1.0, max(_LOWEST, float(orders.min()) - 1)))
    return 1 + gap / 2 * (gap + math.sqrt(gap * gap + 4))  # (r - 1)^2 / r = gap^2


def _quotients(
    mechanism: Mechanism, theta: Tensor, move: Tensor, orders: Tensor, halves: Tensor, backward: bool
) -> Tensor:
    """2 sigma^2 D / (alpha s^2) of moves up and down, (2, orders, shape); ``halves`` is alpha / 2."""
    values = torch.stack([mechanism.renyi_curve(*pair, orders) for pair in pushes(theta, move)[backward]])
    quotients = (values + UNDERFLOW) / (halves * (move / mechanism.sigma.to(theta)).square())
    return torch.nan_to_num(quotients, nan=torch.inf, posinf=torch.inf)  # as large as any quotient may be


def _between(high: Tensor, low: Tensor, halves: Tensor, ratio: float, backward: bool) -> Tensor:
    """Upper bounds of the quotient on a stretch, ends included, from its values at both ends.

    With a = 1 and b = r, D is ``low`` at a and ``high`` r^2 at b, and its chord is ``start`` + ``slope`` s.
    """
    slope = (high * ratio**2 - low) / (ratio - 1)
    start = low - slope
    turn = -2 * start / slope
    inside = (start < 0) & (turn > 1) & (turn < ratio)
    chord = torch.where(inside, slope.square() / (-4 * start), torch.maximum(low, high))
    if backward:
        chord = chord + (ratio - 1) ** 2 / (4 * ratio * (2 * halves - 1))
    return torch.nan_to_num(torch.minimum(chord, high * ratio**2), nan=torch.inf, posinf=torch.inf)
