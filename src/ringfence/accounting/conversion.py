"""Rényi divergences and Gaussian parameters converted to (epsilon, delta) and to rates of attacks.

dp-accounting is imported where it is used: it imports scipy, which takes longer to load than everything
else here.

An attack is a test of one dataset against the same dataset with one record more or less. Its false positive
rate is the probability that it takes the record to be there where it is not, its true positive rate the
probability that it finds a record that is there. Several bounds are known, each of them for every attack,
so the best of them at each false positive rate holds too. Rates are rounded against the defender.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from ringfence import checks
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.numerics.normal import cumulative
from ringfence.numerics.rounding import ROUNDING, UNDERFLOW

# Gaussian releases: (shift / sigma, rate, how many), where the rate is one of
#     q             releases of Poisson samples at this rate; 1 for releases of everything
#     (q, chance)   samples that are cut at a public maximum, which the other records reach with at most this
#                   chance; the shift is that of a record that takes another's place, and half of it where the
#                   maximum is not reached (``subsampling.chance_of_cut``)
#     (steps,)      epochs of this many steps, in one of which a record is (``allocation``)
Rate = float | tuple[float, float] | tuple[int]
Releases = tuple[tuple[float, Rate, int], ...]
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


# The range of shift / sigma in which Newton's method finds epsilon. Above it, delta <= P(loss > epsilon)
# with the tail of the normal law bounded by exp(-x^2 / 2) gives an epsilon hardly larger; below it we bisect.
_SMALL, _LARGE = 1e-3, 1e5
_BISECTIONS = 40
_SMALLEST_DELTA = 1e-280  # a law may return 0 for less than 1e-290
_LARGEST_ORDER = 1e15
_AROUND = tuple(1.02**k for k in range(-40, 41))  # orders tried around the best one, as multiples
_SMALLEST_RDP = 2.0**-52  # dp-accounting takes a logarithm of 1 - exp(-rdp)
# Where a curve of (epsilon, delta) ends: at the first of these deltas that has a finite epsilon.
_LAST_DELTAS = (1e-12, 1e-10, 1e-8, 1e-6)
_MOST_POINTS, _LARGEST_EXPONENT = 1 << 14, 700.0
# dp-accounting takes deltas from running sums, of which the rounding is charged here
_DELTA_FACTOR, _DELTA_TERM = 1 + 1e-9, 1e-15

# rates of attacks
_RATE_BISECTIONS = 50
_MOST_POINTS_OF_MU = 2048  # of the search for mu
_SMALLEST_RATE = 1e-300  # false positive rates below count as this one; more of them allow no less
_FARTHEST = 800.0  # e^-800 is 0 in floats
_NOISE = 1e-14  # relative to the logarithms that a divergence is computed from
_PER_OCTAVE, _LEAST = 32, 0.03  # of order - 1, where only zCDP is known


def checked_orders(orders: Sequence[float] | Tensor) -> Tensor:
    """Orders as a float64 vector on the CPU: at least one, all finite and above 1.

    >>> checked_orders([2, 8])
    tensor([2., 8.], dtype=torch.float64)
    """
    if isinstance(orders, Tensor):
        values: object = orders if orders.is_complex() else orders.double()
    else:
        listed = isinstance(orders, Iterable) and not (
            isinstance(orders, str | bytes) or hasattr(orders, "dtype")
        )
        values = list(orders) if listed else orders
    tensor = checks.order("orders", values).double().reshape(-1).cpu()
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
    return _up(epsilons)


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
    return _up(epsilons.amin(dim=-1).clamp(min=0))


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


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The exact epsilon of a mu-GDP release, which is that of the Gaussian with shift / sigma = mu.

    >>> round(gaussian_epsilon(0.32, 1e-5), 4)
    1.2151
    """
    return _gaussian_epsilon(mu, checks.probability("delta", delta))


@lru_cache(maxsize=4096)
def _gaussian_epsilon(mu: float, delta: float) -> float:
    if mu < _SMALL and gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    ceiling = mu * (mu / 2 + math.sqrt(-2 * math.log(delta)))
    if mu > _LARGE or delta < _SMALLEST_DELTA:
        return _up(ceiling)
    if mu < _SMALL:
        low, high = 0.0, ceiling
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            low, high = (middle, high) if gaussian_delta(mu, middle) > delta else (low, middle)
        return _up(high)
    epsilon, further = _root_of_delta(mu, delta, ceiling), 1e-12  # rounding is on either side
    while gaussian_delta(mu, epsilon) > delta:
        epsilon, further = epsilon + further, 2 * further
    return _up(epsilon)


def _root_of_delta(mu: float, delta: float, epsilon: float) -> float:
    """The epsilon of ``gaussian_delta``, up to rounding, by Newton's method from an epsilon above it.

    log delta is concave in epsilon (a convolution of log-concave functions), so that each step from the right
    stays there. With x = epsilon / mu - mu / 2 and the Mills ratio M, delta = phi(x) (M(x) - M(x + mu)), and
    the derivative is -phi(x) M(x + mu).
    """
    while True:
        x = epsilon / mu - mu / 2
        ends = torch.tensor((x, x + mu), dtype=torch.float64) / math.sqrt(2)
        near, far = (torch.special.erfcx(ends) * math.sqrt(math.pi / 2)).tolist()
        excess = math.log((near - far) / (delta * math.sqrt(2 * math.pi))) - x * x / 2
        closer = max(0.0, epsilon + excess * (near - far) / far)
        if not closer < epsilon * (1 - 1e-14):
            return epsilon
        epsilon = closer


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
    return _up(float(Gaussian(1.0).hockey_stick(0.0, mu, epsilon))) + UNDERFLOW


