"""Both divergence sums of one long theta, which is read once, as a histogram.

A histogram with 32 bins per cell of the table says how many coordinates lie in each bin but not where in it:
each is charged at the end of its bin where the chord is larger.
"""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.per_instance.divergence_sums import both_directions, exact_sums
from ringfence.accounting.per_instance.divergence_table import (
    CELLS,
    WIDEST,
    DivergenceTable,
    Tabulated,
    is_narrow,
    is_near,
    shift_is_small,
)
from ringfence.accounting.per_instance.setting import Setting
from ringfence.numerics.blocks import at_once
from ringfence.numerics.rounding import ROUNDING, UNDERFLOW

# Bins of a histogram are this fraction of a cell. On a GPU 8,192 bins fit the shared memory and
# cost 4 reads of theta, more bins 12 to 46; finer ones are made of several such calls if needed.
_BINS_PER_CELL = 32
_BINS_PER_CALL = {"cuda": 8192}
_FEW_BINS_PER_CELL = 8  # where bins are sorted at every order, which takes longer than to count them
_COARSE_ENOUGH = 4e-3  # relative gap between the two ends of the bins that asks for finer ones
_MISPLACED = 1 / 16  # of a bin: how far rounding can move a coordinate across the edge of its bin
_EXACT_COUNTS = 1 << 24  # float32 counts one by one up to here
_CHUNK = 1 << 22  # coordinates counted at a time


class Charges(NamedTuple):
    """Coordinates that are charged alike: how many there are of each kind, and between what the charge lies.

    ``between(orders)`` gives two tensors (2, orders, kinds) for a slice of the orders: a lower estimate,
    which says how much finer bins could save, and the upper bound.
    """

    number: Tensor
    between: Callable[[slice], tuple[Tensor, Tensor]]


