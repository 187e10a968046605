"""Tight (epsilon, delta) for a theta fixed in advance: the best of several proofs.

Rényi divergences convert to an epsilon that is 9 to 12 % too large. Where theta does not depend on earlier
releases, the privacy loss is a sum of independent terms of known law, and delta(epsilon) can be had from that
law itself: by a normal law with all errors charged (``central_limit``) where coordinates are many and move
little, by composing hockey sticks (``induction``) where they are few. ``privacy_profile`` makes every proof
that applies, and the smallest delta counts.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.central_limit import LossSums
from ringfence.accounting.conversion import (
    DEFAULT_ORDERS,
    checked_orders,
    delta_from_rdp,
    gaussian_delta,
    gaussian_epsilon,
)
from ringfence.accounting.divergence_sums import distinct, pushes, recentre, with_numbers
from ringfence.accounting.guarantee import Guarantee
from ringfence.accounting.induction import Grid, Loss, Pairs, Releases, atoms_delta, in_both_directions
from ringfence.accounting.per_instance import PerInstanceAccountant, per_instance_rdp
from ringfence.accounting.sensitivity import Sensitivity, ceilings, released_shape
from ringfence.checks import Real
from ringfence.mechanisms.base import Mechanism
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.numerics.bisection import smallest
from ringfence.numerics.rounding import ROUNDING, UNDERFLOW

_RELATIVE = 1e-7
_LARGEST = 400  # the largest epsilon that is looked for, as a power of 2
_MOSTLY = 2.0  # how many times as much all coordinates may cost for that bound to be worth its time
_SINGLE_HALVINGS = 32

# where hockey sticks are composed
_MOST_COORDINATES = 32  # that all move
_MOST_ROWS = 1 << 12  # distinct coordinates of which few move
_MOST_STICKS = 1 << 20  # that are evaluated
_FINE = 2e-4  # what the grid may add to the variance of the losses, as a share of it
_LEAST_PER_DEVIATION = 4  # points of the grid in a standard deviation of a loss
_DEVIATIONS = 12  # beyond which the tail of a Gaussian's loss is negligible
_LARGEST_LOSS = 700.0  # floats hold e^loss


@dataclass(frozen=True)
class PrivacyProfile:
    """delta(epsilon) of releases at a fixed theta, for each single record and in both directions.

    ``proofs`` maps names to functions from epsilon to an upper bound of delta; the smallest one counts.

    >>> import ringfence as rf
    >>> profile = rf.privacy_profile(rf.Gaussian(1.0), 0.0, sensitivity=1.0)
    >>> round(profile.epsilon(delta=1e-5), 4), round(profile.delta(epsilon=1.0), 4), profile.proof(delta=1e-5)
    (4.3772, 0.1269, 'Gaussian')
    """

    proofs: dict[str, Callable[[float], float]]

    def delta(self, epsilon: float) -> float:
        """An upper bound of the smallest delta for which (epsilon, delta) holds."""
        epsilon = checks.number("epsilon", epsilon, checks.not_negative)
        return min(1.0, *(proof(epsilon) for proof in self.proofs.values()))

    def epsilon(self, delta: float) -> float:
        """An epsilon with delta(epsilon) <= delta, within a relative 1e-7 of the smallest that is proved."""
        return self.best(delta)[0]

    def proof(self, delta: float) -> str:
        """The name of the proof that gives ``epsilon(delta)``."""
        return self.best(delta)[1]

    def best(self, delta: float) -> tuple[float, str]:
        """``epsilon`` and ``proof`` in one search."""
        delta = checks.probability("delta", delta)
        best = math.inf, ""
        for name, proof in reversed(self.proofs.items()):  # the sharp ones, which come last, go first
            # what does not hold at the best epsilon has no smaller one
            if best[0] == math.inf or proof(best[0]) <= delta:
                epsilon = _smallest_epsilon(proof, delta)
                best = (epsilon, name) if epsilon <= best[0] else best
        return best


def privacy_profile(
    mechanism: Mechanism, theta: Real, sensitivity: Real | Sensitivity, steps: int = 1
) -> PrivacyProfile:
    """Tight (epsilon, delta) of ``steps`` releases of the same theta, about any one record.

    One record moves each coordinate by at most ``sensitivity``, or theta as a ``Sensitivity`` says, up or
    down, the same way or another at every step. For a theta that depends on earlier releases use
    ``PerInstanceAccountant``.

    There are up to four proofs: the Gaussian's exact curve, which dominates every law here, so that the
    profile is never worse; the realised Rényi sums; a normal law of the privacy loss with every error
    charged ("central limit"), within half a percent where coordinates are many and each moves little; and
    the composition of the losses by "backward induction", for up to 32 coordinates, for tables of which a
    record moves a few cells, and for up to some ten thousand coordinates of a law of atoms alone, such as the
    sign. It is exact for a single move of a single coordinate, such as one person in one cell of a table.
    Where the L2 norm of a move is bounded, there is no sharp proof: the first two count, and the third as if
    there were no such bound.

    Guarantee: an upper bound that covers every move and both directions. Like every number computed from
    theta it speaks of this dataset and is itself sensitive.

    >>> import torch
    >>> from ringfence.mechanisms.truncated import TruncatedGaussian
    >>> theta = torch.linspace(-2, 2, 10_240, dtype=torch.float64)
    >>> profile = privacy_profile(TruncatedGaussian(1.0, bound=2.0), theta, sensitivity=1e-3, steps=10)
    >>> round(profile.epsilon(delta=1e-5), 2), profile.proof(delta=1e-5)
    (0.92, 'central limit')
    >>> cell = Sensitivity(each=1.0, at_most=1)
    >>> profile = privacy_profile(TruncatedGaussian(4.0, bound=20.0), torch.arange(24.0), cell)
    >>> round(profile.epsilon(delta=1e-6), 2), profile.proof(delta=1e-6)
    (1.06, 'backward induction')
    """
    theta = checks.finite("theta", theta).double()
    size = Sensitivity.of(sensitivity)
    steps = checks.count("steps", steps, at_least=1)
    zcdp = ceilings(mechanism, theta, size)[0]
    mu = math.sqrt(2 * steps * zcdp)
    size = size.binding(released_shape(mechanism, theta, size.farthest))
    farthest = size.farthest.double().to(theta.device)
    mechanism, theta = recentre(mechanism, theta)
    left_out = steps * theta.numel() * UNDERFLOW
    proofs: dict[str, Callable[[float], float]] = {"Gaussian": lambda epsilon: gaussian_delta(mu, epsilon)}
    if mu == 0:
        return PrivacyProfile(proofs)
    orders = checked_orders(DEFAULT_ORDERS[::2])  # this proof is a fallback, so every other order will do
    proofs["Rényi"] = delta_from_rdp(orders, steps * per_instance_rdp(mechanism, theta, size, orders).worst)
    # that all coordinates may move holds whatever else is known, and is close where most of them may
    if size.is_plain or ceilings(mechanism, theta, farthest)[0] <= _MOSTLY * zcdp:
        directions = [
            LossSums.worst_of(mechanism.loss_moments(*up), mechanism.loss_moments(*down), steps)
            for up, down in pushes(theta, farthest)
        ]
        proofs["central limit"] = lambda epsilon: left_out + max(sums.delta(epsilon) for sums in directions)
    if size.norm is None and (composed := composed_delta(mechanism, theta, farthest, steps, size.at_most)):
        proofs["backward induction"] = lambda epsilon: left_out + composed(epsilon)
    return PrivacyProfile(proofs)


def fixed_theta_guarantee(
    mechanism: Mechanism, theta: Tensor, sensitivity: Real | Sensitivity, steps: int, delta: float
) -> Guarantee:
    """The claim of ``steps`` releases of the same theta, with the smallest per-instance epsilon known.

    >>> claim = fixed_theta_guarantee(Gaussian(1.0), torch.zeros(100), 1e-2, steps=10, delta=1e-5)
    >>> claim.per_instance.epsilon < claim.per_instance.renyi_epsilon
    True
    """
    steps = checks.count("steps", steps, at_least=1)
    account = PerInstanceAccountant(mechanism, sensitivity)
    account.step(theta, count=steps)
    profile = privacy_profile(mechanism, theta, sensitivity, steps)
    gaussian = privacy_profile(Gaussian(mechanism.sigma), theta, sensitivity, steps).epsilon(delta)
    # both hold, because theta is fixed
    claim = account.guarantee(delta).with_proofs(profile.best(delta))
    own = claim.per_instance
    return replace(claim, per_instance=replace(own, gaussian_epsilon=min(gaussian, own.gaussian_epsilon)))


def composed_delta(
    mechanism: Mechanism, theta: Tensor, sensitivity: Tensor, steps: int, at_most: int | None = None
) -> Callable[[float], float] | None:
    """An upper bound of delta(epsilon) of ``steps`` releases of theta, in both directions, by induction.

    One record moves each coordinate, or ``at_most`` of them in each release, by ``sensitivity`` up or down.
    None where it would take too long, or where floats do not hold the losses.

    Guarantee: exact, up to a rounding that is charged, for a single move; else as ``induction``. Where few
    coordinates of a law with a density move, each move costs what the worst coordinate does: the envelope of
    their hockey sticks is convex in e^epsilon, so it belongs to a pair of laws, which dominates all of them.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> delta = composed_delta(Gaussian(1.0), torch.zeros(1), torch.tensor(1.0), steps=1)
    >>> round(delta(1.0), 4)
    0.1269
    >>> from ringfence.mechanisms.rectified import RectifiedGaussian
    >>> law, counts = RectifiedGaussian(4.0, (20.0, 1e4)), torch.tensor([0.0, 3.0, 20.0]).double()
    >>> delta = composed_delta(law, counts, torch.tensor(1.0).double(), steps=1, at_most=1)
    >>> round(delta(0.9), 9), round(delta(0.93), 9)  # of the largest count alone
    (1.5228e-05, 9.425e-06)
    """
    rows, index = distinct(theta, sensitivity, *mechanism.parameters().values())
    moved = rows[:, 1] > 0
    counts = torch.bincount(index.reshape(-1), minlength=len(rows))[moved] * steps
    rows = rows[moved]
    every = Pushes(with_numbers(mechanism, rows[:, 2:].T), rows[:, 0], rows[:, 1])
    if mechanism.atoms_alone:
        log_p, rho = every.law.pair(every.theta, torch.stack((every.move, -every.move)))
        pairs = Pairs(log_p, rho, counts)
        return atoms_delta([pairs], None if at_most is None else at_most * steps)
    if len(rows) > _MOST_ROWS or (at_most is None and theta.numel() > _MOST_COORDINATES):
        return None
    total = int(counts.sum())
    if min(total, total if at_most is None else at_most * steps) == 1:
        return lambda epsilon: (
            max(float(every.curves(epsilon, backward).max()) for backward in (False, True)) * (1 + ROUNDING)
        )
    if at_most is not None:
        return _composed([(every, at_most * steps)])
    alone = [Pushes(with_numbers(mechanism, row[2:]), row[:1], row[1:2]) for row in rows]
    return _composed(list(zip(alone, counts.tolist(), strict=True)))


class Pushes(NamedTuple):
    """One coordinate, or many side by side, and how far a record may push it up or down.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> one = Pushes(Gaussian(1.0), torch.zeros(1).double(), torch.ones(1).double())
    >>> one.curves(1.0, backward=False).round(decimals=4)
    tensor([0.1269, 0.1269], dtype=torch.float64)
    """

    law: Mechanism
    theta: Tensor
    move: Tensor

    def curves(self, epsilon: Tensor | float, backward: bool) -> Tensor:
        """Upper bounds of the hockey sticks of both pushes, each the largest over the coordinates."""
        # log densities grow with the square of the shift, and so do their roundings
        ratio = self.move / self.law.sigma
        raised = 1 + ratio * ratio * 2.0**-51
        at = epsilon.unsqueeze(1) if isinstance(epsilon, Tensor) else epsilon
        sticks = [
            self.law.hockey_stick(*pair, at) * raised for pair in pushes(self.theta, self.move)[backward]
        ]
        return torch.stack(sticks).clamp(0, 1).amax(dim=-1)

    def variance(self, backward: bool) -> float:
        """The largest variance of the loss over both pushes and all coordinates."""
        moments = (self.law.loss_moments(*pair) for pair in pushes(self.theta, self.move)[backward])
        return max(float(moment.variance.max()) for moment in moments)

    @property
    def reach(self) -> float:
        """Where the loss ends, or where the tail of the Gaussian's loss is negligible."""
        forward, backward = pushes(self.theta, self.move)
        extents = torch.stack([self.law.loss_moments(*pair).extent for pair in forward + backward]).amax(
            dim=0
        )
        ratio = self.move / self.law.sigma
        return float(torch.minimum(extents, ratio * (ratio / 2 + _DEVIATIONS)).max())


