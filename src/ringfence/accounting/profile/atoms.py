"""delta(epsilon) of releases with few outcomes: which moves can be the worst, and what they cost together.

A release with finitely many outcomes and a move is a pair of rows: ``log_p``, the log masses, and ``rho``, the
log ratios to those of the neighbour. Here they have the shape (outcomes, moves, releases). Both directions
come from the same numbers: seen from the neighbour the masses are ``log_p - rho`` and the ratios ``-rho``.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from ringfence.accounting.coordinates import distinct, with_numbers
from ringfence.accounting.profile.backward_induction import Array, Grid, Loss, induction
from ringfence.mechanisms import pieces
from ringfence.mechanisms.base import Mechanism
from ringfence.numerics.rounding import ROUNDING

_ALIKE = 1 + 1e-12  # a curve that is above another by less counts as below it, which is charged
_LIKELY = 1e-16  # outcomes of less mass do not decide how far the grid reaches


def mechanism_delta(
    mechanism: Mechanism, theta: Tensor, sensitivity: Tensor, steps: int, at_most: int | None = None
) -> Callable[[float], float] | None:
    """``atoms_delta`` of ``steps`` releases of every coordinate of theta, by a law of atoms alone.

    One record moves each coordinate, or ``at_most`` of them in each release, by ``sensitivity`` up or down.

    >>> from ringfence.mechanisms.sign import StochasticSign
    >>> surplus = torch.tensor([40.0, 25.0, -60.0]).double()
    >>> delta = mechanism_delta(StochasticSign(20.0), surplus, torch.tensor(1.0), steps=1)
    >>> round(delta(0.0), 4), round(delta(0.2), 5)
    (0.0173, 0.00115)
    """
    rows, index = distinct(theta, sensitivity, *mechanism.parameters().values())
    moved = rows[:, 1] > 0
    if not bool(moved.any()):
        return lambda epsilon: 0.0
    counts = torch.bincount(index.reshape(-1), minlength=len(rows))[moved] * steps
    law, (where, size) = with_numbers(mechanism, rows[moved, 2:].T), rows[moved, :2].T
    log_p, rho = law.pair(where, torch.stack((size, -size)))
    return atoms_delta(log_p, rho, counts, None if at_most is None else at_most * steps)


def atoms_delta(
    log_p: Tensor, rho: Tensor, counts: Tensor, at_most: int | None = None
) -> Callable[[float], float] | None:
    """An upper bound of delta(epsilon) of all releases together, release j being made ``counts[j]`` times.

    A record makes any one of its moves at every release, or at ``at_most`` of them; a move that changes
    nothing may be among them. None where it would take too long.

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
    costs = np.maximum(*((mass * ratio * ratio).sum(axis=0).max(axis=0) for mass, ratio in atoms))
    if not costs.any():
        return lambda epsilon: 0.0
    dearest = np.argsort(-costs)
    ranked = counts.numpy()[dearest]
    before = np.cumsum(ranked) - ranked
    moved = np.minimum(ranked, np.maximum((at_most or total) - before, 0))  # those that cost most
    atoms = [(mass[:, :, dearest], ratio[:, :, dearest]) for mass, ratio in atoms]
    grid = _grid(atoms, moved)
    first, second = (induction(_releases(*pair, ranked.tolist(), grid.step), grid, at_most) for pair in atoms)
    if first is None or second is None:
        return None
    return lambda epsilon: max(first(epsilon), second(epsilon))


def _single(log_p: Tensor, rho: Tensor) -> Callable[[float], float]:
    """The largest hockey stick of all moves, releases and both directions: exact for a single move."""
    pairs = torch.cat((log_p, log_p - rho), dim=-1), torch.cat((rho, -rho), dim=-1)

    def delta(epsilon: float) -> float:
        return float(pieces.hockey_stick(*pairs, torch.tensor(epsilon, dtype=torch.float64)).max()) * (1 + ROUNDING)

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


def _releases(mass: Array, rho: Array, counts: list[int], step: float) -> list[tuple[list[Loss], int]]:
    """The losses on the grid of those moves of each release that can be the worst."""
    found = []
    for release, count in enumerate(counts):
        moves = np.unique(np.concatenate((mass[:, :, release], rho[:, :, release])), axis=1)
        losses = [Loss.of_atoms(*np.split(move, 2), step) for move in moves.T]
        found.append((losses if len(losses) <= 2 else undominated(losses, step), count))
    return found


def undominated(losses: Sequence[Loss], step: float) -> list[Loss]:
    """The losses without those whose hockey stick lies below that of another one everywhere.

    Such a loss has the smaller expectation for every convex function of e^-loss that does not grow, hence at
    every step of the induction.

    >>> small, large = (Loss.of_atoms(np.array([p, 1 - p]), np.log([2 * p, 2 - 2 * p]), 0.1) for p in (0.6, 0.9))
    >>> undominated([small, large], 0.1) == [large]
    True
    """
    sticks = hockey_sticks(losses, step)
    kept: list[int] = []
    for own in np.argsort(-sticks.sum(axis=1)).tolist():
        if not kept or not (sticks[own] <= sticks[kept] * _ALIKE).all(axis=1).any():
            kept.append(own)
    return [losses[own] for own in kept]


def hockey_sticks(losses: Sequence[Loss], step: float) -> Array:
    """One row per loss: its hockey stick at all points of the grid between the lowest and the highest loss.

    >>> loss = Loss.of_atoms(np.array([0.5, 0.5]), np.log([2.0, 2 / 3]), step=math.log(2.0))
    >>> hockey_sticks([loss], math.log(2.0)).round(3).tolist()  # at epsilon = -log 2, 0 and log 2
    [[0.5, 0.25, 0.0]]
    """
    from scipy.signal import lfilter

    ends = [loss.places for loss in losses if len(loss.places)]
    first = min((int(places[0]) for places in ends), default=0)
    last = max((int(places[-1]) for places in ends), default=0)
    masses = np.zeros((len(losses), last - first + 1))
    for row, loss in zip(masses, losses, strict=True):
        row[loss.places - first] = loss.masses
    # F(k - 1) = (1 - 1/g) (mass at k and above) + F(k) / g with g = e^step: sums of positive terms
    falling = np.cumsum(masses[:, ::-1], axis=1)
    above = np.concatenate((np.zeros_like(falling[:, :1]), falling[:, :-1]), axis=1)
    sticks = lfilter([-math.expm1(-step)], [1.0, -math.exp(-step)], above, axis=1)[:, ::-1]
    return np.asarray(sticks) + np.array([[loss.infinite] for loss in losses])
