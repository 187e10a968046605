"""Sums over coordinates of the worse-sign divergence, evaluated or bounded from one table along theta.

    forward[a]  = sum_j max over s = +-c_j of D_a(M(theta_j) || M(theta_j + s))
    backward[a] = sum_j max over s = +-c_j of D_a(M(theta_j + s) || M(theta_j))

``exact_sums`` evaluates every coordinate. ``DivergenceTable`` knows D at nodes along theta, and between two
nodes D is at most its chord times ``above_chord``: with theta and the shift s in units of sigma,

    D'' >= -K D,    K = 4 + max(0, 2 - alpha) s^2 / 4

for every law of the package but those of whole numbers, every shift and every order (docs/curvature.md). Over
a cell of width h a positive function with this property lies below its chord times h sqrt(K) / sin(h
sqrt(K)), which is at most 1 / (1 - K h^2 / 6). A sum over coordinates is therefore bounded by how often each
cell is hit, and where in the cell: by a histogram of theta, which is one pass whatever the number of orders
and needs no memory that grows with theta.
"""

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from ringfence import checks
from ringfence.mechanisms.base import Mechanism
from ringfence.numerics.blocks import at_once
from ringfence.numerics.rounding import ROUNDING, UNDERFLOW

Push = tuple[Tensor, Tensor]

_NEAR = 256.0  # sigma; nearer to 0 the rounding of theta + shift is below what accounts charge for rounding

CELLS = 128  # of a page, which is one sigma wide
_WIDEST = 256  # sigma; a theta that reaches farther is not read from the table as a whole
FARTHEST = 1e6  # sigma; farther from 0 float64 no longer tells the parts of a cell apart
# Shifts of more sigma than this are evaluated one by one: at orders below 2 the chords of larger ones
# would be raised by more than 0.3 %.
_LARGEST_SHIFT = 32
_EVALUATED_TOGETHER = 1 << 22  # coordinates times orders whose divergences are held at once

_FILLED_TOGETHER = 512  # pages
_KEPT = 1 << 28  # numbers: 2 GiB of pages, then a fresh start

# Bins of a histogram are this fraction of a cell: where D changes by a factor of e^2 in one sigma, half a bin
# costs 0.06 %. On a GPU 8,192 bins fit the shared memory and cost 4 reads of theta, more bins in one call 12
# to 46, so they are counted in several calls.
_BINS_PER_CELL = 16
_BINS_PER_CALL = {"cuda": 8192}
_MISPLACED = 1 / 16  # of a bin: how far rounding can move a coordinate across the edge of its bin
_ROUNDED = 2.0**-24  # of a cell: how far a place on it may be off, up to 10^6 sigma from 0
_OFF_THE_MIDDLE = (0.5 + _MISPLACED) / _BINS_PER_CELL  # of a cell: from the middle of its bin, at most
_COUNTED_AT_ONCE = {"cpu": 1 << 22}  # coordinates
_COUNTED_AT_ONCE_ELSEWHERE = 1 << 24  # torch counts in theta's dtype, and float32 one by one up to here


def pushes(theta: Tensor, move: Tensor) -> tuple[tuple[Push, Push], tuple[Push, Push]]:
    """(theta, shift) of the pushes up and down: with M(theta) as P, then with M(theta) as Q.

    Guarantee: every account takes its neighbours from here, both signs and both directions.

    >>> pushes(torch.tensor(1.0), torch.tensor(0.25))[1]
    ((tensor(1.2500), tensor(-0.2500)), (tensor(0.7500), tensor(0.2500)))
    """
    forward = (theta, move), (theta, -move)
    backward = (theta + move, -move), (theta - move, move)
    return forward, backward


