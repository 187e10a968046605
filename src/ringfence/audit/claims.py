"""What the package claims about releases, many at a time."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ringfence.accounting.conversion import DEFAULT_ORDERS, checked_orders
from ringfence.accounting.guarantee import data_independent_proof, guarantee
from ringfence.accounting.per_instance.divergence_sums import worse_sign
from ringfence.accounting.per_instance.rdp import ceilings
from ringfence.accounting.profile.profile import privacy_profile
from ringfence.audit.releases import Release, stacks
from ringfence.numerics.rounding import ROUNDING, UNDERFLOW

Claims = Callable[[Sequence[Release]], list[dict[str, float]]]

_TOGETHER = 400  # coordinates, at every order


def printed_claims(releases: Sequence[Release]) -> list[dict[str, float]]:
    """The epsilons of ``PerInstanceAccountant`` after one step of each release, by name.

    The same sums as the accountant's for a few coordinates (``exact_sums``), for many releases in
    one pass; a test compares the two.

    >>> from ringfence import Gaussian
    >>> [claim] = printed_claims([Release(Gaussian(1.0), torch.zeros(4).double(), 0.16, 1e-5)])
    >>> {name: round(epsilon, 2) for name, epsilon in claim.items()}
    {'data-independent': 1.22, 'per-instance': 1.22}
    """
    orders = checked_orders(DEFAULT_ORDERS)
    claims: dict[int, dict[str, float]] = {}
    for stack in stacks(releases, _TOGETHER):
        both = (
            stack.sums(worse_sign(stack.mechanism, stack.theta, stack.move, orders, backward))
            for backward in (False, True)
        )
        worst = torch.maximum(*both) * (1 + ROUNDING)
        for column, place in enumerate(stack.places):
            claims[place] = _claim(releases[place], orders, worst[:, column])
    return [claims[place] for place in range(len(releases))]


def with_profiles(releases: Sequence[Release]) -> list[dict[str, float]]:
    """The same and the tight ``privacy_profile``, which takes up to seconds a release.

    >>> from ringfence import Gaussian
    >>> [claim] = with_profiles([Release(Gaussian(1.0), torch.zeros(4).double(), 0.16, 1e-5)])
    >>> round(claim["profile"], 2)
    1.22
    """
    claims = printed_claims(releases)
    for claim, release in zip(claims, releases, strict=True):
        profile = privacy_profile(release.mechanism, release.theta, release.sensitivity)
        claim["profile"] = profile.epsilon(release.delta)
    return claims


def _claim(release: Release, orders: Tensor, worst: Tensor) -> dict[str, float]:
    move = torch.tensor(release.sensitivity, dtype=torch.float64)
    gaussian, bounded = ceilings(release.mechanism, release.theta, move)
    claim = guarantee(
        orders=orders,
        worst=torch.minimum(worst + release.theta.numel() * UNDERFLOW, bounded * orders),
        gaussian=gaussian * orders,
        data_independent=data_independent_proof(gaussian, bounded, release.delta),
        steps=1,
        delta=release.delta,
    )
    return {"data-independent": claim.epsilon_data_independent, "per-instance": claim.epsilon_pdp}
