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
_PER_OCTAVE, _LEAST = 64, 0.03  # of order - 1
_NOISE = 1e-14  # relative to the logarithms that a divergence is computed from


def zcdp_curve(zcdp: float) -> tuple[Tensor, Tensor]:
    """(orders, bounds) of a law whose divergences are at most zcdp * order: the orders that matter.

    The best one at a false positive rate x is near 1 + sqrt(log(1 / x) / zcdp). Order 1 is the
    Kullback-Leibler divergence.

    >>> orders, bounds = zcdp_curve(0.01)
    >>> float(orders[0]), float(bounds[0]), float(orders[-1])
    (1.0, 0.01, 161.0)
    """
    scale = 1 / math.sqrt(zcdp) if zcdp > 0 else 1.0
    steps = (scale * 2.0 ** (k / _PER_OCTAVE) for k in range(-6 * _PER_OCTAVE, 4 * _PER_OCTAVE + 1))
    orders = torch.tensor([1.0, *(1 + step for step in steps if step > _LEAST)], dtype=torch.float64)
    return orders, zcdp * orders


def renyi_rates(orders: Tensor, bounds: Tensor, false_positive: Tensor) -> tuple[Tensor, Tensor]:
    """(largest true positive rates, smallest false negative rates) of a vector of false positive rates.

    Guarantee: whatever orders there are, the result bounds every test, since each order alone does.

    >>> highest, lowest = renyi_rates(*zcdp_curve(0.02), torch.tensor([0.0, 0.01, 1.0]).double())
    >>> highest.numpy().round(4).tolist(), lowest.numpy().round(4).tolist()
    ([0.0, 0.018, 1.0], [1.0, 0.982, 0.0])
    """
    start = torch.logit(false_positive.clamp(_SMALLEST, 1 - 2.0**-53))
    low, high = start, torch.full_like(start, _FARTHEST)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        possible = _possible(orders, bounds, middle, start)
        low, high = torch.where(possible, middle, low), torch.where(possible, high, middle)
    highest = (torch.sigmoid(high) * (1 + ROUNDING)).clamp(max=1.0)
    lowest = torch.sigmoid(-high) * (1 - ROUNDING)
    # without a false positive nothing can be found: the divergences are finite
    never, always = false_positive == 0, false_positive == 1
    highest = torch.where(never, 0.0, torch.where(always, 1.0, highest))
    return highest, torch.where(never, 1.0, torch.where(always, 0.0, lowest))


def renyi_advantage(orders: Tensor, bounds: Tensor) -> float:
    """The largest true positive rate minus false positive rate.

    The rates that are possible form a convex set (divergences are jointly quasi-convex; van Erven and
    Harremoës 2014, Theorem 13), which (x, y) -> (1 - y, 1 - x) maps to itself because both directions are
    bounded. So the largest difference is attained at a pair with x = 1 - y.

    >>> round(renyi_advantage(*zcdp_curve(0.02)), 4), round((0.02 / 2) ** 0.5, 4)  # Pinsker's inequality
    (0.0998, 0.1)
    """
    low, high = torch.zeros(1, dtype=torch.float64), torch.full((1,), 2 * _FARTHEST, dtype=torch.float64)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        possible = _possible(orders, bounds, middle, -middle)
        low, high = torch.where(possible, middle, low), torch.where(possible, high, middle)
    return min(1.0, float(torch.tanh(high / 2)) * (1 + ROUNDING))


def _possible(orders: Tensor, bounds: Tensor, heads: Tensor, others: Tensor) -> Tensor:
    """True where no bound excludes that a test's true and false positive rates have these logits."""
    logs = torch.stack((logsigmoid(heads), logsigmoid(-heads), logsigmoid(others), logsigmoid(-others)))
    noise = _NOISE * (1 - logs.sum(dim=0))
    forward = _above(orders, bounds, logs[:2], logs[2:], noise)
    return ~(forward | _above(orders, bounds, logs[2:], logs[:2], noise)).any(dim=0)


def _above(orders: Tensor, bounds: Tensor, first: Tensor, second: Tensor, noise: Tensor) -> Tensor:
    """True where D_alpha(first || second) of two coins is above its bound beyond doubt: (orders, coins)."""
    kullback = (first.exp() * (first - second)).sum(dim=0)
    order = orders.clamp(min=1 + 1e-3).reshape(-1, 1)
    powers = order * first.unsqueeze(1) - (order - 1) * second.unsqueeze(1)
    divergence = torch.where(
        orders.reshape(-1, 1) == 1, kullback, torch.logsumexp(powers, dim=0) / (order - 1)
    )
    return divergence > bounds.reshape(-1, 1) * (1 + ROUNDING) + noise * order / (order - 1)
