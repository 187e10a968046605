"""delta(epsilon) of many releases, of which a record moves each in the way that is worst: backward induction.

Let V_j(x) be the largest expectation of (1 - e^-(x + L))+ over what a record can still do once j of n
releases are out, where L sums the losses of the releases to come. Then

    V_n(x) = (1 - e^-x)+,    V_(j-1)(x) = max over the moves of release j of E V_j(x + L_j),

and delta(epsilon) = V_0(-epsilon), for every epsilon at once. The move may depend on the loss so far, which
includes every record whose moves are fixed. A record that moves at most m of the releases has V for every
number of moves that are left. Compared with the envelope of the hockey sticks of each release, where even the
threshold of the test may decide on the move, little is lost: the maximum is that of whole functions.

Losses are put on a grid as dp-accounting connects the dots (Doroshenko et al. 2022): V is convex in
u = e^-x, as (1 - u)+ is, so its chord between two points of the grid lies above it. Everything is a sum of
positive terms: small deltas keep their digits, and there is no rounding of Fourier transforms to charge.

A loss comes from a pair of laws with finitely many outcomes (``Loss.of_atoms``) or from a hockey stick
(``Loss.of_curve``). E V(x + L) is a sum of hockey sticks with weights that are not negative, so a relative
error of a hockey stick is at most that relative error of V.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ringfence.mechanisms import pieces
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.numerics.blocks import at_once
from ringfence.numerics.normal import log_tail_ratio
from ringfence.numerics.rounding import ROUNDING

Array = NDArray[np.float64]
Places = NDArray[np.int64]  # points of a grid
Entry = TypeVar("Entry", bound=tuple[Any, ...])
Dominating = tuple[tuple[str, float, int], ...]  # names of pairs of laws, their parameter, how many releases

_FINE = 1e-3  # what the grid may add to the variance of the losses, as a share of it
_HALVINGS = 16
_MOST_POINTS = 1 << 16
_MOST_WORK = 2e10  # multiplications; a second is about 1e9
_DEVIATIONS = 10.0  # how far the grid reaches
_FARTHEST = 2.0**52  # points from 0: farther losses are charged as infinite, or raised
_LARGEST_VARIANCE = 1e200  # of losses: the squares of larger ones leave the range of floats
NEGLIGIBLE = 1e-40  # an outcome of less mass is charged as if it told everything
_LIKELY = 1e-16  # outcomes of less mass do not decide how far the grid reaches
_MOST_PER_RANGE, _LEAST_PER_RANGE = 32, 4  # points of the grid in the shortest range
_MOST_RANGE_WORK = 5e6  # values of V, times cells; a second is about 3e7
_LEAST_RANGE, _LARGEST_LOSS = 1e-9, 600.0
_HELD = 1 << 21  # points of moves that are held at once
_LOOKED_AT = 256  # releases
_CELLS = (0.02, 0.05, 0.1)  # of yes and no: widths near a tie, and as a share of the distance from it beyond
_FARTHEST_TIE = 9.0
_MOST_OF_COINS, _MOST_COIN_WORK = 2000, 1.2e9  # points of the grid above 0, multiplications
_PER_LOSS = 8  # points of the grid in the smallest of several losses
_DENSE = 48  # points of mass from which on numpy's correlation is faster than shifted copies


class Loss(NamedTuple):
    """The privacy loss of one move on a grid: masses under P at some of its points, and at infinity.

    >>> Loss.of_atoms(np.array([0.5, 0.5]), np.log([2.0, 2 / 3]), step=1.0).places.tolist()
    [-1, 0, 1]
    """

    places: Places  # losses divided by the step of the grid, the lowest first
    masses: Array
    infinite: float

    @classmethod
    def of_atoms(cls, mass: Array, rho: Array, step: float) -> "Loss":
        """The loss of a pair of laws of atoms, which is ``rho`` with probability ``mass``.

        An atom is split between the two points around it so that its mass under P and under Q stays.
        """
        counted = (mass > NEGLIGIBLE) & (rho < _FARTHEST * step)
        infinite = float(mass[~counted].sum())
        mass, rho = mass[counted], rho[counted].clip(min=-_FARTHEST * step)
        below, share = _nearest_below(rho, step)
        places = np.concatenate((below, below + 1))
        places, index = np.unique(places, return_inverse=True)
        masses: Array = np.bincount(index, np.concatenate((mass * (1 - share), mass * share))).astype(float)
        return cls(places[masses > 0], masses[masses > 0], infinite)

    @classmethod
    def of_curve(cls, curve: Array, first: int, step: float, slopes: Array | None = None) -> "Loss":
        """The loss whose hockey stick is this curve at the points ``first``, ``first`` + 1, ...

        The masses are what the slope in e^epsilon changes by. ``slopes`` of the chords, turned positive, are
        given where they are known better than by differences. Rounding may make a mass negative, which then
        counts as 0: that is upwards.

        >>> Loss.of_curve(np.array([1 - math.exp(-1.0), 0.25, 0.0]), -1, 1.0).masses.round(3).tolist()
        [0.145, 0.459, 0.395]
        """
        z = np.exp(step * (first + np.arange(len(curve))))
        slopes = -np.diff(curve) / np.diff(z) if slopes is None else slopes
        masses = np.zeros_like(curve)
        masses[1:] = (np.append(-np.diff(slopes), slopes[-1:]) * z[1:]).clip(min=0)
        masses[0] = max(0.0, 1 - curve[-1] - masses.sum())
        places = np.flatnonzero(masses)
        return cls(first + places, masses[places], float(curve[-1]))

    def within(self, longest: int) -> "Loss":
        """The same without finite losses beyond ``longest`` points: higher ones infinite, lower ones raised.

        >>> Loss(np.array([-9, 0, 9]), np.full(3, 1 / 3), 0.0).within(5).places.tolist()
        [-5, 0]
        """
        high = self.places > longest
        infinite = self.infinite + float(self.masses[high].sum())
        return Loss(self.places[~high].clip(min=-longest), self.masses[~high], infinite)

    def expected(self, values: Array, before: int) -> Array:
        """E V(x + L), where ``values`` holds V with ``before`` more points at both ends than asked for."""
        length = values.shape[-1] - 2 * before
        total = np.full((*values.shape[:-1], length), self.infinite)  # V is never above 1
        if len(self.places) < _DENSE:
            for place, mass in zip(self.places.tolist(), self.masses.tolist(), strict=True):
                total += mass * values[..., before + place : before + place + length]
            return total
        masses = np.bincount(self.places - self.places[0], self.masses)
        start = before + int(self.places[0])
        for row, own in zip(np.atleast_2d(total), np.atleast_2d(values), strict=True):
            row += np.correlate(own[start : start + length + len(masses) - 1], masses, "valid")
        return total


def _squares(mass: Array, rho: Array) -> Array:
    """E L^2 of losses, over the first dimension; infinite or NaN where floats do not hold it."""
    with np.errstate(over="ignore", invalid="ignore"):
        total: Array = (mass * rho * rho).sum(axis=0)
    return total


def _nearest_below(rho: Array, step: float) -> tuple[Places, Array]:
    """The points of the grid below these losses, and the shares of their masses for the points above."""
    below = np.floor(rho / step)
    return below.astype(np.int64), (np.expm1(below * step - rho) / math.expm1(-step)).clip(0, 1)


class Grid(NamedTuple):
    """Losses are multiples of ``step``, and V is held from -``reach`` to ``reach`` steps."""

    step: float
    reach: int

    @classmethod
    def fitted(
        cls,
        variance: float,
        farthest: float,
        releases: float,
        added: Callable[[float], float],
        *,
        fine: float = _FINE,
        least: float = 0.0,
    ) -> "Grid":
        """The coarsest of some grids for which ``added(step)`` is at most a share ``fine`` of the variance.

        ``added`` is what the grid adds to the variance of the losses; ``farthest`` is how far single losses
        go beyond that of a normal law. The step is not below ``least``.

        >>> Grid.fitted(1.0, 0.1, 4, added=lambda step: step * step)
        Grid(step=0.03125, reach=356)
        """
        start = 4 * math.sqrt(variance / releases)
        # the coarsest of 2^-k of this, by bisection, which asks few of them
        k = bisect_left(range(_HALVINGS), True, key=lambda k: added(start / 2**k) <= fine * variance)
        step = start / 2**k
        reach = variance + _DEVIATIONS * math.sqrt(variance) + farthest
        step = max(step, 2 * reach / _MOST_POINTS, least)
        return cls(step, math.ceil(reach / step))

    def last_values(self) -> Array:
        """V_n(x) = (1 - e^-x)+ at every point of the grid.

        >>> Grid(1.0, 1).last_values().round(3).tolist()
        [0.0, 0.0, 0.632]
        """
        return -np.expm1(-self.step * np.arange(-self.reach, self.reach + 1).clip(min=0))

    def padded(self, values: Array, pad: int) -> Array:
        """Rows of V with ``pad`` points more at both ends, where it is bounded from above.

        V grows with x, and above the grid its chord to u = 0, where it is 1, lies over it.

        >>> Grid(1.0, 1).padded(np.array([[0.0, 0.0, 0.5]]), 1).round(3).tolist()
        [[0.0, 0.0, 0.0, 0.5, 0.816]]
        """
        above = 1 - (1 - values[:, -1:]) * np.exp(-self.step * np.arange(1, pad + 1))
        return np.concatenate((np.repeat(values[:, :1], pad, axis=1), values, above), axis=1)


Releases = Sequence[tuple[Sequence[Loss], int]]  # the losses of the moves of each, and how often it is made


def induction(
    releases: Releases, grid: Grid, at_most: int | None = None, *, last: Array | None = None
) -> Callable[[float], float] | None:
    """delta(epsilon) of these releases, each given by the losses of its moves and how often it is made.

    ``last`` is V before a further release that is no loss on the grid.

    Guarantee: an upper bound for every record, whichever of the moves it makes at each release, or at
    ``at_most`` of them, also where it chooses by what was released before. None where it would take too long.

    >>> coin = Loss.of_atoms(np.array([0.6, 0.4]), np.log([1.5, 2 / 3]), step=0.001)
    >>> delta = induction([([coin], 2)], Grid(0.001, 2000))
    >>> round(delta(0.0), 3)  # 0.36 - 0.16, both coins on their likelier side
    0.2
    """
    step, reach = grid
    length, total = 2 * reach + 1, sum(count for _, count in releases)
    rows = 1 if at_most is None or at_most >= total else at_most + 1
    work = _work(releases, grid)
    if work > _MOST_WORK:
        return None
    rows = 1 if work * rows > _MOST_WORK else rows  # that all may move holds whatever else is known
    releases = [([loss.within(length) for loss in losses], count) for losses, count in releases]
    pad = max(int(np.abs(loss.places).max(initial=0)) for losses, _ in releases for loss in losses)
    values = np.tile(grid.last_values() if last is None else last, (rows, 1))
    for losses, count in releases:
        for _ in range(count):
            padded = grid.padded(values, pad)
            moved = losses[0].expected(padded, pad)
            for loss in losses[1:]:
                np.maximum(moved, loss.expected(padded, pad), out=moved)
            if rows == 1:
                values = moved
            else:  # row i has i moves left, of which this release takes one or none
                np.maximum(values[1:], moved[:-1], out=values[1:])
    curve = values[-1]
    # each release rounds its sums, and its masses are trusted as far as any divergence here
    factor = 1 + ROUNDING * (1 + total)

    def delta(epsilon: float) -> float:
        place = reach - epsilon / step
        if place < 0:
            return float(curve[0]) * factor
        left = min(int(place), length - 2)
        share = math.expm1((left - place) * step) / math.expm1(-step)
        return float((1 - share) * curve[left] + share * curve[left + 1]) * factor

    return delta


def _work(releases: Releases, grid: Grid) -> float:
    """The multiplications that an induction over these releases takes."""
    places = sum(count * sum(len(loss.places) for loss in losses) for losses, count in releases)
    return places * (2.0 * grid.reach + 1)


def _worst_coins(values: Array, width: int, step: float) -> Array:
    """max over t of E V(x + L), L a coin with the losses t and t - width * step.

    ``values`` holds V with ``width`` more points at both ends than asked for.
    """
    length = len(values) - 2 * width
    worst = values[width : width + length].copy()  # t = 0: nothing happens
    shrink, whole = -math.expm1(-step), math.expm1(width * step)
    for place in range(width):  # t in [place, place + 1] * step
        high, higher = (values[width + place + more :][:length] for more in (0, 1))
        low, lower = (values[place + more :][:length] for more in (0, 1))
        rise, rise_low = higher - high, lower - low
        # s = s_0 (1 - share shrink); where the slope in s vanishes, (s / s_0)^2 is this
        with np.errstate(divide="ignore", invalid="ignore"):
            square = (shrink * (high - low) + rise - rise_low) / ((whole + 1) * rise - rise_low)
            share = ((1 - np.sqrt(square * math.exp(place * step))) / shrink).clip(0, 1)
        share = np.where(np.isfinite(share), share, 0.0)
        t = place * step - np.log1p(-share * shrink)
        top, bottom = high + share * rise, low + share * rise_low
        np.maximum(worst, top - (top - bottom) * (np.expm1(t) / whole), out=worst)
        np.maximum(worst, high - (high - low) * (math.expm1(place * step) / whole), out=worst)
    return worst


def _range_curve(eta: float, count: int) -> tuple[Array, Array] | None:
    """``dominated_curve`` of releases whose losses lie in intervals of one known length.

    Where the interval of a release lies may depend on what was released before. Losses in [t - eta, t] are
    dominated by a pair of coins with the losses t and t - eta. V is held by its chords in u = e^-x on a grid
    of which eta is a multiple. While t moves within a cell of the grid, the expectation of these chords is a
    concave function of s = e^-t, whose maximum is known: at every point of the grid it is taken over all t
    (docs/guarantees.md).
    """
    if eta < _LEAST_RANGE or eta * count > _LARGEST_LOSS:
        return None
    variance = count * eta**2 / 4
    farthest = min(count, (variance + _DEVIATIONS * math.sqrt(variance)) / eta)  # in units of eta
    points = min(_MOST_PER_RANGE, int(math.sqrt(_MOST_RANGE_WORK / (count * farthest))))
    if points < _LEAST_PER_RANGE:
        return None
    grid = Grid(eta / points, math.ceil(farthest * points))
    values = grid.last_values()
    for _ in range(count):
        values = _worst_coins(grid.padded(values[None], points)[0], points, grid.step)
    epsilons: Array = grid.step * np.arange(grid.reach + 1, dtype=np.float64)
    return epsilons, values[grid.reach :: -1] * (1 + ROUNDING * (1 + count))


def _sign_curve(mu: float, count: int) -> tuple[Array, Array] | None:
    """``dominated_curve`` of yes and no: coins with the chances Phi(t + mu) and Phi(t), whatever t is.

    The t of a coin, and its direction, may depend on what was released before. Both losses fall with t. While
    t moves from a to b they lie between that of no at b and that of yes at a, and the coin with these two
    dominates all that have losses between them. Beyond the last cell no loss exceeds that of yes there, and
    before the first one yes has next to no chance and counts as if it told everything (docs/guarantees.md).
    """
    if not mu * mu * count <= _LARGEST_LOSS:
        return None
    # no at t is yes at -t - mu, seen from the neighbour
    eta = float(_losses_of_yes(np.array([-mu / 2]), mu)[0])  # of a tie, where most is lost
    most = count * eta**2 / 2 + _DEVIATIONS * math.sqrt(count) * eta + 2 * eta
    grid = Grid(step := max(eta / _PER_LOSS, most / _MOST_OF_COINS), math.ceil(most / step))
    for width in _CELLS:
        half = math.ceil(math.asinh(_FARTHEST_TIE + mu / 2) / width)
        if count * 8.0 * half * (2 * grid.reach + 1) <= _MOST_COIN_WORK:
            break
    else:
        return None
    ends = np.sinh(width * np.arange(-half, half + 1))  # of the cells of t + mu / 2
    yes, no = (_losses_of_yes(sign * ends - mu / 2, mu) * (sign * (1 + ROUNDING)) for sign in (1, -1))
    high, low = yes[:-1], no[1:]
    chance = np.expm1(low) / np.expm1(low - high)
    rare = 0.5 * math.erfc((float(ends[-1]) - mu / 2) / math.sqrt(2)) * (1 + ROUNDING)
    losses = [Loss(np.array([0]), np.array([1 - rare]), rare), Loss.of_atoms(np.ones(1), yes[-1:], step)]
    for p, *both in zip(chance, high, low, strict=True):
        losses.append(Loss.of_atoms(np.array([p, 1 - p]), np.array(both), step))
    delta = induction([(losses, count)], grid)
    return None if delta is None else _tabulated(delta, grid)


def _losses_of_yes(t: Array, mu: float) -> Array:
    """log Phi(t + mu) / Phi(t)."""
    at = torch.from_numpy(-t - mu)
    found: Array = log_tail_ratio(at, torch.full_like(at, mu)).numpy()
    return found


def _tabulated(delta: Callable[[float], float], grid: Grid) -> tuple[Array, Array]:
    """(epsilon, delta) at the points of a grid from 0 on."""
    epsilons: Array = grid.step * np.arange(grid.reach + 1, dtype=np.float64)
    return epsilons, np.array([delta(epsilon) for epsilon in epsilons.tolist()])


@lru_cache(maxsize=64)
def dominated_curve(pairs: Dominating) -> tuple[Array, Array] | None:
    """Many (epsilon, delta), epsilon from 0 on, of releases that these pairs of laws dominate.

    A pair is "range" for losses in an interval of that length, "sign" for the sign of a Gaussian release with
    that mu, "pure" for epsilon-differential privacy, or "gaussian" for mu-GDP. None where ranges or signs
    come with others or differ, since their order would matter, where it would take long, and where floats do
    not hold it.

    Guarantee: upper bounds. Randomised response, whose losses are epsilon and -epsilon, dominates every
    epsilon-differentially private release (Kairouz, Oh and Viswanath 2015), and pairs that do not depend on
    earlier releases compose also where these decide what comes next.

    >>> epsilons, deltas = dominated_curve((("pure", 1.0, 2),))
    >>> exact = (math.exp(2.0) - 1) / (1 + math.exp(1.0)) ** 2  # at epsilon 0, where both losses are 1
    >>> epsilons.tolist(), round(float(deltas[0]) / exact, 9), float(deltas[2])
    ([0.0, 1.0, 2.0], 1.0, 0.0)
    """
    if {"range", "sign"} & {name for name, _, _ in pairs}:
        (name, size, count), *others = pairs
        return None if others else _range_curve(size, count) if name == "range" else _sign_curve(size, count)
    pure = [(size, count) for name, size, count in pairs if name == "pure"]
    mu = math.sqrt(math.fsum(count * size * size for name, size, count in pairs if name == "gaussian"))
    variance = math.fsum(count * size * size for size, count in pure) + mu * mu
    most = variance + _DEVIATIONS * math.sqrt(variance) + 2 * max(size for size, _ in pure)
    if not most <= _LARGEST_LOSS:
        return None
    step = min(size for size, _ in pure)
    if len(pure) == 1 and not mu:  # every loss is a multiple of the step
        most = min(most, pure[0][0] * pure[0][1])
    else:
        step = max(min(step, mu or step) / _PER_LOSS, 2 * most / _MOST_POINTS)
    grid = Grid(step, math.ceil(most / step * (1 - ROUNDING)))
    losses = []
    for size, count in pure:
        mass = np.array([1 / (1 + math.exp(-size)), 1 / (1 + math.exp(size))])
        losses.append(([Loss.of_atoms(mass, np.array([size, -size]), step)], count))
    last = None
    if mu:  # the Gaussian comes last: its V is its hockey stick
        places = torch.arange(grid.reach, -grid.reach - 1, -1, dtype=torch.float64) * step
        last = (Gaussian(1.0).hockey_stick(0.0, mu, places) * (1 + ROUNDING)).clamp(0, 1).numpy()
    delta = induction(losses, grid, last=last)
    return None if delta is None else _tabulated(delta, grid)


def dominated_epsilon(pairs: Dominating, delta: float) -> float:
    """The epsilon of releases that these pairs dominate, by ``dominated_curve``; at most the sum of all.

    >>> dominated_epsilon((("range", 0.25, 2),), 0.0), round(dominated_epsilon((("pure", 0.1, 50),), 1e-6), 2)
    (0.500000000005, 3.17)
    """
    every = _added_up(pairs)
    if delta <= 0 or (curve := dominated_curve(pairs)) is None or not delta > curve[1][-1]:
        return every
    # chords in e^epsilon
    above_one = np.interp(delta, curve[1][::-1], np.expm1(curve[0])[::-1])
    return min(every, math.log1p(above_one) * (1 + ROUNDING))


def dominated_delta(pairs: Dominating, epsilon: float) -> float:
    """delta(epsilon) of releases that these pairs dominate.

    >>> dominated_delta((("range", 0.25, 2),), 0.51), round(dominated_delta((("range", 0.1, 50),), 1.54), 6)
    (0.0, 1e-06)
    """
    if epsilon >= _added_up(pairs):
        return 0.0
    if (curve := dominated_curve(pairs)) is None:
        return 1.0
    return float(np.interp(math.exp(epsilon), np.exp(curve[0]), curve[1])) * (1 + ROUNDING)


def merged(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """The entries, of which the last number is a count, with equal ones counted together.

    >>> merged((("pure", 0.1, 1), ("pure", 0.2, 1), ("pure", 0.1, 3)))
    (('pure', 0.1, 4), ('pure', 0.2, 1))
    """
    counts: dict[tuple[Any, ...], int] = {}
    for *kind, count in entries:
        counts[tuple(kind)] = counts.get(tuple(kind), 0) + count
    return tuple(cast(Entry, (*kind, count)) for kind, count in counts.items())


def _added_up(pairs: Dominating) -> float:
    """The largest loss of all together, which neither a Gaussian nor its sign has."""
    losses = (size * count if name in ("range", "pure") else math.inf for name, size, count in pairs)
    return math.fsum(losses) * (1 + ROUNDING)


class Others(NamedTuple):
    """Moves of a voter between candidates behind the second, which ``Pairs`` leave out, and what bounds them.

    ``second`` is the outcome of the second candidate, (releases,). The others are moves that are there,
    (moves, releases): to the second from those behind it, from the second to them, and those that take a
    voter from one behind or give one to it, and nothing else.
    """

    second: Tensor
    to_second: Tensor
    from_second: Tensor
    alone: Tensor


class Pairs(NamedTuple):
    """Releases with finitely many outcomes and the moves of a record: (outcomes, moves, releases).

    ``log_p`` are log masses, and ``rho`` log ratios to those of the neighbour. Release j is made
    ``repeats[j]`` times. A move that changes nothing may be among the moves. ``others`` are those left out.
    """

    log_p: Tensor
    rho: Tensor
    repeats: Tensor
    others: Others | None = None

    def seen(self) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Log masses and log ratios as they are seen from either law."""
        return (self.log_p.expand_as(self.rho), self.rho), (self.log_p - self.rho, -self.rho)

    def directions(self) -> list[tuple[Array, Array]]:
        """The same as masses and log ratios, which are trusted as far as divergences are."""
        margin = ROUNDING * self.rho.abs()
        return [(log_mass.exp().numpy(), (ratio + margin).numpy()) for log_mass, ratio in self.seen()]


