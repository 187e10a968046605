"""Gradients of n examples by one parameter, held as their factors and summed without being formed."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from ringfence.numerics.blocks import row_lengths
from ringfence.training.kernels.product_sum import convolution_rows, convolution_squares, convolution_sum
from ringfence.training.kernels.window import POINT, Window

ALL = slice(None)
_AT_ONCE = 1 << 22  # how many numbers of formed gradients are held at once


class Contribution(ABC):
    """The gradients of n examples by one parameter, or by some of its rows."""

    @abstractmethod
    def sum(self, limit: float | None, weights: Tensor | None = None) -> Tensor:
        """sum_i clamp(weights_i gradient_i, -limit, limit) in float32 or float64, flat or of any shape.

        A limit of None clamps nothing, and weights of None are all 1.

        Guarantee: with a limit every example adds a number within [-limit, limit] to every entry.
        """

    @abstractmethod
    def squares(self) -> Tensor:
        """The squared L2 norm of every example's gradient in float64, from above."""

    @abstractmethod
    def rows(self) -> Tensor:
        """The gradients, formed: n rows."""

    @abstractmethod
    def some(self, examples: slice) -> "Contribution":
        """The gradients of some of the examples."""

    def held(self) -> "Contribution":
        """The same gradients, formed where they take less memory than their factors."""
        return self


# the name of a parameter, which of its rows, and their gradients
Part = tuple[str, slice, Contribution]


@dataclass(eq=False)
class Rows(Contribution):
    """Gradients that are small enough to be held: (n, ...).

    >>> Rows(torch.tensor([[3.0, 4.0], [0.1, 0.2]])).sum(limit=1.0)
    tensor([1.1000, 1.2000])
    """

    gradients: Tensor

    def sum(self, limit: float | None, weights: Tensor | None = None) -> Tensor:
        rows = self.rows()
        if weights is not None:
            rows = rows * weights.to(rows.dtype).view(-1, *(1,) * (rows.dim() - 1))
        if limit is not None:
            rows = rows.clamp(-limit, limit)
        return rows.sum(dim=0)

    def squares(self) -> Tensor:
        return row_lengths(self.gradients.flatten(1)).square() * (1 + 2.0**-20)

    def rows(self) -> Tensor:
        return self.gradients if self.gradients.dtype == torch.float64 else self.gradients.float()

    def some(self, examples: slice) -> Contribution:
        return Rows(self.gradients[examples])


@dataclass(eq=False)
class Products(Contribution):
    """Gradients by the filters of a convolution: ``left`` (n, O, \\*places) are those of its output.

    ``right`` (n, C, \\*size) is its input. A matrix that is applied at T positions is a convolution whose
    window is one position wide.

    >>> left, right = torch.tensor([[[1.0]], [[1.0]]]), torch.tensor([[[3.0], [0.1]], [[-3.0], [0.1]]])
    >>> Products(left, right).sum(limit=0.5).flatten()
    tensor([0.0000, 0.2000])
    """

    left: Tensor
    right: Tensor
    window: Window = POINT

    def sum(self, limit: float | None, weights: Tensor | None = None) -> Tensor:
        return convolution_sum(self.left, self.right, self.window, limit, weights)

    def squares(self) -> Tensor:
        return convolution_squares(self.left, self.right, self.window)

    def rows(self) -> Tensor:
        return convolution_rows(self.left, self.right, self.window)

    def some(self, examples: slice) -> Contribution:
        return Products(self.left[examples], self.right[examples], self.window)

    def held(self) -> Contribution:
        rows, places = self.left.shape[1], self.left.shape[2:].numel()
        columns = self.right.shape[1] // self.window.groups * math.prod(self.window.kernel)
        if not self.left.is_cpu or rows * columns > places * (rows + columns):
            return self
        return Rows(self.rows())


