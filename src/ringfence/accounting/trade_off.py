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
from dataclasses import dataclass

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
_PER_OCTAVE, _LEAST = 8, 0.03  # of order - 1, where only zCDP is known


@dataclass(frozen=True)
class TradeOff:
    """Bounds of attacks on every two neighbouring datasets, from plain numbers.

    ``releases`` are Gaussian releases, (shift / sigma, sampling rate, how many), that leak at least as
    much as those that were made. ``zcdp``, and ``divergences`` at ``orders``, bound Rényi divergences in both
    directions. ``off_by`` is how far, in total variation, the law of all releases may be from what the
    bounds are about: finite randomness. ``known`` are further (epsilon, delta) that hold, in order.

    >>> TradeOff(((0.3, 1.0, 2),)).advantage > TradeOff(((0.3, 1.0, 2),), zcdp=0.01).advantage
    True
    """

    releases: Releases
    zcdp: float = math.inf
    orders: tuple[float, ...] = ()
    divergences: tuple[float, ...] = ()
    off_by: float = 0.0
    known: tuple[tuple[float, float], ...] = ()

    def rates(self, false_positive: Tensor) -> tuple[Tensor, Tensor]:
        """(largest true positive rates, smallest false negative rates) of a vector of false positive rates.

        Laws that are within total variation t of others have attacks whose rates differ by at most t.

        >>> highest, lowest = TradeOff(((1.0, 1.0, 1),)).rates(torch.tensor([0.5], dtype=torch.float64))
        >>> round(float(highest), 6), round(float(lowest), 6)  # Phi(1)
        (0.841345, 0.158655)
        """
        at = (false_positive + self.off_by).clamp(max=1.0)
        found = [gaussian_rates(self.whole, at)]
        curve = sampled_gaussian_curve(self.releases)
        found += [] if curve is None else [curve_rates(*curve, at)]
        found += [zcdp_rates(self.zcdp, at)] if self.zcdp < math.inf else []
        found += [renyi_rates(*self._divergences(), at)] if self.orders else []
        if self.known:
            epsilons, deltas = torch.tensor(self.known, dtype=torch.float64).T
            found.append(curve_rates(epsilons, deltas, at))
        highest = torch.stack([rates[0] for rates in found]).amin(dim=0) + self.off_by
        lowest = torch.stack([rates[1] for rates in found]).amax(dim=0) - self.off_by
        if bool((highest.isnan() | lowest.isnan()).any()):
            raise FloatingPointError("rates of attacks cannot be represented at these arguments")
        return torch.maximum(highest, false_positive).clamp(max=1.0), lowest.clamp(min=0.0)

    @property
    def advantage(self) -> float:
        """The largest true positive rate minus false positive rate: the total variation between neighbours.

        >>> round(TradeOff(((1.0, 1.0, 1),)).advantage, 6)  # 2 Phi(1/2) - 1
        0.382925
        """
        curve = sampled_gaussian_curve(self.releases)
        found = [gaussian_delta(self.whole, 0.0)]
        found += [] if curve is None else [float(curve[1][0])]
        found += [zcdp_advantage(self.zcdp)] if self.zcdp < math.inf else []
        found += [renyi_advantage(*self._divergences())] if self.orders else []
        # y - x <= (e^epsilon - 1) / (e^epsilon + 1) + delta of an (epsilon, delta) that holds
        found += [math.tanh(epsilon / 2) + delta for epsilon, delta in self.known]
        return min(1.0, min(found) + 2 * self.off_by)

    @property
    def whole(self) -> float:
        """The mu of Gaussian differential privacy without anything that sampling hides."""
        return composed_mu(self.releases) * (1 + ROUNDING)

    def mu(self, slack: float) -> float:
        """The mu of Gaussian differential privacy: ``whole``, or less where samples are released.

        Guarantee: at ``off_by`` = 0 no attack's true positive rate is more than ``slack`` above the one that
        mu allows, and none is above it where everything is released. Let delta be the curve of the releases
        and g that of mu, as functions of u = e^epsilon. Both are convex and decrease, and delta <= g + slack
        is what has to hold. Beyond the first u with delta <= slack there is nothing to show. Between two u
        of the curve, delta is below its chord, and g is at most (u_b - u_a) (g'(u_b) - g'(u_a)) / 4 below
        its own, because it is above its tangents.

        >>> sample = TradeOff(((1.0, 0.01, 100),))
        >>> round(sample.whole, 2), round(sample.mu(1e-5), 2)
        (10.0, 0.18)
        """
        curve = sampled_gaussian_curve(self.releases)
        if curve is None or float(curve[1][-1]) > slack:
            return self.whole
        until = int((curve[1] <= slack).nonzero()[0])
        picked = torch.linspace(0, until, min(until + 1, _MOST_POINTS), dtype=torch.float64).long()
        epsilons, deltas = (values[picked] for values in curve)

        def dominates(mu: float) -> bool:
            gap = Gaussian(1.0).hockey_stick(0.0, mu, epsilons) * (1 - ROUNDING) + slack - deltas
            slope = -cumulative(-epsilons / mu - mu / 2)
            below_chord = epsilons.exp().diff() * slope.diff() / 4
            return bool((torch.minimum(gap[1:], gap[:-1]) >= below_chord).all()) and bool((gap >= 0).all())

        low, high = 0.0, self.whole
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            low, high = (low, middle) if dominates(middle) else (middle, high)
        return high

    def _divergences(self) -> tuple[Tensor, Tensor]:
        orders, bounds = torch.tensor((self.orders, self.divergences), dtype=torch.float64)
        return orders, bounds