def atoms_delta(parts: Sequence[Pairs], at_most: int | None = None) -> Callable[[float], float] | None:
    """An upper bound of delta(epsilon) of all these releases together, in both directions.

    A record makes any one of its moves at every release, or at ``at_most`` of them. None where it would take
    too long, or where floats do not hold the losses.

    Guarantee: exact, up to a rounding that is charged, where one release moves; else as ``induction``.

    >>> p, q = torch.tensor([0.5, 0.5]).double(), torch.tensor([0.25, 0.75]).double()
    >>> pair = p.log().reshape(2, 1, 1), (p / q).log().reshape(2, 1, 1)
    >>> once, twice = (atoms_delta([Pairs(*pair, torch.tensor([count]))]) for count in (1, 2))
    >>> round(once(0.0), 6), round(twice(0.0), 3)  # 3/4 - 1/2, and 9/16 - 1/4
    (0.25, 0.313)
    """
    repeats = np.concatenate([part.repeats.numpy() for part in parts]).astype(np.int64)
    total = int(repeats.sum())
    if min(total, at_most or total) == 1:
        return _single(parts)
    dearest = np.concatenate([_costliest(part) for part in parts], axis=-1)
    costs = np.maximum(*(_squares(*own) for own in dearest))
    if not costs.any():
        return lambda epsilon: 0.0
    if not costs.max() < _LARGEST_VARIANCE:
        return None
    costliest = np.argsort(-costs)
    ranked, moved = repeats[costliest], np.empty_like(repeats)  # those that cost most
    moved[costliest] = ((at_most or total) - (ranked.cumsum() - ranked)).clip(0, ranked)
    grid = _grid(dearest, moved)
    if grid.step > _LARGEST_LOSS and any(part.rho.shape[1] > 2 for part in parts):  # which have envelopes
        return None
    some = slice(None, None, 1 + len(repeats) // _LOOKED_AT)  # which say how long all would take
    few = [Pairs(part.log_p[..., some], part.rho[..., some], part.repeats[some]) for part in parts]
    looked_at = [
        own for part in few for own in zip(_losses(part, 0, grid), part.repeats.tolist(), strict=True)
    ]
    if _work(looked_at, grid) * total > _MOST_WORK * sum(count for _, count in looked_at):
        return None

    def releases(direction: int) -> Releases:
        losses = [loss for part in parts for loss in _losses(part, direction, grid)]
        return [(losses[j], int(repeats[j])) for j in costliest]

    return in_both_directions(releases, grid, at_most)


def in_both_directions(
    releases: Callable[[int], Releases], grid: Grid, at_most: int | None = None
) -> Callable[[float], float] | None:
    """The larger ``induction`` of the releases as they are seen from either law, 0 and 1."""
    if (forward := induction(releases(0), grid, at_most)) is None:
        return None
    if (backward := induction(releases(1), grid, at_most)) is None:
        return None
    return lambda epsilon: max(forward(epsilon), backward(epsilon))


def _single(parts: Sequence[Pairs]) -> Callable[[float], float]:
    """The largest hockey stick of all moves, releases and both directions: exact for a single move."""

    def delta(epsilon: float) -> float:
        at = torch.tensor(epsilon, dtype=torch.float64)
        sticks = (pieces.hockey_stick(*pair, at).max() for part in parts for pair in part.seen())
        return float(max(sticks)) * (1 + ROUNDING)

    return delta


def _costliest(part: Pairs) -> Array:
    """Masses and ratios of the move of each release with the largest E L^2.

    (directions, masses or ratios, outcomes, releases).
    """
    found = []
    for own in part.directions():
        worst = _squares(*own).argmax(axis=0)[None, None, None]
        found.append(np.take_along_axis(np.stack(own), worst, axis=2)[:, :, 0])
    return np.stack(found)


def _grid(dearest: Array, counts: Places) -> Grid:
    """A grid for releases whose costliest moves these are, in both directions, made as often as is said."""

    def largest(of_atoms: Callable[[Array, Array], Array]) -> float:
        return max(float(of_atoms(*own).sum(axis=0) @ counts) for own in dearest)

    def added(step: float) -> float:
        def of_atoms(mass: Array, ratio: Array) -> Array:
            above = ratio - step * np.floor(ratio / step)
            return mass * above * (step - above)

        return largest(of_atoms)

    highest = [np.where(mass > _LIKELY, ratio, 0.0).max(axis=0) for mass, ratio in dearest]
    farthest = max(min(float(own @ counts), 2 * float(own.max())) for own in highest)
    variance = largest(lambda mass, ratio: mass * ratio * ratio)
    return Grid.fitted(variance, farthest, float(counts.sum()), added)


def _losses(part: Pairs, direction: int, grid: Grid) -> list[list[Loss]]:
    """The losses of each release; those beyond the grid are infinite or raised to it, as ``Loss.within``."""
    farthest = (2 * grid.reach + 1) * grid.step
    mass, ratio = part.directions()[direction]
    rho = np.where((ratio > farthest) | (mass <= NEGLIGIBLE), np.inf, ratio.clip(min=-farthest))
    points = 2 + np.ptp(np.where(rho < np.inf, rho, 0.0), axis=(0, 1)) // grid.step
    stand_in = None if part.others is None else (part.others.to_second | part.others.from_second).numpy()
    widest, start = np.argsort(-points), 0
    found: list[list[Loss]] = [[] for _ in widest]
    while start < len(widest):  # some that need similar numbers of points at a time
        some = widest[start : start + at_once(_HELD, each=rho.shape[1] * int(points[widest[start]]))]
        own = worst_losses(
            mass[..., some], rho[..., some], grid.step, None if stand_in is None else stand_in[:, some]
        )
        for release, losses in zip(some, own, strict=True):
            found[release] = losses
        start += len(some)
    return found


def worst_losses(
    mass: Array, rho: Array, step: float, stand_in: NDArray[np.bool_] | None = None
) -> list[list[Loss]]:
    """At most three losses on the grid that dominate the moves of each release, (outcomes, moves, releases).

    Two moves stay as they are. Of more, those whose losses are skewed upwards share the envelope of their
    hockey sticks, and so do those skewed downwards. Most of them lie below one of them but for the tails, so
    that little is lost; one envelope of both kinds would lose much more. Moves that stand for others share
    an envelope of both kinds besides, which covers those.

    >>> four = torch.tensor([[0.1], [-0.1], [0.2], [-0.2]]).double()
    >>> from ringfence.mechanisms.sign import StochasticSign
    >>> log_p, rho = StochasticSign(1.0).pair(torch.tensor([2.0]).double(), four)
    >>> [len(losses) for losses in worst_losses(log_p.expand_as(rho).exp().numpy(), rho.numpy(), 0.01)]
    [2]
    """
    _, moves, releases = mass.shape
    if moves <= 2:
        return [
            [Loss.of_atoms(mass[:, move, j], rho[:, move, j], step) for move in range(moves)]
            for j in range(releases)
        ]
    masses, infinite, first, lengths = _on_grid(mass, rho, step)
    loss = np.where(rho < np.inf, rho, 0.0)
    away = loss - (mass * loss).sum(axis=0)
    upwards = (away * away * away * mass).sum(axis=0).T >= 0
    sides = [upwards, ~upwards, *([] if stand_in is None else [stand_in.T])]
    return envelopes(masses, infinite, first, lengths, sides, step)


def _on_grid(mass: Array, rho: Array, step: float) -> tuple[Array, Array, Places, Places]:
    """``Loss.of_atoms`` of many moves: masses, (points, releases, moves), the infinite ones, and the first
    point and the number of points of each release."""
    _, moves, releases = mass.shape
    finite = rho < np.inf
    infinite = np.where(finite, 0.0, mass).sum(axis=0).T
    below, share = _nearest_below(np.where(finite, rho, 0.0), step)
    first = below.min(axis=(0, 1))
    below -= first
    lengths = below.max(axis=(0, 1)) + 2
    mass = np.where(finite, mass, 0.0)
    size, shape = releases * moves, (int(lengths.max()), releases, moves)
    flat = below * size + np.arange(moves)[:, None] + moves * np.arange(releases)
    places = np.concatenate((flat.ravel(), flat.ravel() + size))
    weights = np.concatenate(((mass * (1 - share)).ravel(), (mass * share).ravel()))
    masses: Array = np.bincount(places, weights, math.prod(shape)).astype(float, copy=False)
    return masses.reshape(shape), infinite, first, lengths


def envelopes(
    masses: Array,
    infinite: Array,
    first: Places,
    lengths: Places,
    sides: Sequence[NDArray[np.bool_]],
    step: float,
) -> list[list[Loss]]:
    """Losses whose hockey sticks are, at every point of the grid, the largest of those of some moves.

    The first arguments are those that ``_on_grid`` returns. Each of the ``sides``, (releases, moves), says
    which moves share an envelope. It is convex in e^epsilon, so it belongs to a pair of laws, and that pair
    dominates all of them.

    >>> rows = np.array([[[0.3, 0.2]], [[0.3, 0.3]], [[0.4, 0.5]]])
    >>> both = np.ones((1, 2), bool)
    >>> [[loss]] = envelopes(rows, np.zeros((1, 2)), np.array([-1]), np.array([3]), [both], 0.1)
    >>> loss.masses.round(3).tolist()  # the second lies above the first
    [0.2, 0.3, 0.5]
    """
    from_above, shrunk = -math.expm1(-step), math.exp(-step)
    with np.errstate(over="ignore"):  # beyond the points of a release
        z = np.exp(step * (first + np.arange(len(masses))[:, None]))
    sticks, weights = from_above * _beyond(masses), _beyond(masses / z[..., None])
    for point in range(len(masses) - 2, -1, -1):
        # (1 - 1/g) (the mass above this point) + (the hockey stick one point up) / g, with g = e^step
        sticks[point] += shrunk * sticks[point + 1]
    every = sticks + infinite
    found: list[list[Loss]] = [[] for _ in first]
    for held in sides:
        active = (every + np.where(held, 0.0, -2.0)).argmax(axis=2)[..., None]
        highest, known = (np.take_along_axis(each, active, axis=2)[..., 0] for each in (every, weights))
        # where one curve is the largest at both ends of a chord, its slope is known without a difference
        is_same = active[1:, :, 0] == active[:-1, :, 0]
        slopes = np.where(is_same, known[:-1], -np.diff(highest, axis=0) / (z[:-1] * math.expm1(step)))
        for j in np.flatnonzero(held.any(axis=1)):
            last = int(lengths[j])
            found[j].append(Loss.of_curve(highest[:last, j], int(first[j]), step, slopes[: last - 1, j]))
    return found


def _beyond(values: Array) -> Array:
    """The sum of all that comes later in the first dimension, at each of its places."""
    total = np.zeros_like(values)
    total[:-1] = values[:0:-1].cumsum(axis=0)[::-1]
    return total
