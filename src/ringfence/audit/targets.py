"""What is attacked: one release of a law at a theta; and settings of every law, drawn at random."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from ringfence import checks
from ringfence.mechanisms.base import Mechanism

Value = TypeVar("Value")

_MOST_COORDINATES = 50
_DELTAS = (1e-5, 1e-3, 1e-2, 0.1)


@dataclass(frozen=True)
class Target:
    """One release of theta (a vector), each coordinate of which a record moves by up to ``sensitivity``.

    >>> from ringfence import Gaussian
    >>> Target(Gaussian(1.0), torch.zeros(4, dtype=torch.float64), 0.16, delta=1e-5).name
    'Gaussian(sigma=1.0), 4 coordinates, sensitivity 0.16'
    """

    mechanism: Mechanism
    theta: Tensor
    sensitivity: float
    delta: float

    @property
    def name(self) -> str:
        """The law and the setting, for the tables of an audit."""
        return f"{self.mechanism!r}, {self.theta.numel()} coordinates, sensitivity {self.sensitivity:.3g}"


def random_targets(count: int, generator: torch.Generator) -> list[Target]:
    """Settings of every law in turn: 1 to 50 coordinates inside and outside of the support, delta up to 0.1.

    The Gaussian with the same noise would be mu-GDP with mu between 0.3 and 4; the distance of either end of
    the interval from 0 is between 0.2 and 8 sigma.

    >>> targets = random_targets(100, torch.Generator().manual_seed(0))
    >>> {target.mechanism.name for target in targets} == set(Mechanism.known())
    True
    """
    checks.count("count", count, at_least=1)
    laws = tuple(Mechanism.known().values())
    return [_random_target(laws[index % len(laws)], generator) for index in range(count)]


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


def _random_target(law: type[Mechanism], generator: torch.Generator) -> Target:
    def between(low: float, high: float) -> float:
        """Evenly on a log scale."""
        share = float(torch.rand((), generator=generator, dtype=torch.float64))
        return low * math.exp(share * math.log(high / low))

    def one_of(values: Sequence[Value]) -> Value:
        return values[int(torch.randint(len(values), (), generator=generator))]

    sigma = between(0.1, 10.0)
    ends = (-sigma * between(0.2, 8.0), sigma * between(0.2, 8.0))
    size = int(between(1.0, _MOST_COORDINATES + 0.99))
    mechanism = example(law, sigma, ends, one_of)
    spread = torch.rand(size, generator=generator, dtype=torch.float64)
    theta = ends[0] + (ends[1] - ends[0]) * spread
    theta = theta + between(0.1, 3.0) * sigma * torch.randn(size, generator=generator, dtype=torch.float64)
    move = between(0.3, 4.0) * sigma / size**0.5
    return Target(mechanism, theta, move, one_of(_DELTAS))
