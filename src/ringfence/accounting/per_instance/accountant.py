"""Per-instance Rényi accounting: what releases of theta cost the dataset at hand."""

import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.conversion import DEFAULT_ORDERS, checked_orders, gaussian_epsilon
from ringfence.accounting.guarantee import Guarantee, data_independent_proof, guarantee
from ringfence.accounting.per_instance.divergence_sums import DivergenceTable, exact_sums
from ringfence.accounting.per_instance.translation import from_nearer_end
from ringfence.checks import Real
from ringfence.mechanisms.base import Mechanism, checked_mechanism

_FEW = 256  # coordinates below which a table costs more than it saves
_GROUPS = 64  # distinct settings of the parameters handled as one table each
_TABLES = 64  # tables an account keeps
_SMALLEST_INFORMATION = 1e-290  # what a law says of its information below may have lost digits


@dataclass(frozen=True)
class PerInstanceRdp:
    """What one release costs at each order, in both directions, every possible record covered.

    >>> import ringfence as rf
    >>> rdp = rf.per_instance_rdp(rf.Gaussian(1.0), [0.0, 3.0], sensitivity=0.5, orders=[2, 8])
    >>> rdp.orders.tolist(), rdp.worst.round(decimals=6).tolist()
    ([2.0, 8.0], [0.5, 2.0])
    """

    orders: Tensor
    forward: Tensor  # sum_j max over +-c of D(theta_j || theta_j +- c)
    backward: Tensor  # sum_j max over +-c of D(theta_j +- c || theta_j)

    @property
    def worst(self) -> Tensor:
        """The larger of the two totals, order by order."""
        return torch.maximum(self.forward, self.backward)


def per_instance_rdp(
    mechanism: Mechanism,
    theta: Real,
    sensitivity: Real,
    orders: Sequence[float] | Tensor = DEFAULT_ORDERS,
    *,
    exact: bool = False,
) -> PerInstanceRdp:
    """Rényi divergences between releases on this dataset and on it with one record more or less.

    One record moves coordinate j of theta by at most ``sensitivity`` (a number, or a tensor that
    broadcasts against theta), up or down. Per direction, the sum over coordinates of the worse
    sign. The paper takes +c and D(theta || theta + c) alone and understates the loss, up to 14
    times in one dimension (docs/errata.md, A7).

    Guarantee: an upper bound of the exact sums, at most 0.5 % above them (1.5 % where theta lies 20
    sigma and more outside the support), from one pass over theta whatever the number of orders;
    ``exact=True`` evaluates every coordinate at every order. Never above the bound that holds for
    every theta. The table behind the bound is proved for the Gaussian and the truncated law and
    checked numerically for the others (docs/guarantees.md).

    >>> from ringfence.mechanisms.rectified import RectifiedGaussian
    >>> rdp = per_instance_rdp(RectifiedGaussian(1.0, bound=2.0), torch.zeros(1000), 1e-3, [2, 8, 64])
    >>> [round(value, 6) for value in rdp.worst.tolist()]
    [0.000995, 0.003979, 0.031833]
    """
    return DivergenceTables().per_instance_rdp(mechanism, theta, sensitivity, checked_orders(orders), exact)