def distinct(*columns: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct rows of these numbers, and for each coordinate the index of its row.

    The columns broadcast against each other; the index has their common shape. Both are on the CPU.

    >>> rows, index = distinct(torch.tensor([1.0, 2.0, 1.0]), torch.tensor(5.0))
    >>> rows.tolist(), index.tolist()
    ([[1.0, 5.0], [2.0, 5.0]], [0, 1, 0])
    """
    table = torch.stack(torch.broadcast_tensors(*(column.double().cpu() for column in columns)), dim=-1)
    rows, index = torch.unique(table.reshape(-1, table.shape[-1]), dim=0, return_inverse=True)
    return rows, index.reshape(table.shape[:-1])


def with_numbers(law: Mechanism, numbers: Tensor) -> Mechanism:
    """The law with single numbers for parameters, in the order of ``law.parameters()``.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> with_numbers(Gaussian(torch.ones(3)), torch.tensor([2.0]))
    Gaussian(sigma=2.0)
    """
    return law.with_parameters(dict(zip(law.parameters(), numbers.unbind(), strict=True)))


def recentre(law: Mechanism, theta: Tensor) -> tuple[Mechanism, Tensor]:
    """Recentres theta on a distant support to avoid cancellation: same divergences, numbers near 0.

        D(theta, shift; [lower, upper]) = D(theta - a, shift; [lower - a, upper - a])

    At theta = 1e13 sigma float64 holds theta + shift only to 1e-3 sigma, while the difference between theta
    and the nearer end a is exact wherever theta is closer to that end than to 0. Where coordinates lie near
    different ends, the law that comes back has its own ends for each coordinate.

    >>> from ringfence.mechanisms.truncated import TruncatedGaussian
    >>> far = TruncatedGaussian(1.0, bound=(1e13, 1e13 + 2))
    >>> recentre(far, torch.tensor([1e13 + 0.5], dtype=torch.float64))
    (TruncatedGaussian(sigma=1.0, bound=(0.0, 2.0)), tensor([0.5000], dtype=torch.float64))
    """
    parameters = law.parameters()
    if "lower" not in parameters or not theta.numel():
        return law, theta
    # parameters are looked at where they are: on a GPU every question about a number waits for the device
    sigma, lower, upper = (parameters[name].double() for name in ("sigma", "lower", "upper"))
    if not any(bool(((end.abs() > _NEAR * sigma) & torch.isfinite(end)).any()) for end in (lower, upper)):
        return law, theta
    sigma, lower, upper, theta = (value.to(theta.device) for value in (sigma, lower, upper, theta.double()))
    near = _NEAR * sigma
    nearer = torch.where((theta - lower).abs() <= (theta - upper).abs(), lower, upper)
    # only where theta is closer to that end than to 0: then the difference is exact, and a theta near 0,
    # where a quantised law may have a cut, keeps its digits
    closer = (theta - nearer).abs() <= theta.abs() / 2
    anchor = torch.where((nearer.abs() > near) & closer, nearer.round() if law.whole else nearer, 0.0)
    if bool((anchor == anchor.reshape(-1)[0]).all()):
        anchor = anchor.reshape(-1)[0]  # a law with single numbers keeps them
    ends = {"lower": lower - anchor, "upper": upper - anchor}
    return law.with_parameters({**parameters, **ends}), theta - anchor


@dataclass(frozen=True)
class Setting:
    """A law whose parameters are single numbers, and how far a record may move a coordinate.

    Equal settings have equal divergences at every theta, so a table keeps them once.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> Setting.of(Gaussian(1.0), 0.1) == Setting.of(Gaussian(torch.tensor(1.0)), 0.1)
    True
    """

    kind: Hashable
    parameters: tuple[float, ...]  # sigma first
    sensitivity: float
    mechanism: Mechanism = field(compare=False)

    @classmethod
    def of(cls, mechanism: Mechanism, sensitivity: float) -> "Setting":
        """A law with tensors of parameters is an error."""
        kind = kind_of(mechanism)
        if kind is None:
            raise ValueError(f"the parameters of a mechanism must be single numbers, got {mechanism!r}")
        numbers = tuple(map(float, mechanism.parameters().values()))
        law = with_numbers(mechanism, torch.tensor(numbers, dtype=torch.float64))
        return cls(kind, numbers, sensitivity, law)

    @property
    def sigma(self) -> float:
        """The noise of the law."""
        return self.parameters[0]


def kind_of(mechanism: Mechanism) -> Hashable:
    """Equal for laws that differ in single numbers alone; None for a law with tensors of parameters.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> kind_of(Gaussian(1.0)) == kind_of(Gaussian(2.0)), kind_of(Gaussian(torch.ones(3)))
    (True, None)
    """
    if any(value.numel() != 1 for value in mechanism.parameters().values()):
        return None
    return (type(mechanism).__name__, *mechanism.settings().items())


def split_by_setting(
    mechanism: Mechanism, theta: Tensor, sensitivity: Tensor, most: int
) -> Iterator[tuple[Setting, Tensor]] | None:
    """Each setting with its coordinates of theta; None if there are more than ``most``.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> law, theta = Gaussian(torch.tensor([1.0, 2.0, 1.0])), torch.arange(3.0)
    >>> parts = split_by_setting(law, theta, torch.tensor(0.1), 2)
    >>> [(setting.mechanism, coordinates.tolist()) for setting, coordinates in parts]
    [(Gaussian(sigma=1.0), [0.0, 2.0]), (Gaussian(sigma=2.0), [1.0])]
    """
    values = (*mechanism.parameters().values(), sensitivity)
    if all(value.numel() == 1 for value in values):
        return iter([(Setting.of(mechanism, float(sensitivity)), theta)])
    rows, index = distinct(*values)
    if len(rows) > most:
        return None
    theta, index = torch.broadcast_tensors(theta, index.to(theta.device))
    return (
        (Setting.of(with_numbers(mechanism, row[:-1]), float(row[-1])), theta[index == i])
        for i, row in enumerate(rows)
    )


def both_directions(mechanism: Mechanism, theta: Tensor, sensitivity: Tensor, orders: Tensor) -> Tensor:
    """The larger of the divergences of +-c, forward and backward: (2, orders, shape of theta).

    >>> from ringfence.mechanisms.sign import StochasticSign
    >>> theta, size, order = (torch.tensor(x).double() for x in ([-1.0, 1.0], 0.5, [2.0]))
    >>> both_directions(StochasticSign(1.0), theta, size, order)[0].round(decimals=3).tolist()
    [[0.127, 0.127]]
    """
    mechanism, theta = recentre(mechanism, theta)  # because theta + s is rounded
    directions = pushes(theta, sensitivity)
    return torch.stack(
        [torch.maximum(*(mechanism.renyi_curve(*pair, orders) for pair in pairs)) for pairs in directions]
    )


def exact_sums(mechanism: Mechanism, theta: Tensor, sensitivity: Tensor, orders: Tensor) -> Tensor:
    """Rows forward and backward, one column per order, every coordinate evaluated in float64.

    Guarantee: rounding and underflow are added, so that the sums are upper bounds.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> orders = torch.tensor([2.0, 8.0], dtype=torch.float64)
    >>> exact_sums(Gaussian(1.0), torch.zeros(3), torch.tensor(1.0), orders).round(decimals=6).tolist()
    [[3.0, 12.0], [3.0, 12.0]]
    """
    theta = theta.double()
    sensitivity = sensitivity.to(theta)
    columns = []
    for some in orders.split(at_once(_EVALUATED_TOGETHER, each=theta.numel())):
        values = both_directions(mechanism, theta, sensitivity, some)
        columns.append(values.reshape(2, len(some), -1).sum(dim=2).cpu())
    return torch.cat(columns, dim=1) * (1 + ROUNDING) + theta.numel() * UNDERFLOW


def curvature(orders: Tensor, shift: Tensor) -> Tensor:
    """The K of D'' >= -K D, for a shift in units of sigma.

    >>> curvature(torch.tensor([1.5, 2.0, 8.0]), torch.tensor(4.0))
    tensor([6., 4., 4.])
    """
    return 4 + (2 - orders).clamp(min=0) * shift.square() / 4


def above_chord(orders: Tensor, shift: Tensor, spacing: float) -> Tensor:
    """The factor by which D may exceed its chord between two nodes ``spacing`` sigma apart.

    Guarantee: valid where K spacing^2 < 6; callers evaluate larger shifts one by one.

    >>> above_chord(torch.tensor([2.0, 8.0]), torch.tensor(1.0), spacing=0.1)
    tensor([1.0067, 1.0067])
    """
    return 1 / (1 - curvature(orders, shift) * spacing**2 / 6)


class Tabulated(NamedTuple):
    """A function of theta to tabulate: (law, theta, size of the move, orders) -> (2, orders, shape of theta).

    Every row that comes out is positive with f'' >= -K f, or the largest of such functions. Only every
    ``stride``-th node is evaluated; between them values are chords.
    """

    values: Callable[[Mechanism, Tensor, Tensor, Tensor], Tensor]
    stride: int = 1


DIVERGENCES = Tabulated(both_directions)


class Charges(NamedTuple):
    """Coordinates that are charged alike: how many there are of each kind, and at most how much.

    ``at(orders)`` gives the charges, (2, orders, kinds), for a slice of the orders.
    """

    number: Tensor
    at: Callable[[slice], Tensor]


_EVERY = slice(None)


class DivergenceTable:
    """Divergences at nodes along theta for any number of settings, and sums that are read from them.

    Pages one sigma wide are filled in as theta needs them and kept, so that a second sum costs one histogram.
    A page of a setting is (2 orders, 129 + 128): for both directions and every order, D at the 129 nodes of
    the page, then for each of its 128 cells the steepest slope of that cell and its two neighbours.
    ``tabulated`` is D, or the equivalent information in its place.

    Guarantee: ``sums`` are at least the exact sums, whatever theta. Between two nodes D is at most its chord
    times the margin; a coordinate is charged in the middle of its bin on the chord, and half a bin and a
    sixteenth at the steepest slope around, for where it lies in its bin and for the rounding of its bin.

    >>> from ringfence.mechanisms.truncated import TruncatedGaussian
    >>> orders, one = torch.tensor([2.0, 8.0], dtype=torch.float64), torch.ones(1000)
    >>> law = TruncatedGaussian(1.0, bound=2.0)
    >>> bounds = DivergenceTable(orders).sums(Setting.of(law, 1e-3), one)
    >>> bool(((bounds / exact_sums(law, one, torch.tensor(1e-3), orders) - 1) < 5e-3).all())
    True
    """

    def __init__(self, orders: Tensor, tabulated: Tabulated = DIVERGENCES) -> None:
        self.orders, self.tabulated = orders, tabulated
        self._kept: dict[tuple[Setting, int], Tensor] = {}

    def sums(self, setting: Setting, theta: Tensor) -> Tensor:
        """Rows forward and backward, one column per order: at least the exact sums. NaN is an error."""
        near, places, far = _split(setting, theta.reshape(-1))
        total = torch.zeros(2, len(self.orders), dtype=torch.float64)
        if far.numel():
            size = torch.tensor(setting.sensitivity, dtype=torch.float64)
            total = total + exact_sums(setting.mechanism, far, size, self.orders)
        if near.numel():
            total = total + self._bounds(setting, near, places)
        return total

    def charges(self, setting: Setting, theta: Tensor) -> list[Charges]:
        """Charges of single coordinates, where not all of them count: few numbers for a long theta."""
        near, places, far = _split(setting, theta.reshape(-1))
        found = []
        if far.numel():
            size = torch.tensor(setting.sensitivity, dtype=torch.float64)
            found.append(evaluated_charges(self.tabulated, setting.mechanism, far, size, self.orders))
        if near.numel():
            found.append(self._binned(setting, near, places))
        return found

    def at(
        self,
        setting: Setting,
        theta: Tensor,
        orders: slice = _EVERY,
        *,
        off: float = _ROUNDED,
        worst: bool = False,
    ) -> Tensor:
        """Upper bounds at each of a vector of places within ``FARTHEST``: (2, orders, places).

        A place may be ``off`` by that much of a cell. ``worst`` is of both directions: (1, orders, places).
        """
        position = theta / setting.sigma * CELLS
        cell = position.floor()
        places, page = torch.unique(torch.floor(cell / CELLS), return_inverse=True)
        pages = self.pages(setting, places.long().tolist())
        pages = pages.view(len(pages), 2, len(self.orders), -1)[:, :, orders].to(theta.device)
        pages = pages.amax(dim=1, keepdim=True) if worst else pages
        inside = (cell - places[page] * CELLS).long()
        left, right, steepest = (pages[page, :, :, inside + first] for first in (0, 1, CELLS + 1))
        upper = torch.lerp(left, right, (position - cell)[:, None, None]) + off * steepest
        return upper.permute(1, 2, 0) * self.margin(setting)[orders, None].to(theta.device)

    def margin(self, setting: Setting) -> Tensor:
        """By how much D may exceed its chord, as a factor for each order."""
        shift = torch.tensor(setting.sensitivity / setting.sigma, dtype=torch.float64)
        return above_chord(self.orders, shift, 1 / CELLS)

    def _bounds(self, setting: Setting, theta: Tensor, places: range) -> Tensor:
        """The sums of coordinates that are all on these pages."""
        counts, occupied = _count(theta, setting.sigma, places)
        middle = (torch.arange(_BINS_PER_CELL).to(counts) + 0.5) / _BINS_PER_CELL
        number, right = (counts @ torch.stack((torch.ones_like(middle), middle), dim=1)).cpu().unbind(-1)
        nodes = pad(number - right, (0, 1)) + pad(right, (1, 0))
        upper = torch.cat((nodes, number * _OFF_THE_MIDDLE), dim=1)
        above = torch.bmm(self.pages(setting, occupied), upper.unsqueeze(2)).sum(dim=0)
        raised = above.view(2, len(self.orders)) * self.margin(setting)
        return raised * (1 + ROUNDING) + theta.numel() * UNDERFLOW

    def _binned(self, setting: Setting, theta: Tensor, places: range) -> Charges:
        """Coordinates in one bin are charged alike."""
        counts, occupied = _count(theta, setting.sigma, places)
        page, cell, part = counts.nonzero().unbind(1)
        place = torch.tensor(occupied, dtype=torch.float64, device=theta.device)[page]
        middle = (place + (cell + (part + 0.5) / _BINS_PER_CELL) / CELLS) * setting.sigma
        number = counts[page, cell, part]
        return Charges(number, lambda orders: self.at(setting, middle, orders, off=_OFF_THE_MIDDLE))

    def pages(self, setting: Setting, places: Sequence[int]) -> Tensor:
        """The pages from each place to 1 sigma above it, of which missing ones are filled in."""
        missing = [place for place in places if (setting, place) not in self._kept]
        if (len(self._kept) + len(missing)) * 2 * len(self.orders) * (2 * CELLS + 1) > _KEPT:
            self._kept, missing = {}, list(places)
        size = torch.tensor(setting.sensitivity, dtype=torch.float64)
        for start in range(0, len(missing), _FILLED_TOGETHER):
            some = missing[start : start + _FILLED_TOGETHER]
            pages = self.evaluated_pages(
                setting.mechanism, size, torch.tensor(some, dtype=torch.float64).unsqueeze(1)
            )
            self._kept |= {(setting, place): page for place, page in zip(some, pages, strict=True)}
        return torch.stack([self._kept[setting, place] for place in places])

    def evaluated_pages(self, law: Mechanism, size: Tensor, place: Tensor) -> Tensor:
        """The pages at a column of places; law and move are those of all pages, or columns as well."""
        # one node more on either side
        index = torch.arange(-1, CELLS + 2, dtype=torch.float64, device=place.device)
        nodes = self._at(index, place, law, size).flatten(0, 1).transpose(0, 1)
        steepest = torch.diff(nodes).abs().unfold(2, 3, 1).amax(dim=3)
        return torch.cat((nodes[..., 1:-1], steepest), dim=2)

    def _at(self, index: Tensor, place: Tensor, law: Mechanism, size: Tensor) -> Tensor:
        """Upper bounds at these nodes of each page: (2, orders, pages, nodes)."""
        sigma, (values_at, stride) = law.sigma.to(place.device), self.tabulated
        if stride == 1:
            return values_at(law, (index + place * CELLS) / CELLS * sigma, size, self.orders)
        coarse = torch.arange(-1, CELLS // stride + 2, dtype=torch.float64, device=place.device) * stride
        values = values_at(law, (coarse + place * CELLS) / CELLS * sigma, size, self.orders)
        left = torch.div(index, stride, rounding_mode="floor")
        share, left = index / stride - left, left.long() + 1
        chords = values[..., left] * (1 - share) + values[..., left + 1] * share
        shift = (size / sigma).expand_as(place).to(self.orders.device).T  # (1, pages)
        margin = above_chord(self.orders.unsqueeze(1), shift, stride / CELLS).to(place.device)
        return chords * margin.unsqueeze(2)


def evaluated_charges(
    tabulated: Tabulated, mechanism: Mechanism, theta: Tensor, sensitivity: Tensor, orders: Tensor
) -> Charges:
    """Charges of every coordinate for itself, which are exact.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> order, one = torch.tensor([2.0], dtype=torch.float64), torch.ones((), dtype=torch.float64)
    >>> charges = evaluated_charges(DIVERGENCES, Gaussian(1.0), torch.zeros(2), one, order)
    >>> charges.number.tolist(), charges.at(slice(None))[0].tolist()
    ([1.0, 1.0], [[1.0, 1.0]])
    """
    theta = theta.double()

    def at(some: slice) -> Tensor:
        values = tabulated.values(mechanism, theta, sensitivity.to(theta), orders[some])
        return values.reshape(*values.shape[:2], theta.numel())

    return Charges(torch.ones(theta.numel(), dtype=torch.float64, device=theta.device), at)


def shift_is_small(setting: Setting) -> bool:
    """Whether chords bound the divergences of a shift of this size closely enough.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> shift_is_small(Setting.of(Gaussian(1.0), 32.0)), shift_is_small(Setting.of(Gaussian(1.0), 33.0))
    (True, False)
    """
    return setting.sensitivity <= _LARGEST_SHIFT * setting.sigma


def is_near(low: float, high: float) -> bool:
    """Whether a theta from ``low`` to ``high`` sigma lies where the table reaches; False also for NaN.

    >>> is_near(999_900.0, 1e6), is_near(1e6, 1e6 + 1), is_near(-200.0, 100.0)
    (True, False, False)
    """
    return high - low <= _WIDEST and max(-low, high) <= FARTHEST


def _split(setting: Setting, theta: Tensor) -> tuple[Tensor, range, Tensor]:
    """The coordinates that the table reaches, the places of their pages, and all the other coordinates."""
    nothing = theta[:0]
    if not theta.numel() or not shift_is_small(setting):
        return nothing, range(0), theta
    low, high = (end / setting.sigma for end in torch.stack(torch.aminmax(theta)).tolist())
    if not (math.isfinite(low) and math.isfinite(high)):
        checks.finite("theta", theta)
    if is_near(low, high):
        return theta, _places(low, high), nothing
    # around the median of some of them
    middle = float(theta[:: max(1, theta.numel() // 4096)].median()) / setting.sigma
    reach = _WIDEST / 2 - 1
    if abs(middle) + reach > FARTHEST:
        return nothing, range(0), theta
    near = (theta / setting.sigma - middle).abs() <= reach
    low, high = (end / setting.sigma for end in torch.stack(torch.aminmax(theta[near])).tolist())
    return theta[near], _places(low, high), theta[~near]


def _places(low: float, high: float) -> range:
    """The pages that a theta from ``low`` to ``high`` sigma lies on, however it is rounded."""
    return range(math.floor(low - 1 / CELLS), math.floor(high + 1 / CELLS) + 1)


def _count(theta: Tensor, sigma: float, places: range) -> tuple[Tensor, list[int]]:
    """How many coordinates lie in each bin of the pages that have any, (pages, cells, bins), and which."""
    low, high = places[0] * sigma, (places[-1] + 1) * sigma
    at_a_time = _COUNTED_AT_ONCE.get(theta.device.type, _COUNTED_AT_ONCE_ELSEWHERE)
    counts = torch.zeros(len(places) * CELLS * _BINS_PER_CELL, dtype=torch.float64, device=theta.device)
    for chunk in theta.split(at_a_time):
        counts += _histogram(chunk, low, high, len(counts))
    counts = counts.view(len(places), CELLS, _BINS_PER_CELL)
    in_page = counts.sum(dim=(1, 2)).tolist()
    if sum(in_page) < theta.numel():
        raise FloatingPointError(f"{theta.numel()} coordinates, but only {sum(in_page):.0f} counted")
    occupied = [i for i, number in enumerate(in_page) if number]
    return counts[occupied], [places[i] for i in occupied]


def _histogram(theta: Tensor, low: float, high: float, bins: int) -> Tensor:
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
