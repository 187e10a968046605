"""Lengths of rows of any size, cut anyhow, to nearly all digits."""

import math

import pytest
import torch

from ringfence.numerics.lengths import row_lengths


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
