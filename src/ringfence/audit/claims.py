"""The epsilons that the package claims for targets, many targets at a time."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ringfence.accounting.conversion import DEFAULT_ORDERS, checked_orders
from ringfence.accounting.data_independent import data_independent_proof
from ringfence.accounting.guarantee import guarantee
from ringfence.accounting.per_instance.divergence_sums import worse_sign
from ringfence.accounting.per_instance.rdp import ceilings
from ringfence.accounting.profile.profile import privacy_profile
from ringfence.audit.stacks import stacks
from ringfence.audit.targets import Target
from ringfence.numerics.rounding import ROUNDING, UNDERFLOW

Claims = Callable[[Sequence[Target]], list[dict[str, float]]]

_TOGETHER = 400  # coordinates of one stack, each evaluated at every order


def printed_claims(targets: Sequence[Target]) -> list[dict[str, float]]:
    """The epsilons of ``PerInstanceAccountant`` after one step of each target, by name.

    They are made of the same sums as the accountant's for a few coordinates (``exact_sums``), for many
    targets in one pass; a test compares the two.

    >>> from ringfence import Gaussian
    >>> [claim] = printed_claims([Target(Gaussian(1.0), torch.zeros(4).double(), 0.16, 1e-5)])
    >>> {name: round(epsilon, 2) for name, epsilon in claim.items()}
    {'data-independent': 1.22, 'per-instance': 1.22}
    """
    orders = checked_orders(DEFAULT_ORDERS)
    claims: dict[int, dict[str, float]] = {}
    for stack in stacks(targets, _TOGETHER):
        both = (
            stack.sums(worse_sign(stack.mechanism, stack.theta, stack.move, orders, backward))
            for backward in (False, True)
        )
        worst = torch.maximum(*both) * (1 + ROUNDING)
        for column, place in enumerate(stack.places):
            claims[place] = _claim(targets[place], orders, worst[:, column])
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
    move = torch.tensor(target.sensitivity, dtype=torch.float64)
    gaussian, bounded = ceilings(target.mechanism, target.theta, move)
    claim = guarantee(
        orders=orders,
        worst=torch.minimum(worst + target.theta.numel() * UNDERFLOW, bounded * orders),
        gaussian=gaussian * orders,
        data_independent=data_independent_proof(gaussian, bounded, target.delta),
        steps=1,
        delta=target.delta,
    )
    return {"data-independent": claim.epsilon_data_independent, "per-instance": claim.epsilon_pdp}