def _composed(releases: list[tuple[Pushes, int]]) -> Callable[[float], float] | None:
    """The induction over hockey sticks of these releases, each made as often as is said."""
    counts, reaches = np.array([(count, moved.reach) for moved, count in releases]).T
    total, reach = float(counts.sum()), float(reaches.max())
    variances = [[moved.variance(backward) for moved, _ in releases] for backward in (False, True)]
    variance = float((variances @ counts).max())
    if not 0 < variance < math.inf or not reach <= _LARGEST_LOSS:
        return None
    sticks = sum(8 * moved.theta.numel() * own for (moved, _), own in zip(releases, reaches, strict=True))
    grid = Grid.fitted(
        variance,
        min(2 * reach, float(counts @ reaches)),
        total,
        lambda step: total * step * step / 6,  # of losses that lie anywhere between two points
        fine=_FINE,
        least=sticks / _MOST_STICKS,
    )
    if grid.step * _LEAST_PER_DEVIATION > math.sqrt(variance / total):
        return None

    def seen(backward: int) -> Releases:
        found = []
        for (moved, count), own in zip(releases, reaches, strict=True):
            half = math.ceil(own / grid.step) + 1
            epsilons = torch.arange(-half, half + 1, dtype=torch.float64) * grid.step
            curves = np.minimum.accumulate(moved.curves(epsilons, bool(backward)).numpy(), axis=1)
            found.append(([Loss.of_curve(curve, -half, grid.step) for curve in curves], count))
        return found

    return in_both_directions(seen, grid)


