"""From Rényi divergences and Gaussian parameters to (epsilon, delta), by dp-accounting.

dp-accounting is imported where it is used: it imports scipy, which takes longer to load than everything
else here.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ringfence import checks
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.numerics.rounding import ROUNDING, UNDERFLOW

# Gaussian releases: (shift / sigma, sampling rate, how many).
Releases = tuple[tuple[float, float, int], ...]

# Dense at the best orders of a few steps with much noise, and reaching far enough for very small losses,
# whose best order is about sqrt(2 log(1/delta)) / mu.
DEFAULT_ORDERS: tuple[float, ...] = (
    *(1.1, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 2.75, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5, 6.0, 6.5, 7.0, 7.5),
    *(8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0, 18.0, 20.0, 22.0, 24.0, 28.0, 32.0, 36.0),
    *(40.0, 48.0, 56.0, 64.0, 72.0, 80.0, 96.0, 112.0, 128.0, 144.0, 160.0, 192.0, 224.0, 256.0, 320.0),
    *(384.0, 448.0, 512.0, 640.0, 768.0, 896.0, 1024.0, 1280.0, 1536.0, 1792.0, 2048.0),
)


# The range of shift / sigma in which dp-accounting's root finding works. Above it, delta <= P(loss > epsilon)
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
    return _raised(epsilons)


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
    return _raised(epsilons.amin(dim=-1).clamp(min=0))


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
    import dp_accounting

    if mu <= _LARGE and gaussian_delta(mu, 0.0) <= delta:
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
    epsilon = float(dp_accounting.get_epsilon_gaussian(1 / mu, delta))
    # dp-accounting finds epsilon to within 1e-12, on either side: a small epsilon may have to be raised.
    further = 1e-12
    while gaussian_delta(mu, epsilon) > delta:
        epsilon, further = epsilon + further, 2 * further
    return _up(epsilon)


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
    """epsilon of Gaussian releases, of everything or of Poisson samples.

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
    return _up(float(composed[0].get_epsilon(delta)))


def sampled_gaussian_delta(releases: Releases, epsilon: float) -> float:
    """delta(epsilon) of the same releases.

    >>> round(sampled_gaussian_delta(((0.5, 0.01, 100),), 0.19), 6)
    1e-05
    """
    composed = _composed(releases)
    if composed is None:
        return gaussian_delta(composed_mu(releases), epsilon)
    return min(1.0, float(composed[0].get_delta(epsilon)) * _DELTA_FACTOR + _DELTA_TERM)


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
    accountant, interval = composed
    ends = (float(accountant.get_epsilon(delta)) for delta in _LAST_DELTAS)
    end = min(next((end for end in ends if math.isfinite(end)), 0.0), _LARGEST_EXPONENT)
    interval *= max(1, math.ceil(end / interval / _MOST_POINTS))
    epsilons = interval * torch.arange(math.ceil(end / interval) + 1, dtype=torch.float64)
    deltas = torch.as_tensor(accountant.get_delta(epsilons.tolist()), dtype=torch.float64)
    deltas = (deltas * _DELTA_FACTOR + _DELTA_TERM).clamp(max=1.0)
    return epsilons, deltas.cummin(0).values


@lru_cache(maxsize=16)
def _composed(releases: Releases) -> tuple[Any, float] | None:
    """dp-accounting's account, whose losses are rounded up to multiples of an interval, and the interval.

    None where nothing is sampled, or where the losses are too large for dp-accounting.
    """
    sampled = [(mu, rate, count) for mu, rate, count in releases if mu > 0 and rate < 1]
    if not sampled:
        return None
    import dp_accounting
    from dp_accounting import pld

    whole = composed_mu(tuple(release for release in releases if release[1] == 1))
    try:
        interval = 1e-4 * max(1.0, max(whole, *(mu for mu, _, _ in sampled)) ** 2)  # losses grow like squares
        accountant = pld.PLDAccountant(value_discretization_interval=interval)
        if whole > 0:
            accountant.compose(dp_accounting.GaussianDpEvent(1 / whole))
        for mu, rate, count in sampled:
            release = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(1 / mu))
            accountant.compose(dp_accounting.SelfComposedDpEvent(release, count))
    except OverflowError:
        return None
    return accountant, interval


def _up(value: float) -> float:
    if math.isnan(value):
        raise FloatingPointError("epsilon cannot be represented at these arguments")
    return value * (1 + ROUNDING)


def _raised(values: Tensor) -> Tensor:
    if bool(values.isnan().any()):
        raise FloatingPointError("epsilon cannot be represented at these arguments")
    return values * (1 + ROUNDING)
