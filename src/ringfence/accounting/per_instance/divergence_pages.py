"""The sums of ``divergence_sums`` for many settings at once: one pass over all their thetas.

Divergences are tabulated on pages, one sigma wide, for whichever settings need them, all in a few
long calls. Coordinates are counted in integers, so that a GPU gives the same sums every time.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import torch
from torch import Tensor
from torch.nn.functional import pad

from ringfence import checks
from ringfence.accounting.per_instance.curvature import above_chord
from ringfence.accounting.per_instance.divergence_sums import (
    _FARTHEST,
    _LARGEST_SHIFT,
    _WIDEST,
    NODES_PER_SIGMA,
    DivergenceTable,
    worse_sign,
)
from ringfence.mechanisms.base import Mechanism
from ringfence.numerics.rounding import ROUNDING, UNDERFLOW

_CELLS = NODES_PER_SIGMA  # of a page
_PARTS = 1 << 20  # of a cell: where in its cell a coordinate lies, rounded down
_SPAN = 1 << 22  # places a page of a release may have
_FILLED_TOGETHER = 512  # pages
_READ_TOGETHER = 1 << 27  # numbers
_KEPT = 1 << 28  # numbers: 2 GiB of pages, then a fresh start


@dataclass(frozen=True)
class Release:
    """A law whose parameters are single numbers, and what a record may move a coordinate by.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> Release.of(Gaussian(1.0), 0.1) == Release.of(Gaussian(torch.tensor(1.0)), 0.1)
    True
    """

    kind: Hashable
    parameters: tuple[float, ...]  # sigma first
    sensitivity: float
    mechanism: Mechanism = field(compare=False)

    @classmethod
    def of(cls, mechanism: Mechanism, sensitivity: float) -> "Release":
        """Refuses a law with tensors of parameters."""
        kind = kind_of(mechanism)
        if kind is None:
            raise ValueError(f"the parameters of a mechanism must be single numbers, got {mechanism!r}")
        return cls(kind, tuple(map(float, mechanism.parameters().values())), sensitivity, mechanism)


def kind_of(mechanism: Mechanism) -> Hashable:
    """Equal for laws that differ in single numbers alone; None for a law with tensors of parameters.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> kind_of(Gaussian(1.0)) == kind_of(Gaussian(2.0)), kind_of(Gaussian(torch.ones(3)))
    (True, None)
    """
    if any(value.numel() != 1 for value in mechanism.parameters().values()):
        return None
    return (type(mechanism).__name__, *mechanism.settings().items())


def stacked(mechanisms: Sequence[Mechanism], dimensions: int) -> Mechanism:
    """One law for all of one kind: parameters along the first of 1 + ``dimensions`` dimensions.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> stacked([Gaussian(1.0), Gaussian(2.0)], 1).fisher_information(torch.zeros(2, 3))[:, 0]
    tensor([1.0000, 0.2500])
    """
    rows = [[float(value) for value in mechanism.parameters().values()] for mechanism in mechanisms]
    columns = torch.tensor(rows, dtype=torch.float64).T.reshape(-1, len(rows), *(1,) * dimensions)
    first = mechanisms[0]
    return first.with_parameters(dict(zip(first.parameters(), columns, strict=True)))


def exact_sums_of_many(releases: Sequence[Release], theta: Tensor, orders: Tensor) -> Tensor:
    """``exact_sums``, a setting a row of theta: (settings, 2, orders) on theta's device.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> releases = [Release.of(Gaussian(sigma), 1.0) for sigma in (1.0, 2.0)]
    >>> sums = exact_sums_of_many(releases, torch.zeros(2, 3), torch.tensor([2.0], dtype=torch.float64))
    >>> [round(value, 6) for value in sums[:, 0, 0].tolist()]
    [3.0, 0.75]
    """
    theta = theta.flatten(1).double()
    result = theta.new_empty(len(releases), 2, len(orders))
    kinds: dict[Hashable, list[int]] = {}
    for i, release in enumerate(releases):
        kinds.setdefault(release.kind, []).append(i)
    for members in kinds.values():
        law = stacked([releases[i].mechanism for i in members], 1)
        size = theta.new_tensor([[releases[i].sensitivity] for i in members])
        for way, backward in enumerate((False, True)):
            worst = worse_sign(law, theta[members], size, orders, backward)
            result[members, way] = worst.sum(dim=-1).T
    return result * (1 + ROUNDING) + theta.shape[1] * UNDERFLOW


class DivergencePages:
    """Upper bounds of both divergence sums, a setting a row of theta.

    Guarantee: as ``DivergenceTable``. Between two nodes D is at most its chord raised by the same
    factor; a coordinate's place on the chord is known to a millionth of a cell, which is charged at
    the steepest slope around.

    >>> from ringfence.accounting.per_instance.divergence_sums import exact_sums
    >>> from ringfence.mechanisms.rectified import RectifiedGaussian
    >>> orders, theta = torch.tensor([2.0, 8.0], dtype=torch.float64), torch.tensor([[0.1, 2.0], [0.3, 0.3]])
    >>> laws = [RectifiedGaussian(sigma, bound=2.0) for sigma in (1.0, 0.5)]
    >>> bounds = DivergencePages(orders).sums([Release.of(law, 1e-3) for law in laws], theta)
    >>> exact = [exact_sums(law, row, torch.tensor(1e-3), orders) for law, row in zip(laws, theta)]
    >>> bool(((bounds / torch.stack(exact) - 1) < 1e-4).all())
    True
    """

    def __init__(self, orders: Tensor, device: torch.device | str = "cpu") -> None:
        self.orders, self.device = orders, torch.device(device)
        self._releases: dict[Release, int] = {}
        self._keys = torch.empty(0, dtype=torch.int64, device=device)  # a page: its release, its place
        self._pages = torch.empty(0, dtype=torch.float64, device=device)

    def sums(self, releases: Sequence[Release], theta: Tensor) -> Tensor:
        """(settings, 2, orders) on theta's device, forward and backward. Refuses NaN."""
        sigma = torch.tensor([release.parameters[0] for release in releases], dtype=torch.float64)
        scaled = theta.flatten(1).double() / sigma.to(theta.device).unsqueeze(1)
        ends = torch.stack(torch.aminmax(scaled, dim=1), dim=1).tolist()
        small = [release.sensitivity <= _LARGEST_SHIFT * release.parameters[0] for release in releases]
        near = [i for i, (low, high) in enumerate(ends) if small[i] and _is_near(low, high)]
        if len(near) == len(releases):
            return self._bounds(releases, scaled, ends)
        checks.finite("theta", theta)
        result = scaled.new_empty(len(releases), 2, len(self.orders))
        if near:
            result[near] = self._bounds([releases[i] for i in near], scaled[near], [ends[i] for i in near])
        for i in sorted(set(range(len(releases))) - set(near)):
            table = DivergenceTable(releases[i].mechanism, releases[i].sensitivity, self.orders)
            result[i] = table.sums(theta[i]).to(result.device)
        return result

    def _bounds(self, releases: Sequence[Release], scaled: Tensor, ends: list[list[float]]) -> Tensor:
        number = [self._releases.setdefault(release, len(self._releases)) for release in releases]
        table = [(k, math.floor(low), math.floor(high)) for k, (low, high) in zip(number, ends, strict=True)]
        release, first, last = torch.tensor(table, device=self.device).unbind(1)
        length = last - first + 1
        before = torch.cumsum(length, dim=0) - length
        owner = torch.repeat_interleave(length)
        page = torch.arange(len(owner), device=self.device) + (first - before)[owner]
        weights = _weights(scaled, first, length, before, len(owner))

        seen = weights.any(dim=1).nonzero().squeeze(1)
        owner, page, weights = owner[seen], page[seen], weights[seen].unsqueeze(2)
        rows = self._rows(release[owner] * _SPAN + page + _SPAN // 2)
        totals = scaled.new_zeros(len(releases), 2 * len(self.orders))
        every = torch.arange(len(releases), device=self.device).unsqueeze(1)
        together = max(1, _READ_TOGETHER // self._pages[0].numel())
        for start in range(0, len(rows), together):
            part = slice(start, start + together)
            values = torch.bmm(self._pages[rows[part]], weights[part]).squeeze(2)
            totals += (every == owner[part]).double() @ values  # a product adds in a fixed order
        shift = torch.tensor([[one.sensitivity / one.parameters[0]] for one in releases], dtype=torch.float64)
        raised = above_chord(self.orders, shift, 1 / NODES_PER_SIGMA).unsqueeze(1).to(totals.device)
        upper = totals.view(len(releases), 2, -1) * (raised * (1 + ROUNDING))
        return upper + scaled.shape[1] * UNDERFLOW

    def _rows(self, wanted: Tensor) -> Tensor:
        """Which rows hold the pages, filled in if they are not there yet."""
        missing = torch.unique(wanted[~torch.isin(wanted, self._keys)])
        if (len(self._keys) + len(missing)) * self._page_size() > _KEPT:
            self._keys, self._pages, missing = self._keys[:0], self._pages[:0], torch.unique(wanted)
        if len(missing):
            self._fill(missing)
        keys, order = torch.sort(self._keys)
        return order[torch.searchsorted(keys, wanted)]

    def _fill(self, keys: Tensor) -> None:
        releases = list(self._releases)
        pages = [(key, releases[key // _SPAN], key % _SPAN - _SPAN // 2) for key in keys.tolist()]
        pages.sort(key=lambda page: repr(page[1].kind))
        parts = [self._pages] if len(self._pages) else []
        for _, group in groupby(pages, key=lambda page: page[1].kind):
            alike = list(group)
            for start in range(0, len(alike), _FILLED_TOGETHER):
                _, theirs, places = zip(*alike[start : start + _FILLED_TOGETHER], strict=True)
                parts.append(self._evaluated(theirs, places))
        self._pages = torch.cat(parts)
        self._keys = torch.cat((self._keys, torch.tensor([key for key, _, _ in pages], device=self.device)))

    def _evaluated(self, releases: Sequence[Release], places: Sequence[int]) -> Tensor:
        """Nodes of each page, then the steepest slope around each cell: (pages, 2 orders, 129 + 128)."""
        law = stacked([release.mechanism for release in releases], 1)
        columns = [[release.sensitivity, place] for release, place in zip(releases, places, strict=True)]
        size, place = torch.tensor(columns, dtype=torch.float64, device=self.device).split(1, dim=1)
        # one node more on either side
        index = torch.arange(-1, _CELLS + 2, dtype=torch.float64, device=self.device) + place * _CELLS
        theta = index / NODES_PER_SIGMA * law.sigma.to(self.device)
        both = [worse_sign(law, theta, size, self.orders, backward) for backward in (False, True)]
        nodes = torch.cat(both).transpose(0, 1)
        steepest = torch.diff(nodes).abs().unfold(-1, 3, 1).amax(dim=-1)
        return torch.cat((nodes[..., 1:-1], steepest), dim=-1)

    def _page_size(self) -> int:
        return 2 * len(self.orders) * (2 * _CELLS + 1)


def _weights(scaled: Tensor, first: Tensor, length: Tensor, before: Tensor, pages: int) -> Tensor:
    """How much each entry of a page counts, (pages, 129 + 128), for coordinates in units of sigma."""
    unit = _CELLS * _PARTS
    place = torch.floor((scaled - first.unsqueeze(1)) * unit).long()
    # a coordinate just below the end of the last page may have been rounded onto it
    place = torch.minimum(place, (length * unit - 1).unsqueeze(1)) + (before * unit).unsqueeze(1)
    cell, part = (place // _PARTS).flatten(), (place % _PARTS).flatten()
    counts = torch.zeros(2, pages * _CELLS, dtype=torch.int64, device=scaled.device)
    counts[0].scatter_add_(0, cell, torch.ones_like(cell))
    counts[1].scatter_add_(0, cell, part)
    number, right = counts.view(2, pages, _CELLS).double()
    right /= _PARTS
    nodes = pad(number - right, (0, 1)) + pad(right, (1, 0))
    # rounded down by up to a part, and by far less where theta / sigma was rounded
    return torch.cat((nodes, number * (2 / _PARTS)), dim=1)


def _is_near(low: float, high: float) -> bool:
    """Whether pages are the way to count a theta that reaches so far; False also for NaN."""
    return high - low <= _WIDEST and max(-low, high) <= _FARTHEST
