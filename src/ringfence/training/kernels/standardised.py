"""Clipped sums of gradients by the weight of a convolution whose filters are standardised.

The gradient G by the filters as they are used becomes that by the trained weight by a linear map, the same
for all examples: for each filter, rate (G - mean(G) - u (u, G)) with its direction u. It commutes with sums,
and the length of what it gives follows from three numbers of G: its length, its sum and its product with u.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ringfence.training.kernels.clipped_sums import ALL, Contribution, Products, Rows, Together


@dataclass(eq=False)
class Standardised(Together):
    """Gradients by the trained weight; ``parts`` has those by the filters as they are used.

    ``directions`` (O, C / groups, \\*kernel) are the standardised filters, and ``rates`` (O,) what a change
    of a centred filter is multiplied by. Where no kernel does the work, gradients are formed, a few examples
    at a time.

    >>> ones, filters = torch.ones(1, 1, 1), torch.tensor([[[1.0], [-1.0]]]) / 2**0.5
    >>> products = Products(ones, torch.tensor([[[3.0], [1.0]]]))
    >>> kept = Standardised((products,), 1, torch.Size([1, 2, 1]), filters, torch.ones(1))
    >>> kept.rows().flatten().abs() < 1e-6, kept.along  # both directions of two numbers are gone
    (tensor([True, True]), tensor([[1.4142]]))
    """

    directions: Tensor
    rates: Tensor

    @property
    def _product(self) -> Products:
        product = self.parts[0]
        assert isinstance(product, Products)
        return product

    @cached_property
    def _statistics(self) -> Tensor | None:
        """Squared lengths, sums and products with directions of G, (n, 3, O), where a kernel finds them."""
        product, fused = self._product, self._product.fused()
        if fused is None:
            return None
        factors = product.left, product.right, product.geometry(fused)
        numbers: Tensor = fused.statistics_cuda(*factors, product.per_unit, self.directions)
        return numbers

    @cached_property
    def along(self) -> Tensor:
        """The product of each example's G with the directions: (n, O), the gradients by the gains."""
        if self._statistics is not None:
            return self._statistics[:, 2].to(self.rates.dtype)
        formed = (self._product.rows(at) for at in self._stretches())
        return torch.cat([(rows * self.directions).flatten(2).sum(dim=2) for rows in formed])

    def sum(self, limit: float | None, weights: Tensor | None = None) -> Tensor:
        product = self._product
        if self._statistics is None:
            return super().sum(limit, weights)
        if limit is None:
            return self._mapped(product.sum(None, weights).unsqueeze(0)).squeeze(0)
        width = self.directions[0].numel()
        shifts = torch.stack([self._statistics[:, 1] / width, self._statistics[:, 2]], dim=1).float()
        fused: Any = product.fused()
        factors = product.left, product.right, product.geometry(fused), limit, weights, product.per_unit
        total: Tensor = fused.convolution_sum_cuda(*factors, (self.directions, self.rates, shifts))
        return total

    def squares(self) -> Tensor:
        """The squared lengths, from above.

        On a GPU they follow from the statistics of what was computed. These are sums in float32 over a tile
        of at most 128 columns, so that a square is off by 2^-16 of itself at most, and so is the square of a
        sum or of a product with u, of the square of G.
        """
        if self._statistics is None:
            return super().squares()
        squares, sums, along = self._statistics.unbind(dim=1)
        lengths = self.directions.flatten(1).double().square().sum(dim=1)
        width, vanished = self.directions[0].numel(), 2.0**-126  # what a square in float32 may lose
        gone = sums.square() / width + (2 - lengths) * along.square()
        kept = (squares * (1 + 2.0**-13) + width * vanished - gone).clamp(min=0)
        return (kept * self.rates.double().square()).sum(dim=1) * (1 + 2.0**-40)

    def rows(self, examples: slice = ALL) -> Tensor:
        return self._mapped(self._product.rows(examples))

    def held(self) -> Contribution:
        return Rows(self.rows()) if isinstance(self._product.held(), Rows) else self

    def _mapped(self, gradients: Tensor) -> Tensor:
        """The gradients by the trained weight, of those by the filters as they are used: (n, O, ...)."""
        each, directions = gradients.flatten(2), self.directions.flatten(1)
        along = (each * directions).sum(dim=2, keepdim=True)
        centred = each - each.mean(dim=2, keepdim=True) - directions * along
        return (centred * self.rates.unsqueeze(1)).view_as(gradients)
