"""The chance of each of several normal variables to be the largest, to full relative accuracy.

X_l = location_l + Z_l with independent standard normal Z_l. With u_l = x - location_l, the chance of k is

    p_k = integral of f_k(x) dx,    log f_k(x) = log phi(u_k) + sum over l != k of log Phi(u_l).

**One grid serves all of them.** f_k = prod_l Phi(u_l) * phi(u_k) / Phi(u_k), so that K chances cost K tails
at every node and not K^2. The modes of the f_k are ordered as the locations are, and each f_k is log-concave
with a second derivative of log f_k of at most -1: beyond 8.5 of its mode f_k is below e^-36 of its peak
(proved). The grid covers these windows and leaves out what lies between two of them, however far apart they
are. On a smooth function that falls like this the trapezoidal rule errs exponentially little in 1 / step; its
step is a fixed share of the width of the narrowest f_k, and its error is measured
(tests/numerics/test_largest_normal.py), not proved.

**Ratios are not differences of logarithms.** If the locations move, q_k / p_k - 1 is the mean under f_k / p_k
of expm1(log g_k / f_k), where g_k belongs to the moved locations and log g_k / f_k is a sum of terms that
have full relative accuracy however small the moves are.
"""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ringfence.numerics.blocks import at_once
from ringfence.numerics.normal import LOG_SQRT_TWO_PI, hazard, log_tail, log_tail_ratio

FARTHEST = 1e6  # locations farther behind the largest are moved up to here: their chance is e^(-2.5e11)
_REACH = 8.5  # from a mode to the end of its window: e^-36 of the peak
_SLACK = 5.5  # a mode is at most so far above its estimate
_FURTHER = 20.0  # windows are extended for small ratios by no more: enough for 100 sigma behind
_CLOSE = 0.05  # how well a mode is needed
_STEP, _STEP_OF_MANY, _MANY = 0.45, 0.3, 30  # of the width of the narrowest f_k
_LARGE = 0.5  # moves beyond this may make an f_k narrower than it was
_NUMBERS = 1 << 19  # held at once: 4 MiB
_HEAVY = math.log(0.6)
_STEEP = 600.0  # e^600 and its square root times e^300 are still finite


def completed(log_p: Tensor) -> Tensor:
    """log p_k of outcomes, the first dimension, where that of the likeliest is log(1 - all others).

    Only an outcome of more than 0.6 is replaced: p_k itself may be rounded to 1.

    >>> [float(value) for value in completed(torch.tensor([0.0, -80.0], dtype=torch.float64))]
    [-1.8048513878454153e-35, -80.0]
    """
    heavy = log_p > _HEAVY
    others = torch.exp(log_p).masked_fill_(heavy, 0.0).sum(dim=0)
    return torch.where(heavy, torch.log1p(-others), log_p)


def log_chances(location: Tensor) -> Tensor:
    """log p_k, one row for each variable: (rows, K) locations give (K, rows).

    >>> three = torch.tensor([[0.0, 0.0, 0.0], [40.0, 0.0, 0.0]], dtype=torch.float64)
    >>> [[round(float(value), 6) for value in row] for row in log_chances(three).T]
    [[-1.098612, -1.098612, -1.098612], [-0.0, -404.262491, -404.262491]]
    """
    return log_chances_and_ratios(location, location.new_empty(1, 0, location.shape[1]))[0]


def log_chances_and_ratios(location: Tensor, moves: Tensor) -> tuple[Tensor, Tensor]:
    """log p_k, and log p_k / q_k where q_k is the chance at location + move.

    ``location`` is (rows, K) and ``moves`` (rows, M, K), or (1, M, K) for the same moves in each row. The
    results are (K, rows) and (K, rows, M). Errors of the ratios are relative to the larger of the parts that
    the moved variables contribute: two moves that almost cancel leave fewer digits.

    >>> location = torch.zeros(1, 2, dtype=torch.float64)
    >>> move = torch.tensor([[[1e-9, 0.0]]], dtype=torch.float64)
    >>> ratios = log_chances_and_ratios(location, move)[1].flatten()
    >>> [float(f"{value:.9g}") for value in ratios]  # 1e-9 / sqrt(pi)
    [-5.64189583e-10, 5.64189584e-10]
    """
    rows, count = location.shape
    moves = moves.expand(rows, -1, -1)
    location = (location - location.amax(dim=1, keepdim=True)).clamp(min=-FARTHEST)
    chances = location.new_empty(count, rows)
    ratios = location.new_empty(count, rows, moves.shape[1])
    planned = at_once(_NUMBERS, each=2 * count * (1 + moves.shape[1]))
    for start in range(0, rows, planned):
        some = slice(start, min(start + planned, rows))
        for own, nodes, mine in _Grids(location[some], moves[some]).parts():
            chances[:, start + own] = nodes.log_p
            for first, last, found in _ratios(nodes, mine):
                ratios[:, start + own, first:last] = found
    return completed(chances), ratios


