"""Per-instance Rényi divergences of one release, with every possible record covered."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.claim.conversion import DEFAULT_ORDERS, checked_orders
from ringfence.accounting.coordinates import released_shape
from ringfence.accounting.per_instance.divergence_sums import both_directions, exact_sums
from ringfence.accounting.per_instance.divergence_table import Tabulated
from ringfence.accounting.per_instance.histogram_sums import HistogramSums
from ringfence.accounting.per_instance.setting import Setting, settings_of
from ringfence.accounting.per_instance.translation import from_nearer_end
from ringfence.accounting.per_instance.worst_move import FEW, GROUPS, worst_move_sums
from ringfence.accounting.sensitivity import Sensitivity
from ringfence.checks import Real
from ringfence.mechanisms.base import Mechanism, checked_mechanism

_TABLES = 64  # tables an account keeps
_SMALLEST_INFORMATION = 1e-290  # what a law says of its information below this may have lost digits


@dataclass(frozen=True)
class PerInstanceRdp:
    """What one release costs at each order, in both directions, every possible record covered.

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


def per_instance_rdp(
    mechanism: Mechanism,
    theta: Real,
    sensitivity: Real | Sensitivity,
    orders: Sequence[float] | Tensor = DEFAULT_ORDERS,
    *,
    exact: bool = False,
) -> PerInstanceRdp:
    """Rényi divergences between releases on this dataset and on it with one record more or less.

    One record moves coordinate j of theta by at most ``sensitivity`` (a number, or a tensor that
    broadcasts against theta), up or down. Per direction, the sum over coordinates of the worse
    sign. The paper takes +c and D(theta || theta + c) alone and understates the loss, up to 14
    times in one dimension (docs/errata.md, A7). With a ``Sensitivity`` it is the largest sum over the
    moves that this allows: with ``at_most`` the sum of the largest terms, exactly; with ``norm`` an upper
    bound, which is the usual account for the Gaussian.

    Guarantee: an upper bound of the exact sums, at most 0.5 % above them (1.5 % where theta lies 20
    sigma and more outside the support), from one pass over theta whatever the number of orders;
    ``exact=True`` evaluates every coordinate at every order. Never above the bound that holds for
    every theta. That the table bounds the sums is proved for every law (docs/curvature.md); that it
    is so close to them is measured.

    >>> from ringfence.mechanisms.rectified import RectifiedGaussian
    >>> rdp = per_instance_rdp(RectifiedGaussian(1.0, bound=2.0), torch.zeros(1000), 1e-3, [2, 8, 64])
    >>> [round(value, 6) for value in rdp.worst.tolist()]
    [0.000995, 0.003979, 0.031833]
    """
    return DivergenceTables().per_instance_rdp(mechanism, theta, sensitivity, checked_orders(orders), exact)


def ceilings(mechanism: Mechanism, theta: Tensor, sensitivity: Real | Sensitivity) -> tuple[float, float]:
    """Upper bounds on D / alpha of one release over all theta: the Gaussian's, and this law's.

    Of ``theta`` only the shape counts.

    >>> from ringfence.mechanisms.truncated import TruncatedGaussian
    >>> law = TruncatedGaussian(1.0, bound=1.0)
    >>> [round(bound, 4) for bound in ceilings(law, torch.zeros(2), 1.0)]
    [1.0, 0.2911]
    >>> [round(bound, 4) for bound in ceilings(law, torch.zeros(2), Sensitivity(norm=1.0))]
    [0.5, 0.1456]
    """
    # each coordinate with a parameter of its own counts, whatever shape theta has by itself
    size = Sensitivity.of(sensitivity)
    shape = released_shape(checked_mechanism(mechanism), theta, size.farthest)
    sigma = mechanism.sigma.double().cpu()
    bound = mechanism.information_bound().cpu()
    known = torch.isfinite(bound) & (bound > _SMALLEST_INFORMATION)
    units = (sigma, torch.where(known, bound.rsqrt(), sigma))
    gaussian, bounded = (0.5 * size.longest_square(unit, shape) * (1 + 1e-12) for unit in units)
    return gaussian, min(gaussian, bounded)


class DivergenceTables:
    """The divergence tables of the settings seen last, so that each is filled once.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> tables, orders = DivergenceTables(), torch.tensor([2.0], dtype=torch.float64)
    >>> tables.per_instance_rdp(Gaussian(1.0), torch.zeros(1000), 0.1, orders, exact=False).worst
    tensor([10.0000], dtype=torch.float64)
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[Any, ...], HistogramSums] = OrderedDict()

    def per_instance_rdp(
        self,
        mechanism: Mechanism,
        theta: Real,
        sensitivity: Real | Sensitivity,
        orders: Tensor,
        exact: bool,
        few: int = FEW,
        bounded: float | None = None,
    ) -> PerInstanceRdp:
        """``per_instance_rdp`` from the tables kept here.

        Up to ``few`` coordinates are evaluated. ``bounded`` is the second of the ``ceilings``, where the
        caller has computed it already.
        """
        theta = checks.tensor("theta", theta)  # NaN is an error in the sums, which saves a read of theta
        size = Sensitivity.of(sensitivity)
        checks.flag("exact", exact)
        bounded = ceilings(mechanism, theta, size)[1] if bounded is None else bounded
        size = size.binding(released_shape(mechanism, theta, size.farthest))
        if not size.is_plain:
            theta = checks.finite("theta", theta)
            sums = worst_move_sums(mechanism, theta, size, orders, self._table, exact=exact)
        else:
            evaluate = exact or theta.numel() <= few
            tabulated = None if evaluate else self._tabulated(mechanism, theta, size.farthest, orders)
            sums = exact_sums(mechanism, theta, size.farthest, orders) if tabulated is None else tabulated
        forward, backward = torch.minimum(sums, bounded * orders)
        return PerInstanceRdp(orders, forward, backward)

    def _tabulated(
        self, mechanism: Mechanism, theta: Tensor, sensitivity: Tensor, orders: Tensor
    ) -> Tensor | None:
        """The sums from one table per setting; None if there are too many settings."""
        parts = settings_of(*from_nearer_end(mechanism, theta), sensitivity, GROUPS)
        if parts is None:
            return None
        sums = torch.zeros(2, len(orders), dtype=torch.float64)
        for setting, coordinates in parts:
            sums += self._table(setting, orders).sums(coordinates)
        return sums

    def _table(
        self, setting: Setting, orders: Tensor, tabulated: Tabulated = both_directions
    ) -> HistogramSums:
        key = (setting, tabulated, tuple(orders.tolist()))
        if key not in self._kept:
            self._kept[key] = HistogramSums(setting, orders, tabulated)
        self._kept.move_to_end(key)
        while len(self._kept) > _TABLES:
            self._kept.popitem(last=False)
        return self._kept[key]
