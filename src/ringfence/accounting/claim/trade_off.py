"""What the best attack can achieve: largest true positive rates, and smallest false negative rates.

An attack is a test of one dataset against the same dataset with one record more or less. Its false positive
rate is the probability that it takes the record to be there where it is not, its true positive rate the
probability that it finds a record that is there. Several bounds are known, each of them for every attack,
so the best of them at each false positive rate holds too. Rates are rounded against the defender.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ringfence.accounting.claim.conversion import gaussian_delta, sampled_gaussian_curve
from ringfence.accounting.claim.renyi_rates import renyi_advantage, renyi_rates, zcdp_advantage, zcdp_rates
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.numerics.normal import cumulative
from ringfence.numerics.rounding import ROUNDING

_MOST_POINTS, _BISECTIONS = 2048, 50  # of the search for mu


@dataclass(frozen=True)
class TradeOff:
    """What is known about every two neighbouring datasets, as plain numbers.

    ``releases`` are Gaussian releases, (shift / sigma, sampling rate, how many), that give away at least as
    much as those that were made. ``zcdp``, and ``divergences`` at ``orders``, bound Rényi divergences in both
    directions. ``off_by`` is how far, in total variation, the law of all releases may be from what the
    bounds are about: finite randomness. ``known`` are further (epsilon, delta) that hold, in order.

    >>> TradeOff(((0.3, 1.0, 2),)).advantage > TradeOff(((0.3, 1.0, 2),), zcdp=0.01).advantage
    True
    """

    releases: tuple[tuple[float, float, int], ...]
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
        """The mu of Gaussian differential privacy without anything that sampling hides.

        >>> round(TradeOff(((3.0, 1.0, 1), (2.0, 0.5, 4))).whole, 9)
        5.0
        """
        return math.sqrt(sum(count * mu * mu for mu, _, count in self.releases)) * (1 + ROUNDING)

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
