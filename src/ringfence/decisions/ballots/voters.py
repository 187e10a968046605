"""What decisions cost each voter, who knows how they voted: the own ballot, against none."""

import math

import torch
from torch import Tensor

from ringfence.accounting.conversion import DEFAULT_ORDERS, checked_orders
from ringfence.accounting.decisions.moves import DecisionLaw
from ringfence.accounting.decisions.rdp import zcdp
from ringfence.mechanisms import pieces
from ringfence.mechanisms.base import Mechanism
from ringfence.numerics.rounding import ROUNDING, UNDERFLOW

_MOST = 1 << 24  # log ratios of all queries, choices and outcomes: with more of them this takes minutes
_HELD = 1 << 21  # of them at once


def voter_epsilons(law: DecisionLaw, votes: Tensor, marks: Tensor, delta: float) -> Tensor | None:
    """One epsilon per voter, by Rényi sums: with the ballot of that voter, and without it.

    ``votes`` are what the law is applied to, surpluses or rows of counts, with all ballots in them, and
    ``marks`` the choices of each voter, (voters, queries), -1 for none. For surpluses choice 0 is yes and
    choice 1 is no. None where there are so many candidates that this would take minutes.

    Guarantee: the decisions on the votes at hand and on those without the ballot of voter i are
    (epsilon_i, delta)-indistinguishable. A voter without a mark costs exactly 0. All of it is sensitive.

    >>> import ringfence as rf
    >>> marks = torch.tensor([[0, 0], [-1, 1], [-1, -1]])
    >>> surplus = torch.tensor([1.0, 30.0], dtype=torch.float64)
    >>> [round(float(value), 3) for value in voter_epsilons(rf.StochasticSign(10.0), surplus, marks, 1e-5)]
    [0.396, 0.326, 0.0]
    """
    orders = checked_orders(DEFAULT_ORDERS)
    if isinstance(law, Mechanism):
        moves = torch.tensor([[-1.0], [1.0]], dtype=torch.float64)
        costs = _costs(*law.pair(votes, moves), orders)  # (directions, orders, choices, queries)
    else:
        candidates = votes.shape[-1]
        if len(votes) * candidates * candidates > _MOST:
            return None
        moves = -torch.eye(candidates, dtype=torch.float64)
        blocks = votes.split(max(1, _HELD // candidates**2))
        parts = [law.pair(block.unsqueeze(1), moves) for block in blocks]
        costs = torch.cat([_costs(*part, orders) for part in parts], dim=2).transpose(2, 3)
    costs = torch.minimum(costs * (1 + ROUNDING) + UNDERFLOW, (zcdp(law, "added") * orders).reshape(-1, 1, 1))
    sums = torch.zeros(2, len(orders), len(marks), dtype=torch.float64)
    for choice in range(costs.shape[2]):
        made = marks == choice
        if bool(made.any()):
            sums += costs[:, :, choice] @ made.double().T
    order = orders.unsqueeze(1)
    # Canonne, Kamath and Steinke 2020, proposition 12
    slack = torch.log1p(-1 / order) - (math.log(delta) + torch.log(order)) / (order - 1)
    epsilons = (sums.amax(dim=0) + slack).amin(dim=0).clamp(min=0) * (1 + ROUNDING)
    return torch.where((marks >= 0).any(dim=1), epsilons, 0.0)


def _costs(log_p: Tensor, rho: Tensor, orders: Tensor) -> Tensor:
    """Divergences in both directions at each order, (directions, orders, ...)."""
    ends = ((log_p, rho), (log_p - rho, -rho))
    return torch.stack([torch.stack([pieces.renyi(*end, order) for order in orders]) for end in ends])
