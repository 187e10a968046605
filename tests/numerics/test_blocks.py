import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ringfence.numerics import blocks
from ringfence.numerics.blocks import one_thread, refuse_tf32, row_lengths


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


@pytest.mark.parametrize("shape", [(1, 1), (5, 200_000), (200_000, 3), (7, 3, 65_537), (2, 0), (0, 4)])
def test_lengths_are_those_of_exact_sums(shape: tuple[int, ...]) -> None:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(0)) * 1e30
    lengths = row_lengths(values)
    assert lengths.dtype == torch.float64
    assert torch.allclose(lengths, values.double().norm(dim=-1), rtol=1e-12, atol=0)
    if 0 < lengths.numel() < 30:
        exact = [math.sqrt(math.fsum(x * x for x in row)) for row in values.flatten(0, -2).tolist()]
        assert lengths.flatten().tolist() == pytest.approx(exact, rel=1e-12)


def test_subnormal_numbers_have_a_length() -> None:
    assert row_lengths(torch.full((1, 4), 1e-45)).item() == pytest.approx(2.803e-45, rel=1e-3)


ON_A_GPU: Any = SimpleNamespace(is_cuda=True, dtype=torch.float32)


def test_matrix_products_are_refused() -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        refuse_tf32(torch.ones(2))
        with pytest.raises(ValueError, match=r"torch\.backends\.cuda\.matmul\.allow_tf32 must be False"):
            refuse_tf32(ON_A_GPU)
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize(("numbers", "inside"), [(0, 1), (10**7 - 1, 1), (10**7, 3)])
def test_one_thread_unless_the_data_is_large(numbers: int, inside: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with one_thread(numbers):
            assert torch.get_num_threads() == inside
        assert torch.get_num_threads() == 3
        with pytest.raises(KeyError), one_thread():
            raise KeyError
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
