"""Kernels at the ends of what floats hold: an answer, or an error that names the method."""

import math

import pytest
import torch
from torch import Tensor

import ringfence as rf
from ringfence.mechanisms.decision import by_queries


def test_a_hockey_stick_is_at_most_1() -> None:
    """Rounding made it 1 + 7e-16."""
    assert float(rf.RectifiedGaussian(1.0, math.inf).hockey_stick(-0.0, -8.8861e6, 0.0)) <= 1


@pytest.mark.parametrize("method", ["fisher_information", "renyi_divergence", "hockey_stick", "loss_moments"])
def test_what_cannot_be_represented_says_so(method: str) -> None:
    """Was a ValueError: cannot convert float NaN to integer."""
    law = rf.QuantizedGaussian(0.3, (-1.0, -0.97), 4)
    arguments = {"renyi_divergence": (1.0, 2.0), "hockey_stick": (1.0, 0.5), "loss_moments": (1.0,)}
    with pytest.raises(FloatingPointError, match=f"QuantizedGaussian.{method} cannot be represented"):
        getattr(law, method)(1.7976931348623157e308, *arguments.get(method, ()))


@pytest.mark.parametrize(("held", "lengths"), [(1, [1] * 5), (48, [2, 2, 1]), (119, [4, 1]), (120, [5])])
@pytest.mark.parametrize("turned", [False, True])
def test_as_many_queries_at_a_time_as_may_be_held(held: int, lengths: list[int], turned: bool) -> None:
    """5 rows of 4 counts, 3 moves and 2 values are 120 numbers; the longer dimension is cut, whose it is."""
    counts, moves = torch.arange(20.0).view(5, 1, 4), torch.arange(12.0).view(3, 4)
    value = torch.arange(10.0).view(2, 5, 1)
    if turned:
        counts, moves, value = moves.unsqueeze(1), counts.squeeze(1), value.mT
    seen = []

    def kernel(counts: Tensor, move: Tensor, value: Tensor) -> Tensor:
        seen.append(move.shape[0] if turned else counts.shape[0])
        return (counts * move).sum(dim=-1) + value

    whole = kernel(counts, moves, value)
    assert torch.equal(by_queries(kernel, counts, moves, value, held), whole)
    assert seen[1:] == lengths
