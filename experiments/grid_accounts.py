"""Accounts of many settings side by side, charged together: one pass over the thetas of all settings.

Coordinates are counted in integers and added up by matrix products, so that a GPU gives the same sums every
time.
"""

import math
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from ringfence import checks
from ringfence.accounting.conversion import DEFAULT_ORDERS, checked_orders
from ringfence.accounting.divergence_sums import (
    CELLS,
    DIVERGENCES,
    DivergenceTable,
    Setting,
    Tabulated,
    above_chord,
    is_near,
    shift_is_small,
)
from ringfence.accounting.equivalent_information import EQUIVALENT_INFORMATION
from ringfence.accounting.per_instance import PerInstanceAccountant, per_instance_rdp
from ringfence.accounting.sensitivity import Sensitivity, ceilings, natural_unit
from ringfence.mechanisms.base import Mechanism
from ringfence.numerics.blocks import at_once
from ringfence.numerics.rounding import ROUNDING, UNDERFLOW

_PARTS = 1 << 20  # of a cell: where in its cell a coordinate lies, rounded down
_READ_TOGETHER = 1 << 27  # numbers
_SPAN = 1 << 22  # places that a page of a setting may have
_FILLED_TOGETHER = 512  # pages
_AHEAD = 2  # pages on either side that a GPU fills in with a missing one, in nearly the same time
_KEPT = 1 << 28  # numbers: 2 GiB of pages, then a fresh start
_CLOSE = 0.997  # of the largest information of any theta: from here on a row is charged all of it


def stacked(mechanisms: Sequence[Mechanism], dimensions: int) -> Mechanism:
    """One law for several of one kind: parameters along the first of 1 + ``dimensions`` dimensions."""
    rows = [[float(value) for value in mechanism.parameters().values()] for mechanism in mechanisms]
    columns = torch.tensor(rows, dtype=torch.float64).T.reshape(-1, len(rows), *(1,) * dimensions)
    first = mechanisms[0]
    return first.with_parameters(dict(zip(first.parameters(), columns, strict=True)))


