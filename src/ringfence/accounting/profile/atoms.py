"""delta(epsilon) of releases with few outcomes: which moves can be the worst, and what they cost together.

A release with finitely many outcomes and a move is a pair of rows: ``log_p``, the log masses, and ``rho``,
the log ratios to those of the neighbour. Here they have the shape (outcomes, moves, releases). Both
directions come from the same numbers: seen from the neighbour the masses are ``log_p - rho`` and the ratios
``-rho``.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from ringfence.accounting.coordinates import distinct, with_numbers
from ringfence.accounting.profile.backward_induction import (
    LARGEST_VARIANCE,
    NEGLIGIBLE,
    Array,
    Grid,
    Loss,
    induction,
    nearest_below,
    squares,
)
from ringfence.mechanisms import pieces
from ringfence.mechanisms.base import Mechanism
from ringfence.numerics.rounding import ROUNDING

_LIKELY = 1e-16  # outcomes of less mass do not decide how far the grid reaches


def mechanism_delta(
    mechanism: Mechanism, theta: Tensor, sensitivity: Tensor, steps: int, at_most: int | None = None
) -> Callable[[float], float] | None:
    """``atoms_delta`` of ``steps`` releases of every coordinate of theta, by a law of atoms alone.

    One record moves each coordinate, or ``at_most`` of them in each release, by ``sensitivity`` up or down.

    >>> from ringfence.mechanisms.sign import StochasticSign
    >>> surplus = torch.tensor([40.0, 25.0, -60.0]).double()
    >>> delta = mechanism_delta(StochasticSign(20.0), surplus, torch.tensor(1.0), steps=1)
    >>> 0 < delta(0.2) < delta(0.1) < delta(0.0) < 0.02
    True
    """
    rows, index = distinct(theta, sensitivity, *mechanism.parameters().values())
    moved = rows[:, 1] > 0
    counts = torch.bincount(index.reshape(-1), minlength=len(rows))[moved] * steps
    law, (where, size) = with_numbers(mechanism, rows[moved, 2:].T), rows[moved, :2].T
    log_p, rho = law.pair(where, torch.stack((size, -size)))
    return atoms_delta(log_p, rho, counts, None if at_most is None else at_most * steps)


def atoms_delta(
    log_p: Tensor, rho: Tensor, counts: Tensor, at_most: int | None = None
) -> Callable[[float], float] | None:
    """An upper bound of delta(epsilon) of all releases together, release j being made ``counts[j]`` times.

    A record makes any one of its moves at every release, or at ``at_most`` of them; a move that changes
    nothing may be among them. None where it would take too long, or where floats do not hold the losses.

    Guarantee: exact, up to a rounding that is charged, where one release moves; else as ``induction``.

    >>> p, q = torch.tensor([0.5, 0.5]).double(), torch.tensor([0.25, 0.75]).double()
    >>> pair = p.log().reshape(2, 1, 1), (p / q).log().reshape(2, 1, 1)
    >>> once, twice = (atoms_delta(*pair, torch.tensor([count])) for count in (1, 2))
    >>> round(once(0.0), 6), round(twice(0.0), 3)  # 3/4 - 1/2, and 9/16 - 1/4
    (0.25, 0.313)
    """
    log_p = log_p.expand_as(rho)
    total = int(counts.sum())
    if min(total, at_most or total) == 1:
        return _single(log_p, rho)
    # the ratios are trusted to the same relative accuracy as divergences
    margin = ROUNDING * rho.abs()
    pairs = (log_p, rho + margin), (log_p - rho, margin - rho)
    atoms = [(log_mass.exp().numpy(), ratio.numpy()) for log_mass, ratio in pairs]
    costs = np.maximum(*(squares(mass, ratio).max(axis=0) for mass, ratio in atoms))
    if not costs.any():
        return lambda epsilon: 0.0
    if not costs.max() < LARGEST_VARIANCE:
        return None
    dearest = np.argsort(-costs)
    ranked = counts.numpy()[dearest]
    before = np.cumsum(ranked) - ranked
    moved = np.minimum(ranked, np.maximum((at_most or total) - before, 0))  # those that cost most
    atoms = [(mass[:, :, dearest], ratio[:, :, dearest]) for mass, ratio in atoms]
    grid = _grid(atoms, moved)
    first, second = (induction(_releases(*pair, ranked.tolist(), grid), grid, at_most) for pair in atoms)
    if first is None or second is None:
        return None
    return lambda epsilon: max(first(epsilon), second(epsilon))


def _single(log_p: Tensor, rho: Tensor) -> Callable[[float], float]:
    """The largest hockey stick of all moves, releases and both directions: exact for a single move."""
    pairs = torch.cat((log_p, log_p - rho), dim=2), torch.cat((rho, -rho), dim=2)

    def delta(epsilon: float) -> float:
        return float(pieces.hockey_stick(*pairs, torch.tensor(epsilon, dtype=torch.float64)).max()) * (
            1 + ROUNDING
        )

    return delta


def _grid(atoms: Sequence[tuple[Array, Array]], counts: Array) -> Grid:
    """A grid for the worst moves of these releases, in both directions."""

    def over_releases(of_moves: Callable[[Array, Array], Array]) -> float:
        return max(float(of_moves(mass, rho).sum(axis=0).max(axis=0) @ counts) for mass, rho in atoms)

    def added(step: float) -> float:
        def of_moves(mass: Array, rho: Array) -> Array:
            above = rho - step * np.floor(rho / step)
            return mass * above * (step - above)

        return over_releases(of_moves)

    highest = [np.where(mass > _LIKELY, rho, 0.0).max(axis=(0, 1)) for mass, rho in atoms]
    farthest = max(min(float(own @ counts), 2 * float(own.max())) for own in highest)
    variance = over_releases(lambda mass, rho: mass * rho * rho)
    return Grid.fitted(variance, farthest, float(counts.sum()), added)


def _releases(mass: Array, rho: Array, counts: list[int], grid: Grid) -> list[tuple[list[Loss], int]]:
    """The losses of each release; those beyond the grid are infinite or raised to it, as ``Loss.within``."""
    farthest = (2 * grid.reach + 1) * grid.step
    rho = np.where(rho > farthest, np.inf, rho.clip(min=-farthest))
    return [(worst_losses(mass[:, :, j], rho[:, :, j], grid.step), count) for j, count in enumerate(counts)]


def worst_losses(mass: Array, rho: Array, step: float) -> list[Loss]:
    """At most two losses on the grid that dominate the moves of one release, (outcomes, moves).

    Two moves stay as they are. Of more, those whose losses are skewed upwards share the envelope of their
    hockey sticks, and so do those skewed downwards. Most of them lie below one of them but for the tails, so
    that little is lost; one envelope of both kinds would lose much more.

    >>> four = torch.tensor([0.1, -0.1, 0.2, -0.2]).double()
    >>> from ringfence.mechanisms.sign import StochasticSign
    >>> log_p, rho = StochasticSign(1.0).pair(torch.tensor(2.0).double(), four)
    >>> len(worst_losses(log_p.exp().numpy(), rho.numpy(), 0.01))
    2
    """
    if mass.shape[1] <= 2:
        return [Loss.of_atoms(mass[:, move], rho[:, move], step) for move in range(mass.shape[1])]
    rho = np.where(mass > NEGLIGIBLE, rho, np.inf)
    masses, infinite, first = _on_grid(mass, rho, step)
    points = first + np.arange(masses.shape[1])
    away = points - (masses @ points)[:, None]
    skew = (away * away * away * masses).sum(axis=1)
    sides = (np.flatnonzero(side) for side in (skew >= 0, skew < 0))
    return [envelope(masses[side], infinite[side], first, step) for side in sides if len(side)]


def _on_grid(mass: Array, rho: Array, step: float) -> tuple[Array, Array, int]:
    """``Loss.of_atoms`` of many moves: a row of masses per move, the infinite ones, and the first point."""
    finite = rho < np.inf
    infinite = np.where(finite, 0.0, mass).sum(axis=0)
    below, share = nearest_below(np.where(finite, rho, 0.0), step)
    first = int(below.min())
    length = int(below.max()) - first + 2
    mass = np.where(finite, mass, 0.0)
    flat = (below - first) + length * np.arange(rho.shape[1])
    places = np.concatenate((flat.ravel(), flat.ravel() + 1))
    weights = np.concatenate(((mass * (1 - share)).ravel(), (mass * share).ravel()))
    masses: Array = np.bincount(places, weights, length * rho.shape[1]).astype(float).reshape(-1, length)
    return masses, infinite, first


def envelope(masses: Array, infinite: Array, first: int, step: float) -> Loss:
    """The loss whose hockey stick is, at every point of the grid, the largest of those of these rows.

    It is convex in e^epsilon, so it belongs to a pair of laws, and that pair dominates all of them.

    >>> rows = np.array([[0.3, 0.3, 0.4], [0.2, 0.3, 0.5]])
    >>> envelope(rows, np.zeros(2), -1, 0.1).masses.round(3).tolist()  # the second lies above the first
    [0.2, 0.3, 0.5]
    """
    from scipy.signal import lfilter  # type: ignore[import-untyped]

    points = np.arange(masses.shape[1])
    z = np.exp(step * (first + points))
    # the hockey stick at k - 1 is (1 - 1/g) (mass at k and above) + (the one at k) / g, with g = e^step
    above = _sums_above(masses)
    sticks = lfilter([-math.expm1(-step)], [1.0, -math.exp(-step)], above[:, ::-1], axis=1)[:, ::-1]
    sticks = sticks + infinite[:, None]
    active = sticks.argmax(axis=0)
    highest = sticks[active, points]
    # where one curve is the largest at both ends of a chord, its slope is known without a difference
    slopes = np.where(
        active[1:] == active[:-1],
        _sums_above(masses / z)[active[:-1], points[:-1]],
        -np.diff(highest) / (z[:-1] * math.expm1(step)),
    )
    return Loss.of_curve(highest, first, step, slopes)


def _sums_above(masses: Array) -> Array:
    """At each point, the sum of what lies above it."""
    sums = np.zeros_like(masses)
    sums[:, :-1] = np.cumsum(masses[:, :0:-1], axis=1)[:, ::-1]
    return sums
