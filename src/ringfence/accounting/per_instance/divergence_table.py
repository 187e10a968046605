"""Divergences at nodes along theta, tabulated on pages one sigma wide, for any number of settings.

Between two nodes D is at most its chord times ``above_chord`` (curvature.py). A sum over coordinates is
therefore bounded from above by how often each cell is hit, and where in the cell.

The table has two readers, because neither serves both uses. ``HistogramSums`` reads one theta of 1e8
coordinates with torch.histc, which needs no memory that grows with theta, and gives sums up to 0.5 % above
the exact ones. ``block_sums`` reads the thetas of many settings at once, places every coordinate to a
millionth of a cell, and gives sums 1e-5 above the exact ones; on one long theta it takes nine times as long
and 37 bytes per coordinate.
"""

from collections.abc import Callable, Sequence
from itertools import groupby

import torch
from torch import Tensor

from ringfence.accounting.per_instance.curvature import above_chord
from ringfence.accounting.per_instance.divergence_sums import both_directions
from ringfence.accounting.per_instance.equivalent_information import equivalent_information
from ringfence.accounting.per_instance.setting import Setting, stacked
from ringfence.mechanisms.base import Mechanism

# What is tabulated: (law, theta, size of the move, orders) -> (2, orders, shape of theta), where every
# row that comes out is a positive function of theta with f'' >= -K f (curvature.py) or the largest of such.
Tabulated = Callable[[Mechanism, Tensor, Tensor, Tensor], Tensor]

CELLS = 128  # of a page: nodes are 1/128 sigma apart
WIDEST = 256  # sigma; a theta that reaches farther is not read from the table as a whole
_FARTHEST = 1e6  # sigma; farther from 0 float64 no longer tells the parts of a cell apart
# Shifts of more sigma than this are evaluated one by one: at orders below 2 the chords of larger ones
# would be raised by more than 0.3 % (curvature.py).
_LARGEST_SHIFT = 32

# Nodes between evaluated ones, where values are chords. The supremum over moves costs a hundred divergences;
# its chords over 1/16 sigma are raised by 0.26 %.
_STRIDES: dict[Tabulated, int] = {both_directions: 1, equivalent_information: 8}
_SPAN = 1 << 22  # places that a page of a setting may have
_FILLED_TOGETHER = 512  # pages
_AHEAD = 2  # pages on either side that a GPU fills in with a missing one, in nearly the same time
_KEPT = 1 << 28  # numbers: 2 GiB of pages, then a fresh start


