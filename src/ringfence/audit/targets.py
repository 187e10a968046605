"""What is attacked: one release of a law at a theta; and settings of every law, drawn at random."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.divergence_sums import both_directions
from ringfence.accounting.sensitivity import Sensitivity
from ringfence.mechanisms.base import Mechanism
from ringfence.numerics.rounding import UNDERFLOW

Value = TypeVar("Value")

_MOST_COORDINATES = 50
_MOST_WITH_NORM = 8  # which takes longer to account for
_KINDS, _BY_NUMBER, _BY_NORM = 16, 1, 9
_ORDER = 2.0  # of the divergences by which a record chooses the coordinates that it moves
_DELTAS = (1e-5, 1e-3, 1e-2, 0.1)


@dataclass(frozen=True)
class Target:
    """One release of theta (a vector), which a record moves as far as ``sensitivity`` says.

    >>> from ringfence import Gaussian
    >>> Target(Gaussian(1.0), torch.zeros(4, dtype=torch.float64), 0.16, delta=1e-5).name
    'Gaussian(sigma=1.0), 4 coordinates, sensitivity 0.16'
    """

    mechanism: Mechanism
    theta: Tensor
    sensitivity: float | Sensitivity
    delta: float

    @property
    def name(self) -> str:
        """The law and the setting, for the tables of an audit."""
        size = self.sensitivity
        shown = repr(size) if isinstance(size, Sensitivity) else f"sensitivity {size:.3g}"
        return f"{self.mechanism!r}, {self.theta.numel()} coordinates, {shown}"

    @property
    def move(self) -> Tensor:
        """How far the worst record moves each coordinate, up or down.

        Where a record cannot move every coordinate as far as it goes, it moves those first that give most
        away for the square of their move.

        >>> from ringfence import StochasticSign
        >>> theta = torch.tensor([3.0, 0.0, -3.0], dtype=torch.float64)
        >>> Target(StochasticSign(1.0), theta, Sensitivity(each=1.0, at_most=1), delta=1e-5).move.tolist()
        [0.0, 1.0, 0.0]
        >>> Target(StochasticSign(1.0), theta, Sensitivity(norm=2.0), delta=1e-5).move.tolist()
        [2.0, 0.0, 0.0]
        """
        theta = checks.finite("theta", self.theta).double().reshape(-1)
        size = Sensitivity.of(self.sensitivity).binding(theta.shape)
        farthest = size.farthest.double().expand(theta.shape)
        if size.is_plain:
            return farthest
        order = torch.tensor([_ORDER], dtype=torch.float64)
        gain = both_directions(self.mechanism, theta, farthest, order).amax(dim=(0, 1))
        ranks = (gain / farthest.square().clamp(min=UNDERFLOW)).argsort(descending=True)
        left = math.inf if size.norm is None else size.norm**2
        moves = torch.zeros_like(theta)
        for place in ranks[: size.at_most].tolist():
            moves[place] = min(float(farthest[place]), math.sqrt(left))
            left = max(0.0, left - float(moves[place]) ** 2)
        return moves


def random_targets(count: int, generator: torch.Generator) -> list[Target]:
    """Settings of every law in turn: 1 to 50 coordinates inside and outside of the support, delta up to 0.1.

    Of every sixteen settings of a law, a record moves up to a quarter of the coordinates in one, and up to 8
    coordinates by an L2 length in another one. The Gaussian with the same noise would be mu-GDP with mu
    between 0.3 and 4; the distance of either end of the interval from 0 is between 0.2 and 8 sigma.

    >>> targets = random_targets(100, torch.Generator().manual_seed(0))
    >>> {target.mechanism.name for target in targets} == set(Mechanism.known())
    True
    """
    checks.count("count", count, at_least=1)
    laws = tuple(Mechanism.known().values())
    return [
        _random_target(laws[index % len(laws)], index // len(laws) % _KINDS, generator)
        for index in range(count)
    ]


def example(
    law: type[Mechanism],
    sigma: float,
    bound: float | tuple[float, float],
    choose: Callable[[Sequence[int]], int] = max,
) -> Mechanism:
    """A law of this class with this sigma and, if it takes one, this bound.

    For each of its settings ``choose`` picks one of the values that the law lets attacks try.

    >>> from ringfence import QuantizedGaussian, StochasticSign
    >>> example(StochasticSign, 1.0, 2.0), example(QuantizedGaussian, 1.0, 2.0)
    (StochasticSign(sigma=1.0), QuantizedGaussian(sigma=1.0, bound=(-2.0, 2.0), levels=17))
    """
    settings = {name: choose(values) for name, values in law.attacked_settings.items()}
    given = {"sigma": sigma, "bound": bound, **settings}
    return Mechanism.by_name(law.name, **{name: given.get(name) for name in law.fields()})


def _random_target(law: type[Mechanism], kind: int, generator: torch.Generator) -> Target:
    def between(low: float, high: float) -> float:
        """Evenly on a log scale."""
        share = float(torch.rand((), generator=generator, dtype=torch.float64))
        return low * math.exp(share * math.log(high / low))

    def one_of(values: Sequence[Value]) -> Value:
        return values[int(torch.randint(len(values), (), generator=generator))]

    sigma = between(0.1, 10.0)
    ends = (-sigma * between(0.2, 8.0), sigma * between(0.2, 8.0))
    size = int(between(1.0, (_MOST_WITH_NORM if kind == _BY_NORM else _MOST_COORDINATES) + 0.99))
    mechanism = example(law, sigma, ends, one_of)
    spread = torch.rand(size, generator=generator, dtype=torch.float64)
    theta = ends[0] + (ends[1] - ends[0]) * spread
    theta = theta + between(0.1, 3.0) * sigma * torch.randn(size, generator=generator, dtype=torch.float64)
    length = between(0.3, 4.0) * sigma
    sensitivity: float | Sensitivity = length / size**0.5
    if kind == _BY_NUMBER:
        few = math.ceil(size / 4)
        sensitivity = Sensitivity(length / few**0.5, at_most=few)
    elif kind == _BY_NORM:
        sensitivity = Sensitivity(norm=length)
    return Target(mechanism, theta, sensitivity, one_of(_DELTAS))