class _Grids:
    """The nodes of some rows: windows around the modes of all f_k, before and after the moves."""

    def __init__(self, location: Tensor, moves: Tensor) -> None:
        self.location, self.moves = location, moves
        down, up = (moves.new_zeros(len(moves)) for _ in range(2))
        if moves.shape[1]:
            down, up = (part.amax(dim=(1, 2)).clamp(min=0) for part in (-moves, moves))
        begin, end, width = _outer_modes(location)
        if bool((torch.maximum(down, up) > _LARGE).any()):
            moved = (location.unsqueeze(1) + moves).flatten(0, 1)
            after = _outer_modes(moved - moved.amax(dim=1, keepdim=True))[2]
            width = torch.minimum(width, after.view(len(location), -1).amin(dim=1))
            begin = begin - _REACH  # some f_k may be wider than it was
        modes = _modes_at_least(location).flip(1)  # ascending
        begins = modes - (_REACH + down.unsqueeze(1))
        ends = modes + (_SLACK + _REACH + up.unsqueeze(1))
        begins[:, 0] = torch.maximum(begin - down, begins[:, 0] - _FURTHER)
        ends[:, -1] = end + up
        skips = (begins[:, 1:] - ends[:, :-1]).clamp_(min=0).cumsum(1)
        self.skips = torch.nn.functional.pad(skips, (1, 0))  # what is left out before each window
        self.ends = (ends - self.skips - begins[:, :1])[:, :-1].contiguous()
        self.first = begins[:, 0]
        self.length = ends[:, -1] - self.first - self.skips[:, -1]
        step = _STEP if location.shape[1] <= _MANY else _STEP_OF_MANY
        self.counts = torch.ceil(self.length / (step * width))

    def parts(self) -> Iterator[tuple[Tensor, "_Nodes", Tensor]]:
        """Some rows with similar numbers of nodes at a time: which, their nodes, and their moves."""
        counts, order = self.counts.sort()
        variables, moves = self.location.shape[1], self.moves.shape[1]
        moved = _most_moved(self.moves)
        start = 0
        while start < len(order):
            # as many rows as fit, if all have as many nodes as the last of them
            needed = counts[start:] * (4 * variables + 3 * moves * (moved + 1))
            fits = needed * torch.arange(1, len(order) - start + 1, device=counts.device) <= _NUMBERS
            stop = start + max(1, int(fits.sum()))
            some = order[start:stop]
            nodes = self._nodes(some, int(counts[stop - 1]))
            yield some, nodes, self.moves[some]
            start = stop

    def _nodes(self, some: Tensor, count: int) -> "_Nodes":
        spacing = self.length[some] / count
        along = torch.arange(count, dtype=spacing.dtype, device=spacing.device) + 0.5
        along = along * spacing.unsqueeze(1)
        window = torch.searchsorted(self.ends[some], along)
        x = self.first[some].unsqueeze(1) + along + self.skips[some].gather(1, window)
        return _Nodes(self.location[some], x, spacing)


def _modes_at_least(location: Tensor) -> Tensor:
    """For each variable, largest first, a number that its mode exceeds by 0 to ``_SLACK``.

    The mode of f_k solves u_k = sum over l != k of h(u_l), h = phi / Phi. Here h(u) is replaced by max(-u,
    0), which is smaller, and which gives a piecewise linear equation. h(u + c) <= max(-u, 0) + h(c) for c =
    ``_SLACK``, and K h(c) < c for K up to 50 million: the mode is no farther than c above.
    """
    ranked = location.sort(dim=1, descending=True).values
    sums = ranked.cumsum(1)
    ranks = torch.arange(1, ranked.shape[1] + 1, dtype=ranked.dtype, device=ranked.device)
    turns = sums - (1 + ranks) * ranked
    above = torch.searchsorted(turns, -ranked.contiguous())  # how many locations are above the solution
    return (ranked + torch.nn.functional.pad(sums, (1, 0)).gather(1, above)) / (1 + above)


