"""What a run of secure releases is charged for the rounding of its sums.

A sum of n numbers in float64, in any order, is off by at most n gamma(n) times the largest of them,
with gamma(n) = n u / (1 - n u) and u = 2^-53 (Higham 2002, section 4.2). So a record that adds at most c
moves the sum that is stored by at most

    c (1 + 2 n gamma(n) + 2 n spread),

where c spread is how far rounding may move the contribution of one record from its exact value. It counts
twice, since the contributions of other records may be rounded differently with and without that record.

The same factor holds for the L2 length of what a record moves. The error of coordinate j of a sum of vectors
x_i is at most gamma(n) sum_i |x_ij|, so the vector of errors is at most gamma(n) sum_i |x_i| long, which is
n gamma(n) C where no |x_i| is above C. Rounding moves a contribution by at most C spread where each of its
coordinates has a relative error of at most ``spread``.
"""

import math

from ringfence import checks
from ringfence.accounting.sensitivity import Sensitivity
from ringfence.numerics.singular_values import gamma

NEEDS_SIZE = (
    "public_size must be given where releases are secure, got None: the number of records could be read off "
    "what is released"
)


def largest_count(examples: int, public_size: float) -> int:
    """The number of examples that rounding is charged for: twice ``public_size``, however many there are.

    >>> largest_count(900, public_size=1000)
    2000
    """
    most = math.ceil(2 * checks.number("public_size", public_size, checks.positive))
    if examples > most:
        raise ValueError(
            f"public_size must be at least half the number of examples in a secure run, got {public_size!r}"
        )
    return most


def stretched(sensitivity: float | Sensitivity, count: int, spread: float = 0.0) -> Sensitivity:
    """The sensitivity of a float64 sum of up to ``count`` examples, rounding included.

    >>> float(stretched(1.0, 10**6).farthest) < 1 + 3e-4
    True
    """
    count = checks.count("count", count, at_least=1) + 1  # the example itself comes on top
    slack = 2 * count * (gamma(count) + checks.number("spread", spread, checks.not_negative))
    return Sensitivity.of(sensitivity).times((1 + slack) * (1 + 2.0**-50))
