"""The largest divergence sums over moves that are bounded together: so many coordinates, or so far in all.

Where at most m coordinates move, the largest sum is that of the m largest divergences, because a divergence
grows with the move. Where the L2 length of the move is bounded, D_j(v_j) <= (alpha / 2) rho_j v_j^2
(``equivalent_information``), and the largest sum of these squares fills the largest rho first.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ringfence.accounting.coordinates import released_shape
from ringfence.accounting.per_instance.divergence_sums import both_directions
from ringfence.accounting.per_instance.divergence_table import Tabulated
from ringfence.accounting.per_instance.equivalent_information import equivalent_information
from ringfence.accounting.per_instance.histogram_sums import Charges, HistogramSums
from ringfence.accounting.per_instance.setting import Setting, settings_of
from ringfence.accounting.per_instance.translation import from_nearer_end
from ringfence.accounting.sensitivity import Sensitivity, filled
from ringfence.mechanisms.base import Mechanism
from ringfence.numerics.blocks import at_once
from ringfence.numerics.rounding import ROUNDING, UNDERFLOW

Tables = Callable[[Setting, Tensor, Tabulated], HistogramSums]

FEW = 256  # coordinates up to which a table of divergences costs more than it saves
GROUPS = 64  # distinct settings of one release that get a table each; with more, all is evaluated
_VERY_FEW = 8  # the same for a table of the equivalent information

_COARSE_ENOUGH = 1e-3  # relative gap between the two ends of the bins that asks for finer ones
_TOGETHER = 1 << 24  # charges that are held at once


def worst_move_sums(
    mechanism: Mechanism, theta: Tensor, size: Sensitivity, orders: Tensor, tables: Tables, *, exact: bool
) -> Tensor:
    """Rows forward and backward, one column per order: upper bounds of the sums over every move.

    ``size`` is what ``Sensitivity.binding`` left. ``exact`` evaluates every coordinate, where otherwise
    ``tables`` are read.

    >>> from ringfence.mechanisms.sign import StochasticSign
    >>> law, theta = StochasticSign(1.0), torch.tensor([0.0, 3.0, 0.0])
    >>> orders = torch.tensor([2.0], dtype=torch.float64)
    >>> one, two = (
    ...     worst_move_sums(law, theta, Sensitivity(0.5, m), orders, HistogramSums, exact=True)
    ...     for m in (1, 2)
    ... )
    >>> bool(torch.isclose(two, 2 * one).all())  # the two undecided answers
    True
    """
    charged = _Charged(mechanism, theta, size.farthest, orders, tables)
    bounds = []
    if size.at_most is not None or charged.coordinates <= FEW:
        most = charged.coordinates if size.at_most is None else size.at_most
        evaluate = exact or charged.coordinates <= FEW
        bounds.append(charged.largest(both_directions, torch.ones_like, most, evaluate))
    if (norm := size.norm) is not None:
        evaluate = exact or charged.coordinates <= _VERY_FEW
        shares = charged.largest(equivalent_information, lambda move: (move / norm).square(), 1.0, evaluate)
        # where squares leave the range of floats, what holds for every theta counts
        bounds.append(
            torch.nan_to_num(shares * (0.5 * norm * norm * orders), nan=torch.inf, posinf=torch.inf)
        )
    least = bounds[0] if len(bounds) == 1 else torch.minimum(*bounds)
    return least * (1 + ROUNDING) + charged.coordinates * UNDERFLOW


class _Charged:
    """What the coordinates of one release are charged."""

    def __init__(
        self, mechanism: Mechanism, theta: Tensor, farthest: Tensor, orders: Tensor, tables: Tables
    ) -> None:
        self.orders, self.tables, self.farthest = orders, tables, farthest
        self.shape = released_shape(mechanism, theta, farthest)
        self.coordinates = self.shape.numel()
        self.mechanism, self.theta = from_nearer_end(mechanism, theta)

    def largest(
        self, tabulated: Tabulated, room: Callable[[Tensor], Tensor], budget: float, evaluate: bool
    ) -> Tensor:
        """The largest total of charges times room used: (2, orders)."""
        finest = False
        while True:
            charges, widths = self._charges(tabulated, evaluate, finest)
            lower, upper = self._filled(charges, [room(width.double()) for width in widths], budget).unbind(0)
            if finest or bool((upper - lower <= _COARSE_ENOUGH * upper).all()):
                return upper
            finest = True

    def _filled(self, charges: Sequence[Charges], rooms: Sequence[Tensor], budget: float) -> Tensor:
        """The largest totals by the lower estimates and by the upper bounds: (2, 2, orders)."""
        room = torch.cat(
            [part.number * own.to(part.number) for part, own in zip(charges, rooms, strict=True)]
        )
        together = at_once(_TOGETHER, each=4 * room.numel())
        totals = []
        for start in range(0, len(self.orders), together):
            some = slice(start, start + together)
            both = zip(*(part.between(some) for part in charges), strict=True)
            totals.append(
                torch.stack([filled(torch.cat(values, dim=-1), room, budget).cpu() for values in both])
            )
        return torch.cat(totals, dim=2)

    def _charges(
        self, tabulated: Tabulated, evaluate: bool, finest: bool
    ) -> tuple[list[Charges], list[Tensor]]:
        """Charges, and for each of them how far its coordinates can move."""
        parts = None if evaluate else settings_of(self.mechanism, self.theta, self.farthest, GROUPS)
        if parts is None:
            return self._evaluated(tabulated)
        charges, widths = [], []
        for setting, coordinates in parts:
            own = self.tables(setting, self.orders, tabulated).charges(coordinates, finest)
            charges += own
            widths += [torch.tensor(setting.sensitivity, dtype=torch.float64)] * len(own)
        return charges, widths

    def _evaluated(self, tabulated: Tabulated) -> tuple[list[Charges], list[Tensor]]:
        theta = self.theta.double().expand(self.shape)
        farthest = self.farthest.to(theta)

        def between(some: slice) -> tuple[Tensor, Tensor]:
            values = tabulated(self.mechanism, theta, farthest, self.orders[some]).flatten(2)
            return values, values

        ones = torch.ones(self.coordinates, dtype=torch.float64, device=theta.device)
        return [Charges(ones, between)], [farthest.expand(self.shape).reshape(-1)]
