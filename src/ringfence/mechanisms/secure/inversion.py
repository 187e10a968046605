"""Distribution functions of the noisy values behind every release: quickly in float64, and exactly.

``Normal`` and ``Conditioned`` implement ``ringfence.mechanisms.law.Distribution``.
"""

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ringfence.mechanisms import pieces
from ringfence.numerics import exact_normal
from ringfence.numerics.normal import cumulative, mills_ratio
from ringfence.numerics.quadrature import gauss_legendre
from ringfence.numerics.truncated_normal import TAIL, quantile_in_tail, quantile_near

# Where the log density changes by no more than this over the interval, five nodes integrate the
# density to 1e-16; a difference of distribution functions would lose digits there.
_FLAT = 2.0**-6
_NODES = 5
_NARROWEST = 1e-280  # sigma: distances inside a narrower interval may underflow


class Normal:
    """N(theta, sigma^2), of which a function is released."""

    def __init__(self, theta: Tensor, sigma: Tensor) -> None:
        self.theta, self.sigma = theta, sigma

    def guess(self, uniform: Tensor) -> Tensor:
        return torch.addcmul(self.theta, self.sigma, torch.special.ndtri(uniform))

    def below(self, x: Tensor) -> Tensor:
        """
        >>> zero, one = torch.zeros(1).double(), torch.ones(1).double()
        >>> float(Normal(zero, one).below(zero))
        0.5
        """
        return cumulative((x - self.theta) / self.sigma)

    def exactly(self, x: float, place: int) -> Any:
        return exact_normal.cumulative(x, *_entries(place, self.theta, self.sigma))


class Conditioned:
    """N(theta, sigma^2) conditioned on [lower, upper], however far theta is.

    With y the distance of x from the end nearer to theta, in units of sigma, and a the distance
    of that end from theta (negative if theta is inside), P(X <= x) or P(X >= x) is G(y) / G(width):

        a >= 0    G(y) = 1 - exp(-a y - y^2 / 2) m(a + y) / m(a),  m the Mills ratio
        a < 0     G(y) = Phi(a + y) - Phi(a)
        flat      G(y) = y sum_i w_i exp(-a y n_i - (y n_i)^2 / 2)
    """

    def __init__(self, theta: Tensor, sigma: Tensor, lower: Tensor, upper: Tensor) -> None:
        self.theta, self.sigma, self.lower, self.upper = theta, sigma, lower, upper
        low, high, self.width = pieces.standardized(theta, sigma, lower, upper)
        self.turned = low + high < 0
        self.near, self.far = torch.maximum(low, -high), torch.maximum(high, -low)

    def guess(self, uniform: Tensor) -> Tensor:
        return self.quantile(torch.where(self.turned, 1 - uniform, uniform))

    def quantile(self, share: Tensor) -> Tensor:
        """The value with this share of the mass between it and the end of the interval nearer to theta."""
        x = quantile_near(self.near.clamp(max=TAIL), self.far, share)
        x = self.theta + self.sigma * torch.where(self.turned, -x, x)
        tail = self.near > TAIL
        if bool(tail.any()):
            tail = tail.expand_as(x)
            ends = (self.near, self.far, self.width, share)
            distance = torch.zeros_like(x)
            distance[tail] = quantile_in_tail(*(end.expand_as(x)[tail] for end in ends))
            distance *= self.sigma
            from_end = torch.where(self.turned, self.upper - distance, self.lower + distance)
            x = torch.where(tail, from_end, x)
        return x

    def below(self, x: Tensor) -> Tensor:
        """
        >>> number = lambda value: torch.tensor([value], dtype=torch.float64)
        >>> law = Conditioned(number(50.0), number(1.0), number(-1.0), number(1.0))
        >>> round(float(law.below(number(0.98))), 12)  # exp(-49 * 0.02), almost
        0.37508307624
        """
        distance = torch.where(self.turned, self.upper - x, x - self.lower) / self.sigma
        position = torch.where(self.turned, self.theta - x, x - self.theta) / self.sigma
        share = self._mass(distance.clamp(max=pieces.far(x)), position) / self.whole
        return torch.where(self.turned, 1 - share, share)

    def exactly(self, x: float, place: int) -> Any:
        entries = _entries(place, self.theta, self.sigma, self.lower, self.upper)
        return exact_normal.cumulative(x, *entries)

    @cached_property
    def whole(self) -> Tensor:
        """G(width), or NaN where float64 cannot hold what is needed."""
        beyond = (self.near >= pieces.far(self.theta)) | (self.width < _NARROWEST)
        return torch.where(beyond, torch.nan, self._mass(self.width, self.far))

    @cached_property
    def flat(self) -> Tensor:
        """True where the log density hardly changes over the interval."""
        return self.width * (self.near.abs() + 0.5 * self.width) < _FLAT

    @cached_property
    def outside(self) -> Tensor:
        """The distance of theta from the interval: a where that is positive, else 0."""
        return self.near.clamp(min=0)

    @cached_property
    def mills(self) -> Tensor:
        """m(a) outside."""
        return mills_ratio(self.outside)

    @cached_property
    def before(self) -> Tensor:
        """Phi(a)."""
        return cumulative(self.near)

    def _mass(self, distance: Tensor, position: Tensor) -> Tensor:
        """G at a distance from the nearer end; ``position`` is the same place seen from theta."""
        fall = torch.exp(-distance * (self.outside + 0.5 * distance))
        tail = 1 - fall * mills_ratio(self.outside + distance) / self.mills
        mass = torch.where(self.near < 0, cumulative(position) - self.before, tail)
        if bool(self.flat.any()):
            mass = torch.where(self.flat, self._flat_mass(distance), mass)
        return mass

    def _flat_mass(self, distance: Tensor) -> Tensor:
        def density(here: Tensor) -> Tensor:
            return torch.exp(-here * (self.near + 0.5 * here))

        nodes, weights = (part.tolist() for part in gauss_legendre(_NODES, distance))
        pairs = zip(nodes, weights, strict=True)
        mass: Tensor = distance * sum(weight * density(node * distance) for node, weight in pairs)
        return mass


def _entries(place: int, *columns: Tensor) -> list[float]:
    """The numbers of one coordinate, from tensors of one entry or of one a coordinate."""
    return [float(column[0 if column.numel() == 1 else place]) for column in columns]
