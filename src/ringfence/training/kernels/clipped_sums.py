"""Clipped sums of the gradients of n examples by one parameter, of which only factors are held.

The gradient of an example by the weight of a layer is a product of what the layer saw and of the gradient of
its output. Its clipped sum over examples is taken without holding n gradients: in chunks of plain torch, by
Triton on a GPU where it can, and by numba on a CPU where every product is an outer product of two vectors.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, reduce
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ringfence.numerics.blocks import at_once, refuse_tf32, row_lengths

ALL = slice(None)
_HAS_TRITON, _HAS_NUMBA = (find_spec(name) is not None for name in ("triton", "numba"))
_CHUNK_ENTRIES = 1 << 20  # how many numbers of products are held at once, and 16 times that on a GPU
_FORMED_ENTRIES = 1 << 22  # the same for gradients that are formed, and for outer products


def clipped_outer_sum(residuals: Tensor, features: Tensor, clip: float | Tensor) -> Tensor:
    """sum_i clamp(r_i x_i^T, -clip, clip) for ``residuals`` (n, K) and ``features`` (n, p): (K, p).

    ``clip`` is a number, or K numbers, one for each column of the residuals. A fused kernel does the work
    where there is one (numba on a CPU, Triton on a GPU, both in float32), and plain torch otherwise. The
    extra memory is a few copies of the result. NaN and infinities are for the caller to refuse.

    Guarantee: every example adds to every entry a number within [-clip, clip], up to the rounding of the sum.

    >>> clipped_outer_sum(torch.tensor([[1.0], [1.0]]), torch.tensor([[3.0, 0.1], [-3.0, 0.1]]), 0.5)
    tensor([[0.0000, 0.2000]])
    """
    limits = _limits(clip, residuals, features)
    if features.dtype == torch.float32 and residuals.numel() and features.numel():
        if features.is_cuda and _HAS_TRITON:
            from ringfence.training.kernels.outer_sum_cuda import outer_sum_cuda

            return outer_sum_cuda(residuals, features, limits)
        if features.is_cpu and _HAS_NUMBA:
            from ringfence.training.kernels.outer_sum_cpu import outer_sum_cpu

            return outer_sum_cpu(residuals, features, limits)
    return plain_outer_sum(residuals, features, limits)


def plain_outer_sum(residuals: Tensor, features: Tensor, clip: float | Tensor) -> Tensor:
    """``clipped_outer_sum`` in chunks of plain torch: the kernels are tested against it."""
    limits = _limits(clip, residuals, features).unsqueeze(1)
    total = features.new_zeros(residuals.shape[1], features.shape[1])
    length = at_once(_FORMED_ENTRIES, each=total.numel())
    for some, others in zip(residuals.split(length), features.split(length), strict=True):
        total += (some.unsqueeze(2) * others.unsqueeze(1)).clamp_(-limits, limits).sum(dim=0)
    return total


def _limits(clip: float | Tensor, residuals: Tensor, features: Tensor) -> Tensor:
    """The clip of each column of the residuals; one number is not copied from the host to a GPU."""
    if isinstance(clip, Tensor):
        return clip.to(features).expand(residuals.shape[1])
    return features.new_full(residuals.shape[1:], clip)


@dataclass(frozen=True)
class Window:
    """The geometry of a convolution: which numbers of its input meet which numbers of its output.

    Kernel, stride, padding with zeros and dilation along each of up to three dimensions, and the groups.

    >>> Window((3, 3), (2, 2), (1, 1), (1, 1)).positions((8, 7))
    (4, 4)
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1

    def positions(self, size: tuple[int, ...]) -> tuple[int, ...]:
        """How many places the window takes along each dimension of an input of this size."""
        settings = zip(size, self.kernel, self.stride, self.padding, self.dilation, strict=True)
        return tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in settings)

    @cached_property
    def is_point(self) -> bool:
        """True where every number of the output sees the numbers of the input at the same place alone."""
        return {*self.kernel, *self.stride} == {1} and {*self.padding} == {0}

    def patches(self, x: Tensor) -> Tensor:
        """The patch of x (n, C, \\*size) at each place: (n, groups, C / groups * kernel, places)."""
        count, channels = x.shape[:2]
        places = self.positions(tuple(x.shape[2:]))
        if not self.is_point:
            if any(self.padding):
                x = functional.pad(x, [side for p in reversed(self.padding) for side in (p, p)])
            strides = x.stride()[2:]
            x = x.as_strided(
                (count, channels, *self.kernel, *places),
                (
                    *x.stride()[:2],
                    *(d * s for d, s in zip(self.dilation, strides, strict=True)),
                    *(step * s for step, s in zip(self.stride, strides, strict=True)),
                ),
                x.storage_offset(),
            )
        width = channels // self.groups * math.prod(self.kernel)
        return x.reshape(count, self.groups, width, math.prod(places))


