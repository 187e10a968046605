"""Equivalent information: bounds every divergence up to a given move, whatever the size of the move.

    rho(theta) = sup over 0 < |s| <= c of 2 D_alpha(theta, s) / (alpha s^2),

both signs, for each direction and order. Then D(theta_j, v_j) <= (alpha / 2) rho_j v_j^2 for every move v,
and what is left to find is the largest sum of rho_j v_j^2: a knapsack (``sensitivity.filled``).

The supremum is bounded from values at moves c, c / r, c / r^2 and so on. Theta and s are in units of sigma.
Between two moves, a < b with b / a = r:

- D(theta || theta + s) is convex in s, because the masses and densities of every law here are log-concave in
  the location. So it lies below its chord, and the largest chord(s) / s^2 is known in closed form.
- D(theta + s || theta) + alpha s^2 / (2 (alpha - 1)) is convex in s, because second derivatives of
  log-masses by the location are at least -1. So D is at most alpha (s - a)(b - s) / (2 (alpha - 1)) above
  its chord.
- D grows with s in both directions, so that rho on the stretch is at most r^2 times its value at b.

The first moves are far apart. A stretch between two of them is halved only where its bound is above a value
that was found elsewhere, so that most theta need a few of the moves.

Below the last of the moves, where alpha s is at most a tenth, 2 D / (alpha s^2) hardly varies and is taken
to be at most 1.001 times the larger of its values at both ends; at 0 it is the Fisher information. This part
is checked numerically and not proved (docs/guarantees.md). No value is above what the law proves for every
theta.
"""

import math

import torch
from torch import Tensor

from ringfence.accounting.divergence_sums import Tabulated, natural_unit, recentre
from ringfence.mechanisms.base import Mechanism
from ringfence.numerics.rounding import ROUNDING, UNDERFLOW

_RATIO = 1.1  # of the closest neighbouring moves, at orders of 2 and more
_HALVINGS = 3  # of a stretch between the first moves, which are _RATIO^8 apart
_OVERSHOOT = (_RATIO - 1) ** 2 / (4 * _RATIO)  # 0.23 %: by how much chords may raise the result
_SMALL = 0.1  # alpha s, below which the quotient is taken from both ends
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
    mechanism, theta = recentre(mechanism, theta)
    sigma = mechanism.sigma.to(theta)
    most = (sigma / natural_unit(mechanism).to(theta)).square()  # in units of sigma: the Gaussian's 1 or less
    theta, farthest, sigma, most = torch.broadcast_tensors(theta, farthest.to(theta), sigma, most)
    shape = theta.shape
    # a parameter that is a single number stays one, without dimensions: coordinates are taken in vectors
    single = {name: value.reshape(()) for name, value in mechanism.parameters().items() if value.numel() == 1}
    own = {name: value.to(theta) for name, value in mechanism.parameters().items() if name not in single}
    mechanism = mechanism.with_parameters({**mechanism.parameters(), **single})
    columns = [value.expand(shape).reshape(-1) for value in (theta, farthest, sigma, most, *own.values())]
    parts = []
    together = _TOGETHER if theta.is_cpu else _TOGETHER_ON_GPU
    for some in zip(*(column.split(together) for column in columns), strict=True):
        at, far, noise, limit, *others = some
        search = _Search(mechanism, at, far, noise, limit, dict(zip(own, others, strict=True)))
        parts.append(search.largest(orders))
    result = (torch.cat(parts, dim=2) * (1 + ROUNDING)).view(2, len(orders), *shape)
    bounded: Tensor = torch.minimum(result, most) / sigma.square()
    return bounded


# A value costs a hundred divergences: every eighth node is evaluated, and chords over 1/16 sigma are raised
# by 0.26 %.
EQUIVALENT_INFORMATION = Tabulated(equivalent_information, stride=8)


def _alike(orders: Tensor) -> list[list[int]]:
    """Indices of orders for which the same moves will do: those below 2, from 2 to 8, from 8 to 32, ..."""
    groups: dict[int, list[int]] = {}
    for i, order in enumerate(orders.tolist()):
        groups.setdefault(math.floor(math.log(order / 2, 4)) if order >= 2 else -1, []).append(i)
    return list(groups.values())


def _closest(orders: Tensor) -> float:
    """The ratio of the closest moves.

    At orders below 2, where the second bound of the backward direction is larger, moves are closer together.
    """
    gap = math.sqrt(4 * _OVERSHOOT * min(1.0, max(_LOWEST, float(orders.min()) - 1)))
    return 1 + gap / 2 * (gap + math.sqrt(gap * gap + 4))  # (r - 1)^2 / r = gap^2


