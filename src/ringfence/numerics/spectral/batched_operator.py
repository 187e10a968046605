"""Many matrices of one shape known by their products, and what bounds from random probes need of them."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ringfence import checks
from ringfence.numerics.spectral.singular_values import gamma


@dataclass(frozen=True)
class BatchedOperator:
    """``count`` matrices A of ``shape`` (d, p), known by what they do to (m, r, p) blocks of r vectors.

    ``squares(block, rows)`` returns |A v|^2, of shape (m, r), for the m matrices whose numbers are
    ``rows``. ``gram(block, rows)`` returns the same and A^T A v, of shape (m, r, p). All is float64.

    ``rounding`` is a premise of every bound: applying A or its transpose errs by at most
    ``rounding`` times the norm of A times the norm of the vector.

    >>> operator = BatchedOperator.of(torch.stack((torch.eye(3), 2 * torch.eye(3))))
    >>> operator.squares(torch.ones(1, 1, 3).double(), torch.tensor([1])).tolist()  # |2 v|^2
    [[12.0]]
    """

    count: int
    shape: tuple[int, int]
    squares: Callable[[Tensor, Tensor], Tensor]
    gram: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    rounding: float = 1e-12
    device: torch.device | str = "cpu"

    def __post_init__(self) -> None:
        checks.count("count", self.count, at_least=1)
        if len(self.shape) != 2 or min(self.shape) < 1:
            raise ValueError(f"shape must be two positive numbers, got {self.shape!r}")
        if not 0 <= self.rounding <= 0.1:
            raise ValueError(f"rounding must be in [0, 0.1], got {self.rounding!r}")

    @staticmethod
    def of(matrices: Tensor) -> "BatchedOperator":
        """The operator of dense matrices, (n, d, p)."""
        matrices = matrices.double()

        def gram(block: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            image = block @ matrices[rows].mT
            return image.square().sum(2), image @ matrices[rows]

        count, height, width = matrices.shape
        return BatchedOperator(
            count,
            (height, width),
            lambda block, rows: gram(block, rows)[0],
            gram,
            dense_rounding(height, width),
            device=matrices.device,
        )


def standard_normal_probes(
    operator: BatchedOperator, rows: Tensor, probes: int, generator: torch.Generator
) -> Tensor:
    """Fresh N(0, 1) probes, (m, r, p), drawn matrix by matrix: the size of a batch does not change them."""
    shape = probes, operator.shape[1]
    each = [
        torch.randn(shape, generator=generator, dtype=torch.float64, device=generator.device) for _ in rows
    ]
    return torch.stack(each).to(operator.device)


def dense_rounding(height: int, width: int) -> float:
    """The ``rounding`` of a dense product: | |A| |v| | <= sqrt(min(d, p)) ||A|| ||v||, times gamma.

    >>> dense_rounding(1, 1) == gamma(1)
    True
    """
    return gamma(max(height, width)) * math.sqrt(min(height, width))


def require_product(name: str, value: Tensor, shape: tuple[int, ...]) -> None:
    """Refuses a product of the wrong shape or with a number that is not finite."""
    if value.shape != shape:
        raise ValueError(f"{name} must return shape {list(shape)}, got {list(value.shape)}")
    if not bool(torch.isfinite(value).all()):
        raise ValueError(f"{name} must return finite numbers, got NaN or infinity")


def checked_generator(generator: object, failure_probability: float, probes: int) -> torch.Generator:
    """The generator; refuses arguments that bounds from random probes cannot be made with."""
    if not isinstance(generator, torch.Generator):
        raise TypeError(f"generator must be a torch.Generator, got {generator!r}")
    checks.probability("failure_probability", failure_probability)
    checks.count("probes", probes, at_least=1)
    return generator
