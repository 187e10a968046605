"""Contributions: sums and lengths against gradients that are formed."""

import pytest
import torch
from torch import Tensor

from ringfence.training.kernels.window import Window
from ringfence.training.per_example.contributions import Contribution, Products, Rows, Words
from tests.training.per_example.alone import drawn, words

ROWS = drawn(5, 4, 3)
LEFT, RIGHT = drawn(5, 6, 4), drawn(5, 6, 3)
IMAGES, SLOPES = drawn(5, 2, 4), drawn(5, 3, 3)
WINDOW = Window((2,), (1,), (0,), (1,))
FILTERS = torch.stack([SLOPES @ IMAGES[:, :, j : j + 3].mT for j in range(2)], dim=3)
PLACES = words(5, 4, below=4).sort(dim=1).values
FIRST = torch.stack([torch.cat([torch.ones(1), (p[1:] != p[:-1]).float()]) for p in PLACES]).unsqueeze(2)
SEVERAL = torch.stack(
    [torch.zeros(4, 3).index_add(0, p, row) for p, row in zip(PLACES, ROWS * FIRST, strict=True)]
)

CASES: dict[str, tuple[Contribution, Tensor]] = {
    "rows": (Rows(ROWS), ROWS),
    "products": (Products(LEFT.mT, RIGHT.mT), LEFT.mT @ RIGHT),
    "convolutions": (Products(SLOPES, IMAGES, WINDOW), FILTERS),
    "words": (Words(ROWS * FIRST, PLACES, 4), SEVERAL),
}


@pytest.mark.parametrize(("contribution", "formed"), CASES.values(), ids=CASES)
def test_sums_and_lengths(contribution: Contribution, formed: Tensor) -> None:
    weights = torch.tensor([1.0, 0.5, 0.0, 2.0, 1.0])
    scaled = formed * weights.view(-1, *(1,) * (formed.dim() - 1))
    for each in (contribution, contribution.held()):
        for got, wanted in (
            (each.sum(None), formed.sum(dim=0)),
            (each.sum(0.7), formed.clamp(-0.7, 0.7).sum(dim=0)),
            (each.sum(0.7, weights), scaled.clamp(-0.7, 0.7).sum(dim=0)),
            (each.rows(), formed),
            (each.some(slice(1, 4)).rows(), formed[1:4]),
        ):
            assert torch.allclose(got.reshape(wanted.shape), wanted, atol=1e-5)
        exact = formed.double().flatten(1).square().sum(dim=1)
        squares = each.squares()
        assert squares.dtype == torch.float64
        assert torch.all(squares >= exact)
        assert torch.allclose(squares, exact, rtol=1e-4)
