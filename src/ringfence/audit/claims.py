"""The epsilons that the package claims for targets, many targets at a time."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ringfence.accounting.claim.conversion import DEFAULT_ORDERS, checked_orders
from ringfence.accounting.claim.data_independent import data_independent_proof
from ringfence.accounting.claim.guarantee import guarantee
from ringfence.accounting.divergence_sums import both_directions
from ringfence.accounting.per_instance import ceilings, per_instance_rdp
from ringfence.accounting.profile.profile import privacy_profile
from ringfence.accounting.sensitivity import Sensitivity
from ringfence.audit.stacks import stacks
from ringfence.audit.targets import Target
from ringfence.numerics.rounding import ROUNDING, UNDERFLOW

Claims = Callable[[Sequence[Target]], list[dict[str, float]]]

_TOGETHER = 400  # coordinates of one stack, each evaluated at every order


def printed_claims(targets: Sequence[Target]) -> list[dict[str, float]]:
    """The epsilons of ``PerInstanceAccountant`` after one step of each target, by name.

    They are made of the same sums as the accountant's for a few coordinates (``exact_sums``), for many
    targets in one pass where every coordinate moves; a test compares the two.

    >>> from ringfence import Gaussian
    >>> [claim] = printed_claims([Target(Gaussian(1.0), torch.zeros(4).double(), 0.16, 1e-5)])
    >>> {name: round(epsilon, 2) for name, epsilon in claim.items()}
    {'data-independent': 1.22, 'per-instance': 1.22}
    """
    orders = checked_orders(DEFAULT_ORDERS)
    claims: dict[int, dict[str, float]] = {}
    plain = [place for place, target in enumerate(targets) if Sensitivity.of(target.sensitivity).is_plain]
    for place in set(range(len(targets))).difference(plain):
        target = targets[place]
        rdp = per_instance_rdp(target.mechanism, target.theta, target.sensitivity, orders)
        claims[place] = _claim(target, orders, rdp.worst)
    for stack in stacks([targets[place] for place in plain], _TOGETHER):
        both = both_directions(stack.mechanism, stack.theta, stack.move, orders)
        worst = torch.maximum(*(stack.sums(values) for values in both)) * (1 + ROUNDING)
        for column, place in enumerate(plain[own] for own in stack.places):
            target = targets[place]
            claims[place] = _claim(target, orders, worst[:, column] + target.theta.numel() * UNDERFLOW)
    return [claims[place] for place in range(len(targets))]


def with_profiles(targets: Sequence[Target]) -> list[dict[str, float]]:
    """The printed claims, and that of the tight ``privacy_profile``, which takes up to seconds per target.

    >>> from ringfence import Gaussian
    >>> [claim] = with_profiles([Target(Gaussian(1.0), torch.zeros(4).double(), 0.16, 1e-5)])
    >>> round(claim["profile"], 2)
    1.22
    """
    claims = printed_claims(targets)
    for claim, target in zip(claims, targets, strict=True):
        profile = privacy_profile(target.mechanism, target.theta, target.sensitivity)
        claim["profile"] = profile.epsilon(target.delta)
    return claims


def _claim(target: Target, orders: Tensor, worst: Tensor) -> dict[str, float]:
    gaussian, bounded = ceilings(target.mechanism, target.theta, target.sensitivity)
    claim = guarantee(
        orders=orders,
        worst=torch.minimum(worst, bounded * orders),
        gaussian=gaussian * orders,
        data_independent=data_independent_proof(gaussian, bounded, target.delta),
        steps=1,
        delta=target.delta,
    )
    return {"data-independent": claim.epsilon, "per-instance": claim.per_instance.epsilon}
