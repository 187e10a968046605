"""Tight (epsilon, delta) of decisions on votes that are fixed in advance."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ringfence.accounting.claim.conversion import DEFAULT_ORDERS, checked_orders, gaussian_delta
from ringfence.accounting.decisions.moves import (
    DecisionLaw,
    Neighbours,
    Pairs,
    checked_at_most,
    checked_law,
    number_of_queries,
    pairs,
)
from ringfence.accounting.decisions.rdp import rdp_of_pairs, zcdp
from ringfence.accounting.induction import atoms_delta
from ringfence.accounting.profile import PrivacyProfile, renyi_delta
from ringfence.checks import Real
from ringfence.numerics.rounding import UNDERFLOW


def decision_profile(
    law: DecisionLaw, votes: Real, *, neighbours: Neighbours, at_most: int | None = None
) -> PrivacyProfile:
    """Tight (epsilon, delta) of one decision for each query of ``votes``, about any one voter.

    The arguments are those of ``DecisionAccountant`` and its ``step``. The proofs are the Gaussian's exact
    curve, the Rényi sums, and backward induction, in which a voter makes the worst of all moves at every
    query, or at ``at_most`` of them, even in the light of what was decided before. The last one is left out
    where it would take minutes.

    Guarantee: an upper bound that covers every voter and both directions. It speaks of these votes, is
    computed from them and is itself sensitive.

    >>> import ringfence as rf
    >>> counts = [[230, 12, 8], [140, 90, 20]]
    >>> profile = rf.decision_profile(rf.NoisyWinner(20.0), counts, neighbours="replaced")
    >>> round(profile.epsilon(delta=1e-5), 3), profile.proof(delta=1e-5)
    (0.156, 'backward induction')
    """
    queries = number_of_queries(checked_law(law), votes)
    at_most = checked_at_most(at_most, neighbours, queries)
    every = list(pairs(law, votes, neighbours))
    most = zcdp(law, neighbours)
    orders = checked_orders(DEFAULT_ORDERS)
    rdp = rdp_of_pairs(every, orders, most, at_most)
    mu = math.sqrt(2 * most * (at_most or queries))
    proofs: dict[str, Callable[[float], float]] = {
        "Gaussian": lambda epsilon: gaussian_delta(mu, epsilon),
        "Rényi": renyi_delta(orders, rdp.worst),
    }
    together = joined(every)
    if tight := atoms_delta(*together, at_most):
        left_out = queries * together.rho.shape[0] * UNDERFLOW
        proofs["backward induction"] = lambda epsilon: left_out + tight(epsilon)
    return PrivacyProfile(proofs)


def joined(every: list[Pairs]) -> Pairs:
    """All queries side by side; where some have fewer moves, moves that change nothing are added.

    >>> import ringfence as rf
    >>> from ringfence.accounting.decisions.moves import pairs
    >>> parts = [next(pairs(rf.NoisyWinner(2.0), row, "added")) for row in ([[5, 0]], [[5, 3], [6, 3]])]
    >>> [part.rho.shape[1] for part in parts], joined(parts).rho.shape
    ([3, 4], torch.Size([2, 4, 3]))
    """
    moves = max(part.rho.shape[1] for part in every)

    def padded(part: Tensor, log_p: Tensor | None = None) -> Tensor:
        more = moves - part.shape[1]
        filler = torch.zeros_like(part[:, :1]) if log_p is None else log_p[:, :1]
        return torch.cat((part, filler.expand(-1, more, -1)), dim=1)

    return Pairs(
        torch.cat([padded(part.log_p.expand_as(part.rho), part.log_p) for part in every], dim=2),
        torch.cat([padded(part.rho) for part in every], dim=2),
        torch.cat([part.repeats for part in every]),
    )
