"""Points that are public: where a release may lie, and where one point's cell ends.

A grid numbers its points with integers. ``point`` and ``cut`` depend on the number and on public
parameters only. The cell of a point is what lies between the cut before it and its own; the
first and the last cell reach to the ends of the support.
"""

from dataclasses import dataclass, fields
from typing import Protocol, Self

import torch
from torch import Tensor

FARTHEST = 2**51  # of the numbers: up to there a number and a half is exact in float64


class Grid(Protocol):
    """What a release needs of its public points."""

    @property
    def first(self) -> Tensor:
        """Number of the lowest point, int64."""

    @property
    def last(self) -> Tensor:
        """Number of the highest point, int64."""

    def nearest(self, value: Tensor) -> Tensor:
        """Number of the point whose cell the value is in, up to rounding."""

    def point(self, number: Tensor) -> Tensor:
        """The point itself."""

    def cut(self, number: Tensor) -> Tensor:
        """Where the cell ends, for numbers before the last."""

    def select(self, place: int) -> Self:
        """The grid of one coordinate."""


@dataclass(frozen=True)
class _Columns:
    """Parameters of many coordinates, a tensor each, of one entry or one a coordinate."""

    def select(self, place: int) -> Self:
        columns = (getattr(self, field.name) for field in fields(self))
        return type(self)(*(_entry(column, place) for column in columns))


@dataclass(frozen=True)
class Steps(_Columns):
    """The multiples of ``step`` inside (lower, upper), and the two ends where they are finite.

    >>> numbers = torch.tensor([-2, -1, 0, 1, 2])
    >>> steps = Steps(*(torch.tensor(x, dtype=torch.float64) for x in (-1.1, 0.9, 0.5)))
    >>> steps.point(numbers).tolist()
    [-1.1, -0.5, 0.0, 0.5, 0.9]
    """

    lower: Tensor
    upper: Tensor
    step: Tensor

    @property
    def first(self) -> Tensor:
        return self._number(self.lower)

    @property
    def last(self) -> Tensor:
        return self._number(self.upper)

    def nearest(self, value: Tensor) -> Tensor:
        return self._number(self._inside(value))

    def point(self, number: Tensor) -> Tensor:
        inner = self._inside(number.double() * self.step)
        inner = torch.where((number == self.first) & torch.isfinite(self.lower), self.lower, inner)
        return torch.where((number == self.last) & torch.isfinite(self.upper), self.upper, inner)

    def cut(self, number: Tensor) -> Tensor:
        return self._inside((number.double() + 0.5) * self.step)

    def _inside(self, value: Tensor) -> Tensor:
        return torch.minimum(torch.maximum(value, self.lower), self.upper)

    def _number(self, value: Tensor) -> Tensor:
        return torch.round(value / self.step).clamp(-FARTHEST, FARTHEST).long()


@dataclass(frozen=True)
class Levels(_Columns):
    """``count`` equally spaced points from ``lower`` to ``upper``.

    >>> levels = Levels(*(torch.tensor(x, dtype=torch.float64) for x in (-1.0, 1.0, 5)))
    >>> levels.point(levels.nearest(torch.tensor([-7.0, 0.3], dtype=torch.float64))).tolist()
    [-1.0, 0.5]
    """

    lower: Tensor
    upper: Tensor
    count: Tensor

    @property
    def first(self) -> Tensor:
        return torch.zeros_like(self.count).long()

    @property
    def last(self) -> Tensor:
        return (self.count - 1).long()

    def nearest(self, value: Tensor) -> Tensor:
        steps = (value - self.lower) / (self.upper - self.lower) * (self.count - 1)
        return torch.minimum(torch.round(steps).clamp(min=0), self.count - 1).long()

    def point(self, number: Tensor) -> Tensor:
        point = self._at(number.double())
        return torch.where(number == self.last, self.upper, point)

    def cut(self, number: Tensor) -> Tensor:
        return self._at(number.double() + 0.5)

    def _at(self, number: Tensor) -> Tensor:
        return self.lower + (self.upper - self.lower) * (number / (self.count - 1))


def _entry(column: Tensor, place: int) -> Tensor:
    return column.reshape(-1)[0 if column.numel() == 1 else place]