def gaussian_rates(mu: float, false_positive: Tensor) -> tuple[Tensor, Tensor]:
    """The exact rates of mu-GDP: true positives Phi(Phi^-1(x) + mu), false negatives one less that.

    >>> highest, _ = gaussian_rates(1.0, torch.tensor([1e-3], dtype=torch.float64))
    >>> round(float(highest), 6)
    0.018298
    """
    if mu == math.inf:
        return torch.ones_like(false_positive), torch.zeros_like(false_positive)
    place = torch.special.ndtri(false_positive) + mu
    return cumulative(place) * (1 + ROUNDING), cumulative(-place) * (1 - ROUNDING)


def curve_rates(epsilons: Tensor, deltas: Tensor, false_positive: Tensor) -> tuple[Tensor, Tensor]:
    """The rates that a curve of (epsilon, delta), valid in both directions, allows.

    Each (epsilon, delta) says y <= e^epsilon x + delta of the rates x and y of an attack, and the same of
    the attack that says the opposite, 1 - x <= e^epsilon (1 - y) + delta (Dong, Roth and Su 2022,
    Proposition 2.5). Which of them is the smallest is found by where two neighbouring lines cross. If that
    is off, by rounding, the bound is less sharp and still holds.

    >>> epsilons, deltas = torch.tensor([[0.0, 1.0], [0.2, 0.0]], dtype=torch.float64)
    >>> highest, lowest = curve_rates(epsilons, deltas, torch.tensor([0.01, 0.5]).double())
    >>> highest.numpy().round(4).tolist(), lowest.numpy().round(4).tolist()
    ([0.0272, 0.7], [0.9728, 0.3])
    """
    slopes = epsilons.exp()
    crossings = (-deltas.diff() / slopes.diff()).cummin(0).values
    best = (len(slopes) - 1 - torch.searchsorted(crossings.flip(0), false_positive, right=True)).clamp(min=0)
    straight = (slopes[best] * false_positive + deltas[best]) * (1 + ROUNDING)
    mirrored = (1 - deltas[:-1] - slopes[:-1] * crossings).cummax(0).values
    best = torch.searchsorted(mirrored, false_positive)
    opposite = (1 - deltas[best] - false_positive - ROUNDING) / slopes[best]
    return torch.minimum(straight, 1 - opposite + ROUNDING), torch.maximum(1 - straight, opposite)


def renyi_rates(orders: Tensor, bounds: Tensor, false_positive: Tensor) -> tuple[Tensor, Tensor]:
    """(largest true positive rates, smallest false negative rates) of a vector of false positive rates.

    Guarantee: whatever orders there are, the result bounds every test, since each order alone does.

    >>> orders = torch.tensor([2.0, 8.0, 32.0], dtype=torch.float64)
    >>> highest, lowest = renyi_rates(orders, 0.02 * orders, torch.tensor([0.0, 0.01, 1.0]).double())
    >>> highest.numpy().round(4).tolist(), lowest.numpy().round(4).tolist()
    ([0.0, 0.0196, 1.0], [1.0, 0.9804, 0.0])
    """
    start = _start(false_positive)
    return _rates(_highest(orders.unsqueeze(1), bounds.unsqueeze(1), start), false_positive)


