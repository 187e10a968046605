"""delta(epsilon) where one record moves a few of the coordinates: a person sits in one cell of a table.

Whichever coordinate a record moves, its hockey stick lies below the envelope, the pointwise largest curve
over all coordinates and both signs. The envelope is convex in e^epsilon, so it is the curve of a pair of
laws, and that pair dominates every one of the moves. Where m coordinates move in each of T releases, m T such
pairs are composed. With a single move the envelope itself is delta(epsilon), exactly.
"""

import math
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.claim.conversion import gaussian_epsilon
from ringfence.accounting.coordinates import distinct, with_numbers
from ringfence.accounting.profile.dominating_pair import (
    FFT_ROUNDING,
    LARGEST_LOSS,
    TAIL,
    Coordinate,
    Side,
    bounded_delta,
    grid_step,
    pessimistic,
)
from ringfence.mechanisms.base import Mechanism
from ringfence.numerics.rounding import ROUNDING, UNDERFLOW

_MOST_ALONE = 1 << 12  # distinct coordinates of a single move, each evaluated at every epsilon asked for
_MOST_STICKS = 1 << 18  # that are evaluated for several moves
_LEAST_PER_DEVIATION = 4  # points of the grid of losses in a standard deviation of the worst move
_BISECTIONS = 32


def envelope_delta(
    mechanism: Mechanism, theta: Tensor, sensitivity: Tensor, moves: int
) -> Callable[[float], float] | None:
    """An upper bound of delta(epsilon) for ``moves`` moves of any coordinates, in both directions.

    Every move is of one coordinate, by at most ``sensitivity``, in one release. None where there are too many
    distinct coordinates, or losses are so large that floats do not hold e^loss.

    Guarantee: exact for a single move; otherwise losses are rounded up to a grid, the rounding of the
    compositions is charged, and every move costs what the worst one does.

    >>> from ringfence.mechanisms.rectified import RectifiedGaussian
    >>> law, counts = RectifiedGaussian(4.0, (20.0, 1e4)), torch.tensor([0.0, 3.0, 20.0]).double()
    >>> delta = envelope_delta(law, counts, torch.tensor(1.0).double(), moves=1)
    >>> round(delta(0.9), 9), round(delta(0.93), 9)  # of the largest count alone
    (1.5228e-05, 9.425e-06)
    """
    rows, _ = distinct(theta, sensitivity, *mechanism.parameters().values())
    rows = rows[rows[:, 1] > 0]
    if not len(rows):
        return lambda epsilon: 0.0
    if len(rows) > _MOST_ALONE:
        return None
    every = Coordinate(with_numbers(mechanism, rows[:, 2:].T), rows[:, 0], rows[:, 1])
    if moves == 1:
        return cache(
            lambda epsilon: max(float(side.curve(epsilon).max()) for side in every.sides) * (1 + ROUNDING)
        )
    reach = every.reach()
    step = max(grid_step([every], [moves]), 8 * len(rows) * reach / _MOST_STICKS)
    if step * _LEAST_PER_DEVIATION > every.deviation() or max(reach, step) > LARGEST_LOSS:
        return None
    directions = [_composed(every.direction(backward), reach, moves, step) for backward in (False, True)]
    return lambda epsilon: max(direction(epsilon) for direction in directions)


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

    def covered(epsilon: Tensor) -> Tensor:
        sticks = [
            law.hockey_stick(where, move, epsilon)
            for size in (shift, -shift)
            for where, move in ((theta, size), (theta + size, -size))
        ]
        return torch.stack(sticks).amax(dim=0) * (1 + ROUNDING) + UNDERFLOW <= delta

    mu = abs(shift) / law.sigma.double()
    largest = [gaussian_epsilon(float(value), delta) for value in mu.reshape(-1)]
    passing = torch.tensor(largest, dtype=torch.float64).reshape(mu.shape).expand(theta.shape).clone()
    failing = torch.zeros_like(passing)
    free = covered(failing)
    for _ in range(_BISECTIONS):
        middle = (failing + passing) / 2
        holds = covered(middle)
        passing, failing = torch.where(holds, middle, passing), torch.where(holds, failing, middle)
    return torch.where(free, 0.0, passing)


def _composed(sides: tuple[Side, Side], reach: float, moves: int, step: float) -> Callable[[float], float]:
    """The envelope of one direction, composed with itself."""
    half = math.ceil(reach / step) + 1
    epsilon = torch.arange(-half, half + 1, dtype=torch.float64) * step
    curves = [side.curve(epsilon.unsqueeze(1)).amax(dim=1) for side in sides]
    single = pessimistic(torch.maximum(*curves).numpy(), step)
    total = single.self_compose(moves, tail_mass_truncation=TAIL)
    # every value of every composition may be off by rounding, which adds at most that much to delta
    charge = FFT_ROUNDING * total.size * (moves + 1)
    return bounded_delta(total, charge)
