"""Bounds of the best attack: largest true positive rates, and smallest false negative rates.

An attack is a test of one dataset against the same dataset with one record more or less. Its false positive
rate is the probability that it takes the record to be there where it is not, its true positive rate the
probability that it finds a record that is there. Several bounds are known, each of them for every attack,
so the best of them at each false positive rate holds too. Rates are rounded against the defender.

Where only Rényi divergences are known: a test with false positive rate x and true positive rate y turns the
two laws into the laws of a biased coin. It cannot raise a divergence, so at every order

    D_alpha(y || x) <= bound of that order    and    D_alpha(x || y) <= bound of that order,

where D_alpha(y || x) is the divergence of coins that show heads with probability y and x. Probabilities are
kept as logits, so that neither a small one nor its distance from 1 loses its digits.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from ringfence.accounting.conversion import Releases, composed_mu, gaussian_delta, sampled_gaussian_curve
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.numerics.normal import cumulative
from ringfence.numerics.rounding import ROUNDING

_BISECTIONS = 50
_MOST_POINTS = 2048  # of the search for mu
_SMALLEST = 1e-300  # false positive rates below count as this one; more of them allow no less
_FARTHEST = 800.0  # e^-800 is 0 in floats
_NOISE = 1e-14  # relative to the logarithms that a divergence is computed from
_PER_OCTAVE, _LEAST = 32, 0.03  # of order - 1, where only zCDP is known

Rates = tuple[Tensor, Tensor]  # the largest true positive rates, and the smallest false negative rates


class AttackBound(Protocol):
    """A bound of every attack, from one thing that is known about neighbours."""

    def rates(self, false_positive: Tensor) -> Rates:
        """The rates that are possible at each of these false positive rates."""

    @property
    def advantage(self) -> float:
        """The largest true positive rate minus false positive rate: the total variation of neighbours."""


@dataclass(frozen=True)
class GaussianBound:
    """The exact rates of mu-GDP: true positives Phi(Phi^-1(x) + mu), false negatives one less that.

    >>> highest, _ = GaussianBound(1.0).rates(torch.tensor([1e-3], dtype=torch.float64))
    >>> round(float(highest), 6), round(GaussianBound(1.0).advantage, 6)  # 2 Phi(1/2) - 1
    (0.018298, 0.382925)
    """

    mu: float

    def rates(self, false_positive: Tensor) -> Rates:
        """The rates that are possible at each of these false positive rates."""
        if self.mu == math.inf:
            return torch.ones_like(false_positive), torch.zeros_like(false_positive)
        place = torch.special.ndtri(false_positive) + self.mu
        return cumulative(place) * (1 + ROUNDING), cumulative(-place) * (1 - ROUNDING)

    @property
    def advantage(self) -> float:
        """The largest true positive rate minus false positive rate."""
        return gaussian_delta(self.mu, 0.0)


@dataclass(frozen=True)
class CurveBound:
    """The rates that a curve of (epsilon, delta), valid in both directions, allows.

    Each (epsilon, delta) says y <= e^epsilon x + delta of the rates x and y of an attack, and the same of
    the attack that says the opposite, 1 - x <= e^epsilon (1 - y) + delta (Dong, Roth and Su 2022,
    Proposition 2.5). Which of them is the smallest is found by where two neighbouring lines cross. If that
    is off, by rounding, the bound is less sharp and still holds.

    >>> bound = CurveBound(*torch.tensor([[0.0, 1.0], [0.2, 0.0]], dtype=torch.float64))
    >>> highest, lowest = bound.rates(torch.tensor([0.01, 0.5]).double())
    >>> highest.numpy().round(4).tolist(), lowest.numpy().round(4).tolist(), round(bound.advantage, 4)
    ([0.0272, 0.7], [0.9728, 0.3], 0.2)
    """

    epsilons: Tensor
    deltas: Tensor

    def rates(self, false_positive: Tensor) -> Rates:
        """The rates that are possible at each of these false positive rates."""
        slopes, deltas = self.epsilons.exp(), self.deltas
        crossings = (-deltas.diff() / slopes.diff()).cummin(0).values
        crossed = torch.searchsorted(crossings.flip(0), false_positive, right=True)
        best = (len(slopes) - 1 - crossed).clamp(min=0)
        straight = (slopes[best] * false_positive + deltas[best]) * (1 + ROUNDING)
        mirrored = (1 - deltas[:-1] - slopes[:-1] * crossings).cummax(0).values
        best = torch.searchsorted(mirrored, false_positive)
        opposite = (1 - deltas[best] - false_positive - ROUNDING) / slopes[best]
        return torch.minimum(straight, 1 - opposite + ROUNDING), torch.maximum(1 - straight, opposite)

    @property
    def advantage(self) -> float:
        """The largest true positive rate minus false positive rate.

        Both lines of a point allow the most where they cross, at (e^epsilon - 1 + 2 delta) / (e^epsilon + 1).
        """
        straight = torch.tanh(self.epsilons / 2) * (1 + ROUNDING)
        return float((straight + 2 * self.deltas / (1 + self.epsilons.exp())).min())


@dataclass(frozen=True)
class RenyiBound:
    """The rates that Rényi divergences allow, of at most ``bounds`` at ``orders`` in both directions.

    Guarantee: whatever orders there are, the result bounds every test, since each order alone does.

    >>> orders = torch.tensor([2.0, 8.0, 32.0], dtype=torch.float64)
    >>> bound = RenyiBound(orders, 0.02 * orders)
    >>> highest, lowest = bound.rates(torch.tensor([0.0, 0.01, 1.0]).double())
    >>> highest.numpy().round(4).tolist(), lowest.numpy().round(4).tolist(), round(bound.advantage, 4)
    ([0.0, 0.0196, 1.0], [1.0, 0.9804, 0.0], 0.1005)
    """

    orders: Tensor
    bounds: Tensor

    @classmethod
    def of_zcdp(cls, zcdp: float) -> "RenyiBound":
        """Of divergences that are at most zcdp * order, at every order.

        At a false positive rate x an order near 1 + sqrt(log(1 / x) / zcdp) is the best. Order 1 is the
        Kullback-Leibler divergence.

        >>> round(RenyiBound.of_zcdp(0.02).advantage, 4), round((0.02 / 2) ** 0.5, 4)  # Pinsker's inequality
        (0.0998, 0.1)
        """
        scale = 1 / math.sqrt(zcdp) if zcdp > 0 else 1.0
        steps = (scale * 2.0 ** (k / _PER_OCTAVE) for k in range(-6 * _PER_OCTAVE, 5 * _PER_OCTAVE))
        orders = torch.tensor([1.0, *(1 + step for step in steps if step > _LEAST)], dtype=torch.float64)
        return cls(orders, zcdp * orders)

    def rates(self, false_positive: Tensor) -> Rates:
        """The rates that are possible at each of these false positive rates.

        Without a false positive nothing is found: the divergences are finite.
        """
        start = torch.logit(false_positive.clamp(_SMALLEST, 1 - 2.0**-53))
        high = self._first_excluded(start, torch.full_like(start, _FARTHEST), lambda heads: start)
        never, always = false_positive == 0, false_positive == 1
        highest = (torch.sigmoid(high) * (1 + ROUNDING)).clamp(max=1.0).masked_fill(never, 0.0)
        lowest = (torch.sigmoid(-high) * (1 - ROUNDING)).masked_fill(never, 1.0)
        return highest.masked_fill(always, 1.0), lowest.masked_fill(always, 0.0)

    @property
    def advantage(self) -> float:
        """The largest true positive rate minus false positive rate.

        The rates that are possible form a convex set (divergences are jointly quasi-convex; van Erven and
        Harremoës 2014, Theorem 13), which (x, y) -> (1 - y, 1 - x) maps to itself because both directions
        are bounded. So the largest difference is attained at a pair with x = 1 - y.
        """
        low = torch.zeros(1, dtype=torch.float64)
        high = self._first_excluded(low, low + 2 * _FARTHEST, torch.neg)
        return min(1.0, float(torch.tanh(high / 2)) * (1 + ROUNDING))

    def _first_excluded(self, low: Tensor, high: Tensor, others: Callable[[Tensor], Tensor]) -> Tensor:
        """The logits of true positive rates just beyond what the bounds allow, by bisection."""
        orders, bounds = self.orders.unsqueeze(1), self.bounds.unsqueeze(1)
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            possible = _excess(orders, bounds, middle, others(middle)).amax(dim=0) <= 0
            low, high = torch.where(possible, middle, low), torch.where(possible, high, middle)
        return high


def smallest_mu(releases: Releases, slack: float) -> float:
    """The mu of Gaussian differential privacy of these releases, less where samples are released.

    Guarantee: no attack's true positive rate is more than ``slack`` above the one that mu allows, and none is
    above it where everything is released. Let delta be the curve of the releases and g that of mu, as
    functions of u = e^epsilon. Both are convex and decrease, and delta <= g + slack is what has to hold.
    Beyond the first u with delta <= slack there is nothing to show. Between two u of the curve, delta is
    below its chord, and g is at most (u_b - u_a) (g'(u_b) - g'(u_a)) / 4 below its own, because it is above
    its tangents.

    >>> sample = ((1.0, 0.01, 100),)
    >>> round(composed_mu(sample), 2), round(smallest_mu(sample, 1e-5), 2)
    (10.0, 0.18)
    """
    whole = composed_mu(releases) * (1 + ROUNDING)
    curve = sampled_gaussian_curve(releases)
    if curve is None or float(curve[1][-1]) > slack:
        return whole
    until = int((curve[1] <= slack).nonzero()[0])
    picked = torch.linspace(0, until, min(until + 1, _MOST_POINTS), dtype=torch.float64).long()
    epsilons, deltas = (values[picked] for values in curve)

    def dominates(mu: float) -> bool:
        gap = Gaussian(1.0).hockey_stick(0.0, mu, epsilons) * (1 - ROUNDING) + slack - deltas
        slope = -cumulative(-epsilons / mu - mu / 2)
        below_chord = epsilons.exp().diff() * slope.diff() / 4
        return bool((torch.minimum(gap[1:], gap[:-1]) >= below_chord).all()) and bool((gap >= 0).all())

    low, high = 0.0, whole
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if dominates(middle) else (middle, high)
    return high


def _excess(orders: Tensor, bounds: Tensor, heads: Tensor, others: Tensor) -> Tensor:
    """How far the divergence of two coins with these logits is surely above its bound: (orders, coins).

    The larger of both directions counts.
    """
    first, second = (torch.stack((logsigmoid(one), logsigmoid(-one))) for one in (heads, others))
    doubt = _NOISE * (1 - first.sum(dim=0) - second.sum(dim=0)) * (orders / (orders - 1).clamp(min=_LEAST))
    larger = torch.maximum(_divergence(orders, first, second), _divergence(orders, second, first))
    return larger - bounds * (1 + ROUNDING) - doubt


def _divergence(orders: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """D_alpha of two coins, from the logarithms of heads and tails."""
    kullback = (first.exp() * (first - second)).sum(dim=0)
    powers = orders * first.unsqueeze(1) - (orders - 1) * second.unsqueeze(1)
    order = (orders - 1).clamp(min=_LEAST / 2)  # below, only order 1 itself occurs
    return torch.where(orders == 1, kullback, torch.logsumexp(powers, dim=0) / order)
