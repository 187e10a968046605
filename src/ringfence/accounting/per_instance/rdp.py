"""Per-instance Rényi divergences of one release, with every possible record covered."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.conversion import DEFAULT_ORDERS, checked_orders
from ringfence.accounting.coordinates import number_of_coordinates
from ringfence.accounting.per_instance.divergence_sums import exact_sums
from ringfence.accounting.per_instance.histogram_sums import HistogramSums
from ringfence.accounting.per_instance.setting import Setting, settings_of
from ringfence.accounting.per_instance.translation import from_nearer_end
from ringfence.checks import Real
from ringfence.mechanisms.base import Mechanism, checked_mechanism

FEW = 256  # coordinates up to which a table costs more than it saves
_GROUPS = 64  # distinct settings of one release that get a table each; with more, all is evaluated
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
    every theta. That the table bounds the sums is proved for every law (docs/curvature.md); that it
    is so close to them is measured.

    >>> from ringfence.mechanisms.rectified import RectifiedGaussian
    >>> rdp = per_instance_rdp(RectifiedGaussian(1.0, bound=2.0), torch.zeros(1000), 1e-3, [2, 8, 64])
    >>> [round(value, 6) for value in rdp.worst.tolist()]
    [0.000995, 0.003979, 0.031833]
    """
    return DivergenceTables().per_instance_rdp(mechanism, theta, sensitivity, checked_orders(orders), exact)


def ceilings(mechanism: Mechanism, theta: Tensor, sensitivity: Tensor) -> tuple[float, float]:
    """Upper bounds on D / alpha of one release over all theta: the Gaussian's, and this law's.

    Of ``theta`` only the shape counts.

    >>> from ringfence.mechanisms.truncated import TruncatedGaussian
    >>> law = TruncatedGaussian(1.0, bound=1.0)
    >>> [round(bound, 4) for bound in ceilings(law, torch.zeros(2), torch.tensor(1.0))]
    [1.0, 0.2911]
    """
    # each coordinate with a parameter of its own counts, whatever shape theta has by itself
    count = number_of_coordinates(checked_mechanism(mechanism), theta, sensitivity)
    size = sensitivity.double().cpu()
    # relative to sigma: squares of small numbers are 0, and 0 times infinity is NaN
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
        sensitivity: Real,
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
        size = checks.not_negative("sensitivity", sensitivity)
        checks.flag("exact", exact)
        bounded = ceilings(mechanism, theta, size)[1] if bounded is None else bounded
        sums = None if exact or theta.numel() <= few else self._tabulated(mechanism, theta, size, orders)
        if sums is None:
            sums = exact_sums(mechanism, theta, size, orders)
        forward, backward = torch.minimum(sums, bounded * orders)
        return PerInstanceRdp(orders, forward, backward)

    def _tabulated(
        self, mechanism: Mechanism, theta: Tensor, sensitivity: Tensor, orders: Tensor
    ) -> Tensor | None:
        """The sums from one table per setting; None if there are too many settings."""
        parts = settings_of(*from_nearer_end(mechanism, theta), sensitivity, _GROUPS)
        if parts is None:
            return None
        sums = torch.zeros(2, len(orders), dtype=torch.float64)
        for setting, coordinates in parts:
            sums += self._table(setting, orders).sums(coordinates)
        return sums

    def _table(self, setting: Setting, orders: Tensor) -> HistogramSums:
        key = (setting, tuple(orders.tolist()))
        if key not in self._kept:
            self._kept[key] = HistogramSums(setting, orders)
        self._kept.move_to_end(key)
        while len(self._kept) > _TABLES:
            self._kept.popitem(last=False)
        return self._kept[key]
