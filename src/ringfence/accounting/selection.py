"""The cost of keeping the best of a random number of private runs.

After every run it is decided by chance whether there will be another, so that the number of runs is
geometric with mean m, and g = 1 / m is the chance to stop. Only the best run is released, by an order of what
runs give that is fixed beforehand. Papernot and Steinke (2022, arXiv 2110.03620, Theorem 2) bound the cost by
Rényi divergences; Koskela, Redberg and Wang (2024, arXiv 2402.06701) by hockey sticks, as is done here:

    Let every run be (e, d(e))-differentially private for all e, and let h >= 0 satisfy
    (1 - g) d(h) <= g (exp(h) - 1). Then the best of them is (e + 2 h, m d(e))-differentially private.

Proof. A coin decides between equal runs, so that the order has no ties. Let Q be the law of a run on one of
two neighbours, u(y) = Q(better than y), and Q', u' the same for the other. K is geometric, so the best run
has the density Q(y) E[K (1 - u)^(K - 1)] = Q(y) g / (g + (1 - g) u)^2, of which the factor after Q(y) is at
most m. Since u' <= exp(h) u + d(h), we have g + (1 - g) u' <= exp(h) (g + (1 - g) u): between neighbours the
factors differ by at most exp(2 h). So the density on the one exceeds exp(e + 2 h) times that on the other by
at most m times the positive part of Q - exp(e) Q', of which the integral is at most d(e).

Here runs are mu-GDP, so that d is the Gaussian's, and h is found from above. The Rényi bound, as
dp-accounting's RepeatAndSelectDpEvent has it, allows runs 0.64 to 0.75 times this mu.
"""

import math

from ringfence import checks
from ringfence.accounting.conversion import gaussian_delta, gaussian_epsilon
from ringfence.numerics.bisection import smallest
from ringfence.numerics.rounding import ROUNDING

_MOST_RUNS = 10**6
_HALVINGS = 40


def selection_epsilon(mu: float, expected_runs: float, delta: float) -> float:
    """The epsilon of the best of a geometric number of mu-GDP runs.

    Guarantee: an upper bound, by the theorem above. It holds where the best run is seen and neither the
    number of runs nor anything of the others.

    >>> round(selection_epsilon(0.17, 10, 1e-5), 3), round(gaussian_epsilon(0.17, 1e-5), 3)
    (1.007, 0.607)
    """
    mu = checks.number("mu", mu, checks.not_negative)
    runs = checked_runs(expected_runs)
    share = checks.probability("delta", delta) / runs
    return (gaussian_epsilon(mu, share) + 2 * _slack(mu, runs)) * (1 + ROUNDING)


def checked_runs(expected_runs: float) -> float:
    """The mean of the number of runs, from 1 to a million: more would not end.

    >>> checked_runs(1e23)
    Traceback (most recent call last):
    ValueError: expected_runs must be in [1, 1000000], got 1e+23
    """
    runs = checks.number("expected_runs", expected_runs, checks.positive)
    if not 1 <= runs <= _MOST_RUNS:
        raise ValueError(f"expected_runs must be in [1, {_MOST_RUNS}], got {expected_runs!r}")
    return runs


def _slack(mu: float, runs: float) -> float:
    """h: the condition was computed for it and is true, and 2^-40 of the way back it is not."""
    if runs == 1 or mu == 0:
        return 0.0

    def enough(h: float) -> bool:
        return (runs - 1) * gaussian_delta(mu, h) * (1 + ROUNDING) <= math.expm1(min(h, 700.0))

    low, high = 0.0, mu
    while not enough(high):
        low, high = high, 2 * high
    return smallest(enough, low, high, halvings=_HALVINGS)