def _outer_modes(location: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The ends of the windows of each row without moves, and the width of the narrowest f_k.

    The lowest and the highest mode belong to the lowest and the highest location, and no f_k is narrower at
    its mode than the lowest; a width is 1 / sqrt(-(log f)''), and a log-concave function such as f_k is
    narrower still below its mode. A small ratio is the mean of a tail of a moved variable j, about phi(u_j),
    under f_k. The lowest mode of such products is that of f_k phi(u_k) for the lowest location, and the
    windows reach down to it. Newton's method on a convex function, from below: it never passes the mode.
    """
    estimates = _modes_at_least(location)
    lowest, highest = location.argmin(dim=1), location.argmax(dim=1)
    own = torch.stack((lowest, highest, lowest), dim=1).unsqueeze(2)
    at = location.gather(1, own.squeeze(2)).unsqueeze(2)
    x = torch.stack((estimates[:, -1], estimates[:, 0], at[:, 0, 0] * (2 / 3)), dim=1).unsqueeze(2)
    peaks = torch.tensor([[1.0], [1.0], [2.0]], dtype=x.dtype, device=x.device)  # factors phi(u_k)
    while True:
        u = x - location.unsqueeze(1)
        hazards = hazard(-u).scatter_(2, own, 0.0)
        slopes = (hazards * (u + hazards)).clamp_(0, 1).scatter_(2, own, 0.0)
        curvature = peaks + slopes.sum(dim=2, keepdim=True)
        step = (hazards.sum(dim=2, keepdim=True) - peaks * (x - at)) / curvature
        x = x + step.clamp(min=0)
        if not bool((step > _CLOSE).any()):
            break
    x, widths = x.squeeze(2), torch.rsqrt(curvature.squeeze(2))
    return (x - _REACH * widths)[:, ::2].amin(dim=1), x[:, 1] + _CLOSE + _REACH, widths[:, 0]


class _Nodes:
    """Nodes of some rows, and the shares of the f_k at them: (rows, K, nodes)."""

    def __init__(self, location: Tensor, x: Tensor, spacing: Tensor) -> None:
        self.u = x.unsqueeze(1) - location.unsqueeze(2)
        tails = log_tail(-self.u)
        log_f = tails.sum(dim=1, keepdim=True) - tails - 0.5 * self.u * self.u
        peak = log_f.amax(dim=2, keepdim=True)
        self.log_shares = log_f - peak
        sums = torch.exp(self.log_shares).sum(dim=2, keepdim=True)
        self.log_shares -= torch.log(sums)
        self.shares = torch.exp(self.log_shares)
        log_p = (peak + torch.log(sums)).squeeze(2) + torch.log(spacing).unsqueeze(1) - LOG_SQRT_TWO_PI
        self.log_p = log_p.T


def _most_moved(moves: Tensor) -> int:
    """The largest number of variables that one move moves, at least 1."""
    return max(1, int((moves != 0).sum(dim=2).amax())) if moves.numel() else 1


def _ratios(nodes: _Nodes, moves: Tensor) -> Iterator[tuple[int, int, Tensor]]:
    """log p / q for some of the moves at a time: the first, the last, (K, rows, moves)."""
    moved = _most_moved(moves)
    rows, _, count = nodes.u.shape
    length = at_once(_NUMBERS, each=3 * rows * count * (moved + 1))
    for first in range(0, moves.shape[1], length):
        last = min(first + length, moves.shape[1])
        some = moves[:, first:last]
        places = some.abs().topk(moved, dim=2).indices  # unused ones hold moves of 0
        yield first, last, _log_ratios(nodes, some.gather(2, places), places).permute(2, 0, 1)


def _log_ratios(nodes: _Nodes, sizes: Tensor, places: Tensor) -> Tensor:
    """log p / q, (rows, M, K)."""
    rows, _, count = nodes.u.shape
    losses, gains = _changes(nodes.u, sizes, places)
    places = places.expand(rows, -1, -1)
    every = losses.sum(dim=2)  # log g_k / f_k for every k that is not moved
    own = every.unsqueeze(2) - losses + gains  # and for those that are moved
    index = places.reshape(rows, -1, 1).expand(-1, -1, count)

    def means(shares: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        """The mean under f_k / p_k of a function of log g_k / f_k."""
        result = torch.bmm(function(every), shares.mT)
        weights = shares.gather(1, index).view_as(own)
        return result.scatter_(2, places, (weights * function(own)).sum(dim=3))

    largest = max(float(part.abs().amax()) for part in (every, own))
    if largest > _STEEP:
        change = means(nodes.shares, lambda log_ratio: torch.expm1(log_ratio.clamp(max=_STEEP)))
        log_ratio = torch.stack(
            [torch.logsumexp(nodes.log_shares + one.unsqueeze(1), dim=2) for one in every.unbind(1)], dim=1
        )
        weights = nodes.log_shares.gather(1, index).view_as(own)
        log_ratio.scatter_(2, places, torch.logsumexp(weights + own, dim=3))
        # where a share that underflows matters, the two disagree
        small = (change.abs() < 0.5) & ((torch.log1p(change) - log_ratio).abs() < 1e-6)
        return -torch.where(small, torch.log1p(change), log_ratio)
    change = means(nodes.shares, torch.expm1)
    if bool((change < -0.5).any()):
        return -torch.where(change < -0.5, torch.log(means(nodes.shares, torch.exp)), torch.log1p(change))
    return -torch.log1p(change)


def _changes(u: Tensor, sizes: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """The change of log f_k of the others by each moved variable, and of its own: (rows, M, moved, nodes)
    each."""
    rows, variables, count = u.shape
    shape = (rows, *sizes.shape[1:], count)
    index, kinds = places, sizes.unique()
    few = variables * len(kinds) < sizes[0].numel()
    if few:  # every variable is moved by each of the distances once
        here, size = u.repeat_interleave(len(kinds), dim=1), kinds.repeat(variables).view(1, -1, 1)
        index = places * len(kinds) + torch.searchsorted(kinds, sizes)
    index = index.reshape(len(index), -1, 1).expand(rows, -1, count)
    if not few:
        here, size = u.gather(1, index), sizes.reshape(len(sizes), -1, 1)
    losses, gains = -log_tail_ratio(-here, size), size * (here - 0.5 * size)
    if few:
        losses, gains = losses.gather(1, index), gains.gather(1, index)
    return losses.view(shape), gains.view(shape)
