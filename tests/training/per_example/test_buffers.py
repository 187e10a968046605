"""What a model keeps of its inputs beside its parameters is noticed."""

from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn

from ringfence.training.per_example.buffers import restored_buffers, unchanged_buffers
from ringfence.training.per_example.fused.gradients import FusedGradients


class Keeping(nn.Module):
    """Keeps a mean of its inputs: in the same tensor, or in another."""

    def __init__(self, in_place: bool) -> None:
        super().__init__()
        self.in_place, self.layer = in_place, nn.Linear(3, 2)
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        if self.in_place:
            self.mean.add_(x.mean(dim=0))
        else:
            self.mean = self.mean + x.mean(dim=0)
        return self.layer(x)


@pytest.mark.parametrize("in_place", [True, False])
def test_a_change_is_noticed_and_taken_back(in_place: bool) -> None:
    model = Keeping(in_place)
    mean = model.mean
    with pytest.raises(ValueError, match="buffer 'mean' is changed"), unchanged_buffers(model):
        model(torch.ones(2, 3))
    model.mean = mean.zero_()
    with restored_buffers(model):
        model(torch.ones(2, 3))
    assert model.mean is mean
    assert not mean.any()


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.filterwarnings("ignore:examples go through the model one by one")
def test_no_pass_over_the_batch_keeps_anything(in_place: bool) -> None:
    """Neither the fused pass, nor torch.func, nor one example after the other."""
    model = Keeping(in_place)
    gradients = FusedGradients(model)
    refused = pytest.raises(ValueError, match="buffer 'mean' is changed") if in_place else nullcontext()
    with refused:
        gradients.forward(((torch.ones(4, 3),), {}))
    assert "buffer 'mean' is changed" in gradients.slow_because
    assert not model.mean.any()
