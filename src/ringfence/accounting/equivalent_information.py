"""Equivalent information: bounds every divergence up to a given move, whatever the size of the move.

    rho(theta) = sup over 0 < |s| <= c of 2 D_alpha(theta, s) / (alpha s^2),

both signs, for each direction and order. Then D(theta_j, v_j) <= (alpha / 2) rho_j v_j^2 for every move v,
and what is left to find is the largest sum of rho_j v_j^2: a knapsack (``sensitivity.filled``).

The supremum is bounded from values at moves c, c / 2, c / 4 and so on. Theta and s are in units of sigma.
Between two moves, a < b with b / a = r:

- D(theta || theta + s) is convex in s, because the masses and densities of every law here are log-concave in
  the location. So it lies below its chord, and the largest chord(s) / s^2 is known in closed form.
- D(theta + s || theta) + alpha s^2 / (2 (alpha - 1)) is convex in s, because second derivatives of
  log-masses by the location are at least -1. So D is at most alpha (s - a)(b - s) / (2 (alpha - 1)) above
  its chord.
- D grows with s in both directions, so that rho on the stretch is at most r^2 times its value at b.

A stretch between two moves is halved, down to r = 2^(1/8), where its bound is above a value that was found
elsewhere, so that most theta need a few of the moves.

Where alpha s is at most a tenth, 2 D / (alpha s^2) hardly varies and is taken to be at most 1.001 times the
larger of its values at both ends; at 0 it is the Fisher information. This part is checked numerically and not
proved (docs/guarantees.md). No value is above what the law proves for every theta.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ringfence.accounting.divergence_sums import Tabulated, pushes, recentre
from ringfence.accounting.sensitivity import natural_unit
from ringfence.mechanisms.base import Mechanism
from ringfence.numerics.rounding import ROUNDING, UNDERFLOW

_OVERSHOOT = 0.1**2 / 4.4  # 0.23 %: by how much chords over moves 1.1 apart may raise the result
SMALL = 0.1  # alpha s, below which the quotient is taken from both ends
_SMALL_MARGIN = 1.001
_LOWEST = 0.02  # order - 1, below which moves are no longer taken closer together
_TOGETHER = 1 << 12  # coordinates that are searched at once, so that their moves stay in the cache
_TOGETHER_ON_GPU = 1 << 15  # where short calls would cost more than what they compute


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
    return _bounds(mechanism, theta, farthest, orders, 2.0, all_below=True)


def half_octave_information(mechanism: Mechanism, theta: Tensor, farthest: Tensor, orders: Tensor) -> Tensor:
    """The same bounds for moves of c / sqrt 2 to c alone, and for all up to c at orders with alpha c <= 1/10.

    >>> from ringfence.mechanisms.sign import StochasticSign
    >>> one, order = torch.ones(1, dtype=torch.float64), torch.tensor([64.0], dtype=torch.float64)
    >>> moves = (1.0, 0.5, 0.25)
    >>> found = [half_octave_information(StochasticSign(1.0), 3 * one, move * one, order) for move in moves]
    >>> [round(float(forward), 3) for forward, _ in found]
    [0.153, 0.279, 0.49]
    """
    return _bounds(mechanism, theta, farthest, orders, math.sqrt(2), all_below=False)


# A value takes many divergences: every eighth node is evaluated, and chords over 1/16 sigma are raised by
# 0.26 %.
EQUIVALENT_INFORMATION = Tabulated(equivalent_information, stride=8)
HALF_OCTAVE_INFORMATION = Tabulated(half_octave_information, stride=8)


def _bounds(
    mechanism: Mechanism, theta: Tensor, farthest: Tensor, orders: Tensor, ratio: float, *, all_below: bool
) -> Tensor:
    """Bounds for moves from c / ratio to c, or for ``all_below`` as well, in stretches of this ratio."""
    mechanism, theta = recentre(mechanism, theta)
    sigma = mechanism.sigma.to(theta)
    most = (sigma / natural_unit(mechanism).to(theta)).square()  # in units of sigma: the Gaussian's 1 or less
    at_zero = mechanism.fisher_information(theta) * sigma.square()
    given = torch.broadcast_tensors(theta, farthest.to(theta), sigma, most, at_zero)
    shape = given[0].shape
    # coordinates are taken in vectors; a parameter that is a single number stays one, without dimensions
    single = {name: value.reshape(()) for name, value in mechanism.parameters().items() if value.numel() == 1}
    own = {name: value.to(theta) for name, value in mechanism.parameters().items() if name not in single}
    mechanism = mechanism.with_parameters(mechanism.parameters() | single)
    columns = [value.expand(shape).reshape(-1) for value in (*given, *own.values())]
    parts = []
    for some in zip(*(v.split(_TOGETHER if v.is_cpu else _TOGETHER_ON_GPU) for v in columns), strict=True):
        search = _Search(mechanism, dict(zip(own, some[5:], strict=True)), *some[:5])
        parts.append(search.largest(orders, ratio, all_below=all_below))
    bounded: Tensor = (torch.cat(parts, dim=2) * (1 + ROUNDING)).view(2, len(orders), *shape) / sigma.square()
    return bounded


def _closest(orders: Tensor) -> float:
    """The largest ratio of neighbouring moves.

    At orders below 2, where the second bound of the backward direction is larger, moves are closer together.
    """
    gap = math.sqrt(4 * _OVERSHOOT * min(1.0, max(_LOWEST, float(orders.min()) - 1)))
    return 1 + gap / 2 * (gap + math.sqrt(gap * gap + 4))  # (r - 1)^2 / r = gap^2


class _Search(NamedTuple):
    """The largest quotients 2 sigma^2 D / (alpha s^2) of a vector of coordinates."""

    mechanism: Mechanism
    own: dict[str, Tensor]  # parameters that differ from coordinate to coordinate
    theta: Tensor
    farthest: Tensor
    sigma: Tensor
    most: Tensor
    at_zero: Tensor

    def largest(self, orders: Tensor, ratio: float, *, all_below: bool) -> Tensor:
        """Upper bounds: (2, orders, coordinates)."""
        result = self.most.repeat(2, len(orders), 1)
        widest = float((self.farthest / self.sigma).max()) if len(self.theta) else 0.0
        reach = orders * widest / SMALL
        # the same moves will do for orders below 2, from 2 to 8, from 8 to 32 and so on
        alike = torch.where(orders < 2, -1, torch.floor(torch.log2(orders / 2) / 2))
        alike = torch.where(reach <= 1, -2, alike)
        for kind in torch.unique(alike[torch.isfinite(reach)]).tolist():
            some = alike == kind
            small = kind == -2
            count = 0 if small else math.ceil(math.log(float(reach[some].max()), ratio)) if all_below else 1
            for backward in (False, True):
                found = self._search(orders[some], ratio, count, small or all_below, backward)
                result[int(backward), some.to(result.device)] = found
        return result

    def _search(self, orders: Tensor, ratio: float, count: int, small: bool, backward: bool) -> Tensor:
        """Bounds over ``count`` stretches, the first from c to c / ratio, and for ``small`` moves below."""
        closest = _closest(orders if backward else orders.clamp(min=2))
        places = torch.arange(len(self.theta), device=self.theta.device).repeat(2)  # up, and down
        shares = ratio ** -torch.arange(count + 1, dtype=torch.float64).to(self.theta)
        moves = torch.cat((self.farthest, -self.farthest)) * shares.unsqueeze(1)  # (moves, both signs)
        values = self._quotients(places.repeat(count + 1), moves.reshape(-1), orders, backward)
        values = values.view(len(orders), *moves.shape)
        found = torch.maximum(*values.amax(dim=1).chunk(2, dim=1))
        if small:
            last = torch.maximum(*values[:, -1].chunk(2, dim=1))
            found = torch.maximum(found, _SMALL_MARGIN * torch.maximum(self.at_zero, last))
        bounds = found = torch.minimum(found, self.most)
        high, low = values[:, :-1].flatten(1), values[:, 1:].flatten(1)
        places, moves = places.repeat(count), moves[:-1].reshape(-1)
        halves = 0.5 * orders.to(self.theta).unsqueeze(1)
        while len(places):
            above = torch.minimum(_between(high, low, halves, ratio, backward), self.most[places])
            far = (above > found[:, places] * (1 + _OVERSHOOT)).any(dim=0) & (ratio > closest)
            bounds = _raised(bounds, places[~far], above[:, ~far])
            high, low, places, moves = high[:, far], low[:, far], places[far], moves[far]
            ratio = math.sqrt(ratio)
            middle = self._quotients(places, moves / ratio, orders, backward)
            found = torch.minimum(_raised(found, places, middle), self.most)
            high, low = torch.cat((high, middle), dim=1), torch.cat((middle, low), dim=1)
            places, moves = places.repeat(2), torch.cat((moves, moves / ratio))
        return torch.maximum(bounds, found)

    def _quotients(self, places: Tensor, moves: Tensor, orders: Tensor, backward: bool) -> Tensor:
        """2 sigma^2 D / (alpha s^2) of these coordinates and moves at every order."""
        law = self.mechanism
        if self.own:
            own = {name: value[places] for name, value in self.own.items()}
            law = law.with_parameters(law.parameters() | own)
        values = law.renyi_curve(*pushes(self.theta[places], moves)[backward][0], orders)
        halves = 0.5 * orders.to(self.theta).unsqueeze(1)
        quotients = (values + UNDERFLOW) / (halves * (moves / self.sigma[places]).square())
        return torch.nan_to_num(quotients, nan=torch.inf, posinf=torch.inf)  # as large as any quotient may be


def _raised(values: Tensor, places: Tensor, others: Tensor) -> Tensor:
    """The larger of the values and of all the others of the same coordinate."""
    return values.scatter_reduce(1, places.expand_as(others), others, "amax")


def _between(high: Tensor, low: Tensor, halves: Tensor, ratio: float, backward: bool) -> Tensor:
    """Upper bounds of the quotient on stretches, ends included, from its values at both ends.

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