def single_epsilons(law: Mechanism, theta: Tensor, shift: float, delta: float) -> Tensor:
    """For each coordinate, the epsilon of one release of it alone if one record moves it by shift or -shift.

    Guarantee: the largest of the four hockey-stick divergences (both signs, both directions) was evaluated
    at the answer and is at most delta, or the answer is the Gaussian's, which dominates every law here. Where
    delta covers every difference, the answer is 0. The divergences are exact, so the answer is tight.

    >>> from ringfence.mechanisms.rectified import RectifiedGaussian
    >>> law = RectifiedGaussian(4.0, (20.0, 1e4))
    >>> [round(value, 3) for value in single_epsilons(law, torch.tensor([0.0, 20.0]), 1.0, 1e-5).tolist()]
    [0.0, 0.926]
    """
    theta = checks.finite("theta", theta).double()
    delta = checks.probability("delta", delta)
    forward, backward = pushes(theta, torch.tensor(shift, dtype=torch.float64))

    def covered(epsilon: Tensor) -> Tensor:
        sticks = torch.stack([law.hockey_stick(*pair, epsilon) for pair in forward + backward])
        return sticks.amax(dim=0) * (1 + ROUNDING) + UNDERFLOW <= delta

    mu = abs(shift) / law.sigma.double()
    largest = [gaussian_epsilon(float(value), delta) for value in mu.reshape(-1)]
    passing = torch.tensor(largest, dtype=torch.float64).reshape(mu.shape).expand(theta.shape).clone()
    failing = torch.zeros_like(passing)
    found = smallest(covered, failing, passing, halvings=_SINGLE_HALVINGS)
    return torch.where(covered(failing), 0.0, found)


def _smallest_epsilon(proof: Callable[[float], float], delta: float) -> float:
    """The smallest epsilon found at which the proof gives delta or less; infinite if none.

    delta(epsilon) falls, so whatever holds at one epsilon holds at every larger one: it is enough
    to find an epsilon that passes and to bisect below it. Proofs may give up at a large epsilon.
    """
    if proof(0.0) <= delta:
        return 0.0
    passing = next((2.0**k for k in range(-20, _LARGEST) if proof(2.0**k) <= delta), None)
    if passing is None:
        return math.inf
    return smallest(lambda epsilon: proof(epsilon) <= delta, passing / 2, passing, relative=_RELATIVE)