@dataclass(eq=False)
class Words(Contribution):
    """Gradients of a table of ``size`` words: row t of example i belongs to word ``words[i, t]``.

    A word has at most one row in each example. Rows of ``size``, which is no word, count nothing.

    >>> table = Words(torch.ones(2, 2, 1), torch.tensor([[0, 2], [0, 1]]), size=3)
    >>> table.sum(limit=0.5).flatten()
    tensor([1.0000, 0.5000, 0.5000])
    """

    values: Tensor
    words: Tensor
    size: int

    @staticmethod
    def at_places(values: Tensor, words: Tensor, size: int) -> "Words":
        """Adds up all rows of a word at the place of its first row; its other places are left empty."""
        values = values if values.dtype == torch.float64 else values.float()
        ordered, order = words.sort(dim=1, stable=True)
        first = order.gather(1, torch.searchsorted(ordered, ordered))
        places = torch.empty_like(first).scatter_(1, order, first)
        others = places != torch.arange(words.shape[1], device=words.device)
        places += torch.arange(len(words), device=words.device).unsqueeze(1) * words.shape[1]
        sums = sum_rows(values, places, words.numel()).view_as(values)
        return Words(sums, words.masked_fill(others, size), size)

    def sum(self, limit: float | None, weights: Tensor | None = None) -> Tensor:
        values = self.values
        if weights is not None:
            values = values * weights.to(values.dtype).view(-1, 1, 1)
        if limit is not None:
            values = values.clamp(-limit, limit)
        return sum_rows(values, self.words, self.size)

    def squares(self) -> Tensor:
        return row_lengths(self.values.flatten(1)).square() * (1 + 2.0**-20)

    def rows(self) -> Tensor:
        count = len(self.words)
        tables = torch.arange(count, device=self.words.device).unsqueeze(1) * (self.size + 1)
        sums = sum_rows(self.values, self.words + tables, count * (self.size + 1))
        return sums.view(count, self.size + 1, -1)[:, : self.size]

    def some(self, examples: slice) -> Contribution:
        return Words(self.values[examples], self.words[examples], self.size)


@dataclass(eq=False)
class Together(Contribution):
    """Sums of several gradients of ``shape``, which are formed, a few examples at a time.

    >>> rows = Rows(torch.tensor([[3.0], [0.1]]))
    >>> Together((rows, rows), examples=2, shape=torch.Size([1])).sum(limit=1.0)
    tensor([1.2000])
    """

    parts: tuple[Contribution, ...]
    examples: int
    shape: torch.Size

    def sum(self, limit: float | None, weights: Tensor | None = None) -> Tensor:
        each = (
            Rows(rows).sum(limit, None if weights is None else weights[at]) for at, rows in self._formed()
        )
        return reduce(torch.add, each)

    def squares(self) -> Tensor:
        return torch.cat([Rows(rows).squares() for _, rows in self._formed()])

    def rows(self) -> Tensor:
        return reduce(torch.add, (part.rows().reshape(-1, *self.shape) for part in self.parts))

    def some(self, examples: slice) -> "Together":
        count = len(range(*examples.indices(self.examples)))
        return Together(tuple(part.some(examples) for part in self.parts), count, self.shape)

    def _formed(self) -> Iterator[tuple[slice, Tensor]]:
        length = max(1, _AT_ONCE // max(1, self.shape.numel()))
        for start in range(0, self.examples, length):
            at = slice(start, start + length)
            yield at, self.some(at).rows()


def add_uses(parts: Iterable[Contribution], examples: int, shape: torch.Size) -> Contribution:
    """One contribution for all uses of a parameter, which are summed before anything is clipped.

    Those of one matrix become one use at more positions.

    >>> left, right = torch.ones(2, 1, 3), torch.ones(2, 4, 3)
    >>> add_uses([Products(left, right)] * 2, 2, torch.Size([1, 4])).left.shape
    torch.Size([2, 1, 6])
    """
    uses = tuple(parts)
    if len(uses) == 1:
        return uses[0]
    products = [part for part in uses if isinstance(part, Products) and part.window == POINT]
    if len(products) == len(uses):
        left, right = ([getattr(part, side) for part in products] for side in ("left", "right"))
        return Products(torch.cat(left, 2), torch.cat(right, 2))
    if all(isinstance(part, Rows) for part in uses):
        return Rows(reduce(torch.add, (part.rows() for part in uses)))
    return Together(uses, examples, shape)


def sum_rows(rows: Tensor, places: Tensor, size: int) -> Tensor:
    """The sums of the rows (..., width) that belong to the same of ``size`` places: (size, width).

    The order of the additions is always the same, and nothing waits for the device. Rows of place ``size``
    are left out.

    >>> sum_rows(torch.tensor([[1.0], [2.0], [4.0], [8.0]]), torch.tensor([1, 0, 1, 2]), 2)
    tensor([[2.],
            [5.]])
    """
    rows, places = rows.flatten(0, -2), places.flatten()
    if rows.is_cuda:
        # torch's own gradient of an embedding takes as many sums as there were when it was recorded
        ordered, order = places.sort(stable=True)
        starts = torch.searchsorted(ordered, torch.arange(size + 1, device=places.device))
        return torch.segment_reduce(rows[order], "sum", offsets=starts, unsafe=True, initial=0.0)
    sums: Tensor = torch.ops.aten.embedding_dense_backward(rows, places, size + 1, size, False)
    return sums[:size]


def summed(values: Tensor, *dimensions: int) -> Tensor:
    """The sum over dimensions, of half precision in float32.

    >>> summed(torch.ones(2, 3, dtype=torch.bfloat16), 1)
    tensor([3., 3.])
    """
    half = values.dtype in (torch.bfloat16, torch.float16)
    return values.sum(dimensions, dtype=torch.float32 if half else None)
