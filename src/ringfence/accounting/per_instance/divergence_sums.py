"""Sums over coordinates of the worse-sign divergence, for many orders at once.

    forward[a]  = sum_j max over s = +-c_j of D_a(M(theta_j) || M(theta_j + s))
    backward[a] = sum_j max over s = +-c_j of D_a(M(theta_j + s) || M(theta_j))

``exact_sums`` evaluates every coordinate. ``DivergenceTable`` reads theta once, as a histogram,
and bounds the sums from above by values tabulated at nodes.
"""

import math
from itertools import pairwise

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.per_instance.curvature import above_chord
from ringfence.accounting.per_instance.translation import from_nearer_end
from ringfence.mechanisms.base import Mechanism
from ringfence.numerics.rounding import ROUNDING, UNDERFLOW

NODES_PER_SIGMA = 128
_SPACING = 1 / NODES_PER_SIGMA

# Shifts of more sigma than this are evaluated one by one: at orders below 2 the chords of larger ones
# would be raised by more than 0.3 % (accounting/per_instance/curvature.py).
_LARGEST_SHIFT = 32

# Cells tabulated at a time: few enough that torch does not split so short an operation among threads.
_PAGE = NODES_PER_SIGMA
_WIDEST = 256  # sigma; theta farther apart than this is evaluated one by one
_FARTHEST = 1e6  # sigma; and theta farther from 0: float64 no longer tells the parts of a cell apart

# Bins of a histogram are this fraction of a cell. On a GPU 8,192 bins fit the shared memory and
# cost 4 reads of theta, more bins 12 to 46; finer ones are made of several such calls if needed.
_BINS_PER_CELL = 32
_BINS_PER_CALL = {"cuda": 8192}
_COARSE_ENOUGH = 4e-3  # relative gap between the two ends of the bins that asks for finer ones
_MISPLACED = 1 / 16  # of a bin: how far rounding can move a coordinate across the edge of its bin
_TOGETHER = 1 << 22  # coordinates times orders whose divergences are held at once
_EXACT_COUNTS = 1 << 24
_CHUNK = 1 << 22


