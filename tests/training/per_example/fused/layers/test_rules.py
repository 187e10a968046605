"""Which layers are known."""

import torch
from torch import Tensor, nn

from ringfence.training.per_example.fused.layers.rules import rule_of


class Doubled(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return 2 * super().forward(input)


class Mixing(nn.Conv1d):
    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return super()._conv_forward(input - input.mean(dim=0), weight, bias)


class Named(nn.Linear):
    def __init__(self) -> None:
        super().__init__(2, 2)
        self.label = "named"

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.weight)


def test_a_layer_that_computes_something_else_is_not_known() -> None:
    assert rule_of(nn.Linear(2, 2)) is not None
    assert rule_of(Doubled(2, 2)) is None
    assert rule_of(Mixing(2, 2, 1)) is None
    assert rule_of(Named()) is not None
    patched = nn.Linear(2, 2)
    patched.forward = lambda x: x - x.mean(dim=0)
    assert rule_of(patched) is None


def test_layers_that_mix_examples_are_not_known() -> None:
    for layer in (nn.BatchNorm1d(2), nn.BatchNorm1d(2, track_running_stats=False).eval()):
        assert rule_of(layer) is None
    assert rule_of(nn.BatchNorm1d(2).eval()) is not None
    assert rule_of(nn.InstanceNorm1d(2, affine=True, track_running_stats=True)) is None


def test_weights_that_are_made_of_others_are_not_known() -> None:
    recurrent = nn.utils.parametrizations.weight_norm(nn.GRU(2, 2), "weight_hh_l0")
    attention = nn.utils.parametrizations.weight_norm(nn.MultiheadAttention(2, 1), "in_proj_weight")
    assert rule_of(recurrent) is None
    assert rule_of(attention) is None
    assert rule_of(nn.LSTM(2, 2, proj_size=1)) is None
    assert torch.is_tensor(recurrent.weight_hh_l0)
