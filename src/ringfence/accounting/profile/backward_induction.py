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
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringfence.numerics.rounding import ROUNDING

Array = NDArray[np.float64]

_FINE = 1e-3  # what the grid may add to the variance of the losses, as a share of it
_HALVINGS = 16
_MOST_POINTS = 1 << 16
_MOST_WORK = 2e10  # multiplications; a second is about 1e9
_DEVIATIONS = 10.0  # how far the grid reaches
_FARTHEST = 2.0**52  # points from 0: farther losses are charged as infinite, or raised
LARGEST_VARIANCE = 1e200  # of losses: the squares of larger ones leave the range of floats
NEGLIGIBLE = 1e-40  # an outcome of less mass is charged as if it told everything
_DENSE = 48  # from so many points of mass on, numpy's correlation is faster than shifted copies


class Loss(NamedTuple):
    """The privacy loss of one move on a grid: masses under P at some of its points, and at infinity.

    >>> Loss.of_atoms(np.array([0.5, 0.5]), np.log([2.0, 2 / 3]), step=1.0).places.tolist()
    [-1, 0, 1]
    """

    places: NDArray[np.int64]  # losses divided by the step of the grid, the lowest first
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
        below, share = nearest_below(rho, step)
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
        """The same without finite losses beyond so many points: higher ones are infinite, lower ones raised.

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


def squares(mass: Array, rho: Array) -> Array:
    """E L^2 of losses, over the first dimension; infinite or NaN where floats do not hold it.

    >>> squares(np.array([0.5, 0.5]), np.array([2.0, 1e200])).tolist()
    inf
    """
    with np.errstate(over="ignore", invalid="ignore"):
        total: Array = (mass * rho * rho).sum(axis=0)
    return total


def nearest_below(rho: Array, step: float) -> tuple[NDArray[np.int64], Array]:
    """The points of the grid below these losses, and the shares of their masses that go to the points above.

    >>> nearest_below(np.array([0.25, -0.25]), 0.5)[0].tolist()
    [0, -1]
    """
    below = np.floor(rho / step)
    return below.astype(np.int64), (np.expm1(below * step - rho) / math.expm1(-step)).clip(0, 1)


class Grid(NamedTuple):
    """Losses are multiples of ``step``, and V is held from -``reach`` to ``reach`` steps."""

    step: float
    reach: int

    @classmethod
    def fitted(
        cls, variance: float, farthest: float, releases: float, added: Callable[[float], float]
    ) -> "Grid":
        """The coarsest of some grids of which ``added(step)`` is a small share of the variance.

        ``added`` is what the grid adds to the variance of the losses; ``farthest`` is how far single losses
        go beyond that of a normal law.

        >>> Grid.fitted(1.0, 0.1, 4, added=lambda step: step * step)
        Grid(step=0.03125, reach=356)
        """
        step = 4 * math.sqrt(variance / releases)
        for _ in range(_HALVINGS):
            if added(step) <= _FINE * variance:
                break
            step /= 2
        reach = variance + _DEVIATIONS * math.sqrt(variance) + farthest
        step = max(step, 2 * reach / _MOST_POINTS)
        return cls(step, math.ceil(reach / step))


def induction(
    releases: Sequence[tuple[Sequence[Loss], int]], grid: Grid, at_most: int | None = None
) -> Callable[[float], float] | None:
    """delta(epsilon) of these releases, each given by the losses of its moves and how often it is made.

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
    work = sum(count * sum(len(loss.places) for loss in losses) for losses, count in releases) * length
    if work > _MOST_WORK:
        return None
    rows = 1 if work * rows > _MOST_WORK else rows  # that all may move holds whatever else is known
    releases = [([loss.within(length) for loss in losses], count) for losses, count in releases]
    pad = max(int(np.abs(loss.places).max(initial=0)) for losses, _ in releases for loss in losses)
    x = step * np.arange(-reach, reach + 1)
    values = np.tile(-np.expm1(-np.maximum(x, 0.0)), (rows, 1))
    padded = np.empty((rows, length + 2 * pad))
    beyond = np.exp(-step * np.arange(1, pad + 1))
    for losses, count in releases:
        for _ in range(count):
            padded[:, :pad] = values[:, :1]  # V grows with x
            padded[:, pad : pad + length] = values
            padded[:, pad + length :] = 1 - (1 - values[:, -1:]) * beyond  # the chord to u = 0, where V is 1
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