def exact_sums(mechanism: Mechanism, theta: Tensor, sensitivity: Tensor, orders: Tensor) -> Tensor:
    """Rows forward and backward, a column an order, every coordinate evaluated in float64."""
    theta, sensitivity = theta.double(), sensitivity.to(theta.device).double()
    columns = []
    for some in orders.split(max(1, _TOGETHER // max(1, theta.numel()))):
        worst = [worse_sign(mechanism, theta, sensitivity, some, backward) for backward in (False, True)]
        columns.append(torch.stack([values.reshape(len(some), -1).sum(dim=1) for values in worst]).cpu())
    return torch.cat(columns, dim=1) * (1 + ROUNDING) + theta.numel() * UNDERFLOW


def worse_sign(
    mechanism: Mechanism, theta: Tensor, sensitivity: Tensor, orders: Tensor, backward: bool
) -> Tensor:
    """max over s = +-c of D(theta || theta + s), or of D(theta + s || theta): a row an order."""
    mechanism, theta = from_nearer_end(mechanism, theta)  # theta + s is rounded
    values = [
        mechanism.renyi_curve(theta + s, -s, orders) if backward else mechanism.renyi_curve(theta, s, orders)
        for s in (sensitivity, -sensitivity)
    ]
    return torch.maximum(*values)


class DivergenceTable:
    """Upper bounds of both sums for a law whose parameters and sensitivity are single numbers.

    Nodes are filled in as theta needs them and kept, so that a second sum costs one histogram.

    >>> from ringfence.mechanisms.truncated import TruncatedGaussian
    >>> orders, one = torch.tensor([2.0, 8.0], dtype=torch.float64), torch.ones(1000)
    >>> table = DivergenceTable(TruncatedGaussian(1.0, bound=2.0), 1e-3, orders)
    >>> exact = exact_sums(table.mechanism, one, torch.tensor(1e-3), orders)
    >>> bool(((table.sums(one) / exact - 1) < 5e-3).all())
    True
    """

    def __init__(self, mechanism: Mechanism, sensitivity: float, orders: Tensor) -> None:
        self.mechanism, self.orders = mechanism, orders
        self.sensitivity = torch.tensor(sensitivity, dtype=torch.float64)
        self.sigma = float(mechanism.sigma)
        self._above_chord = above_chord(orders, self.sensitivity / self.sigma, _SPACING)
        self._pages: dict[int, Tensor] = {}
        self._chords: tuple[object, Tensor] | None = None  # of the pages used last

    def sums(self, theta: Tensor) -> Tensor:
        """Rows forward and backward, a column an order: at least the exact sums. Refuses NaN."""
        theta = theta.reshape(-1)
        if theta.numel() == 0:
            return torch.zeros(2, len(self.orders), dtype=torch.float64)
        low, high = (end / self.sigma for end in torch.stack(torch.aminmax(theta)).tolist())
        if not (math.isfinite(low) and math.isfinite(high)):
            checks.finite("theta", theta)
        far = max(-low, high) > _FARTHEST and high - low <= _WIDEST
        if far or float(self.sensitivity) > _LARGEST_SHIFT * self.sigma:
            return exact_sums(self.mechanism, theta, self.sensitivity, self.orders)
        if high - low <= _WIDEST:
            return self._bounded_sums(theta, low, high)
        middle = float(theta[:: max(1, theta.numel() // 4096)].median()) / self.sigma
        near = (theta / self.sigma - middle).abs() <= _WIDEST / 2 - 1
        apart = exact_sums(self.mechanism, theta[~near], self.sensitivity, self.orders)
        return apart + self.sums(theta[near])

    def _bounded_sums(self, theta: Tensor, low: float, high: float) -> Tensor:
        page_width = _PAGE * _SPACING
        first, last = int((low - _SPACING) // page_width), int((high + _SPACING) // page_width)
        pages = range(first, last + 1)
        per_call = _BINS_PER_CALL.get(theta.device.type)
        bins = _BINS_PER_CELL if per_call is None else max(1, per_call // (len(pages) * _PAGE))
        while True:
            upper, gap = self._bounds(theta, pages, min(bins, _BINS_PER_CELL))
            if bins >= _BINS_PER_CELL or bool((gap <= _COARSE_ENOUGH * upper).all()):
                return upper * (1 + ROUNDING) + theta.numel() * UNDERFLOW
            bins *= 4

    def _bounds(self, theta: Tensor, pages: range, bins: int) -> tuple[Tensor, Tensor]:
        """The upper bound, and by how much taking the worse end of every bin may have raised it."""
        low, high = (page * _PAGE * _SPACING * self.sigma for page in (pages[0], pages[-1] + 1))
        counts, in_page = _histogram(theta, low, high, len(pages) * _PAGE * bins, len(pages))
        if sum(in_page) < theta.numel():
            raise FloatingPointError(f"{theta.numel()} coordinates, but only {sum(in_page):.0f} counted")
        occupied = [i for i, number in enumerate(in_page) if number]
        counts = counts.view(len(pages), _PAGE, bins)
        counts = counts if len(occupied) == len(pages) else counts[occupied]
        position = torch.arange(bins, dtype=torch.float64, device=counts.device)
        number = counts.sum(dim=2).reshape(-1)
        left = (counts * (position / bins)).sum(dim=2).reshape(-1)
        right = left + number / bins
        spread = number / bins
        ends = torch.stack(
            (torch.cat((number, right, left)), torch.cat((0 * number, spread, -spread))), dim=1
        )
        chords = self._chords_of([pages[i] for i in occupied], bins, counts.device)
        upper, gap = (chords @ ends).cpu().view(2, len(self.orders), 2).unbind(-1)
        return upper * self._above_chord, gap

    def _chords_of(self, pages: list[int], bins: int, device: torch.device) -> Tensor:
        """Start, rise and fall over every cell of the pages: (2 orders, 3 cells)."""
        key = (tuple(pages), bins, device)
        if self._chords is None or self._chords[0] != key:
            nodes = torch.stack([self._nodes(page) for page in pages], dim=2)
            slopes = torch.diff(nodes)
            rise = slopes[..., 1:-1]
            # a coordinate binned a little off lies on the chord of this cell or the next
            steepest = slopes.abs().unfold(-1, 3, 1).amax(dim=-1)
            start = nodes[..., 1:-2] + _MISPLACED / bins * steepest
            parts = (start, rise.clamp(min=0), rise.clamp(max=0))
            rows = torch.cat([part.flatten(2) for part in parts], dim=-1).flatten(0, 1)
            self._chords = (key, rows.to(device))
        return self._chords[1]

    def _nodes(self, page: int) -> Tensor:
        """Divergences at the nodes of a page and one on either side: (2, orders, nodes)."""
        if page not in self._pages:
            index = torch.arange(-1, _PAGE + 2, dtype=torch.float64) + page * _PAGE
            theta = index * (_SPACING * self.sigma)
            self._pages[page] = torch.stack(
                [
                    worse_sign(self.mechanism, theta, self.sensitivity, self.orders, way)
                    for way in (False, True)
                ]
            )
        return self._pages[page]


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
    width = (high - low) / bins
    resolution = 4 * torch.finfo(theta.dtype).eps * (max(abs(low), abs(high)) / width + bins)
    theta = theta.double() if resolution > _MISPLACED else theta
    per_call = min(bins, _BINS_PER_CALL.get(theta.device.type, bins))
    edges = [min(first, bins) for first in range(0, bins + per_call, per_call)]
    parts = [
        torch.histc(theta, last - first, min=low + first * width, max=low + last * width)
        for first, last in pairwise(edges)
    ]
    return parts[0] if len(parts) == 1 else torch.cat(parts)
