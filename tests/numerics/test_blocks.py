import pytest
import torch

from ringfence.numerics import blocks


@pytest.mark.parametrize("shape", [(), (0,), (1,), (5,), (3, 70_000), (2, 0, 3)])
def test_same_as_without_blocks(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    scale = torch.tensor(3.0, dtype=torch.float64)
    assert torch.equal(blocks.blockwise(torch.mul, x, scale), x * scale)
    if x.dim() == 2:
        row, column = x[:1], x[:, :1]
        assert torch.equal(blocks.blockwise(torch.add, row, column), row + column)


@pytest.mark.parametrize("values", [1, 100, 10**9])
def test_blocks_are_as_short_as_the_kernel_needs(values: int) -> None:
    lengths = []

    def kernel(x: torch.Tensor) -> torch.Tensor:
        lengths.append(x.numel())
        return x

    count = 3000
    blocks.blockwise(kernel, torch.zeros(count), values_per_coordinate=values)
    longest = max(1, blocks.block_length(torch.device("cpu")) // values)
    assert sum(lengths) == count
    assert max(lengths) <= longest
