"""The gradients by a parameter that is used several times: its uses are summed before anything is clipped."""

from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from ringfence.training.per_example.fused.contributions import Contribution, Products, Rows
from ringfence.training.per_example.fused.tape import ALL, Part


@dataclass(frozen=True)
class Together(Contribution):
    """Gradients that are sums of others. They are formed, one example after the other.

    >>> rows = Rows(torch.tensor([[3.0], [0.1]]))
    >>> Together((rows, rows), examples=2).sum(limit=1.0)
    tensor([1.2000])
    """

    parts: tuple[Contribution, ...]
    examples: int

    def one(self, i: int) -> Contribution:
        return Rows(reduce(torch.add, (part.one(i).sum(None) for part in self.parts)).unsqueeze(0))

    def sum(self, limit: float | None, weights: Tensor | None = None) -> Tensor:
        each = (
            self.one(i).sum(limit, None if weights is None else weights[i : i + 1])
            for i in range(self.examples)
        )
        return reduce(torch.add, each)

    def squares(self) -> Tensor:
        return torch.cat([self.one(i).squares() for i in range(self.examples)])


def together(parts: list[Contribution], examples: int) -> Contribution:
    """One contribution for several uses. Those of matrices become one use at more positions.

    >>> left, right = torch.ones(2, 3, 1), torch.ones(2, 3, 4)
    >>> together([Products(left, right)] * 2, examples=2).left.shape
    torch.Size([2, 6, 1])
    """
    if len(parts) == 1:
        return parts[0]
    rows = [part.gradients for part in parts if isinstance(part, Rows)]
    if len(rows) == len(parts):
        return Rows(
            reduce(torch.add, (each if each.dtype == torch.float64 else each.float() for each in rows))
        )
    products = [part for part in parts if isinstance(part, Products)]
    if len(products) == len(parts):
        left, right = (
            torch.cat([part.left for part in products], 1),
            torch.cat([part.right for part in products], 1),
        )
        return Products(left, right)
    return Together(tuple(parts), examples)


def joined_parts(parts: list[Part], several: frozenset[str], examples: int) -> list[Part]:
    """The parts of a pass, one for each of the parameters in ``several``."""
    uses: dict[str, list[Contribution]] = {}
    for name, _, contribution in parts:
        if name in several:
            uses.setdefault(name, []).append(contribution)
    others = [part for part in parts if part[0] not in several]
    return others + [(name, ALL, together(each, examples)) for name, each in uses.items()]
