"""What the finite randomness of secure releases takes from delta."""

import math
from collections.abc import Callable
from dataclasses import replace

from ringfence import checks
from ringfence.accounting.claim.guarantee import Guarantee
from ringfence.mechanisms.secure.release import added_delta


class TooSmallDeltaError(ValueError):
    """At this delta nothing can be said about secure releases: their finite randomness takes all of it."""


def secure_guarantee(
    of: Callable[[float], Guarantee], numbers: int, delta: float, taken: float = 0.0
) -> Guarantee:
    """An account's guarantee at delta, after the finite randomness of ``numbers`` releases took its share.

    ``of`` is the account's own ``guarantee``, and ``taken`` the part of delta that it takes for itself.

    Guarantee: the share of delta is computed at an epsilon that is at least the one returned. The rates of
    attacks are those of the account, with the total variation of the finite randomness added.

    >>> from ringfence import PerInstanceAccountant, RectifiedGaussian
    >>> account = PerInstanceAccountant(RectifiedGaussian(1.0, bound=2.0), sensitivity=0.01)
    >>> account.step([0.0])
    >>> secure_guarantee(account.guarantee, 1, 1e-5).epsilon >= account.guarantee(1e-5).epsilon
    True
    """
    share = (checks.probability("delta", delta) - taken) / 2
    half = of(delta - share)
    largest = max(half.epsilon, half.epsilon_pdp, half.epsilon_data_independent)
    added = added_delta(numbers, largest)
    if added > share:
        raise TooSmallDeltaError(
            f"delta must be larger, got {delta!r}: at epsilon {largest:.3g} the finite randomness of "
            f"{numbers} secure releases alone takes {added:.3g}"
        )
    claim = of(math.nextafter(delta - added, 0.0))
    attacks = claim.every_dataset
    if attacks is not None:
        # delta at epsilon 0 is twice the total variation, once for each of two neighbours
        attacks = replace(attacks, off_by=attacks.off_by + added_delta(numbers, 0.0) / 2)
    return replace(claim, delta=delta, every_dataset=attacks)
