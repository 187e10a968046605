"""The fused pass as a whole: random models, precision, passes of one size, and what it refuses."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import ringfence as rf
from ringfence.training.per_example.fused.gradients import FusedGradients
from tests.training.per_example.fused.alone import agree, bounded, drawn, gradients_alone, seeded, words


class Around(nn.Module):
    """The first result of a layer, with its input added; over channels instead of positions if ``turned``."""

    def __init__(self, layer: nn.Module, turned: bool = False) -> None:
        super().__init__()
        self.layer, self.turned = layer, turned

    def forward(self, x: Tensor) -> Tensor:
        given = (x.mT if self.turned else x,) * (3 if isinstance(self.layer, nn.MultiheadAttention) else 1)
        found: Any = self.layer(*given)
        found = found if isinstance(found, Tensor) else found[0]
        return x + (found.mT if self.turned else found)


BLOCKS: tuple[Callable[[], nn.Module], ...] = (
    lambda: nn.Linear(4, 4),
    lambda: nn.LayerNorm(4),
    lambda: nn.RMSNorm(4),
    lambda: nn.ReLU(inplace=True),
    lambda: nn.PReLU(3),
    lambda: Around(nn.MultiheadAttention(4, 2, batch_first=True)),
    lambda: Around(nn.GRU(4, 4, batch_first=True)),
    lambda: Around(nn.LSTM(4, 2, bidirectional=True, batch_first=True)),
    lambda: Around(nn.Conv1d(4, 4, 3, padding=1, groups=2), turned=True),
    lambda: Around(nn.GroupNorm(2, 4), turned=True),
    lambda: Around(nn.InstanceNorm1d(4, affine=True), turned=True),
    lambda: Around(nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 4, bias=False))),
    lambda: nn.TransformerEncoderLayer(4, 2, 5, dropout=0.0, batch_first=True),
)


@settings(max_examples=8)
@given(
    blocks=st.lists(st.sampled_from(BLOCKS), min_size=1, max_size=4),
    frozen=st.sets(st.integers(0, 12), max_size=3),
    count=st.integers(1, 5),
)
def test_random_models(blocks: list[Callable[[], nn.Module]], frozen: set[int], count: int) -> None:
    def make() -> nn.Module:
        model = nn.Sequential(nn.Embedding(5, 4), *(block() for block in blocks), nn.Linear(4, 2))
        for i, parameter in enumerate(model.parameters()):
            parameter.requires_grad_(i not in frozen)
        return model

    agree(make, words(count, 3))


def model() -> nn.Module:
    return nn.Sequential(
        nn.Embedding(5, 4),
        nn.TransformerEncoderLayer(4, 2, 5, dropout=0.0, batch_first=True),
        nn.Linear(4, 2),
    )


@pytest.mark.parametrize("clip", [rf.Clamp(0.1), rf.Norm(0.5)])
def test_half_precision_under_autocast(clip: rf.Clip) -> None:
    """Gradients have the precision of bfloat16; what an example adds is bounded to the last bit."""
    network, inputs = (
        seeded(lambda: Around(nn.Sequential(nn.Linear(4, 4), nn.PReLU(), nn.LayerNorm(4)))),
        drawn(6, 3, 4),
    )
    gradients = FusedGradients(network)
    with torch.autocast("cpu", torch.bfloat16):
        outputs = gradients.forward(((inputs,), {}))
        assert gradients.slow_because is None
    slopes = drawn(*outputs.shape)
    total = gradients.clipped_sum(((inputs,), {}), slopes, clip)
    with torch.autocast("cpu", torch.bfloat16):
        halves = gradients_alone(network, ((inputs,), {}), [slopes])
    exact, half = (
        clip(gradients_alone(network, ((inputs,), {}), [slopes])).sum(dim=0),
        clip(halves).sum(dim=0),
    )
    assert total.dtype == torch.float32
    assert float((total - half).norm() / half.norm()) < 0.02
    assert not torch.allclose(total, exact, rtol=1e-5)  # it was half precision
    with torch.autocast("cpu", torch.bfloat16):
        bounded(network, inputs)


@pytest.mark.parametrize("budget", [1, 200_000, 1 << 30])
@pytest.mark.parametrize("rows", [None, 4, 20])
def test_passes_of_one_size(budget: int, rows: int | None) -> None:
    """Copies that fill a pass up count nothing, and what does not fit takes another pass."""
    network, inputs = seeded(model), ((words(10, 3),), {})
    gradients, plain = FusedGradients(network, budget, rows), FusedGradients(network)
    outputs, theirs = gradients.forward(inputs), plain.forward(inputs)
    assert torch.allclose(outputs, theirs, atol=1e-5)
    for clip in (rf.Clamp(0.05), rf.Norm(0.3)):
        sums = [each.clipped_sum(inputs, drawn(*outputs.shape), clip) for each in (gradients, plain)]
        assert torch.allclose(*sums, atol=1e-5)


def test_no_examples_and_other_clips() -> None:
    gradients = FusedGradients(seeded(model))
    empty = ((words(0, 3),), {})
    outputs = gradients.forward(empty)
    assert not gradients.clipped_sum(empty, outputs, rf.Clamp(1.0)).any()
    inputs = ((words(2, 3),), {})
    slopes = torch.ones_like(gradients.forward(inputs))
    with pytest.raises(ValueError, match=r"needs Clamp or Norm and no dtype, got Scale\(1.0\)"):
        gradients.clipped_sum(inputs, slopes, rf.Scale(1.0))


def test_a_model_that_returns_something_else_is_refused() -> None:
    class Counting(nn.Linear):
        def forward(self, input: Tensor) -> Any:
            return super().forward(input), len(input)

    gradients = FusedGradients(nn.Sequential(nn.Linear(3, 3), Counting(3, 2)))
    with (
        pytest.warns(UserWarning, match="must return tensors with one row for each example, got int"),
        pytest.raises(TypeError, match="must return tensors with one row for each example, got int"),
    ):
        gradients.forward(((drawn(4, 3),), {}))