class GridTable(DivergenceTable):
    """A table of many settings on one device. A row of ``side_by_side`` is a page of one setting."""

    def __init__(
        self, orders: Tensor, device: torch.device | str = "cpu", tabulated: Tabulated = DIVERGENCES
    ) -> None:
        super().__init__(orders, tabulated)
        self.device = torch.device(device)
        self.side_by_side = torch.empty(0, 2 * len(orders), 2 * CELLS + 1, dtype=torch.float64, device=device)
        self._keys = torch.empty(0, dtype=torch.int64, device=device)  # of each row: its setting, its place
        self._settings: dict[Setting, int] = {}

    def margins(self, settings: Sequence[Setting]) -> Tensor:
        """By how much D may exceed its chord, as a factor: (settings, orders)."""
        shifts = [[setting.sensitivity / setting.sigma] for setting in settings]
        return above_chord(self.orders, torch.tensor(shifts, dtype=torch.float64), 1 / CELLS)

    def rows(self, settings: Sequence[Setting], owner: Tensor, place: Tensor) -> Tensor:
        """The rows from ``place`` to place + 1 sigma of ``settings[owner]``.

        Missing pages are filled in, and the rows of earlier calls may no longer hold.
        """
        wanted = self._keys_of(settings, owner, place)
        missing = torch.unique(wanted[~torch.isin(wanted, self._keys)])
        if len(missing) and self.device.type != "cpu":
            ahead = torch.arange(-_AHEAD, _AHEAD + 1, device=self.device)
            missing = torch.unique(missing.unsqueeze(1) + ahead)
            missing = missing[~torch.isin(missing, self._keys)]
        if (len(self._keys) + len(missing)) * self.side_by_side.shape[1:].numel() > _KEPT:
            self._keys, self.side_by_side = self._keys[:0], self.side_by_side[:0]
            missing = torch.unique(wanted)
        if len(missing):
            self._fill(missing)
        keys, order = torch.sort(self._keys)
        return order[torch.searchsorted(keys, wanted)]

    def _keys_of(self, settings: Sequence[Setting], owner: Tensor, place: Tensor) -> Tensor:
        numbers = [self._settings.setdefault(setting, len(self._settings)) for setting in settings]
        return torch.tensor(numbers, device=self.device)[owner] * _SPAN + place + _SPAN // 2

    def _fill(self, keys: Tensor) -> None:
        """Adds pages, those of settings of one kind in a few long calls."""
        settings = list(self._settings)
        pages = [(key, settings[key // _SPAN], key % _SPAN - _SPAN // 2) for key in keys.tolist()]
        pages.sort(key=lambda page: repr(page[1].kind))
        parts = [self.side_by_side]
        for _, group in groupby(pages, key=lambda page: page[1].kind):
            alike = list(group)
            for start in range(0, len(alike), _FILLED_TOGETHER):
                _, theirs, places = zip(*alike[start : start + _FILLED_TOGETHER], strict=True)
                law = stacked([setting.mechanism for setting in theirs], 1)
                columns = [[one.sensitivity, place] for one, place in zip(theirs, places, strict=True)]
                size, place = torch.tensor(columns, dtype=torch.float64, device=self.device).split(1, dim=1)
                parts.append(self.evaluated_pages(law, size, place))
        self.side_by_side = torch.cat(parts)
        self._keys = torch.cat((self._keys, torch.tensor([key for key, _, _ in pages], device=self.device)))


class GridAccountant:
    """One account for each of several settings, charged together.

    Laws have single numbers as parameters. A sensitivity says how far every coordinate may move, or, as
    ``Sensitivity(norm=...)``, how far theta may move as a whole. ``shape`` is the shape of one setting's
    theta. ``table`` may be shared by several accountants with the same orders on the same device, so that
    each page of divergences is filled once; so may ``information``, the table of equivalent informations.

    Guarantee: that of ``PerInstanceAccountant``, setting by setting. A law on the whole line is charged
    its upper bound over all theta, which is exact for the Gaussian. Where the whole move may go into one
    coordinate the coordinate with the largest equivalent information is charged.
    """

    def __init__(
        self,
        mechanisms: Sequence[Mechanism],
        sensitivities: Sequence[float | Sensitivity],
        shape: Sequence[int],
        table: GridTable | None = None,
        information: GridTable | None = None,
    ) -> None:
        self._table = table or GridTable(checked_orders(DEFAULT_ORDERS))
        orders, device = self._table.orders, self._table.device
        self._information = information or GridTable(orders, device, EQUIVALENT_INFORMATION)
        self._accounts = [
            PerInstanceAccountant(mechanism, sensitivity, orders)
            for mechanism, sensitivity in zip(mechanisms, sensitivities, strict=True)
        ]
        self._plain: dict[int, Setting] = {}  # every coordinate moves
        self._norms: dict[int, Setting] = {}  # the whole move may go into one coordinate
        known: dict[tuple[Setting, bool], tuple[float, float]] = {}  # ceilings of equal settings, found once
        self._ceilings = []
        for i, account in enumerate(self._accounts):
            size = account.sensitivity.binding(torch.Size(shape))
            if size.farthest.numel() != 1 or not (size.is_plain or float(size.farthest) == size.norm):
                raise ValueError(f"sensitivities[{i}] must be a number or a norm alone, got {size}")
            setting = Setting.of(account.mechanism, float(size.farthest))
            if not (account.mechanism.whole or _on_the_whole_line(account.mechanism)):
                (self._plain if size.is_plain else self._norms)[i] = setting
            if (key := (setting, size.is_plain)) not in known:
                known[key] = ceilings(account.mechanism, torch.empty(tuple(shape)), account.sensitivity)
            self._ceilings.append(known[key])
        bounded = torch.tensor([pair[1:] for pair in self._ceilings], dtype=torch.float64)
        self._most = (bounded * orders).unsqueeze(1).to(device)  # (settings, 1, orders)
        self._sums = torch.zeros_like(self._most.expand(-1, 2, -1))

    def step(self, theta: Tensor) -> None:
        """Adds one release of each of the first ``len(theta)`` settings. NaN is an error."""
        theta = checks.finite("theta", theta)
        count = len(theta)
        sums = torch.full_like(self._sums[:count], torch.inf)
        if plain := [i for i in self._plain if i < count]:
            sums[plain] = block_sums(self._table, [self._plain[i] for i in plain], theta[plain])
        if norms := [i for i in self._norms if i < count]:
            settings = [self._norms[i] for i in norms]
            lengths = torch.tensor([one.sensitivity for one in settings], dtype=torch.float64).view(-1, 1, 1)
            most = block_maxima(self._information, settings, theta[norms])
            sums[norms] = most * (0.5 * lengths.square() * self._table.orders).to(most.device)
        for i, account in enumerate(self._accounts[:count]):
            if account.mechanism.whole:  # whose divergences have kinks, so that none are tabulated
                own = per_instance_rdp(account.mechanism, theta[i], account.sensitivity, self._table.orders)
                sums[i] = torch.stack((own.forward, own.backward)).to(sums)
        self._sums[:count] += torch.minimum(sums, self._most[:count])
        for account, (gaussian, bounded) in zip(self._accounts[:count], self._ceilings, strict=False):
            account.gaussian_zcdp += gaussian
            account.bounded_zcdp += bounded
            account.steps += 1

    def accounts(self) -> list[PerInstanceAccountant]:
        """The ordinary account of each setting, with the steps so far."""
        for account, sums in zip(self._accounts, self._sums.cpu(), strict=True):
            account.forward, account.backward = sums.clone().unbind(0)
        return list(self._accounts)


def _on_the_whole_line(mechanism: Mechanism) -> bool:
    """Whether the law is a density on all of the line, like the Gaussian's."""
    interval, atoms = mechanism.support.interval, mechanism.support.atoms
    return interval is not None and not atoms and all(bool(torch.isinf(end).all()) for end in interval)


def block_sums(table: GridTable, settings: Sequence[Setting], theta: Tensor) -> Tensor:
    """(settings, 2, orders) on theta's device, forward and backward, one row of theta per setting.

    theta lies on the table's device. NaN is an error.

    Guarantee: at least the exact sums. Between two nodes D is at most its chord times the table's margin; a
    coordinate's place on the chord is known to a millionth of a cell, which is charged at the steepest slope
    around.
    """
    scaled, ends, near = _in_sigmas(settings, theta)
    if len(near) == len(settings):
        return _bounds(table, settings, scaled, ends)
    checks.finite("theta", theta)
    result = scaled.new_empty(len(settings), 2, len(table.orders))
    if near:
        result[near] = _bounds(table, [settings[i] for i in near], scaled[near], [ends[i] for i in near])
    for i in sorted(set(range(len(settings))) - set(near)):
        result[i] = table.sums(settings[i], theta[i]).to(result.device)
    return result


def block_maxima(table: GridTable, settings: Sequence[Setting], theta: Tensor) -> Tensor:
    """(settings, 2, orders): the largest equivalent information among the coordinates of each row of theta.

    Most rows have a coordinate that comes close to the largest information that any theta has: the page
    nearest to 0 is read first, and where it settles the row, no other is filled. Rows out of the table's
    reach are infinite.

    Guarantee: at least the largest value. A coordinate is charged at the larger end of its cell, and a row
    that comes within 0.3 % of the largest information is charged that.
    """
    scaled, ends, near = _in_sigmas(settings, theta)
    result = scaled.new_full((len(settings), 2 * len(table.orders)), torch.inf)
    if near:
        own = [settings[i] for i in near]
        result[near] = _maxima(table, own, scaled[near], [ends[i] for i in near])
    return result.view(len(settings), 2, -1)


def _in_sigmas(settings: Sequence[Setting], theta: Tensor) -> tuple[Tensor, list[list[float]], list[int]]:
    """Theta in units of sigma, the ends of each row, and which rows lie where a table reaches."""
    sigma = torch.tensor([setting.sigma for setting in settings], dtype=torch.float64)
    scaled = theta.flatten(1).double() / sigma.to(theta.device).unsqueeze(1)
    ends = torch.stack(torch.aminmax(scaled, dim=1), dim=1).tolist()
    near = [i for i, setting in enumerate(settings) if shift_is_small(setting) and is_near(*ends[i])]
    return scaled, ends, near


def _maxima(table: GridTable, settings: Sequence[Setting], scaled: Tensor, ends: list[list[float]]) -> Tensor:
    """The maxima of rows that all lie where the table reaches: (settings, 2 orders)."""
    pages = _Pages.between(ends, table.device)
    occupied = _weights(scaled, pages)[:, CELLS + 1 :] > 0
    margin = table.margins(settings).repeat(1, 2).to(scaled.device) * (1 + ROUNDING)
    most = torch.stack(
        [natural_unit(setting.mechanism).square().reciprocal().reshape(()) for setting in settings]
    )
    most = most.to(scaled).unsqueeze(1)
    best, settled = torch.zeros_like(margin), torch.zeros_like(pages.first, dtype=torch.bool)
    for choice in (_nearest(pages, occupied), torch.ones_like(pages.owner, dtype=torch.bool)):
        wanted = (choice & occupied.any(dim=1) & ~settled[pages.owner]).nonzero().squeeze(1)
        owner = pages.owner[wanted]
        rows = table.rows(settings, owner, pages.place[wanted])
        together = at_once(_READ_TOGETHER, each=table.side_by_side.shape[1:].numel())
        for start in range(0, len(rows), together):
            part = slice(start, start + together)
            largest = _largest(table.side_by_side[rows[part]], occupied[wanted[part]])
            best.scatter_reduce_(0, owner[part].unsqueeze(1).expand_as(largest), largest, "amax")
        occupied[wanted] = False
        settled = (best * margin >= _CLOSE * most).all(dim=1)
    bounds = best * margin
    return torch.where(bounds >= _CLOSE * most, most, bounds)


def _nearest(pages: "_Pages", occupied: Tensor) -> Tensor:
    """Marks, for each row, its occupied page nearest to 0, where laws around 0 are most informative."""
    distance = (pages.place + 0.5).abs().masked_fill(~occupied.any(dim=1), torch.inf)
    order = torch.argsort(distance, stable=True)
    order = order[torch.argsort(pages.owner[order], stable=True)]
    return torch.zeros_like(occupied[:, 0]).index_fill(0, order[pages.before], True)


def _largest(pages: Tensor, occupied: Tensor) -> Tensor:
    """The largest value at the ends of the occupied cells of each page, for each of its rows."""
    nodes = pages[..., : CELLS + 1]
    ends = torch.maximum(nodes[..., :-1], nodes[..., 1:])
    return ends.masked_fill(~occupied.unsqueeze(1), 0.0).amax(dim=2)


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


def _bounds(table: GridTable, settings: Sequence[Setting], scaled: Tensor, ends: list[list[float]]) -> Tensor:
    """The sums of rows that all lie where the table reaches; ``scaled`` is theta in units of sigma."""
    pages = _Pages.between(ends, table.device)
    weights = _weights(scaled, pages)
    seen = weights.any(dim=1).nonzero().squeeze(1)
    owner = pages.owner[seen]
    rows = table.rows(settings, owner, pages.place[seen])
    totals = _added_up(table.side_by_side, rows, weights[seen], owner, len(settings))
    raised = table.margins(settings).unsqueeze(1).to(totals.device)
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
    together = at_once(_READ_TOGETHER, each=pages[0].numel())
    for start in range(0, len(rows), together):
        part = slice(start, start + together)
        values = torch.bmm(pages[rows[part]], weights[part].unsqueeze(2)).squeeze(2)
        totals += (owners == owner[part]).double() @ values  # a product adds in a fixed order
    return totals
