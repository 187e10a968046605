"""Releases to be attacked: settings drawn at random, and the laws of many of them as one law."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ringfence import checks
from ringfence.mechanisms.base import Mechanism
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.mechanisms.quantized import QuantizedGaussian
from ringfence.mechanisms.rectified import RectifiedGaussian
from ringfence.mechanisms.sign import StochasticSign
from ringfence.mechanisms.truncated import TruncatedGaussian

_MOST_COORDINATES = 50
_DELTAS = (1e-5, 1e-3, 1e-2, 0.1)
_LEVELS = (3, 17)


@dataclass(frozen=True)
class Release:
    """One release of theta (a vector), of which a record moves each coordinate by up to ``sensitivity``."""

    mechanism: Mechanism
    theta: Tensor
    sensitivity: float
    delta: float

    @property
    def name(self) -> str:
        return f"{self.mechanism!r}, {self.theta.numel()} coordinates, sensitivity {self.sensitivity:.3g}"


def random_releases(count: int, generator: torch.Generator) -> list[Release]:
    """Settings of every law: 1 to 50 coordinates inside and outside of the support, delta to 0.1.

    The Gaussian with the same noise would be mu-GDP with mu between 0.3 and 4; the support, of either
    end its own, is from 0.2 to 8 sigma.

    >>> releases = random_releases(100, torch.Generator().manual_seed(0))
    >>> len({release.mechanism.name for release in releases})
    5
    """
    checks.count("count", count, at_least=1)

    def between(low: float, high: float) -> float:
        """Evenly on a log scale."""
        share = float(torch.rand((), generator=generator, dtype=torch.float64))
        return low * math.exp(share * math.log(high / low))

    def one_of(number: int) -> int:
        return int(torch.randint(number, (), generator=generator))

    releases = []
    for index in range(count):
        sigma = between(0.1, 10.0)
        ends = (-sigma * between(0.2, 8.0), sigma * between(0.2, 8.0))
        laws = (
            lambda s, b: RectifiedGaussian(s, b),
            lambda s, b: TruncatedGaussian(s, b),
            lambda s, b: Gaussian(s),
            lambda s, b: StochasticSign(s),
            lambda s, b: QuantizedGaussian(s, b, _LEVELS[one_of(len(_LEVELS))]),
        )
        size = int(between(1.0, _MOST_COORDINATES + 0.99))
        mechanism = laws[index % len(laws)](sigma, ends)
        spread = torch.rand(size, generator=generator, dtype=torch.float64)
        theta = ends[0] + (ends[1] - ends[0]) * spread
        theta = theta + between(0.1, 3.0) * sigma * torch.randn(
            size, generator=generator, dtype=torch.float64
        )
        move = between(0.3, 4.0) * sigma / size**0.5
        releases.append(Release(mechanism, theta, move, _DELTAS[one_of(len(_DELTAS))]))
    return releases


@dataclass(frozen=True)
class Stack:
    """Releases of one kind of law side by side: one law, one theta, and which release owns what."""

    places: tuple[int, ...]  # in the sequence they came from
    mechanism: Mechanism
    theta: Tensor
    move: Tensor
    owner: Tensor

    def sums(self, values: Tensor) -> Tensor:
        """Over the coordinates of each release: (..., coordinates) to (..., releases)."""
        result = values.new_zeros(*values.shape[:-1], len(self.places))
        return result.index_add_(-1, self.owner, values)


def stacks(releases: Sequence[Release], most: int) -> Iterator[Stack]:
    """Every release in one of the stacks; none has many more than ``most`` coordinates.

    >>> law = Gaussian(1.0)
    >>> pair = [Release(law, torch.zeros(size, dtype=torch.float64), 0.1, 1e-5) for size in (2, 3)]
    >>> [stack.owner.tolist() for stack in stacks(pair, most=100)]
    [[0, 0, 1, 1, 1]]
    """
    kinds: dict[object, list[int]] = {}
    for place, release in enumerate(releases):
        key = (type(release.mechanism), tuple(release.mechanism.settings().items()))
        kinds.setdefault(key, []).append(place)
    for places in kinds.values():
        some: list[int] = []
        coordinates = 0
        for place in places:
            some.append(place)
            coordinates += releases[place].theta.numel()
            if coordinates >= most:
                yield _stack(releases, some)
                some, coordinates = [], 0
        if some:
            yield _stack(releases, some)


def _stack(releases: Sequence[Release], places: list[int]) -> Stack:
    chosen = [releases[place] for place in places]
    thetas = [checks.finite("theta", release.theta).double().reshape(-1) for release in chosen]
    names = chosen[0].mechanism.parameters()
    columns = {
        name: torch.cat(
            [
                release.mechanism.parameters()[name].double().expand(release.theta.shape).reshape(-1)
                for release in chosen
            ]
        )
        for name in names
    }
    sizes = torch.tensor([theta.numel() for theta in thetas])
    moves = [float(checks.not_negative("sensitivity", release.sensitivity)) for release in chosen]
    return Stack(
        places=tuple(places),
        mechanism=chosen[0].mechanism.with_parameters(columns),
        theta=torch.cat(thetas),
        move=torch.tensor(moves, dtype=torch.float64).repeat_interleave(sizes),
        owner=torch.arange(len(chosen)).repeat_interleave(sizes),
    )
