"""One matrix known by its products, and its largest singular value: a batch of one."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from ringfence import checks
from ringfence.numerics.spectral.batched_operator import (
    BatchedOperator,
    checked_generator,
    dense_rounding,
    require_product,
)
from ringfence.numerics.spectral.chebyshev_bounds import (
    Search,
    chebyshev_ends,
    rising_degrees,
    searched_bounds,
)
from ringfence.numerics.spectral.singular_values import UNIT, SingularValueBounds


@dataclass(frozen=True)
class LinearOperator:
    """A (d, p) matrix known by what it does: ``apply`` takes a (p, r) block to (d, r), the transpose back.

    ``rounding`` is a premise of every bound: an application errs by at most ``rounding`` times the
    operator's norm times the vector's norm. Work in float64.

    >>> twice = LinearOperator((3, 3), lambda block: 2 * block, lambda block: 2 * block)
    >>> bounds = probable_bounds(twice, generator=torch.Generator().manual_seed(0))
    >>> bool(bounds.lower <= 2 <= bounds.upper <= 2.03)
    True
    """

    shape: tuple[int, int]
    apply: Callable[[Tensor], Tensor]
    apply_transpose: Callable[[Tensor], Tensor]
    rounding: float = 1e-12

    def __post_init__(self) -> None:
        if len(self.shape) != 2 or min(self.shape) < 1:
            raise ValueError(f"shape must be two positive numbers, got {self.shape!r}")
        if not 0 <= self.rounding <= 0.1:
            raise ValueError(f"rounding must be in [0, 0.1], got {self.rounding!r}")

    @staticmethod
    def of(matrix: Tensor) -> "LinearOperator":
        """The operator of a dense (d, p) matrix.

        >>> LinearOperator.of(torch.eye(2)).apply(torch.ones(2, 1).double()).flatten().tolist()
        [1.0, 1.0]
        """
        matrix = checks.finite("matrix", matrix).double()
        if matrix.ndim != 2 or not matrix.numel():
            raise ValueError(f"matrix must be (d, p) and not empty, got shape {list(matrix.shape)}")
        height, width = matrix.shape
        return LinearOperator(
            (height, width),
            lambda block: matrix @ block,
            lambda block: matrix.mT @ block,
            dense_rounding(height, width),
        )

    def weighted(self, weights: Tensor) -> "LinearOperator":
        """The operator diag(weights) A.

        >>> double = LinearOperator.of(torch.eye(2)).weighted(torch.tensor([2.0, 2.0]).double())
        >>> double.apply(torch.ones(2, 1).double()).flatten().tolist()
        [2.0, 2.0]
        """
        scale = weights[:, None]
        return LinearOperator(
            self.shape,
            lambda block: scale * self.apply(block),
            lambda block: self.apply_transpose(scale * block),
            self.rounding + 2 * UNIT,
        )

    @staticmethod
    def stacked(operators: Sequence["LinearOperator"]) -> "LinearOperator":
        """The operators one above the other, so that their Gram matrices add.

        >>> LinearOperator.stacked([LinearOperator.of(torch.eye(2))] * 3).shape
        (6, 2)
        """
        heights = [operator.shape[0] for operator in operators]

        def back(block: Tensor) -> Tensor:
            parts = block.split(heights)
            total = operators[0].apply_transpose(parts[0])
            for operator, part in zip(operators[1:], parts[1:], strict=True):
                total = total + operator.apply_transpose(part)
            return total

        # sum_t e |A_t| |v_t| <= e sqrt(T) |A| |v|, and T additions
        rounding = math.sqrt(len(operators)) * max(one.rounding for one in operators)
        return LinearOperator(
            (sum(heights), operators[0].shape[1]),
            lambda block: torch.cat([operator.apply(block) for operator in operators]),
            back,
            rounding + len(operators) * UNIT,
        )


def probable_bounds(
    operator: LinearOperator,
    *,
    generator: torch.Generator | None,
    failure_probability: float = 1e-6,
    probes: int = 4,
    tolerance: float = 0.01,
    maximum_degree: int = 256,
) -> SingularValueBounds:
    """Lower and upper bound of the operator's largest singular value, from products alone.

    Work stops once the two are within ``tolerance``, or after polynomials of ``maximum_degree``; neither
    changes what holds.

    Guarantee: the lower bound always holds, the upper one except with ``failure_probability`` over the
    generator's draw. The proof is at the head of ``chebyshev_bounds.py``.

    What rounding takes from t: an application errs by e = ``rounding``. The recurrence carries an error
    made at step j by U_(k-j)(x) <= (k - j + 1) T_(k-j)(x), and T_i T_j <= T_(i+j). Altogether t falls by
    20 (e + u) k^2 |G|_F.

    >>> bounds = probable_bounds(LinearOperator.of(torch.eye(9)), generator=torch.Generator().manual_seed(1))
    >>> bool(bounds.lower <= 1 <= bounds.upper), bounds.failure_probability
    (True, 1e-06)
    """
    source = checked_generator(generator, failure_probability, probes)
    shape, device = (operator.shape[1], probes), source.device

    def draw(rows: Tensor) -> Tensor:
        return torch.randn(shape, generator=source, dtype=torch.float64, device=device).mT[None]

    def charge(degree: int, size: Tensor, threshold: float) -> Tensor:
        return 20 * (operator.rounding + UNIT) * degree**2 * size

    # every polynomial runs to its end: for a single operator a closer bound is worth the products
    search = Search(rising_degrees(8, 2, maximum_degree), tolerance, 0.0, charge)
    batch = _batch_of_one(operator, device)
    ends = partial(chebyshev_ends, batch, search)
    bounds = searched_bounds(batch, draw, ends, failure_probability)
    return SingularValueBounds(bounds.lower[0], bounds.upper[0], failure_probability)


def _batch_of_one(operator: LinearOperator, device: torch.device) -> BatchedOperator:
    def gram(block: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        columns = block[0].mT.contiguous()
        image = operator.apply(columns)
        back = operator.apply_transpose(image)
        require_product("apply", image, (operator.shape[0], columns.shape[1]))
        require_product("apply_transpose", back, columns.shape)
        return image.double().square().sum(0)[None], back.double().mT[None]

    return BatchedOperator(
        1, operator.shape, lambda block, rows: gram(block, rows)[0], gram, operator.rounding, device
    )
