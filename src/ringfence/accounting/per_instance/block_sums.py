"""Both divergence sums of many settings at once: one pass over all their thetas.

Coordinates are counted in integers and added up by matrix products, so that a GPU gives the same sums every
time.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from ringfence import checks
from ringfence.accounting.per_instance.divergence_table import CELLS, DivergenceTable, is_near, shift_is_small
from ringfence.accounting.per_instance.histogram_sums import HistogramSums
from ringfence.accounting.per_instance.setting import Setting
from ringfence.numerics.rounding import ROUNDING, UNDERFLOW

_PARTS = 1 << 20  # of a cell: where in its cell a coordinate lies, rounded down
_READ_TOGETHER = 1 << 27  # numbers


def block_sums(table: DivergenceTable, settings: Sequence[Setting], theta: Tensor) -> Tensor:
    """(settings, 2, orders) on theta's device, forward and backward, one row of theta per setting.

    theta lies on the table's device. NaN is an error.

    Guarantee: at least the exact sums. Between two nodes D is at most its chord times the table's margin; a
    coordinate's place on the chord is known to a millionth of a cell, which is charged at the steepest slope
    around.

    >>> from ringfence.accounting.per_instance.divergence_sums import exact_sums_of_many
    >>> from ringfence.mechanisms.rectified import RectifiedGaussian
    >>> orders, theta = torch.tensor([2.0, 8.0], dtype=torch.float64), torch.tensor([[0.1, 2.0], [0.3, 0.3]])
    >>> settings = [Setting.of(RectifiedGaussian(sigma, bound=2.0), 1e-3) for sigma in (1.0, 0.5)]
    >>> bounds = block_sums(DivergenceTable(orders), settings, theta)
    >>> bool(((bounds / exact_sums_of_many(settings, theta, orders) - 1) < 1e-4).all())
    True
    """
    sigma = torch.tensor([setting.sigma for setting in settings], dtype=torch.float64)
    scaled = theta.flatten(1).double() / sigma.to(theta.device).unsqueeze(1)
    ends = torch.stack(torch.aminmax(scaled, dim=1), dim=1).tolist()
    near = [i for i, setting in enumerate(settings) if shift_is_small(setting) and is_near(*ends[i])]
    if len(near) == len(settings):
        return _bounds(table, settings, scaled, ends)
    checks.finite("theta", theta)
    result = scaled.new_empty(len(settings), 2, len(table.orders))
    if near:
        result[near] = _bounds(table, [settings[i] for i in near], scaled[near], [ends[i] for i in near])
    for i in sorted(set(range(len(settings))) - set(near)):
        result[i] = HistogramSums(settings[i], table.orders).sums(theta[i]).to(result.device)
    return result


def block_maxima(table: DivergenceTable, settings: Sequence[Setting], theta: Tensor) -> Tensor:
    """(settings, 2, orders): the largest tabulated value among the coordinates of each row of theta.

    Guarantee: at least the largest value; a coordinate is charged at the larger end of its cell.

    >>> from ringfence.accounting.per_instance.equivalent_information import equivalent_information
    >>> from ringfence.mechanisms.sign import StochasticSign
    >>> table = DivergenceTable(torch.tensor([2.0]).double(), tabulated=equivalent_information)
    >>> theta = torch.tensor([[0.5, 4.0], [2.0, 4.0]])
    >>> block_maxima(table, [Setting.of(StochasticSign(1.0), 1e-3)] * 2, theta)[:, 0, 0].round(decimals=2)
    tensor([0.5800, 0.1300], dtype=torch.float64)
    """
    sigma = torch.tensor([setting.sigma for setting in settings], dtype=torch.float64)
    scaled = theta.flatten(1).double() / sigma.to(theta.device).unsqueeze(1)
    ends = torch.stack(torch.aminmax(scaled, dim=1), dim=1).tolist()
    far = [i for i, setting in enumerate(settings) if not (shift_is_small(setting) and is_near(*ends[i]))]
    result = scaled.new_full((len(settings), 2 * len(table.orders)), torch.inf)
    near = sorted(set(range(len(settings))) - set(far))
    if near:
        own = [settings[i] for i in near]
        pages = _Pages.between([ends[i] for i in near], table.device)
        occupied = _weights(scaled[near], pages)[:, CELLS + 1 :] > 0
        seen = occupied.any(dim=1).nonzero().squeeze(1)
        owner = pages.owner[seen]
        rows = table.rows(own, owner, pages.place[seen])
        together = max(1, _READ_TOGETHER // table.pages[0].numel())
        parts = (slice(start, start + together) for start in range(0, len(rows), together))
        largest = torch.cat([_largest(table.pages[rows[part]], occupied[seen][part]) for part in parts])
        best = largest.new_zeros(len(own), largest.shape[1])
        best.scatter_reduce_(0, owner.unsqueeze(1).expand_as(largest), largest, "amax")
        margin = table.margin(own).repeat(1, 2).to(best.device)
        result[near] = best * margin * (1 + ROUNDING)
    return result.view(len(settings), 2, -1)


def _largest(pages: Tensor, occupied: Tensor) -> Tensor:
    """The largest value at the ends of the occupied cells of each page, for each of its rows."""
    nodes = pages[..., : CELLS + 1]
    ends = torch.maximum(nodes[..., :-1], nodes[..., 1:])
    return ends.masked_fill(~occupied.unsqueeze(1), 0.0).amax(dim=-1)


class _Pages(NamedTuple):
    """The pages between the ends of every row of theta, one row after the other, numbered from 0."""

    first: Tensor  # of each row: where its first page begins, in sigma
    length: Tensor  # of each row: how many pages it has
    before: Tensor  # of each row: how many pages the rows before it have
    owner: Tensor  # of each page: its row
    place: Tensor  # of each page: where it begins, in sigma

    @classmethod
    def between(cls, ends: list[list[float]], device: torch.device) -> "_Pages":
        floors = [[math.floor(low), math.floor(high)] for low, high in ends]
        first, last = torch.tensor(floors, device=device).unbind(1)
        length = last - first + 1
        before = torch.cumsum(length, dim=0) - length
        owner = torch.repeat_interleave(length)
        place = torch.arange(len(owner), device=device) + (first - before)[owner]
        return cls(first, length, before, owner, place)


def _bounds(
    table: DivergenceTable, settings: Sequence[Setting], scaled: Tensor, ends: list[list[float]]
) -> Tensor:
    """The sums of rows that all lie where the table reaches; ``scaled`` is theta in units of sigma."""
    pages = _Pages.between(ends, table.device)
    weights = _weights(scaled, pages)
    seen = weights.any(dim=1).nonzero().squeeze(1)
    owner = pages.owner[seen]
    rows = table.rows(settings, owner, pages.place[seen])
    totals = _added_up(table.pages, rows, weights[seen], owner, len(settings))
    raised = table.margin(settings).unsqueeze(1).to(totals.device)
    upper = totals.view(len(settings), 2, -1) * (raised * (1 + ROUNDING))
    return upper + scaled.shape[1] * UNDERFLOW


def _weights(scaled: Tensor, pages: _Pages) -> Tensor:
    """How much each entry of a page counts, (pages, 129 + 128).

    A coordinate at the share f of its cell counts 1 - f at the node on its left and f at the node on its
    right, and two parts of a cell at the steepest slope.
    """
    unit = CELLS * _PARTS
    position = torch.floor((scaled - pages.first.unsqueeze(1)) * unit).long()
    # a coordinate just below the end of the last page may have been rounded onto it
    position = torch.minimum(position, (pages.length * unit - 1).unsqueeze(1))
    position = position + (pages.before * unit).unsqueeze(1)
    cell, part = (position // _PARTS).flatten(), (position % _PARTS).flatten()
    counts = torch.zeros(2, len(pages.owner) * CELLS, dtype=torch.int64, device=scaled.device)
    counts[0].scatter_add_(0, cell, torch.ones_like(cell))
    counts[1].scatter_add_(0, cell, part)
    number, right = counts.view(2, -1, CELLS).double()
    right /= _PARTS
    nodes = pad(number - right, (0, 1)) + pad(right, (1, 0))
    # a share is rounded down by up to a part, and by far less where theta / sigma was rounded
    return torch.cat((nodes, number * (2 / _PARTS)), dim=1)


def _added_up(pages: Tensor, rows: Tensor, weights: Tensor, owner: Tensor, count: int) -> Tensor:
    """The weighted entries of every page, added up for each of ``count`` owners: (owners, 2 orders)."""
    totals = pages.new_zeros(count, pages.shape[1])
    owners = torch.arange(count, device=pages.device).unsqueeze(1)
    together = max(1, _READ_TOGETHER // pages[0].numel())
    for start in range(0, len(rows), together):
        part = slice(start, start + together)
        values = torch.bmm(pages[rows[part]], weights[part].unsqueeze(2)).squeeze(2)
        totals += (owners == owner[part]).double() @ values  # a product adds in a fixed order
    return totals
