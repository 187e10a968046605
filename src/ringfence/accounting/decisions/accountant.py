"""An account of decisions: what winners of votes and yes/no answers cost the voters at hand."""

from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.claim.conversion import DEFAULT_ORDERS, checked_orders
from ringfence.accounting.claim.data_independent import data_independent_proof
from ringfence.accounting.claim.guarantee import ADDED_OR_REMOVED, REPLACED, Guarantee, guarantee
from ringfence.accounting.costs.account_cost import whole_cost
from ringfence.accounting.costs.cost import Cost
from ringfence.accounting.decisions.moves import (
    DecisionLaw,
    Neighbours,
    checked_at_most,
    checked_law,
    number_of_queries,
)
from ringfence.accounting.decisions.rdp import decision_rdp, zcdp
from ringfence.checks import Real
from ringfence.mechanisms.base import Mechanism
from ringfence.mechanisms.decision import Decision

_STATE = {*("law", "neighbours", "at_most", "orders", "forward", "backward"), *("gaussian_zcdp", "steps")}


class DecisionAccountant:
    """Adds up decisions and says what they cost.

    Call ``step(votes)`` for the queries that are decided at a time: counts of voters, (queries, candidates),
    for ``NoisyWinner`` and ``ConfidentWinner``, or one surplus (yes minus no) per question for
    ``StochasticSign``. ``neighbours`` says what makes two sets of ballots neighbours: one voter "added" or
    removed, or one ballot "replaced" by another. ``at_most`` bounds the queries of one step in which a voter
    takes part; left out, all voters take part in all of them.

    Guarantee: for each order there is one running sum per direction, over queries, of the worst of all moves
    of one voter. Each is an upper bound for every voter, and never above what holds for all votes.
    ``docs/guarantees.md`` says what the sums promise. Where the votes of no step depend on earlier decisions,
    ``decision_profile`` is sharper.

    >>> import ringfence as rf
    >>> account = rf.DecisionAccountant(rf.NoisyWinner(20.0), neighbours="replaced")
    >>> account.step([[230, 12, 8], [140, 90, 20]])  # 250 voters, two queries
    >>> claim = account.guarantee(delta=1e-5)
    >>> round(claim.per_instance.epsilon, 3), round(claim.epsilon, 3)
    (0.217, 0.341)
    """

    def __init__(
        self,
        law: DecisionLaw,
        *,
        neighbours: Neighbours,
        at_most: int | None = None,
        orders: Sequence[float] | Tensor = DEFAULT_ORDERS,
    ) -> None:
        self.law = checked_law(law)
        self.neighbours = neighbours
        self.at_most = checked_at_most(at_most, neighbours)
        self._orders = checked_orders(orders).clone()
        self.forward = torch.zeros_like(self._orders)
        self.backward = torch.zeros_like(self._orders)
        self.gaussian_zcdp = 0.0
        self.steps = 0  # the number of queries decided so far

    def step(self, votes: Real) -> None:
        """Adds one decision for each query of ``votes``."""
        queries = number_of_queries(self.law, votes)
        rdp = decision_rdp(
            self.law, votes, neighbours=self.neighbours, at_most=self.at_most, orders=self._orders
        )
        self.forward = self.forward + rdp.forward
        self.backward = self.backward + rdp.backward
        moved = queries if self.at_most is None else min(queries, self.at_most)
        self.gaussian_zcdp += moved * zcdp(self.law, self.neighbours)
        self.steps += queries

    @property
    def orders(self) -> Tensor:
        """The Rényi orders, fixed at construction: the ex-post bound pays for these and no others."""
        return self._orders.clone()

    @property
    def worst(self) -> Tensor:
        """The larger of the two running sums, order by order."""
        return torch.maximum(self.forward, self.backward)

    def guarantee(self, delta: float) -> Guarantee:
        """What may be said about all decisions so far, at this delta."""
        return guarantee(
            orders=self._orders,
            worst=self.worst,
            gaussian=self.gaussian_zcdp * self._orders,
            data_independent=data_independent_proof(self.gaussian_zcdp, self.gaussian_zcdp, delta),
            steps=self.steps,
            delta=delta,
            change=REPLACED if self.neighbours == "replaced" else ADDED_OR_REMOVED,
        )

    def cost(self) -> Cost:
        """The decisions so far in a form that adds up with other accounts (``Ledger``)."""
        change = REPLACED if self.neighbours == "replaced" else ADDED_OR_REMOVED
        return whole_cost(self, bounded_zcdp=self.gaussian_zcdp, change=change)

    def state_dict(self) -> dict[str, Any]:
        """The account as plain data, which JSON keeps; ``from_state_dict`` restores it exactly."""
        return {
            "kind": type(self).__name__,
            "version": 1,
            "law": self.law.state_dict(),
            "neighbours": self.neighbours,
            "at_most": self.at_most,
            "orders": self._orders.tolist(),
            "forward": self.forward.tolist(),
            "backward": self.backward.tolist(),
            "gaussian_zcdp": self.gaussian_zcdp,
            "steps": self.steps,
        }

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> Self:
        """The account that a ``state_dict`` describes; an unknown kind, version or key is an error."""
        checks.state("DecisionAccountant", 1, state, _STATE)
        saved = checks.mapping("law", state["law"])
        law = (Mechanism if "parameters" in saved else Decision).from_state_dict(saved)
        account = cls(law, neighbours=state["neighbours"], at_most=state["at_most"], orders=state["orders"])
        for name in ("forward", "backward"):
            setattr(account, name, checks.sums(name, state[name], len(account.orders)))
        account.gaussian_zcdp = checks.number("gaussian_zcdp", state["gaussian_zcdp"], checks.not_negative)
        account.steps = checks.count("steps", state["steps"], at_least=0)
        return account

    def __repr__(self) -> str:
        return f"DecisionAccountant({self.law!r}, neighbours={self.neighbours!r}, steps={self.steps})"
