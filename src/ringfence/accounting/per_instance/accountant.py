"""Per-instance Rényi accounting: what releases of theta cost the dataset at hand."""

from collections.abc import Iterable, Sequence
from typing import Any, Self

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.claim.conversion import DEFAULT_ORDERS, checked_orders
from ringfence.accounting.claim.data_independent import data_independent_proof
from ringfence.accounting.claim.guarantee import Guarantee, guarantee
from ringfence.accounting.costs.account_cost import whole_cost
from ringfence.accounting.costs.cost import Cost
from ringfence.accounting.per_instance.rdp import DivergenceTables, ceilings
from ringfence.accounting.sensitivity import Sensitivity
from ringfence.checks import Real
from ringfence.mechanisms.base import Mechanism, checked_mechanism

_STATE = {
    *("mechanism", "sensitivity", "orders", "forward", "backward"),
    *("gaussian_zcdp", "bounded_zcdp", "steps"),
}


class PerInstanceAccountant:
    """Adds up releases of theta and says what they cost.

    Call ``step(theta)`` once for each release, where theta is what the mechanism was applied to. A
    record must enter theta with a contribution that depends only on the record and on earlier
    releases, within ``sensitivity``: a number for the largest move of each coordinate, or a
    ``Sensitivity``. Mechanism and sensitivity may differ from step to step.

    Guarantee: for each order there is one running sum per direction. Each is an upper bound of the exact
    sum and never above what holds for every theta. ``docs/guarantees.md`` says what the sums promise.

    >>> from ringfence.mechanisms.truncated import TruncatedGaussian
    >>> account = PerInstanceAccountant(TruncatedGaussian(1.0, bound=2.0), sensitivity=1e-3)
    >>> for _ in range(10):
    ...     account.step(torch.zeros(10_240))
    >>> claim = account.guarantee(delta=1e-5)
    >>> own = claim.per_instance
    >>> round(claim.epsilon, 2), round(own.epsilon, 2), round(own.ex_post_epsilon, 2)
    (1.15, 1.15, 1.61)
    """

    def __init__(
        self,
        mechanism: Mechanism,
        sensitivity: Real | Sensitivity,
        orders: Sequence[float] | Tensor = DEFAULT_ORDERS,
    ) -> None:
        self.mechanism = checked_mechanism(mechanism)
        self.sensitivity = Sensitivity.of(sensitivity)
        self._orders = checked_orders(orders).clone()
        self.forward = torch.zeros_like(self._orders)
        self.backward = torch.zeros_like(self._orders)
        self.steps = 0
        self.gaussian_zcdp = 0.0  # |move / sigma|^2 / 2 of the longest move, summed over steps
        self.bounded_zcdp = 0.0  # the same with what the law proves for every theta
        self._tables = DivergenceTables()

    def step(
        self,
        theta: Real,
        *,
        mechanism: Mechanism | None = None,
        sensitivity: Real | Sensitivity | None = None,
        count: int = 1,
        exact: bool = False,
    ) -> None:
        """Adds ``count`` releases of theta.

        The account's own mechanism and sensitivity are used unless others are given. ``exact=True``
        evaluates every coordinate at every order.
        """
        count = checks.count("count", count, at_least=1)
        law = self.mechanism if mechanism is None else mechanism
        size = self.sensitivity if sensitivity is None else Sensitivity.of(sensitivity)
        theta = checks.tensor("theta", theta)
        gaussian, bounded = ceilings(law, theta, size)
        rdp = self._tables.per_instance_rdp(law, theta, size, self._orders, exact, bounded=bounded)
        self._add(rdp.forward, rdp.backward, gaussian, bounded, count)

    def step_of_any(
        self,
        theta: Real,
        *,
        mechanism: Mechanism | None = None,
        sensitivity: Real | Sensitivity | None = None,
        count: int = 1,
    ) -> None:
        """Adds ``count`` releases, charged with what holds for every dataset, before there is one.

        Of ``theta`` only the shape counts. No release of a theta of this shape is charged more.
        """
        count = checks.count("count", count, at_least=1)
        law = self.mechanism if mechanism is None else mechanism
        size = self.sensitivity if sensitivity is None else Sensitivity.of(sensitivity)
        gaussian, bounded = ceilings(law, checks.tensor("theta", theta), size)
        self._add(bounded * self._orders, bounded * self._orders, gaussian, bounded, count)

    def _add(self, forward: Tensor, backward: Tensor, gaussian: float, bounded: float, count: int) -> None:
        self.forward = self.forward + count * forward
        self.backward = self.backward + count * backward
        self.gaussian_zcdp += count * gaussian
        self.bounded_zcdp += count * bounded
        self.steps += count

    def charge(self, theta: Tensor, batches: Iterable[Tensor] | None = None) -> None:
        """Charges one release of ``theta``, as ``Account.charge``.

        Every record is in the release, so ``batches`` of other samples are not looked at.
        """
        self.step(theta)

    @property
    def orders(self) -> Tensor:
        """The Rényi orders, fixed at construction: the ex-post bound pays for these and no others."""
        return self._orders.clone()

    @property
    def worst(self) -> Tensor:
        """The larger of the two running sums, order by order."""
        return torch.maximum(self.forward, self.backward)

    def guarantee(self, delta: float) -> Guarantee:
        """What may be said about all the steps so far, at this delta."""
        return guarantee(
            orders=self._orders,
            worst=self.worst,
            gaussian=self.gaussian_zcdp * self._orders,
            data_independent=data_independent_proof(self.gaussian_zcdp, self.bounded_zcdp, delta),
            steps=self.steps,
            delta=delta,
        )

    def fresh(self) -> Self:
        """An account with the same settings and no steps."""
        return type(self)(self.mechanism, self.sensitivity, self._orders)

    def cost(self) -> Cost:
        """The steps so far in a form that adds up with those of other accounts (``Ledger``)."""
        return whole_cost(self, bounded_zcdp=self.bounded_zcdp)

    def state_dict(self) -> dict[str, Any]:
        """The account as plain data, which JSON keeps; ``from_state_dict`` restores it exactly."""
        return {
            "kind": type(self).__name__,
            "version": 1,
            "mechanism": self.mechanism.state_dict(),
            "sensitivity": self.sensitivity.state(),
            "orders": self._orders.tolist(),
            "forward": self.forward.tolist(),
            "backward": self.backward.tolist(),
            "gaussian_zcdp": self.gaussian_zcdp,
            "bounded_zcdp": self.bounded_zcdp,
            "steps": self.steps,
        }

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> Self:
        """The account that a ``state_dict`` describes; an unknown kind, version or key is an error."""
        checks.state("PerInstanceAccountant", 1, state, _STATE)
        sensitivity = Sensitivity.from_state(state["sensitivity"])
        account = cls(Mechanism.from_state_dict(state["mechanism"]), sensitivity, state["orders"])
        for name in ("forward", "backward"):
            setattr(account, name, checks.sums(name, state[name], len(account.orders)))
        for name in ("gaussian_zcdp", "bounded_zcdp"):
            setattr(account, name, checks.number(name, state[name], checks.not_negative))
        account.steps = checks.count("steps", state["steps"], at_least=0)
        return account

    def __getstate__(self) -> dict[str, Any]:
        """Plain data, also where the account is pickled or copied, or saved by skops."""
        return self.state_dict()

    def __setstate__(self, state: dict[str, Any]) -> None:
        earlier = "kind" not in state  # pickled by a version before 0.7
        vars(self).update(state if earlier else vars(self.from_state_dict(state)))

    def __repr__(self) -> str:
        return f"PerInstanceAccountant({self.mechanism!r}, steps={self.steps})"
