"""Operators with known spectra, for the tests of bounds from random probes."""

import torch
from torch import Tensor

from ringfence.numerics.spectral.batched_operator import BatchedOperator
from ringfence.numerics.spectral.singular_values import SingularValueBounds
from tests.accounting.drawing import draw
from tests.accounting.matrices import SVD, largest, ones
from tests.tensors import float64

SPECTRA = torch.stack(
    [
        torch.ones(60),
        torch.eye(60)[0],
        0.9 ** torch.arange(60),
        1 - torch.arange(60) / 600,
        torch.cat([torch.tensor([1.0, 1 - 1e-9]), torch.full((58,), 0.3)]),
        torch.cat([torch.tensor([1.0]), torch.full((59,), 0.97)]),
        torch.zeros(60),
    ]
).double()
SCALES = float64([1.0, 1e-9, 1e9, 3.0, 1e-80, 1e80, 1.0])


def matrices() -> Tensor:
    left, right = (torch.linalg.qr(draw(60, 60, seed=seed)).Q for seed in range(2))
    return SCALES[:, None, None] * (left @ torch.diag_embed(SPECTRA) @ right)


def generator(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def diagonal(values: Tensor, rounding: float = 1e-12, error: float = 0.0) -> BatchedOperator:
    """diag(values) for each row; the Gram product errs by 2 ``error`` b |v| against the first vector."""

    def gram(block: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        image = values[rows][:, None] * block
        back = values[rows][:, None] * image
        back[:, 0, 0] -= 2 * error * values[rows].square().amax(1) * block[:, 0].norm(dim=1)
        return image.square().sum(2), back

    count, width = values.shape
    return BatchedOperator(count, (width, width), lambda b, r: gram(b, r)[0], gram, rounding)


def ends_hold(bounds: SingularValueBounds, gap: float) -> None:
    """Both ends of the bounds for ``matrices`` hold, and are no further apart than ``gap``."""
    for index, matrix in enumerate(matrices()):
        truth = largest(ones(60), matrix)
        assert float(bounds.lower[index]) <= truth * (1 + SVD)
        assert float(bounds.upper[index]) >= truth * (1 - SVD)
    assert bool((bounds.gap <= gap).all())
    assert float(bounds.upper[-1]) == float(bounds.lower[-1]) == 0
    assert bounds.failure_probability == 1e-6
