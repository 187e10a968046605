"""What a test can achieve between two laws of which only Rényi divergences are known.

A test with false positive rate x and true positive rate y turns the two laws into the laws of a biased
coin. It cannot raise a divergence, so at every order

    D_alpha(y || x) <= bound of that order    and    D_alpha(x || y) <= bound of that order,

where D_alpha(y || x) is the divergence of coins that show heads with probability y and x. Probabilities are
kept as logits, so that neither a small one nor its distance from 1 loses its digits.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from ringfence.numerics.rounding import ROUNDING

_BISECTIONS = 50
_SMALLEST = 1e-300  # false positive rates below count as this one; more of them allow no less
_FARTHEST = 800.0  # e^-800 is 0 in floats
_NOISE = 1e-14  # relative to the logarithms that a divergence is computed from
_PER_OCTAVE, _LEAST = 8, 0.03  # of order - 1, where only zCDP is known


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