class _Search:
    """The largest quotients 2 sigma^2 D / (alpha s^2) of a vector of coordinates."""

    def __init__(
        self,
        mechanism: Mechanism,
        theta: Tensor,
        farthest: Tensor,
        sigma: Tensor,
        most: Tensor,
        own: dict[str, Tensor],  # parameters that differ from coordinate to coordinate
    ) -> None:
        self.mechanism, self.own = mechanism, own
        self.theta, self.farthest, self.sigma, self.most = theta, farthest, sigma, most
        everything = torch.arange(len(theta), device=theta.device)
        self.at_zero = self._law(everything).fisher_information(theta) * sigma.square()
        self.widest = float((farthest / sigma).max()) if len(theta) else 0.0

    def largest(self, orders: Tensor) -> Tensor:
        """Upper bounds of the suprema: (2, orders, coordinates)."""
        result = self.theta.new_empty(2, len(orders), len(self.theta))
        for members in _alike(orders):
            for backward in (False, True):
                result[int(backward), members] = self._direction(orders[members], backward)
        return result

    def _direction(self, orders: Tensor, backward: bool) -> Tensor:
        ratio = _closest(orders) ** (1 << _HALVINGS)
        reach = max(1.0, float(orders.max()) * self.widest / _SMALL)
        if reach == math.inf:
            return self.most.expand(len(orders), -1)
        count = math.ceil(math.log(reach) / math.log(ratio))
        theirs = torch.arange(len(self.theta), device=self.theta.device).repeat(2)  # up, and down
        shares = ratio ** -torch.arange(count + 1, dtype=torch.float64).to(self.theta)
        moves = torch.cat((self.farthest, -self.farthest)) * shares.unsqueeze(1)  # (moves, both signs)
        values = self._quotients(theirs.repeat(count + 1), moves.reshape(-1), orders, backward)
        values = values.view(len(orders), *moves.shape)
        last = torch.maximum(*values[:, -1].chunk(2, dim=1))
        found = torch.maximum(*values.amax(dim=1).chunk(2, dim=1))
        found = torch.maximum(found, _SMALL_MARGIN * torch.maximum(self.at_zero, last))
        found = torch.minimum(found, self.most)
        bounds = found
        high, low = values[:, :-1].flatten(1), values[:, 1:].flatten(1)
        places, moves = theirs.repeat(count), moves[:-1].reshape(-1)
        for halvings in range(_HALVINGS + 1):
            above = torch.minimum(_between(high, low, orders, ratio, backward), self.most[places])
            enough = above <= found[:, places] * (1 + _OVERSHOOT)
            open_ = ~enough.all(dim=0) & (halvings != _HALVINGS)
            bounds = self._raised(bounds, places[~open_], above[:, ~open_])
            if not bool(open_.any()):
                break
            high, low, places, moves = high[:, open_], low[:, open_], places[open_], moves[open_]
            ratio = math.sqrt(ratio)
            middle = self._quotients(places, moves / ratio, orders, backward)
            found = torch.minimum(self._raised(found, places, middle), self.most)
            high, low = torch.cat((high, middle), dim=1), torch.cat((middle, low), dim=1)
            places, moves = places.repeat(2), torch.cat((moves, moves / ratio))
        return torch.maximum(bounds, found)

    def _quotients(self, places: Tensor, moves: Tensor, orders: Tensor, backward: bool) -> Tensor:
        """2 sigma^2 D / (alpha s^2) at every order, of these coordinates and moves."""
        law, theta = self._law(places), self.theta[places]
        if backward:
            values = law.renyi_curve(theta + moves, -moves, orders)
        else:
            values = law.renyi_curve(theta, moves, orders)
        halves = 0.5 * orders.to(theta).unsqueeze(1)
        quotients = (values + UNDERFLOW) / (halves * (moves / self.sigma[places]).square())
        return torch.nan_to_num(quotients, nan=torch.inf, posinf=torch.inf)  # as large as any quotient may be

    def _law(self, places: Tensor) -> Mechanism:
        if not self.own:
            return self.mechanism
        own = {name: value[places] for name, value in self.own.items()}
        return self.mechanism.with_parameters({**self.mechanism.parameters(), **own})

    def _raised(self, values: Tensor, places: Tensor, others: Tensor) -> Tensor:
        """The larger of the values and of all the others of the same coordinate."""
        return values.scatter_reduce(1, places.expand_as(others), others, "amax")


def _between(high: Tensor, low: Tensor, orders: Tensor, ratio: float, backward: bool) -> Tensor:
    """Upper bounds of the quotient on stretches, ends included, from its values at both ends.

    With a = 1 and b = r, D is ``low`` at a and ``high`` r^2 at b, and its chord is ``start`` + ``slope`` s.
    """
    slope = (high * ratio**2 - low) / (ratio - 1)
    start = low - slope
    turn = -2 * start / slope
    inside = (start < 0) & (turn > 1) & (turn < ratio)
    chord = torch.where(inside, slope.square() / (-4 * start), torch.maximum(low, high))
    if backward:
        above = (ratio - 1) ** 2 / (4 * ratio * (orders - 1))
        chord = chord + above.to(high).unsqueeze(1)
    bound = torch.minimum(chord, high * ratio**2)
    return torch.nan_to_num(bound, nan=torch.inf, posinf=torch.inf)
