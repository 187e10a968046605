"""delta(epsilon) of a few coordinates: their hockey sticks, composed by dp-accounting.

A record may push a coordinate up or down, and neither hockey stick lies above the other for every epsilon.
The pointwise larger of the two is again the curve of some pair of laws (it is convex in e^epsilon), and that
pair dominates both. Releases at the same theta are composed for each number of upward pushes before the
larger curve is taken, which loses less.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ringfence.accounting.coordinates import distinct, with_numbers
from ringfence.mechanisms.base import Mechanism
from ringfence.numerics.rounding import ROUNDING

MOST_COORDINATES = 32
_MOST_PATTERNS = 64
_GRID_PER_DEVIATION = 64  # points of the grid of losses in a standard deviation of one release
_MOST_POINTS = 1 << 17
_DEVIATIONS = 12
TAIL = 1e-18  # mass a composition may move to infinity
FFT_ROUNDING = 1e-15  # of one value of a composition by FFT, for each composition
LARGEST_LOSS = 700.0  # that is composed: dp-accounting takes e^loss


def composed_delta(
    mechanism: Mechanism, theta: Tensor, sensitivity: Tensor, steps: int
) -> Callable[[float], float]:
    """An upper bound of delta(epsilon) for ``steps`` releases of every coordinate, in both directions.

    It is 1 where losses are so large that floats do not hold e^loss.

    Guarantee: exact for a single release of a single coordinate; otherwise losses are rounded up to a grid
    and the rounding of the compositions is charged.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> delta = composed_delta(Gaussian(1.0), torch.zeros(1), torch.tensor(1.0), steps=1)
    >>> round(delta(1.0), 4)
    0.1269
    """
    rows, index = distinct(theta, sensitivity, *mechanism.parameters().values())
    moved = rows[:, 1] > 0
    counts = torch.bincount(index.reshape(-1), minlength=len(rows))[moved]
    coordinates = [Coordinate(with_numbers(mechanism, row[2:]), row[0], row[1]) for row in rows[moved]]
    repeats = [count * steps for count in counts.tolist()]
    if repeats == [1]:
        sides = coordinates[0].sides
        return lambda epsilon: float(max(side.curve(epsilon) for side in sides)) * (1 + ROUNDING)
    step = grid_step(coordinates, repeats)
    together = [repeat if repeat <= _MOST_PATTERNS else 1 for repeat in repeats]  # that patterns are made of
    largest = max(one.reach() * count for one, count in zip(coordinates, together, strict=True))
    if max(largest, step) > LARGEST_LOSS:
        return lambda epsilon: 1.0
    directions = [_direction(coordinates, repeats, step, backward) for backward in (False, True)]
    return lambda epsilon: max(direction(epsilon) for direction in directions)


class Side(NamedTuple):
    """One pair of laws, or many side by side: P = M(theta) and Q = M(theta + shift).

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> Side(Gaussian(1.0), torch.zeros(1).double(), torch.ones(1).double()).curve(1.0).round(decimals=4)
    tensor([0.1269], dtype=torch.float64)
    """

    law: Mechanism
    theta: Tensor
    shift: Tensor

    def curve(self, epsilon: Tensor | float) -> Tensor:
        """Upper bounds of the hockey sticks."""
        delta = self.law.hockey_stick(self.theta, self.shift, epsilon)
        # log densities grow with the square of the shift, and so do their roundings
        ratio = self.shift / self.law.sigma
        return (delta * (1 + ratio * ratio * 2.0**-51)).clamp(0, 1)


class Coordinate(NamedTuple):
    """One coordinate, or many side by side: the law and how far a record may move it.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> len(Coordinate(Gaussian(1.0), torch.zeros(1).double(), torch.ones(1).double()).sides)
    4
    """

    law: Mechanism
    theta: Tensor
    move: Tensor

    def direction(self, backward: bool) -> tuple[Side, Side]:
        """The pushes up and down, with M(theta) as P, or as Q if ``backward``."""
        up, down = self.move, -self.move
        if backward:
            return Side(self.law, self.theta + up, down), Side(self.law, self.theta + down, up)
        return Side(self.law, self.theta, up), Side(self.law, self.theta, down)

    @property
    def sides(self) -> tuple[Side, ...]:
        """Both pushes in both directions."""
        return (*self.direction(False), *self.direction(True))

    def deviation(self) -> float:
        """The smallest deviation of the loss over the four pairs; of many coordinates the largest."""
        moments = (side.law.loss_moments(side.theta, side.shift) for side in self.sides)
        return math.sqrt(float(torch.stack([moment.variance for moment in moments]).amin(dim=0).max()))

    def reach(self) -> float:
        """Where the loss ends, or where the tail of the Gaussian's loss is negligible."""
        extents = [side.law.loss_moments(side.theta, side.shift).extent for side in self.sides]
        ratio = self.move / self.law.sigma
        return float(torch.minimum(torch.stack(extents).amax(dim=0), ratio * (ratio / 2 + _DEVIATIONS)).max())


