"""What the finite randomness of secure releases takes from delta: one rule for every claim."""

import math
from collections.abc import Callable
from dataclasses import replace

from ringfence import checks
from ringfence.accounting.claim.guarantee import Guarantee
from ringfence.mechanisms.secure.release import SecureRelease


class TooLittleNoiseError(ValueError):
    """The noise is too small for randomness of 256 bits, which would tell neighbours apart by itself."""


def delta_left(numbers: int, delta: float, epsilon: Callable[[float], float], taken: float = 0.0) -> float:
    """The part of delta that the finite randomness of ``numbers`` secure releases leaves to an account.

    ``epsilon(at)`` holds for every dataset at the delta ``at``, and ``taken`` is the part of delta that the
    account takes for itself: whether there is an answer does not depend on the data.

    Guarantee: the answer holds for every epsilon that is not above ``epsilon(delta / 2)``, and for ex-post
    losses, which are those of the exact law: a draw differs from it with probability 2^-200 per number.

    >>> delta_left(0, 1e-5, lambda at: 1.0), delta_left(1000, 1e-5, lambda at: 1.0) < 1e-5
    (1e-05, True)
    """
    half = (checks.probability("delta", delta) - taken) / 2
    if not numbers:
        return delta
    least = SecureRelease.delta(numbers, 0.0)
    if least > half:
        raise ValueError(
            f"delta must be larger, got {delta!r}: finite randomness of {numbers} numbers takes {least:.3g}"
        )
    largest = epsilon(delta - half)
    added = SecureRelease.delta(numbers, min(largest, 1e6))
    if added > half:
        raise TooLittleNoiseError(
            f"the noise is too small for 256-bit randomness: epsilon would be {largest:.4g}, and there the "
            f"finite randomness of {numbers} numbers takes {added:.3g} of delta {delta!r}. Give a larger "
            "sigma or a smaller epsilon, or a larger delta"
        )
    return math.nextafter(delta - added, 0.0)


def secure_guarantee(
    of: Callable[[float], Guarantee], numbers: int, delta: float, taken: float = 0.0
) -> Guarantee:
    """An account's guarantee at delta, after the finite randomness of ``numbers`` releases took its share.

    ``of`` is the account's own ``guarantee``, and ``taken`` the part of delta that it takes for itself.

    Guarantee: that of ``delta_left``. The rates of attacks are those of the account, with the total variation
    of the finite randomness added.

    >>> from ringfence import PerInstanceAccountant, RectifiedGaussian
    >>> account = PerInstanceAccountant(RectifiedGaussian(1.0, bound=2.0), sensitivity=0.01)
    >>> account.step([0.0])
    >>> secure_guarantee(account.guarantee, 1, 1e-5).epsilon >= account.guarantee(1e-5).epsilon
    True
    """
    claim = of(delta_left(numbers, delta, lambda at: of(at).epsilon, taken))
    attacks = claim.every_dataset
    if numbers:
        # delta at epsilon 0 is twice the total variation, once for each of two neighbours
        attacks = replace(attacks, off_by=attacks.off_by + SecureRelease.delta(numbers, 0.0) / 2)
    own = replace(claim.per_instance, delta=delta)
    return replace(claim, delta=delta, per_instance=own, every_dataset=attacks)