def composed_mu(releases: Releases) -> float:
    """The mu of Gaussian differential privacy of all releases together, without anything sampling hides.

    >>> round(composed_mu(((3.0, 1.0, 1), (2.0, 0.5, 4))), 9)
    5.0
    """
    return math.sqrt(sum(count * mu * mu for mu, _, count in releases))


def sampled_gaussian_epsilon(releases: Releases, delta: float) -> float:
    """epsilon of Gaussian releases, of everything or of random batches.

    Releases of everything (rate 1) compose to one Gaussian; the others are composed by dp-accounting's PLD.
    Losses too large for it (shift / sigma above about 2,600) are charged as releases of everything, which
    cost at least as much: a sampled release is a function of the whole one and of coin flips.

    >>> round(sampled_gaussian_epsilon(((0.5, 0.01, 100),), 1e-5), 3), round(gaussian_epsilon(5.0, 1e-5), 3)
    (0.19, 33.104)
    """
    delta = checks.probability("delta", delta)
    composed = _composed(releases)
    if composed is None:
        return gaussian_epsilon(composed_mu(releases), delta)
    return _up(float(composed[0].get_epsilon_for_delta(delta)))


def sampled_gaussian_delta(releases: Releases, epsilon: float) -> float:
    """delta(epsilon) of the same releases.

    >>> round(sampled_gaussian_delta(((0.5, 0.01, 100),), 0.19), 6)
    1e-05
    """
    composed = _composed(releases)
    if composed is None:
        return gaussian_delta(composed_mu(releases), epsilon)
    return min(1.0, float(composed[0].get_delta_for_epsilon(epsilon)) * _DELTA_FACTOR + _DELTA_TERM)


@lru_cache(maxsize=4)
def sampled_gaussian_curve(releases: Releases) -> tuple[Tensor, Tensor] | None:
    """Many (epsilon, delta) of the same releases, epsilon from 0 on.

    None where all are releases of everything, or where the losses are too large for dp-accounting.

    >>> epsilons, deltas = sampled_gaussian_curve(((0.5, 0.01, 100),))
    >>> float(epsilons[0]), round(float(deltas[0]), 4), bool((deltas.diff() <= 0).all())
    (0.0, 0.0212, True)
    """
    composed = _composed(releases)
    if composed is None:
        return None
    losses, interval = composed
    ends = (float(losses.get_epsilon_for_delta(delta)) for delta in _LAST_DELTAS)
    end = min(next((end for end in ends if math.isfinite(end)), 0.0), _LARGEST_EXPONENT)
    interval *= max(1, math.ceil(end / interval / _MOST_POINTS))
    epsilons = interval * torch.arange(math.ceil(end / interval) + 1, dtype=torch.float64)
    deltas = torch.as_tensor(losses.get_delta_for_epsilon(epsilons.tolist()), dtype=torch.float64)
    deltas = (deltas * _DELTA_FACTOR + _DELTA_TERM).clamp(max=1.0)
    return epsilons, deltas.cummin(0).values


@lru_cache(maxsize=16)
def _composed(releases: Releases) -> tuple[Any, float] | None:
    """dp-accounting's losses, which are rounded up to multiples of an interval, and the interval.

    None where nothing is sampled, or where the losses are too large for dp-accounting.
    """
    sampled = [(mu, rate, count) for mu, rate, count in releases if mu > 0 and rate != 1]
    if not sampled:
        return None
    from dp_accounting.pld import privacy_loss_distribution as pld

    from ringfence.accounting.allocation import epoch_losses

    def losses_of(mu: float, rate: Rate) -> Any:
        if isinstance(rate, tuple) and len(rate) == 1:
            return epoch_losses(mu, rate[0], interval)
        if isinstance(rate, tuple):
            rate, cut = rate
            return losses_of(mu, rate).compute_mixture(losses_of(mu / 2, rate), cut)
        return pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=interval, sampling_prob=rate)

    whole = composed_mu(tuple(release for release in releases if release[1] == 1))
    try:
        interval = 1e-4 * max(1.0, max(whole, *(mu for mu, _, _ in sampled)) ** 2)  # losses grow like squares
        total = pld.identity(value_discretization_interval=interval)
        total = total.compose(losses_of(whole, 1.0)) if whole > 0 else total
        for mu, rate, count in sampled:
            total = total.compose(losses_of(mu, rate).self_compose(count))
    except OverflowError:
        return None
    return total, interval


def _up(value: Number) -> Number:
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
        for _ in range(_RATE_BISECTIONS):
            middle = (low + high) / 2
            possible = _excess(orders, bounds, middle, others(middle)).amax(dim=0) <= 0
            low, high = torch.where(possible, middle, low), torch.where(possible, high, middle)
        return high


AttackBound = GaussianBound | CurveBound | RenyiBound  # each from one thing that is known about neighbours


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
    picked = torch.linspace(0, until, min(until + 1, _MOST_POINTS_OF_MU), dtype=torch.float64).long()
    epsilons, deltas = (values[picked] for values in curve)

    def dominates(mu: float) -> bool:
        gap = Gaussian(1.0).hockey_stick(0.0, mu, epsilons) * (1 - ROUNDING) + slack - deltas
        slope = -cumulative(-epsilons / mu - mu / 2)
        below_chord = epsilons.exp().diff() * slope.diff() / 4
        return bool((torch.minimum(gap[1:], gap[:-1]) >= below_chord).all()) and bool((gap >= 0).all())

    low, high = 0.0, whole
    for _ in range(_RATE_BISECTIONS):
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