def grid_step(coordinates: list[Coordinate], repeats: list[int]) -> float:
    """A step that is small against every single loss, but leaves the composition not too many points.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> one = Coordinate(Gaussian(1.0), torch.zeros(1).double(), torch.ones(1).double())
    >>> round(64 * grid_step([one], [2]), 6)
    1.0
    """
    finest = min(coordinate.deviation() for coordinate in coordinates) / _GRID_PER_DEVIATION
    reaches = [(coordinate.reach(), repeat) for coordinate, repeat in zip(coordinates, repeats, strict=True)]
    whole = sum(repeat * reach for reach, repeat in reaches)
    spread = math.sqrt(sum(repeat * reach**2 for reach, repeat in reaches))
    return max(finest, 2 * min(whole, 4 * spread) / _MOST_POINTS)


def _direction(
    coordinates: list[Coordinate], repeats: list[int], step: float, backward: bool
) -> Callable[[float], float]:
    total: Any = None
    sizes = []
    for coordinate, repeat in zip(coordinates, repeats, strict=True):
        half = math.ceil(coordinate.reach() / step) + 1
        epsilon = torch.arange(-half, half + 1, dtype=torch.float64) * step
        curves = [side.curve(epsilon).numpy() for side in coordinate.direction(backward)]
        total = _composed(total, _worst_pattern(curves, repeat, step))
        sizes.append(total.size)
    # every value of every composition may be off by rounding, which adds at most that much to delta
    charge = FFT_ROUNDING * max(sizes) * (sum(repeats) + len(repeats))
    return bounded_delta(total, charge)


def bounded_delta(distribution: Any, charge: float) -> Callable[[float], float]:
    """delta(epsilon) of a distribution of dp-accounting plus a charge for rounding, and 1 where it is NaN.

    dp-accounting multiplies e^epsilon by masses, which is NaN where one is infinite and the other 0.
    """

    def delta(epsilon: float) -> float:
        with np.errstate(over="ignore", invalid="ignore"):
            value = float(distribution.get_delta_for_epsilon(epsilon))
        return 1.0 if math.isnan(value) else value + charge

    return delta


def _worst_pattern(curves: list[NDArray[np.float64]], releases: int, step: float) -> Any:
    """A distribution of the loss that dominates every pattern of signs of these releases."""
    if releases == 1 or releases > _MOST_PATTERNS:
        single = pessimistic(np.maximum(*curves), step)
        return single if releases == 1 else single.self_compose(releases, tail_mass_truncation=TAIL)
    up, down = (_powers(pessimistic(curve, step), releases) for curve in curves)
    patterns = [_composed(up[k], down[releases - k]) for k in range(releases + 1)]
    half = (len(curves[0]) - 1) // 2 * releases
    epsilon = list(np.arange(-half, half + 1) * step)
    worst = np.max([pattern.get_delta_for_epsilon(epsilon) for pattern in patterns], axis=0)
    return pessimistic(np.clip(worst, 0, 1), step)


def _powers(distribution: Any, highest: int) -> list[Any]:
    """None, the distribution, its composition with itself, and so on up to ``highest`` of them."""
    powers = [None, distribution]
    while len(powers) <= highest:
        powers.append(powers[-1].compose(distribution, tail_mass_truncation=TAIL))
    return powers


def _composed(first: Any, second: Any) -> Any:
    if first is None or second is None:
        return first or second
    return first.compose(second, tail_mass_truncation=TAIL)


def pessimistic(curve: NDArray[np.float64], step: float) -> Any:
    """dp-accounting's pessimistic distribution of a loss whose hockey stick is this curve.

    >>> curve = np.array([1 - math.exp(-1.0), 0.0, 0.0])  # at -1, 0 and 1: P and Q are the same
    >>> round(float(pessimistic(curve, 1.0).get_delta_for_epsilon(0.5)), 6)
    0.0
    """
    from dp_accounting.pld import pld_pmf

    half = (len(curve) - 1) // 2
    falling = np.minimum.accumulate(curve)
    sparse = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(step, -half, half, falling)
    return sparse.to_dense_pmf()  # composed by FFT: a sparse one takes a dictionary and minutes
