"""Public points: where a secure release may lie, and where the cell of each point ends.

``Steps``, ``Levels`` and ``Points`` implement ``ringfence.mechanisms.law.PublicPoints``. Their tensors have
one entry, or one entry per coordinate.
"""

from dataclasses import dataclass, fields
from typing import Self

import torch
from torch import Tensor

FARTHEST = 2**51  # the largest number of a point: up to there a number and a half is exact in float64


@dataclass(frozen=True)
class _Columns:
    """Parameters of many coordinates."""

    def select(self, place: int) -> Self:
        """The same for one coordinate."""
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
    """``count`` equally spaced points from ``lower`` to ``upper``; cells end half way between two of them.

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


@dataclass(frozen=True)
class Points:
    """A few points, the same for every coordinate, in ascending order, and the cuts between their cells.

    >>> points = Points((-1.0, 0.0, 5.0), (torch.tensor([-2.0]), torch.tensor([2.0])))
    >>> points.point(points.nearest(torch.tensor([-3.0, 1.0, 2.0, 2.5]))).tolist()
    [-1.0, 0.0, 0.0, 5.0]
    """

    values: tuple[float, ...]
    cuts: tuple[Tensor, ...]  # one fewer than the points

    @property
    def first(self) -> Tensor:
        return torch.tensor(0)

    @property
    def last(self) -> Tensor:
        return torch.tensor(len(self.values) - 1)

    def nearest(self, value: Tensor) -> Tensor:
        return torch.stack(torch.broadcast_tensors(*(value > cut for cut in self.cuts))).sum(dim=0)

    def point(self, number: Tensor) -> Tensor:
        return torch.tensor(self.values, dtype=torch.float64)[number]

    def cut(self, number: Tensor) -> Tensor:
        result = self.cuts[-1]
        for before, cut in reversed(list(enumerate(self.cuts[:-1]))):
            result = torch.where(number <= before, cut, result)
        return result

    def select(self, place: int) -> "Points":
        """The same for one coordinate."""
        return Points(self.values, tuple(_entry(cut, place) for cut in self.cuts))


def _entry(column: Tensor, place: int) -> Tensor:
    return column.reshape(-1)[0 if column.numel() == 1 else place]
