"""Per-instance Rényi accounting: what releases of theta cost the dataset at hand, every record covered.

A record that comes or goes moves theta within the sensitivity, and which way is not known. For each order
alpha an account adds up, over coordinates and releases, the largest divergence that such a move can cause,
once with the law of this dataset first (forward) and once with it last (backward). For laws of bounded
support these sums depend on theta, and are below the Gaussian's where theta lies near an end of the support.
Beside them an account keeps what holds for every theta, from which the promise to every dataset is made
(``PrivacyLoss``).

Where all coordinates may move at once, the sums are plain sums (``divergence_sums``). Where few may, or the
length of the move is bounded, the worst move fills a budget (``sensitivity.filled``).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.conversion import DEFAULT_ORDERS, checked_orders
from ringfence.accounting.divergence_sums import (
    DivergenceTable,
    evaluated_charges,
    exact_sums,
    recentre,
    split_by_setting,
)
from ringfence.accounting.equivalent_information import EQUIVALENT_INFORMATION
from ringfence.accounting.induction import Dominating, merged
from ringfence.accounting.privacy_loss import PrivacyLoss, RenyiAccountant, RenyiSums
from ringfence.accounting.sensitivity import Sensitivity, ceilings, filled, released_shape
from ringfence.checks import Real
from ringfence.mechanisms.base import Mechanism, checked_mechanism
from ringfence.numerics.blocks import at_once
from ringfence.numerics.rounding import ROUNDING, UNDERFLOW

FEW = 256  # coordinates up to which a table of divergences costs more than it saves
_VERY_FEW = 8  # the same for a table of the equivalent information
_SETTINGS = 64  # distinct settings of one release that are read from a table; with more, all is evaluated
_TOGETHER = 1 << 24  # charges that are held at once


@dataclass(frozen=True)
class PerInstanceRdp:
    """Rényi divergences of one release at each order, in both directions, every possible record covered.

    >>> import ringfence as rf
    >>> rdp = rf.per_instance_rdp(rf.Gaussian(1.0), [0.0, 3.0], sensitivity=0.5, orders=[2, 8])
    >>> rdp.orders.tolist(), rdp.worst.round(decimals=6).tolist()
    ([2.0, 8.0], [0.5, 2.0])
    """

    orders: Tensor
    forward: Tensor  # sum_j max over +-c of D(theta_j || theta_j +- c), or its largest value over moves
    backward: Tensor  # sum_j max over +-c of D(theta_j +- c || theta_j), or its largest value over moves

    @property
    def worst(self) -> Tensor:
        """The larger of the two totals, order by order."""
        return torch.maximum(self.forward, self.backward)

    @property
    def sums(self) -> RenyiSums:
        """The sums as a ``PrivacyLoss`` takes them."""
        return RenyiSums.of(self.orders, self.forward, self.backward)


def per_instance_rdp(
    mechanism: Mechanism,
    theta: Real,
    sensitivity: Real | Sensitivity,
    orders: Sequence[float] | Tensor = DEFAULT_ORDERS,
) -> PerInstanceRdp:
    """Rényi divergences between releases on this dataset and on it with one record more or less.

    One record moves coordinate j of theta by at most ``sensitivity`` (a number, or a tensor that
    broadcasts against theta), up or down. Per direction, the sum over coordinates of the worse
    sign. The paper takes +c and D(theta || theta + c) alone and understates the loss, up to 14
    times in one dimension (docs/errata.md, A7). With a ``Sensitivity`` it is the largest sum over the
    moves that this allows: with ``at_most`` the sum of the largest terms, exactly; with ``norm`` an upper
    bound, which is the usual account for the Gaussian.

    Guarantee: an upper bound of the exact sums, at most 0.5 % above them (3 % where theta lies 10
    sigma and more outside the support), from one pass over theta whatever the number of orders. Never
    above the bound that holds for every theta. That the table bounds the sums is proved for every law
    (docs/curvature.md); that it is so close to them is measured.

    >>> from ringfence.mechanisms.rectified import RectifiedGaussian
    >>> rdp = per_instance_rdp(RectifiedGaussian(1.0, bound=2.0), torch.zeros(1000), 1e-3, [2, 8, 64])
    >>> [round(value, 6) for value in rdp.worst.tolist()]
    [0.000995, 0.003979, 0.031833]
    """
    orders, theta, size = checked_orders(orders), checks.tensor("theta", theta), Sensitivity.of(sensitivity)
    _, bounded = ceilings(mechanism, theta, size)
    sums = DivergenceTables(orders).sums(mechanism, theta, size)
    return PerInstanceRdp(orders, *torch.minimum(sums, bounded * orders))


def pure_losses(mechanism: Mechanism, theta: Tensor, sensitivity: Real | Sensitivity) -> Dominating:
    """The pure pair that dominates one release of a theta of this shape; empty if there is none.

    >>> from ringfence.mechanisms.laplace import Laplace
    >>> pure_losses(Laplace(2.0), torch.zeros(9), Sensitivity(each=1.0, at_most=3))
    (('pure', 0.5000000000005, 3),)
    """
    size = Sensitivity.of(sensitivity)
    shape = released_shape(checked_mechanism(mechanism), theta, size.farthest)
    size = size.binding(shape)
    if size.norm is not None or not shape.numel():
        return ()
    single = mechanism.pure_epsilon(size.farthest.double().cpu()) * (1 + 1e-12)  # rounded up
    count = shape.numel() if size.at_most is None else size.at_most
    worst = float(single.max())
    return (("pure", worst, count),) if worst < math.inf else ()


class DivergenceTables:
    """Tables at one list of orders, of divergences and of equivalent informations, filled as they are needed.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> tables = DivergenceTables(torch.tensor([2.0], dtype=torch.float64))
    >>> tables.sums(Gaussian(1.0), torch.zeros(1000), Sensitivity(0.1))[0].round(decimals=2)
    tensor([10.], dtype=torch.float64)
    """

    def __init__(self, orders: Tensor) -> None:
        self.orders = orders
        self.divergences = DivergenceTable(orders)
        self.information = DivergenceTable(orders, EQUIVALENT_INFORMATION)

    def sums(self, mechanism: Mechanism, theta: Tensor, size: Sensitivity) -> Tensor:
        """Rows forward and backward, one column per order: upper bounds of the sums over every move.

        A few coordinates are evaluated, and all of them where the law has no table. NaN is an error.
        """
        if mechanism.same_everywhere:
            gaussian, _ = ceilings(mechanism, checks.finite("theta", theta), size)
            return (gaussian * self.orders).expand(2, -1)
        size = size.binding(released_shape(mechanism, theta, size.farthest))
        if not size.is_plain:
            return self._worst_move_sums(mechanism, checks.finite("theta", theta), size)
        parts = None
        if theta.numel() > FEW and not mechanism.whole:
            parts = split_by_setting(*recentre(mechanism, theta), size.farthest, _SETTINGS)
        if parts is None:
            return exact_sums(mechanism, theta, size.farthest, self.orders)
        sums = torch.zeros(2, len(self.orders), dtype=torch.float64)
        for setting, coordinates in parts:
            sums += self.divergences.sums(setting, coordinates)
        return sums

    def _worst_move_sums(self, mechanism: Mechanism, theta: Tensor, size: Sensitivity) -> Tensor:
        """The largest sums over moves whose number of coordinates, or whose norm, is bounded.

        Where at most m coordinates move, the largest sum is that of the m largest divergences, because a
        divergence grows with the move. Where the L2 norm of the move is bounded, D_j(v_j) <= (alpha / 2)
        rho_j v_j^2 (``equivalent_information``), and the largest sum of these squares fills the largest rho
        first.
        """
        count = released_shape(mechanism, theta, size.farthest).numel()
        release = (*recentre(mechanism, theta), size.farthest)
        bounds = [torch.full((2, len(self.orders)), torch.inf, dtype=torch.float64)]
        if size.at_most is not None or count <= FEW:
            most = count if size.at_most is None else size.at_most
            evaluate = mechanism.whole or count <= FEW
            bounds.append(_largest_total(self.divergences, *release, evaluate, budget=float(most)))
        # of a whole law no table of its information bounds a long move
        if (norm := size.norm) is not None and not mechanism.whole:
            evaluate = count <= _VERY_FEW
            squares = _largest_total(self.information, *release, evaluate, budget=1.0, norm=norm)
            # where squares leave the range of floats, what holds for every theta counts
            squares = squares * (0.5 * norm * norm * self.orders)
            bounds.append(torch.where(squares.isnan(), torch.inf, squares))
        return torch.stack(bounds).amin(dim=0) * (1 + ROUNDING) + count * UNDERFLOW


def _largest_total(
    table: DivergenceTable,
    mechanism: Mechanism,
    theta: Tensor,
    farthest: Tensor,
    evaluate: bool,
    budget: float,
    norm: float | None = None,
) -> Tensor:
    """The largest total charge, (2, orders), of moves within the budget.

    A coordinate takes one of the budget, or the square of its move / ``norm`` where that is given. Charges
    are evaluated for every coordinate, or read from the table bin by bin.
    """
    parts = None if evaluate else split_by_setting(mechanism, theta, farthest, _SETTINGS)
    if parts is None:
        shape = released_shape(mechanism, theta, farthest)
        own = evaluated_charges(table.tabulated, mechanism, theta.expand(shape), farthest, table.orders)
        charges = [(own, farthest.expand(shape).reshape(-1))]
    else:
        charges = [
            (own, torch.tensor(setting.sensitivity, dtype=torch.float64))
            for setting, coordinates in parts
            for own in table.charges(setting, coordinates)
        ]
    room = torch.cat(
        [
            own.number if norm is None else own.number * (width.to(own.number) / norm).square()
            for own, width in charges
        ]
    )
    totals = []
    for some in torch.arange(len(table.orders)).split(at_once(_TOGETHER, each=4 * room.numel())):
        orders = slice(int(some[0]), int(some[-1]) + 1)
        values = torch.cat([own.at(orders) for own, _ in charges], dim=-1)
        totals.append(filled(values, room, budget).cpu())
    return torch.cat(totals, dim=1)


class PerInstanceAccountant(RenyiAccountant):
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

    _SETTINGS: ClassVar = ("mechanism", "sensitivity", "orders")
    _COUNTED: ClassVar = (*RenyiAccountant._COUNTED, "gaussian_zcdp", "bounded_zcdp", "dominating")

    gaussian_zcdp = 0.0  # |move / sigma|^2 / 2 of the longest move, summed over steps
    bounded_zcdp = 0.0  # the same with what the law proves for every theta
    dominating: Dominating = ()  # of all steps, or nothing

    def __init__(
        self,
        mechanism: Mechanism,
        sensitivity: Real | Sensitivity,
        orders: Sequence[float] | Tensor = DEFAULT_ORDERS,
    ) -> None:
        self.mechanism = checked_mechanism(mechanism)
        self.sensitivity = Sensitivity.of(sensitivity)
        super().__init__(checked_orders(orders))
        self._tables = DivergenceTables(self._orders)

    def step(
        self,
        theta: Real,
        *,
        mechanism: Mechanism | None = None,
        sensitivity: Real | Sensitivity | None = None,
        count: int = 1,
    ) -> None:
        """Adds ``count`` releases of theta, with the account's own settings unless others are given."""
        law, size = self._settings(mechanism, sensitivity)
        theta = checks.tensor("theta", theta)  # NaN is an error in the sums, which saves a read of theta
        self._add(law, size, theta, self._tables.sums(law, theta, size), count)

    def step_worst_case(
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
        unknown = torch.full((2, len(self._orders)), torch.inf)
        self._add(*self._settings(mechanism, sensitivity), checks.tensor("theta", theta), unknown, count)

    def _settings(
        self, mechanism: Mechanism | None, sensitivity: Real | Sensitivity | None
    ) -> tuple[Mechanism, Sensitivity]:
        law = self.mechanism if mechanism is None else checked_mechanism(mechanism)
        return law, self.sensitivity if sensitivity is None else Sensitivity.of(sensitivity)

    def _add(self, law: Mechanism, size: Sensitivity, theta: Tensor, sums: Tensor, count: int) -> None:
        count = checks.count("count", count, at_least=1)
        gaussian, bounded = ceilings(law, theta, size)
        pure = pure_losses(law, theta, size)
        known = pure and (self.dominating or not self.steps)  # one step without leaves nothing for all
        further = tuple((name, size, count * moved) for name, size, moved in pure)
        self.dominating = merged((*self.dominating, *further)) if known else ()
        forward, backward = torch.minimum(sums, bounded * self._orders)
        self.forward = self.forward + count * forward
        self.backward = self.backward + count * backward
        self.gaussian_zcdp += count * gaussian
        self.bounded_zcdp += count * bounded
        self.steps += count

    def charge(self, theta: Tensor) -> None:
        """Charges one release of ``theta`` in training: every record is in it."""
        self.step(theta)

    def privacy_loss(self) -> PrivacyLoss:
        """The steps so far as one value, which adds up with that of other accounts."""
        return PrivacyLoss.of_zcdp(
            self.gaussian_zcdp, self.bounded_zcdp, own=self.sums, steps=self.steps, dominating=self.dominating
        )

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> Self:
        """The account that a ``state_dict`` describes; an unknown kind, version or key is an error."""
        return super().from_state_dict({"dominating": (), **checks.mapping("state", state)})  # not in 0.6

    def _read(self, name: str, value: Any) -> Any:
        return tuple(map(tuple, value)) if name == "dominating" else super()._read(name, value)

    def __getstate__(self) -> dict[str, Any]:
        """Plain data, also where the account is pickled or copied, or saved by skops."""
        return self.state_dict()

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(vars(self.from_state_dict(state)))

    def __repr__(self) -> str:
        return f"PerInstanceAccountant({self.mechanism!r}, steps={self.steps})"
