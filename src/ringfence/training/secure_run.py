"""What a run of secure releases is charged besides: the rounding of its sums, and finite randomness.

A sum of n numbers in float64, in any order, is off by at most n gamma(n) times the largest of them,
gamma(n) = n u / (1 - n u), u = 2^-53 (Higham 2002, section 4.2). So a record that adds at most c moves
the sum that is stored by at most

    c (1 + 2 n gamma(n) + 2 n spread),

where c spread is how far rounding may take what one record adds from its exact value: twice, since
other records' numbers may be rounded otherwise with and without it.
"""

import math
from collections.abc import Callable
from dataclasses import replace

from ringfence import checks
from ringfence.accounting.guarantee import Guarantee
from ringfence.mechanisms.base import Mechanism
from ringfence.mechanisms.secure.release import SecureRelease
from ringfence.numerics.spectral.singular_values import gamma

NEEDS_SIZE = (
    "public_size must be given where releases are secure, got None: the number of records could be read off "
    "what is released"
)


def largest_count(examples: int, public_size: float) -> int:
    """How many examples the rounding is charged for: twice ``public_size``, whatever their number.

    >>> largest_count(900, public_size=1000)
    2000
    """
    most = math.ceil(2 * checks.number("public_size", public_size, checks.positive))
    if examples > most:
        raise ValueError(
            f"public_size must be at least half the number of examples in a secure run, got {public_size!r}"
        )
    return most


def stretched(sensitivity: float, count: int, spread: float = 0.0) -> float:
    """By how much one of up to ``count`` examples moves a float64 sum, rounding included.

    >>> stretched(1.0, 10**6) < 1 + 3e-4
    True
    """
    count = checks.count("count", count, at_least=1) + 1  # with the example, and without
    slack = 2 * count * (gamma(count) + checks.number("spread", spread, checks.not_negative))
    return math.nextafter(sensitivity * (1 + slack) * (1 + 2.0**-50), math.inf)


def secure_guarantee(
    of: Callable[[float], Guarantee], mechanism: Mechanism, numbers: int, delta: float
) -> Guarantee:
    """An account's guarantee at delta, of which ``numbers`` secure releases have taken their share.

    Guarantee: what is taken is computed at an epsilon that is at least the one returned.

    >>> from ringfence import PerInstanceAccountant, RectifiedGaussian
    >>> law = RectifiedGaussian(1.0, bound=2.0)
    >>> account = PerInstanceAccountant(law, sensitivity=0.01)
    >>> account.step([0.0])
    >>> secure_guarantee(account.guarantee, law, 1, 1e-5).epsilon >= account.guarantee(1e-5).epsilon
    True
    """
    half = of(checks.probability("delta", delta) / 2)
    largest = max(half.epsilon, half.epsilon_pdp, half.epsilon_data_independent)
    added = SecureRelease(mechanism).delta(numbers, largest)
    if added > delta / 2:
        raise ValueError(
            f"delta must be larger, got {delta!r}: at epsilon {largest:.3g} the finite randomness of "
            f"{numbers} secure releases alone takes {added:.3g}"
        )
    return replace(of(math.nextafter(delta - added, 0.0)), delta=delta)
