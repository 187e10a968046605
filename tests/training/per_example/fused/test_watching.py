"""Watching a pass leaves nothing on the model, and stops where a model behaves otherwise than planned."""

import pytest
import torch
from torch import Tensor, nn

import ringfence as rf
from ringfence.training.per_example.fused.gradients import FusedGradients
from tests.training.per_example.fused.alone import agree, drawn


class Several(nn.Module):
    """Calls a layer once more, or another one, for numbers above 100, which no made-up input has."""

    def __init__(self, other: bool = False) -> None:
        super().__init__()
        self.other = nn.Linear(4, 4) if other else None
        self.layer, self.attention = nn.Linear(4, 4), nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.attention(x, x, x)[0] + self.layer(x)
        return (self.other or self.layer)(y) if bool((x > 100).any()) else y


def test_nothing_is_left_on_the_model() -> None:
    model, inputs = Several(), ((drawn(3, 2, 4),), {})
    before = [dict(vars(layer)) for layer in model.modules()]
    gradients = FusedGradients(model)
    gradients.forward(inputs)
    assert gradients.slow_because is None
    gradients.clipped_sum(inputs, torch.ones(3, 2, 4), rf.Clamp(0.1))
    assert [dict(vars(layer)) for layer in model.modules()] == before
    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in model.modules())
    assert all(p.grad is None and p.requires_grad for p in model.parameters())


def test_a_layer_that_is_called_more_often_than_planned_stops_the_step() -> None:
    """Each call by itself would be clamped by itself, and an example would count twice."""
    gradients = FusedGradients(Several())
    gradients.forward(((drawn(3, 2, 4),), {}))
    many = FusedGradients(Several(other=True))
    many.forward(((drawn(3, 2, 4),), {}))
    with pytest.raises(RuntimeError, match=r"layer 'other' was called .* made-up examples never"):
        many.forward(((drawn(3, 2, 4) + 200,), {}))
    with pytest.raises(
        RuntimeError, match="layer 'layer' was called again in one pass, on made-up examples once"
    ):
        gradients.forward(((drawn(3, 2, 4) + 200,), {}))


def test_hooks_of_others_stay_and_come_after() -> None:
    def make() -> nn.Module:
        model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
        model[0].register_forward_hook(lambda layer, args, output: output.cos())
        model[1].register_forward_pre_hook(lambda layer, args: (2 * args[0],))
        return model

    assert not agree(make, drawn(5, 4)).plan.slower