class HistogramSums:
    """Upper bounds of both divergence sums of one setting, for one theta after the other.

    Pages of the table are filled in as theta needs them and kept, so that a second sum costs one histogram.

    Guarantee: at least the exact sums, whatever theta. Between two nodes D is at most its chord times the
    table's margin; a coordinate is charged at the larger end of its bin on the chord, and a sixteenth of a
    bin at the steepest slope around for the rounding of its bin.

    >>> from ringfence.mechanisms.truncated import TruncatedGaussian
    >>> orders, one = torch.tensor([2.0, 8.0], dtype=torch.float64), torch.ones(1000)
    >>> law = TruncatedGaussian(1.0, bound=2.0)
    >>> bounds = HistogramSums(Setting.of(law, 1e-3), orders).sums(one)
    >>> bool(((bounds / exact_sums(law, one, torch.tensor(1e-3), orders) - 1) < 5e-3).all())
    True
    """

    def __init__(self, setting: Setting, orders: Tensor, tabulated: Tabulated = both_directions) -> None:
        self.setting, self.table = setting, DivergenceTable(orders, tabulated=tabulated)
        self._margin = self.table.margin([setting])[0]
        self._chords: tuple[object, Tensor] | None = None  # of the pages used last

    def sums(self, theta: Tensor) -> Tensor:
        """Rows forward and backward, one column per order: at least the exact sums. NaN is an error."""
        theta, sigma = theta.reshape(-1), self.setting.sigma
        if theta.numel() == 0:
            return torch.zeros(2, len(self.table.orders), dtype=torch.float64)
        low, high = (end / sigma for end in torch.stack(torch.aminmax(theta)).tolist())
        if not (math.isfinite(low) and math.isfinite(high)):
            checks.finite("theta", theta)
        if shift_is_small(self.setting) and is_near(low, high):
            return self._bounded_sums(theta, low, high)
        if not shift_is_small(self.setting) or is_narrow(low, high):
            return self._exact_sums(theta)
        near = self._near(theta)
        apart = self._exact_sums(theta[~near])
        return apart + self.sums(theta[near])

    def charges(self, theta: Tensor, finest: bool) -> list[Charges]:
        """What single coordinates are charged, where not all of them count: few numbers for a long theta.

        ``theta`` is finite. ``finest`` asks for the finest bins; without it there are as few as usually will
        do.
        """
        theta, sigma = theta.reshape(-1), self.setting.sigma
        if theta.numel() == 0:
            return []
        low, high = (end / sigma for end in torch.stack(torch.aminmax(theta)).tolist())
        if shift_is_small(self.setting) and is_near(low, high):
            return [self._binned(theta, low, high, finest)]
        if not shift_is_small(self.setting) or is_narrow(low, high):
            return [self._evaluated(theta)]
        near = self._near(theta)
        return [self._evaluated(theta[~near]), *self.charges(theta[near], finest)]

    def _evaluated(self, theta: Tensor) -> Charges:
        """Every coordinate for itself."""
        size = torch.tensor(self.setting.sensitivity, dtype=torch.float64)

        def between(orders: slice) -> tuple[Tensor, Tensor]:
            some = self.table.orders[orders]
            values = self.table.tabulated(self.setting.mechanism, theta.double(), size.to(theta.device), some)
            return values, values

        return Charges(torch.ones(theta.numel(), dtype=torch.float64, device=theta.device), between)

    def _binned(self, theta: Tensor, low: float, high: float, finest: bool) -> Charges:
        """Coordinates in one bin are charged alike, at the end of the bin where the chord is larger."""
        places = _places(low, high)
        bins = _BINS_PER_CELL
        if not finest:
            fast = _BINS_PER_CALL.get(theta.device.type, _BINS_PER_CELL * CELLS * len(places))
            bins = min(_FEW_BINS_PER_CELL, at_once(fast, each=len(places) * CELLS))
        counts, occupied = self._counted(theta, places, bins)
        kept = counts.reshape(-1).nonzero().squeeze(1)
        cell = kept // bins
        chords = self._chords_of([places[i] for i in occupied], bins, counts.device).view(
            2, len(self.table.orders), 3, -1
        )
        left = (kept % bins).double() / bins

        def between(orders: slice) -> tuple[Tensor, Tensor]:
            start, rise, fall = chords[:, orders][..., cell].unbind(2)
            margin = self._margin[orders].to(chords.device).unsqueeze(1)
            upper = (start + rise * (left + 1 / bins) + fall * left) * margin
            return upper - (rise - fall) / bins * margin, upper

        return Charges(counts.reshape(-1)[kept], between)

    def _near(self, theta: Tensor) -> Tensor:
        """Which coordinates of a wide theta lie within reach of one table."""
        middle = float(theta[:: max(1, theta.numel() // 4096)].median()) / self.setting.sigma
        return (theta / self.setting.sigma - middle).abs() <= WIDEST / 2 - 1

    def _exact_sums(self, theta: Tensor) -> Tensor:
        size = torch.tensor(self.setting.sensitivity, dtype=torch.float64)
        return exact_sums(self.setting.mechanism, theta, size, self.table.orders)

    def _bounded_sums(self, theta: Tensor, low: float, high: float) -> Tensor:
        """From as few bins as will do: a GPU counts few bins much faster than many."""
        places = _places(low, high)
        per_call = _BINS_PER_CALL.get(theta.device.type)
        bins = _BINS_PER_CELL if per_call is None else at_once(per_call, each=len(places) * CELLS)
        while True:
            upper, gap = self._bounds(theta, places, min(bins, _BINS_PER_CELL))
            if bins >= _BINS_PER_CELL or bool((gap <= _COARSE_ENOUGH * upper).all()):
                return upper * (1 + ROUNDING) + theta.numel() * UNDERFLOW
            bins *= 4

    def _bounds(self, theta: Tensor, places: range, bins: int) -> tuple[Tensor, Tensor]:
        """The upper bound, and by how much taking the worse end of every bin may have raised it."""
        counts, occupied = self._counted(theta, places, bins)
        position = torch.arange(bins, dtype=torch.float64, device=counts.device)
        number = counts.sum(dim=2).reshape(-1)
        left = (counts * (position / bins)).sum(dim=2).reshape(-1)
        spread = number / bins
        right = left + spread
        ends = torch.stack(
            (torch.cat((number, right, left)), torch.cat((0 * number, spread, -spread))), dim=1
        )
        chords = self._chords_of([places[i] for i in occupied], bins, counts.device)
        upper, gap = (chords @ ends).cpu().view(2, len(self.table.orders), 2).unbind(-1)
        return upper * self._margin, gap

    def _counted(self, theta: Tensor, places: range, bins: int) -> tuple[Tensor, list[int]]:
        """How many coordinates lie in each bin, (pages, cells, bins), and which of the places have any."""
        low, high = places[0] * self.setting.sigma, (places[-1] + 1) * self.setting.sigma
        counts, in_page = _histogram(theta, low, high, len(places) * CELLS * bins, len(places))
        if sum(in_page) < theta.numel():
            raise FloatingPointError(f"{theta.numel()} coordinates, but only {sum(in_page):.0f} counted")
        occupied = [i for i, number in enumerate(in_page) if number]
        counts = counts.view(len(places), CELLS, bins)
        return counts[occupied], occupied

    def _chords_of(self, places: list[int], bins: int, device: torch.device) -> Tensor:
        """Start, rise and fall over every cell of the pages: (2 orders, 3 cells)."""
        key = (tuple(places), bins, device)
        if self._chords is None or self._chords[0] != key:
            place = torch.tensor(places)
            rows = self.table.rows([self.setting], 0 * place, place)
            pages = self.table.pages[rows].transpose(0, 1)
            nodes, steepest = pages.split((CELLS + 1, CELLS), dim=2)
            rise = torch.diff(nodes)
            chords = rise.new_empty(len(rise), 3, len(places), CELLS)
            # a coordinate binned a little off lies on the chord of this cell or the next
            chords[:, 0] = nodes[..., :-1] + _MISPLACED / bins * steepest
            chords[:, 1] = rise.clamp(min=0)
            chords[:, 2] = rise.clamp(max=0)
            self._chords = (key, chords.flatten(1).to(device))
        return self._chords[1]


def _places(low: float, high: float) -> range:
    """The pages that a theta from ``low`` to ``high`` sigma lies on, however it is rounded."""
    return range(math.floor(low - 1 / CELLS), math.floor(high + 1 / CELLS) + 1)


def _histogram(theta: Tensor, low: float, high: float, bins: int, pages: int) -> tuple[Tensor, list[float]]:
    """Counts of theta in equal bins of [low, high], float64 on theta's device, and in equal pages."""
    # On a GPU one long launch: torch counts in theta's dtype, which is exact below 2^24 in a bin.
    length = _CHUNK if theta.is_cpu else theta.numel()
    while True:
        parts = (_counts(chunk, low, high, bins) for chunk in theta.split(length))
        counts = next(parts).double()
        for part in parts:
            counts += part
        *in_page, fullest = torch.cat((counts.view(pages, -1).sum(dim=1), counts.max().view(1))).tolist()
        if length <= _CHUNK or fullest < _EXACT_COUNTS:
            return counts, in_page
        length = _CHUNK


def _counts(theta: Tensor, low: float, high: float, bins: int) -> Tensor:
    """torch.histc, in float64 where theta's dtype would misplace coordinates by a large part of a bin."""
    width = (high - low) / bins
    resolution = 4 * torch.finfo(theta.dtype).eps * (max(abs(low), abs(high)) / width + bins)
    theta = theta.double() if resolution > _MISPLACED else theta
    per_call = min(bins, _BINS_PER_CALL.get(theta.device.type, bins))
    edges = [min(first, bins) for first in range(0, bins + per_call, per_call)]
    parts = [
        torch.histc(theta, last - first, min=low + first * width, max=low + last * width)
        for first, last in pairwise(edges)
    ]
    return torch.cat(parts)