class PerInstanceAccountant:
    """Adds up releases of theta and says what they cost.

    Call ``step(theta)`` once for each release, theta being what the mechanism was applied to. A
    record must enter theta with a contribution that depends only on the record and on earlier
    releases, within +-sensitivity. Mechanism and sensitivity may differ from step to step.

    Guarantee: two running sums an order, one a direction, each an upper bound of the exact one
    and never above what holds for every theta. What they promise: ``docs/guarantees.md``.

    >>> from ringfence.mechanisms.truncated import TruncatedGaussian
    >>> account = PerInstanceAccountant(TruncatedGaussian(1.0, bound=2.0), sensitivity=1e-3)
    >>> for _ in range(10):
    ...     account.step(torch.zeros(10_240))
    >>> claim = account.guarantee(delta=1e-5)
    >>> round(claim.epsilon, 2), round(claim.epsilon_pdp, 2), round(claim.epsilon_data_independent, 2)
    (1.61, 1.15, 1.15)
    """

    def __init__(
        self, mechanism: Mechanism, sensitivity: Real, orders: Sequence[float] | Tensor = DEFAULT_ORDERS
    ) -> None:
        self.mechanism = checked_mechanism(mechanism)
        self.sensitivity = checks.not_negative("sensitivity", sensitivity)
        self._orders = checked_orders(orders).clone()
        self.forward = torch.zeros_like(self._orders)
        self.backward = torch.zeros_like(self._orders)
        self.steps = 0
        self.gaussian_zcdp = 0.0  # sum of c^2 / (2 sigma^2) over coordinates and steps
        self.bounded_zcdp = 0.0  # the same with what the law proves for every theta
        self._tables = DivergenceTables()

    def step(
        self,
        theta: Real,
        *,
        mechanism: Mechanism | None = None,
        sensitivity: Real | None = None,
        count: int = 1,
        exact: bool = False,
    ) -> None:
        """One release of theta (``count`` of them), with the account's settings unless given."""
        checks.count("count", count, at_least=1)
        law = self.mechanism if mechanism is None else mechanism
        size = self.sensitivity if sensitivity is None else checks.not_negative("sensitivity", sensitivity)
        theta = checks.tensor("theta", theta)
        gaussian, bounded = ceilings(law, theta, size)
        rdp = self._tables.per_instance_rdp(law, theta, size, self._orders, exact, bounded=bounded)
        self.forward = self.forward + count * rdp.forward
        self.backward = self.backward + count * rdp.backward
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
        """Fixed at construction: the ex-post bound pays for the orders it may choose from, no others."""
        return self._orders.clone()

    @property
    def worst(self) -> Tensor:
        """The larger of the two running sums, order by order."""
        return torch.maximum(self.forward, self.backward)

    def guarantee(self, delta: float) -> Guarantee:
        """What may be said about all the steps so far, at this delta."""
        epsilon, proof = data_independent_proof(self.gaussian_zcdp, self.bounded_zcdp, delta)
        return guarantee(
            orders=self._orders,
            worst=self.worst,
            gaussian=self.gaussian_zcdp * self._orders,
            epsilon_data_independent=epsilon,
            proof=proof,
            gaussian_exactly=gaussian_epsilon(math.sqrt(2 * self.gaussian_zcdp), delta),
            steps=self.steps,
            delta=delta,
        )

    def state_dict(self) -> dict[str, Any]:
        """Plain data, fit for JSON; ``from_state_dict`` gives back the same account exactly."""
        return {
            "kind": type(self).__name__,
            "version": 1,
            "mechanism": self.mechanism.state_dict(),
            "sensitivity": self.sensitivity.double().tolist(),
            "orders": self._orders.tolist(),
            "forward": self.forward.tolist(),
            "backward": self.backward.tolist(),
            "gaussian_zcdp": self.gaussian_zcdp,
            "bounded_zcdp": self.bounded_zcdp,
            "steps": self.steps,
        }

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> Self:
        """The account a ``state_dict`` describes; refuses what it does not understand."""
        checks.state("PerInstanceAccountant", 1, state, _STATE)
        account = cls(Mechanism.from_state_dict(state["mechanism"]), state["sensitivity"], state["orders"])
        for name in ("forward", "backward"):
            setattr(account, name, checks.sums(name, state[name], len(account.orders)))
        for name in ("gaussian_zcdp", "bounded_zcdp"):
            setattr(account, name, checks.number(name, state[name], checks.not_negative))
        account.steps = checks.count("steps", state["steps"], at_least=0)
        return account

    def __repr__(self) -> str:
        return f"PerInstanceAccountant({self.mechanism!r}, steps={self.steps})"


_STATE = {
    *("mechanism", "sensitivity", "orders", "forward", "backward"),
    *("gaussian_zcdp", "bounded_zcdp", "steps"),
}