class DivergenceTable:
    """Pages of divergences, filled in as theta needs them and kept.

    A row of ``pages`` is a page of one setting, (2 orders, 129 + 128): for both directions and every order,
    D at the 129 nodes of the page, then for each of its 128 cells the steepest slope of that cell and its
    two neighbours. ``tabulated`` is D, or the ``equivalent_information`` in its place.

    >>> from ringfence.mechanisms.truncated import TruncatedGaussian
    >>> table = DivergenceTable(torch.tensor([2.0, 8.0], dtype=torch.float64))
    >>> setting, zero = Setting.of(TruncatedGaussian(1.0, bound=2.0), 1e-3), torch.tensor([0])
    >>> table.rows([setting], zero, zero).tolist(), list(table.pages.shape)
    ([0], [1, 4, 257])
    """

    def __init__(
        self, orders: Tensor, device: torch.device | str = "cpu", tabulated: Tabulated = both_directions
    ) -> None:
        self.orders, self.device, self.tabulated = orders, torch.device(device), tabulated
        self.pages = torch.empty(0, 2 * len(orders), 2 * CELLS + 1, dtype=torch.float64, device=device)
        self._keys = torch.empty(0, dtype=torch.int64, device=device)  # of each row: its setting, its place
        self._settings: dict[Setting, int] = {}

    def rows(self, settings: Sequence[Setting], owner: Tensor, place: Tensor) -> Tensor:
        """The rows of ``pages`` from ``place`` to place + 1 sigma of ``settings[owner]``.

        Missing pages are filled in, and the rows of earlier calls may no longer hold.
        """
        wanted = self._keys_of(settings, owner, place)
        missing = torch.unique(wanted[~torch.isin(wanted, self._keys)])
        if len(missing) and self.device.type != "cpu":
            ahead = torch.arange(-_AHEAD, _AHEAD + 1, device=self.device)
            missing = torch.unique(missing.unsqueeze(1) + ahead)
            missing = missing[~torch.isin(missing, self._keys)]
        if (len(self._keys) + len(missing)) * self.pages.shape[1:].numel() > _KEPT:
            self._keys, self.pages, missing = self._keys[:0], self.pages[:0], torch.unique(wanted)
        if len(missing):
            self._fill(missing)
        keys, order = torch.sort(self._keys)
        return order[torch.searchsorted(keys, wanted)]

    def has(self, settings: Sequence[Setting], owner: Tensor, place: Tensor) -> Tensor:
        """Which of these pages are filled in already."""
        return torch.isin(self._keys_of(settings, owner, place), self._keys)

    def _keys_of(self, settings: Sequence[Setting], owner: Tensor, place: Tensor) -> Tensor:
        numbers = [self._settings.setdefault(setting, len(self._settings)) for setting in settings]
        return torch.tensor(numbers, device=self.device)[owner] * _SPAN + place + _SPAN // 2

    def margin(self, settings: Sequence[Setting]) -> Tensor:
        """By how much D may exceed its chord, as a factor: (settings, orders)."""
        shifts = [[setting.sensitivity / setting.sigma] for setting in settings]
        return above_chord(self.orders, torch.tensor(shifts, dtype=torch.float64), 1 / CELLS)

    def _fill(self, keys: Tensor) -> None:
        """Adds pages, those of settings of one kind in a few long calls."""
        settings = list(self._settings)
        pages = [(key, settings[key // _SPAN], key % _SPAN - _SPAN // 2) for key in keys.tolist()]
        pages.sort(key=lambda page: repr(page[1].kind))
        parts = [self.pages]
        for _, group in groupby(pages, key=lambda page: page[1].kind):
            alike = list(group)
            for start in range(0, len(alike), _FILLED_TOGETHER):
                _, theirs, places = zip(*alike[start : start + _FILLED_TOGETHER], strict=True)
                parts.append(self._evaluated(theirs, places))
        self.pages = torch.cat(parts)
        self._keys = torch.cat((self._keys, torch.tensor([key for key, _, _ in pages], device=self.device)))

    def _evaluated(self, settings: Sequence[Setting], places: Sequence[int]) -> Tensor:
        """The pages of settings of one kind at these places."""
        law = stacked([setting.mechanism for setting in settings], 1)
        columns = [[setting.sensitivity, place] for setting, place in zip(settings, places, strict=True)]
        size, place = torch.tensor(columns, dtype=torch.float64, device=self.device).split(1, dim=1)
        # one node more on either side
        index = torch.arange(-1, CELLS + 2, dtype=torch.float64, device=self.device)
        nodes = self._at(index, place, law, size).flatten(0, 1).transpose(0, 1)
        steepest = torch.diff(nodes).abs().unfold(2, 3, 1).amax(dim=3)
        return torch.cat((nodes[..., 1:-1], steepest), dim=2)

    def _at(self, index: Tensor, place: Tensor, law: Mechanism, size: Tensor) -> Tensor:
        """Upper bounds at these nodes of each page: (2, orders, pages, nodes)."""
        sigma, stride = law.sigma.to(self.device), _STRIDES[self.tabulated]
        if stride == 1:
            return self.tabulated(law, (index + place * CELLS) / CELLS * sigma, size, self.orders)
        coarse = torch.arange(-1, CELLS // stride + 2, dtype=torch.float64, device=self.device) * stride
        values = self.tabulated(law, (coarse + place * CELLS) / CELLS * sigma, size, self.orders)
        left = torch.div(index, stride, rounding_mode="floor")
        share, left = index / stride - left, left.long() + 1
        chords = values[..., left] * (1 - share) + values[..., left + 1] * share
        shift = (size / sigma).to(self.orders.device).T  # (1, pages)
        margin = above_chord(self.orders.unsqueeze(1), shift, stride / CELLS).to(self.device)
        return chords * margin.unsqueeze(2)


def shift_is_small(setting: Setting) -> bool:
    """Whether chords bound the divergences of a shift of this size closely enough.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> shift_is_small(Setting.of(Gaussian(1.0), 32.0)), shift_is_small(Setting.of(Gaussian(1.0), 33.0))
    (True, False)
    """
    return setting.sensitivity <= _LARGEST_SHIFT * setting.sigma


def is_narrow(low: float, high: float) -> bool:
    """Whether a theta from ``low`` to ``high`` sigma needs few enough pages; False also for NaN.

    >>> is_narrow(-100.0, 100.0), is_narrow(-200.0, 100.0)
    (True, False)
    """
    return high - low <= WIDEST


def is_near(low: float, high: float) -> bool:
    """Whether a narrow theta lies where the table reaches; False also for NaN.

    >>> is_near(999_900.0, 1e6), is_near(1e6, 1e6 + 1)
    (True, False)
    """
    return is_narrow(low, high) and max(-low, high) <= _FARTHEST
