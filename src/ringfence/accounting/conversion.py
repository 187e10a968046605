"""Rényi divergences and Gaussian parameters converted to (epsilon, delta) and to rates of attacks.

An attack is a test of one dataset against the same dataset with one record more or less. Its false positive
rate is the probability that it takes the record to be there where it is not, its true positive rate the
probability that it finds a record that is there. Several bounds are known, each of them for every attack,
so the best of them at each false positive rate holds too. Rates are rounded against the defender.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from ringfence import checks
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.numerics.bisection import smallest
from ringfence.numerics.normal import cumulative
from ringfence.numerics.rounding import ROUNDING, UNDERFLOW

Number = TypeVar("Number", float, Tensor)
Rates = tuple[Tensor, Tensor]  # the largest true positive rates, and the smallest false negative rates

# Dense at the best orders of a few steps with much noise, and reaching far enough for very small losses,
# whose best order is about sqrt(2 log(1/delta)) / mu.
DEFAULT_ORDERS: tuple[float, ...] = (
    *(1.1, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 2.75, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5, 6.0, 6.5, 7.0, 7.5),
    *(8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0, 18.0, 20.0, 22.0, 24.0, 28.0, 32.0, 36.0),
    *(40.0, 48.0, 56.0, 64.0, 72.0, 80.0, 96.0, 112.0, 128.0, 144.0, 160.0, 192.0, 224.0, 256.0, 320.0),
    *(384.0, 448.0, 512.0, 640.0, 768.0, 896.0, 1024.0, 1280.0, 1536.0, 1792.0, 2048.0),
)

_LARGE = 1e5  # shift / sigma, above which a tail of the normal law gives an epsilon hardly larger
_SMALLEST_DELTA = 1e-280  # a law may return 0 for less than 1e-290
_LARGEST_ORDER = 1e15
_AROUND = tuple(1.02**k for k in range(-40, 41))  # orders tried around the best one, as multiples
_SMALLEST_RDP = 2.0**-52  # dp-accounting takes a logarithm of 1 - exp(-rdp)

# rates of attacks
_RATE_BISECTIONS = 50
_SMALLEST_RATE = 1e-300  # false positive rates below count as this one; more of them allow no less
_FARTHEST = 800.0  # e^-800 is 0 in floats
_NOISE = 1e-14  # relative to the logarithms that a divergence is computed from
_PER_OCTAVE, _LEAST = 32, 0.03  # of order - 1, where only zCDP is known


def checked_orders(orders: Sequence[float] | Tensor) -> Tensor:
    """Orders as a float64 vector on the CPU: at least one, all finite and above 1.

    >>> checked_orders([2, 8])
    tensor([2., 8.], dtype=torch.float64)
    """
    alone = isinstance(orders, str | bytes) or hasattr(orders, "dtype") or not isinstance(orders, Iterable)
    tensor = checks.order("orders", orders if alone else list(orders)).double().reshape(-1).cpu()
    if tensor.numel() == 0:
        raise ValueError("orders must hold at least one order, got none")
    return tensor


def ex_post_epsilon(orders: Tensor, rdp: Tensor, delta: float) -> Tensor:
    """The minimum over the K orders of rdp + log(K / delta) / (order - 1), one number for each row of rdp.

    Guarantee: where rdp are the sums realised along a run, the privacy loss of the whole run exceeds
    epsilon with probability at most delta (by a supermartingale, Ville's inequality, and a union bound over
    the K orders, because the best one is picked afterwards).

    >>> ex_post_epsilon(torch.tensor([2.0, 4.0]), torch.tensor([0.5, 1.0]), 1e-3).round(decimals=3)
    tensor(3.5340)
    """
    delta = checks.probability("delta", delta)
    epsilons = (rdp + (math.log(len(orders)) - math.log(delta)) / (orders - 1)).amin(dim=-1)
    return raised(epsilons)


def epsilon_from_rdp(orders: Tensor, rdp: Tensor, delta: float) -> Tensor:
    """The epsilon of Rényi divergences at these orders, one number for each row of rdp.

    The conversion is Proposition 12 of Canonne, Kamath and Steinke (2020), the one of dp-accounting, which
    converts one curve at a time.

    >>> epsilon_from_rdp(torch.tensor([2.0, 8.0]), torch.tensor([0.01, 0.04]), 1e-5).round(decimals=3)
    tensor(1.2540)
    """
    delta = checks.probability("delta", delta)
    epsilons = rdp + torch.log1p(-1 / orders) - torch.log(delta * orders) / (orders - 1)
    # dp-accounting's threshold: near order 1 the formula is neither stable nor useful
    epsilons = torch.where(orders > 1.01, epsilons, torch.inf)
    # delta <= sqrt(1 - exp(-KL)), and the KL divergence is at most any of the Rényi divergences
    epsilons = torch.where(delta**2 + torch.expm1(-rdp) > 0, 0.0, epsilons)
    return raised(epsilons.amin(dim=-1).clamp(min=0))


def delta_from_rdp(orders: Tensor, rdp: Tensor) -> Callable[[float], float]:
    """delta(epsilon) of releases whose Rényi divergences are known at these orders, by dp-accounting.

    >>> orders = checked_orders([2.0, 8.0, 32.0])
    >>> round(delta_from_rdp(orders, 0.01 * orders)(0.5), 5)
    4e-05
    """
    from dp_accounting.rdp.rdp_privacy_accountant import compute_delta

    sums = rdp.clamp(min=_SMALLEST_RDP).tolist()
    return lambda epsilon: (
        float(compute_delta(orders.tolist(), sums, epsilon)[0]) * (1 + ROUNDING) + UNDERFLOW
    )


def zcdp_epsilon(zcdp: float, delta: float) -> float:
    """The epsilon of divergences that are at most zcdp * order, at every order.

    >>> round(zcdp_epsilon(0.0512, 1e-5), 4)
    1.3252
    """
    orders = _orders_around(best_zcdp_order(zcdp, delta))
    return float(epsilon_from_rdp(orders, zcdp * orders, delta))


def zcdp_delta(zcdp: float, epsilon: float) -> float:
    """The delta of divergences that are at most zcdp * order, at every order.

    >>> round(zcdp_delta(0.0512, 1.3252), 7)
    1e-05
    """
    if zcdp == 0:
        return 0.0
    # (order - 1) (zcdp order - epsilon) is least there
    orders = _orders_around(min((epsilon / zcdp + 1) / 2, _LARGEST_ORDER))
    return delta_from_rdp(orders, zcdp * orders)(epsilon)


def _orders_around(best: float) -> Tensor:
    """The default orders and many around the best one, which need not be among them."""
    return checked_orders([*DEFAULT_ORDERS, *(best * step for step in _AROUND if best * step > 1.01)])


def best_zcdp_order(zcdp: float, delta: float) -> float:
    """The order at which D = zcdp * order converts best; it depends on zcdp and delta alone.

    >>> round(best_zcdp_order(0.05, 1e-5), 1)
    16.2
    """
    return min(1 + math.sqrt(-math.log(delta) / zcdp), _LARGEST_ORDER) if zcdp > 0 else 2.0


@lru_cache(maxsize=4096)
def gaussian_epsilon(mu: float, delta: float) -> float:
    """The exact epsilon of a mu-GDP release, which is that of the Gaussian with shift / sigma = mu.

    >>> round(gaussian_epsilon(0.32, 1e-5), 4)
    1.2151
    """
    delta = checks.probability("delta", delta)
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    # delta <= P(loss > epsilon), and the tail of the normal law is below exp(-x^2 / 2)
    ceiling = mu * (mu / 2 + math.sqrt(-2 * math.log(delta)))
    if mu > _LARGE or delta < _SMALLEST_DELTA:
        return raised(ceiling)
    from scipy.optimize import brentq  # type: ignore[import-untyped]  # slow to import

    step = 1e-15 * ceiling
    root = brentq(lambda at: math.log(gaussian_delta(mu, at) / delta), 0.0, ceiling, xtol=step, rtol=1e-14)
    epsilon = float(root)  # which may be on either side
    while gaussian_delta(mu, epsilon) > delta:
        epsilon, step = epsilon + step, 2 * step
    return raised(epsilon)


@lru_cache(maxsize=4096)  # searches for an epsilon come back to the same places
def gaussian_delta(mu: float, epsilon: float) -> float:
    """delta(epsilon) of a mu-GDP release: Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu).

    >>> round(gaussian_delta(1.0, 0.0), 6)
    0.382925
    """
    if mu == 0:
        return max(0.0, -math.expm1(epsilon))
    if mu > _LARGE:
        above = epsilon / mu - mu / 2  # P(N(0, 1) > above) is at most
        return math.exp(-above * above / 2) + UNDERFLOW if above > 0 else 1.0
    return raised(float(Gaussian(1.0).hockey_stick(0.0, mu, epsilon))) + UNDERFLOW


def raised(value: Number) -> Number:
    """The value raised by what rounding may have taken; NaN is an error."""
    if math.isnan(value) if isinstance(value, float) else bool(value.isnan().any()):
        raise FloatingPointError("epsilon cannot be represented at these arguments")
    return value * (1 + ROUNDING)


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

    A test with false positive rate x and true positive rate y turns the two laws into the laws of a biased
    coin. It cannot raise a divergence, so at every order

        D_alpha(y || x) <= bound of that order    and    D_alpha(x || y) <= bound of that order,

    where D_alpha(y || x) is the divergence of coins that show heads with probability y and x. Probabilities
    are kept as logits, so that neither a small one nor its distance from 1 loses its digits.

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
        start = torch.logit(false_positive.clamp(_SMALLEST_RATE, 1 - 2.0**-53))
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

        def excluded(heads: Tensor) -> Tensor:
            return ~(_excess(orders, bounds, heads, others(heads)).amax(dim=0) <= 0)

        return smallest(excluded, low, high, halvings=_RATE_BISECTIONS)


AttackBound = GaussianBound | CurveBound | RenyiBound  # each from one thing that is known about neighbours


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