def ceilings(mechanism: Mechanism, theta: Tensor, sensitivity: Tensor) -> tuple[float, float]:
    """What D / alpha of one release is at most whatever theta: the Gaussian's, and the law's own."""
    # a bound for each coordinate counts, whatever shape theta has by itself
    count = _coordinates(theta, {"sensitivity": sensitivity, **checked_mechanism(mechanism).parameters()})
    size = sensitivity.double().cpu()
    # relative to sigma: squares of small numbers are 0, and 0 times infinity is nothing
    ratio = size / mechanism.sigma.double().cpu()
    bound = mechanism.information_bound().cpu()
    known = torch.isfinite(bound) & (bound > _SMALLEST_INFORMATION)
    both = (ratio, torch.where(known, size * bound.sqrt(), ratio))
    squares = (0.5 * move * move for move in both)
    # broadcasting repeats every entry equally often
    gaussian, bounded = (
        float(square.sum()) * count / max(1, square.numel()) * (1 + 1e-12) for square in squares
    )
    return gaussian, min(gaussian, bounded)


def _coordinates(theta: Tensor, others: dict[str, Tensor]) -> int:
    """How many coordinates are released: theta's, after its parameters have spread it out."""
    if all(other.numel() == 1 for other in others.values()):
        return theta.numel()
    return math.prod(checks.broadcast(("theta", *others), (theta, *others.values())))


class DivergenceTables:
    """Divergence tables of the settings seen last, so that each is filled once."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[Any, ...], DivergenceTable] = OrderedDict()

    def per_instance_rdp(
        self,
        mechanism: Mechanism,
        theta: Real,
        sensitivity: Real,
        orders: Tensor,
        exact: bool,
        few: int = _FEW,
        bounded: float | None = None,
    ) -> PerInstanceRdp:
        """``bounded`` is what ``ceilings`` says, if the caller has asked already."""
        theta = checks.tensor("theta", theta)  # the sums refuse NaN: a read of theta saved
        size = checks.not_negative("sensitivity", sensitivity)
        checks.flag("exact", exact)
        bounded = ceilings(mechanism, theta, size)[1] if bounded is None else bounded
        mechanism, theta = from_nearer_end(mechanism, theta)
        parts = None if exact or theta.numel() <= few else _uniform_parts(mechanism, theta, size)
        if parts is None:
            sums = exact_sums(mechanism, theta, size, orders)
        else:
            sums = torch.zeros(2, len(orders), dtype=torch.float64)
            for law, move, coordinates in parts:
                sums += self._table(law, move, orders).sums(coordinates)
        forward, backward = torch.minimum(sums, bounded * orders)
        return PerInstanceRdp(orders, forward, backward)

    def _table(self, law: Mechanism, move: float, orders: Tensor) -> DivergenceTable:
        key = (repr(law.state_dict()), move, tuple(orders.tolist()))
        if key not in self._kept:
            self._kept[key] = DivergenceTable(law, move, orders)
        self._kept.move_to_end(key)
        while len(self._kept) > _TABLES:
            self._kept.popitem(last=False)
        return self._kept[key]


def _uniform_parts(
    mechanism: Mechanism, theta: Tensor, sensitivity: Tensor
) -> Iterator[tuple[Mechanism, float, Tensor]] | None:
    """theta split by distinct settings, each a law with single numbers; None if there are many."""
    values = (*mechanism.parameters().values(), sensitivity)
    if all(value.numel() == 1 for value in values):
        return iter([(_single(mechanism, values[:-1]), float(sensitivity), theta)])
    columns = torch.broadcast_tensors(*(value.double().cpu() for value in values))
    rows = torch.stack(columns, dim=-1)
    distinct, index = torch.unique(rows.reshape(-1, rows.shape[-1]), dim=0, return_inverse=True)
    if len(distinct) > _GROUPS:
        return None
    shape = checks.broadcast(("theta", "parameters"), (theta, columns[0]))
    index = index.reshape(columns[0].shape).to(theta.device).expand(shape)
    theta = theta.expand(shape)
    return (
        (_single(mechanism, row[:-1].unbind()), float(row[-1]), theta[index == group])
        for group, row in enumerate(distinct)
    )


def _single(mechanism: Mechanism, values: Sequence[Tensor]) -> Mechanism:
    own = mechanism.parameters().values()
    plain = all(value.dim() == 0 and value.dtype == torch.float64 and value.is_cpu for value in own)
    if plain and all(value is mine for value, mine in zip(values, own, strict=True)):
        return mechanism
    names = mechanism.parameters()
    numbers = [value.double().cpu().reshape(()) for value in values]
    return mechanism.with_parameters(dict(zip(names, numbers, strict=True)))
