"""Sums of divergences of any law, from tables over theta of upper bounds of D / s^2.

D / s^2 <= w_alpha(t) + v_alpha(t) |s| for all four variants and all shifts up to an example's largest, in
units of sigma. The sums are then two products with a d x orders matrix. The bound is checked numerically,
not proved.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from ringfence.accounting.coordinates import distinct, with_numbers
from ringfence.accounting.examples.sums import VARIANTS, Bound, InUnits
from ringfence.mechanisms.base import Mechanism
from ringfence.numerics.rounding import ROUNDING

_NODES_PER_SIGMA = 16
_PAGE = 8  # cells tabulated at a time: few, so that a short theta needs few nodes
_READ_TOGETHER = 1 << 14  # coordinates
# Enough if D'' >= -1.5 D in units of sigma. The least D'' / D ever found is -0.73; what docs/curvature.md
# proves is weaker, and these tables also assume what no theorem says about the shifts between theirs.
_ABOVE_CHORD = 1 / (1 - 1 / (4 * _NODES_PER_SIGMA**2))
_SHIFTS_PER_OCTAVE = 4
_SMALL = 1 / 16  # alpha s below which D / s^2 hardly bends within an octave of s
# Margins for what lies between two shifts of the table, times min(1, alpha s). Far out D is about
# (a s - b)+ / (alpha - 1), where D / s^2 and D / s^3 peak with curvatures -2 and -6 in log s: between two
# shifts a quarter of an octave apart they rise 0.8 % and 2.3 % above the larger end. Random searches found
# that the first needs 1.2 % and the second more than 2 %; with these margins none fell short.
_MARGINS = (0.02, 0.05)
_LARGEST_OCTAVE = 1  # shifts above 2 sigma get the Gaussian's bound
_SETTINGS = 64  # distinct parameters that get a table each; with more, the Gaussian's bound


def table_bound(law: Mechanism, theta: Tensor, orders: Tensor, kept: "dict[str, ShiftTable]") -> Bound:
    """All four sums at once, from squares and cubes of the block times two matrices.

    The two matrices depend on the octave of an example's largest shift, so that one large example does not
    loosen the bounds of the others. ``kept`` holds the tables of the settings seen last.
    """
    units = InUnits(law, theta)
    settings = list(_settings(law, theta))
    smallest = _smallest_octave(orders)
    made: dict[int, Tensor] = {}

    def matrices(octave: int) -> Tensor:
        if octave not in made:
            weights = torch.empty(2, len(theta), len(orders), dtype=torch.float64)
            for single, chosen in settings:
                table = kept.setdefault(repr(single.state_dict()), ShiftTable(single, orders))
                weights[:, chosen] = table.weights(theta[chosen], octave)
            while len(kept) > _SETTINGS:
                del kept[next(iter(kept))]
            made[octave] = weights * (1 + ROUNDING + units.rounding)
        return made[octave]

    def sums(block: Tensor) -> Tensor:
        size = (block * units.per_sigma.to(block.device)).abs_()
        squares = size * size
        largest, cubes = size.amax(dim=1).cpu(), size.mul_(squares)
        ceilings = (squares @ units.ceiling.to(block.device)).cpu()
        result = torch.full((len(block), len(orders)), torch.inf, dtype=torch.float64)
        mantissa, octaves = torch.frexp(largest)  # largest <= 2^octave
        octaves = (octaves - (mantissa == 0.5).to(octaves.dtype)).clamp(min=smallest)
        for octave in torch.unique(octaves).tolist() if settings else ():
            if octave <= _LARGEST_OCTAVE:
                flat, slope = matrices(octave).to(block.device)
                rows = (octaves == octave).to(block.device)
                result[rows.cpu()] = (squares[rows] @ flat + cubes[rows] @ slope).cpu()
        return units.capped(result.expand(len(VARIANTS), -1, -1), ceilings, largest, orders)

    return sums


def _settings(law: Mechanism, theta: Tensor) -> Iterator[tuple[Mechanism, Tensor]]:
    """Each law with single numbers, and the coordinates that have it; nothing if there are too many."""
    rows, index = distinct(*law.parameters().values())
    index = index.expand(theta.shape)
    if len(rows) <= _SETTINGS:
        for i, row in enumerate(rows):
            yield with_numbers(law, row), (index == i).nonzero().squeeze(1)


def _smallest_octave(orders: Tensor) -> int:
    return math.floor(math.log2(_SMALL / float(orders.amax())))


class ShiftTable:
    """Two weights: D / s^2 <= w_alpha(t) + v_alpha(t) |s| for |s| <= 2^octave, in units of sigma.

    They come from the worst of the four variants at the shift with alpha s = 1 / 16 and at four shifts per
    octave above it, with a margin for the shifts in between. Either w is the limit alpha I / 2 at s = 0 and
    v the steepest chord from there, or w is the largest D / s^2 and v is 0: whichever bound is smaller at
    half the largest shift. Pages of nodes are filled as theta needs them and kept.

    >>> from ringfence.mechanisms.sign import StochasticSign
    >>> order, theta = torch.tensor([2.0], dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    >>> flat, slope = ShiftTable(StochasticSign(1.0), order).weights(theta, octave=0)
    >>> bound = float(flat + slope * 0.5) * 0.5**2  # of a shift of sigma / 2
    >>> bound > float(StochasticSign(1.0).renyi_divergence(theta, 0.5, 2.0))
    True
    """

    def __init__(self, law: Mechanism, orders: Tensor) -> None:
        self.law, self.orders = law, orders
        self.sigma = float(law.sigma)
        self.smallest = _smallest_octave(orders)
        # by octave, then page, (3, nodes, orders): the limit of D / s^2 at 0, the largest D / s^2 of all
        # shifts up to 2^octave, and the steepest chord of D / s^2 from the limit to one of them
        self._pages: dict[int, dict[int, Tensor]] = {}

    def weights(self, theta: Tensor, octave: int) -> Tensor:
        """w and v: one row per coordinate, one column per order."""
        position = theta / self.sigma * _NODES_PER_SIGMA
        cell = torch.floor(position)
        page = torch.floor(cell / _PAGE)
        inside, fraction = (cell - page * _PAGE).long(), (position - cell).unsqueeze(1)
        numbers, rank = torch.unique(page, return_inverse=True)
        limit, largest, steepest = torch.stack(self._pages_of(numbers.long().tolist(), octave), dim=1)
        rising = limit + steepest * 2.0 ** (octave - 1) < largest
        nodes = torch.stack((torch.where(rising, limit, largest), torch.where(rising, steepest, 0.0)))
        result = torch.empty(2, len(theta), len(self.orders), dtype=torch.float64)
        for some in torch.arange(len(theta)).split(_READ_TOGETHER):
            left = rank[some], inside[some]
            right = rank[some], inside[some] + 1
            result[:, some] = torch.lerp(nodes[:, *left], nodes[:, *right], fraction[some])
        reach = (self.orders * 2.0**octave).clamp(_SMALL, 1)
        margins = torch.stack([1 + margin * reach for margin in _MARGINS])
        return result * (_ABOVE_CHORD * margins.unsqueeze(1))

    def _pages_of(self, numbers: list[int], octave: int) -> list[Tensor]:
        """These pages, for shifts up to 2^octave."""
        kept = self._pages.setdefault(octave, {})
        missing = [number for number in numbers if number not in kept]
        if missing:
            found = self._filled(missing, octave)
            kept |= dict(zip(missing, found.split(_PAGE + 1, dim=1), strict=True))
        return [kept[number] for number in numbers]

    def _filled(self, numbers: list[int], octave: int) -> Tensor:
        """New pages, one after the other: those of the octave below, raised by the shifts of this one."""
        index = torch.arange(_PAGE + 1) + torch.tensor(numbers).unsqueeze(1) * _PAGE
        theta = index.reshape(-1, 1).double() * (self.sigma / _NODES_PER_SIGMA)
        if octave <= self.smallest:
            return self._of_small_shifts(theta)
        found = torch.cat(self._pages_of(numbers, octave - 1), dim=1)
        for k in range(_SHIFTS_PER_OCTAVE):
            shift = torch.tensor(2.0 ** (octave - k / _SHIFTS_PER_OCTAVE), dtype=torch.float64)
            # an order with alpha s <= 1 / 16 has this shift among its small ones
            self._raise(found, theta, shift, self.orders * shift > _SMALL)
        return found

    def _of_small_shifts(self, theta: Tensor) -> Tensor:
        """Pages for shifts with alpha s <= 1 / 16: the limit at s = 0 and the shift at the end."""
        limit = 0.5 * self.orders * self.law.fisher_information(theta) * self.sigma**2
        found = torch.stack((limit, limit, torch.zeros_like(limit)))
        self._raise(found, theta, _SMALL / self.orders, self.orders > 1)
        return found

    def _raise(self, found: Tensor, theta: Tensor, shift: Tensor, chosen: Tensor) -> None:
        """Raises the largest D / s^2 and the steepest chord to those of this shift, at the chosen orders."""
        if bool(chosen.any()):
            shift = shift.expand_as(self.orders)[chosen]
            value = self.worst(theta, shift * self.sigma, self.orders[chosen]) / shift.square()
            limit, largest, steepest = found[..., chosen]
            largest = torch.maximum(largest, value)
            steepest = torch.maximum(steepest, (value - limit) / shift)
            found[..., chosen] = torch.stack((limit, largest, steepest))

    def worst(self, theta: Tensor, shift: Tensor, orders: Tensor) -> Tensor:
        """The largest of the four divergences between theta and theta +- shift."""
        here, up = torch.broadcast_tensors(theta, shift)
        there, moves = torch.stack((here, here, here + up, here - up)), torch.stack((up, -up, -up, up))
        return self.law.renyi_divergence(there, moves, orders).amax(dim=0)
