"""The cost of an account, in the form in which costs of different accounts add up."""

import math
from typing import Protocol

from torch import Tensor

from ringfence import checks
from ringfence.accounting.claim.conversion import DEFAULT_ORDERS
from ringfence.accounting.claim.guarantee import ADDED_OR_REMOVED
from ringfence.accounting.costs.cost import Cost, Sums


class HasCost(Protocol):
    """Anything that says what it costs in a form that adds up: every accountant."""

    def cost(self) -> Cost:
        """What the releases cost."""


class WholeAccount(Protocol):
    """What ``whole_cost`` needs of an account of releases of everything."""

    gaussian_zcdp: float
    steps: int
    forward: Tensor
    backward: Tensor

    @property
    def orders(self) -> Tensor:
        """The orders of the sums."""


def whole_cost(account: WholeAccount, *, bounded_zcdp: float, change: str = ADDED_OR_REMOVED) -> Cost:
    """The cost of an account of releases of everything, with what holds for every dataset as zCDP.

    >>> import ringfence as rf
    >>> account = rf.PerInstanceAccountant(rf.Gaussian(1.0), sensitivity=0.1)
    >>> whole_cost(account, bounded_zcdp=0.0).steps
    0
    """
    mu = math.sqrt(2 * account.gaussian_zcdp)
    return Cost(
        releases=((mu, 1.0, 1),) if mu > 0 else (),
        zcdp=bounded_zcdp,
        ceiling=tuple(bounded_zcdp * order for order in DEFAULT_ORDERS),
        forward=at_orders(account.orders, account.forward),
        backward=at_orders(account.orders, account.backward),
        gaussian=tuple(account.gaussian_zcdp * order for order in DEFAULT_ORDERS),
        steps=account.steps,
        change=change,
    )


def at_orders(orders: Tensor, sums: Tensor) -> Sums:
    """Sums at the orders of a ``Cost``: where an order is missing, those of the next larger one.

    Guarantee: an upper bound, since Rényi divergences do not fall with the order; infinity beyond the last.

    >>> import torch
    >>> at_orders(torch.tensor([2.0, 4.0]), torch.tensor([0.1, 0.3]))[4:12:3]
    (0.10000000149011612, 0.30000001192092896, 0.30000001192092896)
    """
    pairs = list(zip(orders.tolist(), sums.tolist(), strict=True))
    return tuple(
        min((value for at, value in pairs if at >= order), default=math.inf) for order in DEFAULT_ORDERS
    )


def as_cost(value: "Cost | HasCost | tuple[float, float]") -> Cost:
    """The cost that an argument stands for.

    >>> as_cost((0.5, 0.0)).pairs
    ((0.5, 0.0),)
    """
    if isinstance(value, Cost):
        return value
    if isinstance(value, tuple):
        return Cost.of_pair(*checks.listed("cost", value, length=2))
    if not hasattr(value, "cost"):
        raise TypeError(f"cost must be an account, a Cost or a pair (epsilon, delta), got {value!r}")
    return value.cost()
