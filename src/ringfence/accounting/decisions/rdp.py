"""Rényi divergences of decisions: for each query the worst move of a voter, summed over the queries."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from ringfence.accounting.claim.conversion import DEFAULT_ORDERS, checked_orders
from ringfence.accounting.decisions.moves import (
    DecisionLaw,
    Neighbours,
    Pairs,
    checked_at_most,
    checked_law,
    number_of_queries,
    pairs,
)
from ringfence.accounting.per_instance import PerInstanceRdp
from ringfence.accounting.sensitivity import filled
from ringfence.checks import Real
from ringfence.mechanisms import pieces
from ringfence.mechanisms.decision import Decision
from ringfence.numerics.rounding import ROUNDING, UNDERFLOW

_FEW = 2  # so many moves are evaluated to full relative accuracy
_LOST = 1e-12  # of (alpha - 1) D per query, charged where there are more


def decision_rdp(
    law: DecisionLaw,
    votes: Real,
    *,
    neighbours: Neighbours,
    at_most: int | None = None,
    orders: Sequence[float] | Tensor = DEFAULT_ORDERS,
) -> PerInstanceRdp:
    """Rényi divergences between the decisions on these votes and on those of any neighbour.

    ``votes`` are counts of voters, one row per query, for a winner, and surpluses for the sign. For each
    query and order it takes the worst of all moves of one voter, and sums over the queries, or over the
    ``at_most`` dearest ones: no voter, however they vote, costs more.

    Guarantee: upper bounds in both directions. They are exact up to a relative 1e-11 and, for winners, an
    absolute 1e-12 / (alpha - 1) per query, and never above what holds for all votes.

    >>> import ringfence as rf
    >>> counts = [[200, 30, 20], [120, 110, 20]]
    >>> rdp = decision_rdp(rf.NoisyWinner(40.0), counts, neighbours="replaced", orders=[2, 32])
    >>> [round(float(value), 5) for value in rdp.worst], 32 * 2 / 40**2  # the Gaussian's, of two queries
    ([0.00081, 0.01356], 0.04)
    """
    number_of_queries(checked_law(law), votes)
    every = pairs(law, votes, neighbours)
    most = checked_at_most(at_most, neighbours)
    return rdp_of_pairs(every, checked_orders(orders), zcdp(law, neighbours), most)


def zcdp(law: DecisionLaw, neighbours: Neighbours) -> float:
    """An upper bound of D / alpha of one query over all votes: that of the Gaussian releases behind it.

    >>> import ringfence as rf
    >>> round(zcdp(rf.NoisyWinner(10.0), "replaced"), 9), round(zcdp(rf.StochasticSign(10.0), "replaced"), 9)
    (0.01, 0.02)
    """
    replaced = neighbours == "replaced"
    if isinstance(law, Decision):
        return law.zcdp(torch.tensor([1.0, -1.0] if replaced else [1.0])) * (1 + 1e-12)
    mu = (2.0 if replaced else 1.0) / float(law.sigma)
    return 0.5 * mu * mu * (1 + 1e-12)  # which is infinite where a power raises an error


def rdp_of_pairs(
    every: Iterable[Pairs], orders: Tensor, ceiling: float, at_most: int | None
) -> PerInstanceRdp:
    """``decision_rdp`` of pairs; no query counts more than ``ceiling`` times the order."""
    costs, repeats = [], []
    for part in every:
        costs.append(torch.stack([torch.stack(_worst(part, float(order))) for order in orders], dim=1))
        repeats.append(part.repeats.double())
    most = ceiling * orders.unsqueeze(1)
    found = torch.minimum(torch.cat(costs, dim=2) * (1 + ROUNDING) + UNDERFLOW, most)
    room = torch.cat(repeats)
    if bool(found.isnan().any()):
        raise FloatingPointError("Rényi divergences of decisions cannot be represented at these arguments")
    sums = found @ room if at_most is None else filled(found, room, float(at_most))
    return PerInstanceRdp(orders, *sums)


def _worst(part: Pairs, order: float) -> tuple[Tensor, Tensor]:
    """The largest divergence over all moves, for each query, in both directions."""
    log_p, rho, _ = part
    if rho.shape[1] <= _FEW:
        alpha = torch.tensor(order, dtype=torch.float64)
        both = pieces.renyi(log_p, rho, alpha), pieces.renyi(log_p - rho, -rho, alpha)
        return both[0].amax(dim=0), both[1].amax(dim=0)
    # E_P (P/Q)^(alpha - 1) and E_Q (Q/P)^(alpha - 1); what cancels here is charged
    moments = torch.logsumexp(log_p + (order - 1) * rho, dim=0), torch.logsumexp(log_p - order * rho, dim=0)
    forward, backward = ((moment.amax(dim=0).clamp(min=0) + _LOST) / (order - 1) for moment in moments)
    return forward, backward