POINT = Window((1,), (1,), (0,), (1,))  # that of a matrix which is applied at every position


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
    def rows(self, examples: slice = ALL) -> Tensor:
        """The gradients of some of the examples, formed: a row for each."""

    def held(self) -> "Contribution":
        """The same gradients, formed where they take less memory than their factors."""
        return self


def _bounded(gradients: Tensor, limit: float | None, weights: Tensor | None) -> Tensor:
    """weights_i gradient_i of each example, clamped to [-limit, limit]; None leaves either out."""
    if weights is not None:
        gradients = gradients * weights.to(gradients.dtype).view(-1, *(1,) * (gradients.dim() - 1))
    return gradients if limit is None else gradients.clamp(-limit, limit)


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
        return _bounded(self.rows(), limit, weights).sum(dim=0)

    def squares(self) -> Tensor:
        return row_lengths(self.gradients.unsqueeze(-1).flatten(1)).square() * (1 + 2.0**-20)

    def rows(self, examples: slice = ALL) -> Tensor:
        some = self.gradients[examples]
        return some if some.dtype == torch.float64 else some.float()


@dataclass(eq=False)
class Products(Contribution):
    """Gradients by the weight of a convolution, (n, O, C / groups, \\*kernel), held as their two factors.

    ``left`` (n, O, \\*places) are the gradients of its output, ``right`` (n, C, \\*size) is its input. A
    matrix that is applied at T positions is a convolution whose window is one position wide. Where an example
    has several rows, ``per_unit``, they follow one another, and its gradient is their sum. Factors in half
    precision give sums in float32, of products that are accumulated in float32. The extra memory of a sum is
    small, and does not grow with n.

    >>> left, right = torch.tensor([[[1.0]], [[1.0]]]), torch.tensor([[[3.0], [0.1]], [[-3.0], [0.1]]])
    >>> Products(left, right).sum(limit=0.5).flatten()
    tensor([0.0000, 0.2000])
    >>> window = Window(kernel=(2,), stride=(1,), padding=(0,), dilation=(1,))
    >>> filters = Products(torch.ones(1, 1, 2), torch.tensor([[[1.0, 2.0, 5.0]]]), window)
    >>> filters.rows().flatten(), filters.sum(limit=4.0).flatten()
    (tensor([3., 7.]), tensor([3., 4.]))
    """

    left: Tensor
    right: Tensor
    window: Window = POINT
    per_unit: int = 1

    def __post_init__(self) -> None:
        self._dtype = torch.promote_types(self.right.dtype, torch.float32)  # of sums
        self._places = self.left.shape[2:].numel() * self.per_unit  # of all rows of an example
        self._shape = (self.left.shape[1], self.right.shape[1] // self.window.groups, *self.window.kernel)

    def sum(self, limit: float | None, weights: Tensor | None = None) -> Tensor:
        """The clamped sum: (O, C / groups, \\*kernel).

        Guarantee: with a limit every example adds to every entry a number within [-limit, limit], whatever
        the precision of the product: ``limit`` must be a number of the result's dtype. NaN in an example
        makes the sum NaN.
        """
        if not self.left.numel() or not self.right.numel():
            return torch.zeros(self._shape, dtype=self._dtype, device=self.right.device)
        fused = self.fused()
        if fused is not None:
            total: Tensor = fused.convolution_sum_cuda(
                self.left, self.right, self.geometry(fused), limit, weights, self.per_unit
            )
            return total
        right, dtype = self.right, self._dtype
        left = self.left
        if weights is not None:
            left = _bounded(left.to(dtype), None, weights.repeat_interleave(self.per_unit))
        if self._is_outer():
            vectors = self.window.patches(right.to(dtype)).flatten(1)
            return _one_place(left.to(dtype).flatten(1), vectors, limit).view(self._shape)
        total = torch.zeros(math.prod(self._shape), dtype=dtype, device=right.device)
        if limit is None:
            refuse_tf32(total)
            if right.is_cpu or self.window.is_point:  # cudnn would multiply as TF32
                return self._unclamped(left.to(dtype), right.to(dtype))
        for some, patches in self._chunks(left, right):
            products = (some @ patches.mT).flatten(1)
            total += (products if limit is None else products.clamp_(-limit, limit)).sum(dim=0)
        return total.view(self._shape)

    def squares(self) -> Tensor:
        """The squared L2 norm of each example's gradient, from above: (n,) in float64.

        Guarantee: at least the squared norm of what ``sum`` adds for the example with weight 1 and no limit,
        up to the rounding of the sum and the last one of each entry. In plain torch that is the exact
        product: what may have been lost to rounding is added, with L places L 2^-23 (float64: L 2^-52) times
        the norms of both factors. On a GPU sum and squares multiply in the same order, so what was computed
        is what is measured. Matrix products of float32 numbers with fewer bits are refused.
        """
        left, right, window, places = self.left, self.right, self.window, self._places
        if not left.numel() or not right.numel():
            return torch.zeros(len(right) // self.per_unit, dtype=torch.float64, device=right.device)
        fused = self.fused()
        if fused is not None:
            squares: Tensor = fused.convolution_squares_cuda(left, right, self.geometry(fused), self.per_unit)
            return squares
        if self._is_outer():  # an outer product is as long as its two vectors, multiplied
            norms = row_lengths(left.flatten(1)) * row_lengths(window.patches(right).flatten(1))
            return norms.square() * (1 + 2.0**-19)  # each norm is good to 2^-22
        # each number of the input is in a patch at most once for each place of the kernel
        each = (_lengths(part.flatten(2).unflatten(0, (-1, self.per_unit))) for part in (left, right))
        scale = reduce(torch.mul, each) * math.sqrt(math.prod(window.kernel))
        rows, columns = self._shape[0] // window.groups, math.prod(self._shape[1:])
        chunks = self._chunks(left, right)
        if 3 * places * (rows + columns) <= rows * columns:  # in float64, which takes thrice the time
            squares = torch.cat([_gram_squares(*factors) for factors in chunks])
            # of |left|^2 |right|^2, by which it is off at most
            ulps = rows + columns + window.groups * places**2
            return (squares + ulps * torch.finfo(torch.float64).eps * scale.square()) * (1 + 2.0**-40)
        refuse_tf32(right.new_empty(0, dtype=self._dtype))
        lengths = torch.cat([_lengths(some @ patches.mT) for some, patches in chunks])
        # Entry (a, b) of a product is off by at most g sum_t |left_ta| |right_tb| with g = L u / (1 - L u)
        # and u half an ulp of 1, in any order of the additions (Higham, Accuracy and Stability of Numerical
        # Algorithms, 3.5); the matrix of these sums is no longer than |left| |right|.
        return (lengths + places * torch.finfo(self._dtype).eps * scale).square() * (1 + 2.0**-40)

    def rows(self, examples: slice = ALL) -> Tensor:
        start, stop, _ = (side * self.per_unit for side in examples.indices(len(self.left) // self.per_unit))
        chunks = self._chunks(self.left[start:stop], self.right[start:stop])
        rows = torch.cat([some @ patches.mT for some, patches in chunks])
        return rows.view(len(rows), *self._shape)

    def held(self) -> Contribution:
        rows, columns = self._shape[0], math.prod(self._shape[1:])
        if not self.left.is_cpu or rows * columns > self._places * (rows + columns):
            return self
        return Rows(self.rows())

    def _is_outer(self) -> bool:
        """Whether an example's gradient is one outer product, because the window takes one place."""
        return self.window.groups == 1 and self._places == 1

    def geometry(self, fused: Any) -> Any:
        """The window as the kernels take it: in two dimensions, or a point whatever the dimensions."""
        flat = POINT if self.window.is_point else self.window
        settings = ((1, flat.kernel), (1, flat.stride), (0, flat.padding), (1, flat.dilation))
        sides = ((default, *setting)[-2:] for default, setting in settings)
        return fused.Geometry(*sides, self.window.groups, self.window.is_point)

    def fused(self) -> Any:
        """The module of the kernels that do the work on a GPU, or None."""
        if not self.right.is_cuda or not _HAS_TRITON or self._places == 1:
            return None
        from ringfence.training.kernels import product_sum_cuda

        known = len(self.window.kernel) < 3 and product_sum_cuda.is_fused(
            self.left, self.right, self.window.groups
        )
        return product_sum_cuda if known else None

    def _chunks(self, left: Tensor, right: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """These factors, of a few examples at a time: (m, groups, O / groups, L) and (m, groups, k, L)."""
        outputs, places, groups = self._shape[0], self._places, self.window.groups
        columns = math.prod(self._shape[1:])
        entries = outputs * columns + places * (outputs + groups * columns)
        length = max(1, _CHUNK_ENTRIES * (1 if left.is_cpu else 16) // entries) * self.per_unit
        for some, others in zip(left.split(length), right.split(length), strict=True):
            each = some.to(self._dtype).reshape(len(some), groups, outputs // groups, -1)
            yield self._joined(each), self._joined(self.window.patches(others.to(self._dtype)))

    def _joined(self, factors: Tensor) -> Tensor:
        """(m rows, groups, k, L) as (m, groups, k, rows L): the places of an example's rows side by side."""
        joined: Tensor = factors.unflatten(0, (-1, self.per_unit)).movedim(1, 3).flatten(3)
        return joined

    def _unclamped(self, left: Tensor, right: Tensor) -> Tensor:
        """One ordinary weight gradient."""
        window = self.window
        if window.is_point and window.groups == 1:
            rows, columns = (part.movedim(1, -1).flatten(0, -2) for part in (left, right))
            return (rows.T @ columns).view(self._shape)
        settings = (window.stride, window.padding, window.dilation, False, [0] * len(window.kernel))
        gradient: Tensor = torch.ops.aten.convolution_backward(
            left, right, right.new_empty(self._shape), None, *settings, window.groups, [False, True, False]
        )[1]
        return gradient


def _one_place(left: Tensor, right: Tensor, limit: float | None) -> Tensor:
    """The outer sum, which may lose a NaN on a CPU, and the infinities that make one."""
    if limit is None:
        refuse_tf32(left)
        return left.T @ right
    if not left.is_cpu:
        return clipped_outer_sum(left + 0 * left, right + 0 * right, limit)  # infinity + 0 infinity is NaN
    finite = bool(torch.isfinite(left.sum() + right.sum()))
    return (clipped_outer_sum if finite else plain_outer_sum)(left, right, limit)


def _gram_squares(left: Tensor, right: Tensor) -> Tensor:
    """|left right^T|^2 for (m, groups, o, L) and (m, groups, k, L), by both Gram matrices."""
    left, right = left.double(), right.double()
    return ((left.mT @ left) * (right.mT @ right)).sum(dim=(1, 2, 3))


def _lengths(values: Tensor) -> Tensor:
    """The L2 norm of each example's numbers (n, ..., j, k), in float64 and from above.

    Rows are summed in float32, where this takes a third of the time, and their lengths in float64.
    """
    values = values if values.stride(-1) == 1 else values.mT
    dtype, numbers = torch.promote_types(values.dtype, torch.float32), values.shape[1:].numel()
    rows = torch.linalg.vector_norm(values, dim=-1, dtype=dtype)
    lengths: Tensor = torch.linalg.vector_norm(rows.flatten(1), dim=1, dtype=torch.float64)
    margin = torch.finfo(dtype).eps * values.shape[-1] + torch.finfo(torch.float64).eps * numbers
    return lengths * (1 + margin) + 2 * math.sqrt(numbers * torch.finfo(dtype).tiny)


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
        return sum_rows(_bounded(self.values, limit, weights), self.words, self.size)

    def squares(self) -> Tensor:
        return row_lengths(self.values.flatten(1)).square() * (1 + 2.0**-20)

    def rows(self, examples: slice = ALL) -> Tensor:
        words, size = self.words[examples], self.size + 1
        tables = torch.arange(len(words), device=words.device).unsqueeze(1) * size
        sums = sum_rows(self.values[examples], words + tables, len(words) * size)
        return sums.view(len(words), size, -1)[:, :-1]


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
            Rows(self.rows(at)).sum(limit, None if weights is None else weights[at])
            for at in self._stretches()
        )
        return reduce(torch.add, each)

    def squares(self) -> Tensor:
        return torch.cat([Rows(self.rows(at)).squares() for at in self._stretches()])

    def rows(self, examples: slice = ALL) -> Tensor:
        return reduce(torch.add, (part.rows(examples).reshape(-1, *self.shape) for part in self.parts))

    def _stretches(self) -> Iterator[slice]:
        """Which examples are formed together."""
        length = at_once(_FORMED_ENTRIES, each=self.shape.numel())
        return (slice(start, start + length) for start in range(0, self.examples, length))


def add_uses(parts: Iterable[Contribution], examples: int, shape: torch.Size) -> Contribution:
    """One contribution for all uses of a parameter, which are summed before anything is clipped.

    Those of one matrix become one use at more positions.

    >>> left, right = torch.ones(2, 1, 3), torch.ones(2, 4, 3)
    >>> both = add_uses([Products(left, right)] * 2, 2, torch.Size([4, 3]))
    >>> bool((both.sum(None) == 12).all())
    True
    """
    uses = tuple(parts)
    if len(uses) == 1:
        return uses[0]
    products = [part for part in uses if isinstance(part, Products) and part.window == POINT]
    if len(products) == len(uses):
        # along the positions, whose numbers lie side by side in memory
        left, right = ([getattr(part, side).mT for part in products] for side in ("left", "right"))
        return Products(torch.cat(left, 1).mT, torch.cat(right, 1).mT).held()
    if all(isinstance(part, Rows) for part in uses):
        return Rows(reduce(torch.add, (part.rows() for part in uses)))
    return Together(uses, examples, shape)


def matrix_and_bias(units: int, gradient: Tensor, x: Tensor) -> tuple[Products, Rows]:
    """The gradients of a matrix that is applied to rows (n k, ..., width), and of the bias that is added.

    >>> matrix, bias = matrix_and_bias(1, torch.ones(1, 2), torch.tensor([[3.0, 4.0]]))
    >>> matrix.rows().squeeze(3), bias.rows()
    (tensor([[[3., 4.],
             [3., 4.]]]), tensor([[1., 1.]]))
    """
    left, right = (each.reshape(units, -1, each.shape[-1]) for each in (gradient, x.to(gradient.dtype)))
    return Products(left.mT, right.mT), Rows(summed(left, 1))


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


def unit_sums(rows: Tensor, units: int) -> Tensor:
    """The sums of rows over units, of which each has as many, one after the other: (units, ...).

    >>> unit_sums(torch.tensor([1.0, 2.0, 4.0, 8.0]), 2)
    tensor([ 3., 12.])
    """
    return rows if len(rows) == units else rows.unflatten(0, (units, -1)).sum(dim=1)


def summed(values: Tensor, *dimensions: int) -> Tensor:
    """The sum over dimensions, of half precision in float32.

    >>> summed(torch.ones(2, 3, dtype=torch.bfloat16), 1)
    tensor([3., 3.])
    """
    half = values.dtype in (torch.bfloat16, torch.float16)
    return values.sum(dimensions, dtype=torch.float32 if half else None)
