"""What the gradients of n examples by one parameter are made of: they are summed without being formed."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from ringfence.numerics.blocks import row_lengths
from ringfence.training.kernels.product_sum import (
    convolution_rows,
    convolution_squares,
    convolution_sum,
    product_squares,
    product_sum,
)
from ringfence.training.kernels.window import Window


class Contribution(ABC):
    """The gradients of n examples by one parameter, or by some of its rows."""

    @abstractmethod
    def sum(self, limit: float | None, weights: Tensor | None = None) -> Tensor:
        """sum_i clamp(weights_i gradient_i, -limit, limit) in float32, of the parameter's shape.

        A limit of None clamps nothing, and weights of None are all 1.

        Guarantee: with a limit every example adds a number within [-limit, limit] to every entry.
        """

    @abstractmethod
    def squares(self) -> Tensor:
        """The squared L2 length of every example's gradient in float64, from above."""

    @abstractmethod
    def one(self, i: int) -> "Contribution":
        """The gradient of example i."""

    def held(self) -> "Contribution":
        """The same gradients, held in memory where they take less of it than what they are made of."""
        return self


Contributions = dict[str, Contribution]  # by the name of the parameter in its layer


@dataclass(frozen=True)
class Rows(Contribution):
    """Gradients that are small enough to be held: (n, ...).

    >>> Rows(torch.tensor([[3.0, 4.0], [0.1, 0.2]])).sum(limit=1.0)
    tensor([1.1000, 1.2000])
    """

    gradients: Tensor

    def one(self, i: int) -> Contribution:
        return Rows(self.gradients[i : i + 1])

    def sum(self, limit: float | None, weights: Tensor | None = None) -> Tensor:
        rows = self.gradients if self.gradients.dtype == torch.float64 else self.gradients.float()
        if weights is not None:
            rows = rows * weights.to(rows.dtype).view(-1, *(1,) * (rows.dim() - 1))
        if limit is not None:
            rows = rows.clamp(-limit, limit)
        return rows.sum(dim=0)

    def squares(self) -> Tensor:
        return row_lengths(self.gradients.flatten(1)).square() * (1 + 2.0**-20)


@dataclass(frozen=True)
class Products(Contribution):
    """Gradients left_i^T right_i of (n, T, q) and (n, T, p): those of a matrix that is applied T times.

    >>> left, right = torch.tensor([[[1.0]], [[1.0]]]), torch.tensor([[[3.0, 0.1]], [[-3.0, 0.1]]])
    >>> Products(left, right).sum(limit=0.5)
    tensor([[0.0000, 0.2000]])
    """

    left: Tensor
    right: Tensor

    def one(self, i: int) -> Contribution:
        return Products(self.left[i : i + 1], self.right[i : i + 1])

    def sum(self, limit: float | None, weights: Tensor | None = None) -> Tensor:
        return product_sum(self.left, self.right, limit, weights)

    def squares(self) -> Tensor:
        return product_squares(self.left, self.right)

    def held(self) -> Contribution:
        (_, places, rows), columns = self.left.shape, self.right.shape[2]
        if not self.left.is_cpu or rows * columns > places * (rows + columns):
            return self
        return Rows(convolution_rows(self.left.mT, self.right.mT, Window((1,), (1,), (0,), (1,))).squeeze(3))


@dataclass(frozen=True)
class Convolutions(Contribution):
    """Gradients of the filters of a convolution, of the gradients of its output and of its input.

    >>> window = Window(kernel=(1,), stride=(1,), padding=(0,), dilation=(1,), groups=1)
    >>> Convolutions(torch.ones(2, 1, 3), torch.ones(2, 1, 3), window).sum(limit=2.0)
    tensor([[[4.]]])
    """

    output_gradient: Tensor
    images: Tensor
    window: Window

    def one(self, i: int) -> Contribution:
        return Convolutions(self.output_gradient[i : i + 1], self.images[i : i + 1], self.window)

    def sum(self, limit: float | None, weights: Tensor | None = None) -> Tensor:
        return convolution_sum(self.output_gradient, self.images, self.window, limit, weights)

    def squares(self) -> Tensor:
        return convolution_squares(self.output_gradient, self.images, self.window)

    def held(self) -> Contribution:
        places, width = self.output_gradient[0, 0].numel(), self.images.shape[1] // self.window.groups
        rows, columns = self.output_gradient.shape[1], width * math.prod(self.window.kernel)
        if not self.images.is_cpu or rows * columns > places * (rows + columns):
            return self
        return Rows(convolution_rows(self.output_gradient, self.images, self.window))