def zcdp_rates(zcdp: float, false_positive: Tensor) -> tuple[Tensor, Tensor]:
    """The same where divergences are at most zcdp * order, at every order.

    >>> highest, lowest = zcdp_rates(0.02, torch.tensor([0.0, 0.01, 1.0]).double())
    >>> highest.numpy().round(4).tolist(), lowest.numpy().round(4).tolist()
    ([0.0, 0.018, 1.0], [1.0, 0.982, 0.0])
    """
    start = _start(false_positive)
    orders = _orders(zcdp)
    high = _highest(orders, zcdp * orders, start)
    best = orders[_excess(orders, zcdp * orders, high, start).argmax(dim=0), 0]
    finer = torch.linspace(-1 / _PER_OCTAVE, 1 / _PER_OCTAVE, 33, dtype=torch.float64)
    orders = 1 + (best - 1) * torch.exp2(finer).unsqueeze(1)
    return _rates(torch.minimum(high, _highest(orders, zcdp * orders, start)), false_positive)


def renyi_advantage(orders: Tensor, bounds: Tensor) -> float:
    """The largest true positive rate minus false positive rate.

    The rates that are possible form a convex set (divergences are jointly quasi-convex; van Erven and
    Harremoës 2014, Theorem 13), which (x, y) -> (1 - y, 1 - x) maps to itself because both directions are
    bounded. So the largest difference is attained at a pair with x = 1 - y.

    >>> orders = torch.tensor([2.0, 8.0], dtype=torch.float64)
    >>> round(renyi_advantage(orders, 0.02 * orders), 4)
    0.1005
    """
    low, high = torch.zeros(1, dtype=torch.float64), torch.full((1,), 2 * _FARTHEST, dtype=torch.float64)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        possible = _excess(orders.unsqueeze(1), bounds.unsqueeze(1), middle, -middle).amax(dim=0) <= 0
        low, high = torch.where(possible, middle, low), torch.where(possible, high, middle)
    return min(1.0, float(torch.tanh(high / 2)) * (1 + ROUNDING))


def zcdp_advantage(zcdp: float) -> float:
    """The same where divergences are at most zcdp * order, at every order.

    >>> round(zcdp_advantage(0.02), 4), round((0.02 / 2) ** 0.5, 4)  # Pinsker's inequality
    (0.0998, 0.1)
    """
    orders = _orders(zcdp).squeeze(1)
    return renyi_advantage(orders, zcdp * orders)


def _orders(zcdp: float) -> Tensor:
    """Orders as a column. At a false positive rate x one near 1 + sqrt(log(1 / x) / zcdp) is the best.

    Order 1 is the Kullback-Leibler divergence.
    """
    scale = 1 / math.sqrt(zcdp) if zcdp > 0 else 1.0
    steps = (scale * 2.0 ** (k / _PER_OCTAVE) for k in range(-6 * _PER_OCTAVE, 5 * _PER_OCTAVE))
    orders = torch.tensor([1.0, *(1 + step for step in steps if step > _LEAST)], dtype=torch.float64)
    return orders.unsqueeze(1)


def _start(false_positive: Tensor) -> Tensor:
    """Logits of false positive rates."""
    return torch.logit(false_positive.clamp(_SMALLEST, 1 - 2.0**-53))


def _highest(orders: Tensor, bounds: Tensor, start: Tensor) -> Tensor:
    """The logits of true positive rates that are just beyond what the bounds allow, by bisection."""
    low, high = start, torch.full_like(start, _FARTHEST)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        possible = _excess(orders, bounds, middle, start).amax(dim=0) <= 0
        low, high = torch.where(possible, middle, low), torch.where(possible, high, middle)
    return high


def _rates(high: Tensor, false_positive: Tensor) -> tuple[Tensor, Tensor]:
    """Rates from logits, rounded. Without a false positive nothing is found: the divergences are finite."""
    never, always = false_positive == 0, false_positive == 1
    highest = (torch.sigmoid(high) * (1 + ROUNDING)).clamp(max=1.0).masked_fill(never, 0.0)
    lowest = (torch.sigmoid(-high) * (1 - ROUNDING)).masked_fill(never, 1.0)
    return highest.masked_fill(always, 1.0), lowest.masked_fill(always, 0.0)


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
