"""Sums of divergences of any law, by tables over theta of what D / s^2 is at most.

D / s^2 <= w_alpha(t) + v_alpha(t) |s| for all four variants and all shifts up to an example's
largest, in units of sigma: two products with a d x orders matrix. Checked numerically, not proved.
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
_PAGE = 32  # cells tabulated at a time
# Enough for D'' >= -1.5 D in units of sigma (docs/curvature.md). The least D'' / D ever found is -0.73;
# proved is less, and these tables also assume what no theorem says about the shifts between theirs.
_ABOVE_CHORD = 1 / (1 - 1 / (4 * _NODES_PER_SIGMA**2))
_SHIFTS_PER_OCTAVE = 4
_SMALL = 1 / 16  # alpha s below which D / s^2 hardly bends within an octave of s
# For what lies between two shifts, times min(1, alpha s). Far out D is about (a s - b)+ / (alpha - 1),
# where D / s^2 and D / s^3 peak with curvatures -2 and -6 in log s: between two shifts of a quarter
# octave they rise 0.8 % and 2.3 % above the larger end. Random searches found 1.2 % for the first, and
# the second to need more than 2 %; with these margins none fell short.
_MARGINS = (0.02, 0.05)
_LARGEST_OCTAVE = 1  # shifts above 2 sigma get the Gaussian's bound
_SETTINGS = 64  # distinct parameters that get a table each; beyond, the Gaussian's bound


def table_bound(law: Mechanism, theta: Tensor, orders: Tensor, kept: "dict[str, ShiftTable]") -> Bound:
    """All four sums at once, from squares and cubes of the block times two matrices.

    Which two depends on the octave of an example's largest shift, so that one large example does
    not loosen the bounds of the others.
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
    """The law with single numbers for parameters, and which coordinates have them; none if many."""
    rows, index = distinct(*law.parameters().values())
    index = index.expand(theta.shape)
    if len(rows) <= _SETTINGS:
        for i, row in enumerate(rows):
            yield with_numbers(law, row), (index == i).nonzero().squeeze(1)


def _smallest_octave(orders: Tensor) -> int:
    return math.floor(math.log2(_SMALL / float(orders.amax())))


class ShiftTable:
    """Two weights: D / s^2 <= w_alpha(t) + v_alpha(t) |s| for |s| <= 2^octave, in units of sigma.

    From the worst of the four variants at the shifts with alpha s = 1 / 16 and at four an octave
    above, with a margin for those between. Either w is the limit alpha I / 2 at s = 0 and v the
    steepest chord from there, or w is the largest D / s^2 and v is 0: whichever is the smaller at
    half the largest shift. Pages of nodes are filled as theta needs them and kept.
    """

    def __init__(self, law: Mechanism, orders: Tensor) -> None:
        self.law, self.orders = law, orders
        self.sigma = float(law.sigma)
        self.smallest = _smallest_octave(orders)
        # by octave, then page: the limit, the largest D / s^2 and the steepest chord, (3, nodes, orders)
        self._pages: dict[int, dict[int, Tensor]] = {}

    def weights(self, theta: Tensor, octave: int) -> Tensor:
        """w and v: a row a coordinate, a column an order."""
        position = theta / self.sigma * _NODES_PER_SIGMA
        cell = torch.floor(position)
        page = torch.floor(cell / _PAGE)
        inside, fraction = (cell - page * _PAGE).long(), (position - cell).unsqueeze(1)
        result = torch.empty(2, len(theta), len(self.orders), dtype=torch.float64)
        numbers = [int(number) for number in torch.unique(page)]
        for number, (limit, largest, steepest) in zip(numbers, self._filled(numbers, octave), strict=True):
            rising = limit + steepest * 2.0 ** (octave - 1) < largest
            pair = torch.where(rising, limit, largest), torch.where(rising, steepest, 0.0)
            here = page == number
            left, nodes = inside[here], torch.stack(pair)
            result[:, here] = torch.lerp(nodes[:, left], nodes[:, left + 1], fraction[here])
        reach = (self.orders * 2.0**octave).clamp(_SMALL, 1)
        margins = torch.stack([1 + margin * reach for margin in _MARGINS])
        return result * (_ABOVE_CHORD * margins.unsqueeze(1))

    def _filled(self, numbers: list[int], octave: int) -> list[Tensor]:
        """These pages, for shifts up to 2^octave."""
        kept = self._pages.setdefault(octave, {})
        missing = [number for number in numbers if number not in kept]
        if missing:
            index = torch.arange(_PAGE + 1) + torch.tensor(missing).unsqueeze(1) * _PAGE
            theta = index.reshape(-1, 1).double() * (self.sigma / _NODES_PER_SIGMA)
            if octave > self.smallest:
                found = torch.cat(self._filled(missing, octave - 1), dim=1)
                for k in range(_SHIFTS_PER_OCTAVE):
                    shift = torch.tensor(2.0 ** (octave - k / _SHIFTS_PER_OCTAVE), dtype=torch.float64)
                    self._raise(found, theta, shift, self.orders * shift > _SMALL)
            else:
                limit = 0.5 * self.orders * self.law.fisher_information(theta) * self.sigma**2
                found = torch.stack((limit, limit, torch.zeros_like(limit)))
                self._raise(found, theta, _SMALL / self.orders, self.orders > 1)
            kept |= dict(zip(missing, found.split(_PAGE + 1, dim=1), strict=True))
        return [kept[number] for number in numbers]

    def _raise(self, found: Tensor, theta: Tensor, shift: Tensor, chosen: Tensor) -> None:
        """Takes the shift into account, at the orders chosen."""
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
