"""The information that bounds every divergence up to a given move, whatever the size of the move.

    rho(theta) = sup over 0 < |s| <= c of 2 D_alpha(theta, s) / (alpha s^2),

both signs, for each direction and order. Then D(theta_j, v_j) <= (alpha / 2) rho_j v_j^2 for every move v,
and what is left to find is the largest sum of rho_j v_j^2: a knapsack (``sensitivity.filled``).

The supremum is bounded from values at c, c / r, c / r^2 and so on. Theta and s are in units of sigma. Between
two of these moves, a < b:

- D(theta || theta + s) is convex in s, because the masses and densities of every law here are log-concave in
  the location. So it lies below its chord, and the largest chord(s) / s^2 is known in closed form.
- D(theta + s || theta) + alpha s^2 / (2 (alpha - 1)) is convex in s, because second derivatives of
  log-masses by the location are at least -1. So D is at most alpha (s - a)(b - s) / (2 (alpha - 1)) above
  its chord.
- D grows with s in both directions, so that rho on the stretch is at most r^2 times its value at b.

Below the last of these moves, where alpha s is at most a tenth, 2 D / (alpha s^2) hardly varies and is taken
to be at most 1.001 times the larger of its values at both ends; at 0 it is the Fisher information. This part
is checked numerically and not proved (docs/guarantees.md). No value is above what the law proves for every
theta.
"""

import math

import torch
from torch import Tensor

from ringfence.accounting.per_instance.translation import from_nearer_end
from ringfence.mechanisms.base import Mechanism
from ringfence.numerics.rounding import ROUNDING, UNDERFLOW

_RATIO = 1.1  # of neighbouring moves, at orders of 2 and more
_OVERSHOOT = (_RATIO - 1) ** 2 / (4 * _RATIO)  # 0.23 %: by how much chords may raise the result
_SMALL = 0.1  # alpha s, below which the quotient is taken from both ends
_SMALL_MARGIN = 1.001
_LOWEST = 0.02  # order - 1, below which moves are no longer taken closer together
_SMALLEST_INFORMATION = 1e-290  # what a law says of its information below this may have lost digits
_TOGETHER = 1 << 22  # divergences that are held at once


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
    mechanism, theta = from_nearer_end(mechanism, theta)
    sigma, most = mechanism.sigma.to(theta), largest_information(mechanism).to(theta)
    theta, farthest, _, _ = torch.broadcast_tensors(theta, farthest.to(theta), sigma, most)
    widest = float((farthest / sigma).max()) if theta.numel() else 0.0
    at_zero = mechanism.fisher_information(theta) * sigma.square()
    result = theta.new_empty(2, len(orders), *theta.shape)
    for members in _alike(orders):
        some = orders[members]
        ratio, moves = _moves(some, widest)
        shifts = farthest * moves.to(theta).view(-1, *(1,) * theta.dim())
        for row, backward in zip(result, (False, True), strict=True):
            signs = (
                _largest(mechanism, theta, shift, some, ratio, at_zero, backward)
                for shift in (shifts, -shifts)
            )
            row[members] = torch.maximum(*signs)
    raised = torch.nan_to_num(result * (1 + ROUNDING), nan=torch.inf, posinf=torch.inf)
    return torch.minimum(raised / sigma.square(), most)


def largest_information(mechanism: Mechanism) -> Tensor:
    """What rho is at most, whatever theta: the law's bound of its information, or the Gaussian's.

    >>> from ringfence.mechanisms.truncated import TruncatedGaussian
    >>> largest_information(TruncatedGaussian(1.0, bound=1.0)).round(decimals=4)
    tensor(0.2911, dtype=torch.float64)
    """
    gaussian = mechanism.sigma.double().square().reciprocal()
    bound = mechanism.information_bound().double()
    known = torch.isfinite(bound) & (bound > _SMALLEST_INFORMATION)
    return torch.where(known, torch.minimum(bound, gaussian), gaussian)


def _alike(orders: Tensor) -> list[list[int]]:
    """Indices of orders for which the same moves will do: those below 2, from 2 to 8, from 8 to 32, ..."""
    groups: dict[int, list[int]] = {}
    for i, order in enumerate(orders.tolist()):
        groups.setdefault(math.floor(math.log(order / 2, 4)) if order >= 2 else -1, []).append(i)
    return list(groups.values())


def _moves(orders: Tensor, widest: float) -> tuple[float, Tensor]:
    """r, and the moves 1, 1 / r, 1 / r^2 and so on, down to where alpha s is small.

    At orders below 2, where the second bound of the backward direction is larger, moves are closer together.
    """
    gap = math.sqrt(4 * _OVERSHOOT * min(1.0, max(_LOWEST, float(orders.min()) - 1)))
    ratio = 1 + gap / 2 * (gap + math.sqrt(gap * gap + 4))  # (r - 1)^2 / r = gap^2
    count = math.ceil(math.log(max(1.0, float(orders.max()) * widest / _SMALL)) / math.log(ratio))
    return ratio, ratio ** -torch.arange(count + 1, dtype=torch.float64)


def _largest(
    mechanism: Mechanism,
    theta: Tensor,
    shifts: Tensor,
    orders: Tensor,
    ratio: float,
    at_zero: Tensor,
    backward: bool,
) -> Tensor:
    """The supremum over moves of one sign, times sigma^2; ``shifts`` fall along the first dimension."""
    together = max(2, _TOGETHER // max(1, theta.numel() * len(orders)))
    best = at_zero
    for start in range(0, max(1, len(shifts) - 1), together - 1):  # stretches at the seams need both ends
        values = _quotients(mechanism, theta, shifts[start : start + together], orders, backward)
        best = torch.maximum(best, _between(values, orders, ratio, backward).amax(dim=1))
    return torch.maximum(best, _SMALL_MARGIN * torch.maximum(at_zero, values[:, -1]))


def _quotients(mechanism: Mechanism, theta: Tensor, shifts: Tensor, orders: Tensor, backward: bool) -> Tensor:
    """2 sigma^2 D / (alpha s^2) at every order and move."""
    if backward:
        values = mechanism.renyi_curve(theta + shifts, -shifts, orders)
    else:
        values = mechanism.renyi_curve(theta, shifts, orders)
    halves = 0.5 * orders.to(theta).view(-1, *(1,) * shifts.dim())
    return (values + UNDERFLOW) / (halves * (shifts / mechanism.sigma.to(theta)).square())


def _between(values: Tensor, orders: Tensor, ratio: float, backward: bool) -> Tensor:
    """Upper bounds of the quotient on the stretches between neighbouring moves, ends included.

    With a = 1 and b = r, D is ``low`` at a and ``high`` r^2 at b, and its chord is ``start`` + ``slope`` s.
    """
    if values.shape[1] == 1:
        return values
    high, low = values[:, :-1], values[:, 1:]
    slope = (high * ratio**2 - low) / (ratio - 1)
    start = low - slope
    turn = -2 * start / slope
    inside = (start < 0) & (turn > 1) & (turn < ratio)
    chord = torch.where(inside, slope.square() / (-4 * start), torch.maximum(low, high))
    if backward:
        above = (ratio - 1) ** 2 / (4 * ratio * (orders - 1))
        chord = chord + above.to(values).view(-1, *(1,) * (values.dim() - 1))
    return torch.minimum(chord, high * ratio**2)
