"""The plan: what each parameter's way is, and why."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from ringfence.training.per_example.fused.gradients import FusedGradients
from tests.training.per_example.fused.alone import agree, drawn


class Using(nn.Module):
    """A linear layer, and another that is used in an unusual way."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.first, self.how, self.last = nn.Linear(3, 3), how, nn.Linear(3, 3)
        if how == "tied":
            self.last.weight = self.first.weight
        if how == "frozen":
            self.last.weight.requires_grad_(False)
        if how == "normalised":
            parametrizations.weight_norm(self.last)
        if how == "unused":
            self.other = nn.Linear(3, 3)
        self.end = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.first(x))
        if self.how == "borrowed":
            return self.end(nn.functional.linear(y, self.last.weight, self.last.bias))
        y = self.last(y)
        return self.end(self.last(y) if self.how == "twice" else y)


REST = {
    "tied": set(),
    "twice": set(),
    "unused": set(),
    "frozen": set(),
    "normalised": set(),
    "borrowed": {"last.weight", "last.bias"},
}


@pytest.mark.parametrize("how", REST)
@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_what_is_left_for_torch_func(how: str) -> None:
    assert set(agree(lambda: Using(how), drawn(5, 3)).plan.rest) == REST[how]


def test_what_is_used_several_times_is_said_and_what_is_left_has_a_reason() -> None:
    assert agree(lambda: Using("tied"), drawn(5, 3)).plan.several == {"first.weight"}
    assert agree(lambda: Using("twice"), drawn(5, 3)).plan.several == {"last.weight", "last.bias"}
    reason = "Linear is not called, but its parameters are used"
    assert agree(lambda: Using("borrowed"), drawn(5, 3)).plan.slower["last.bias"] == reason


class Shared(nn.Module):
    """Two attentions with one matrix, of which one attends to others and so has it in pieces."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.MultiheadAttention(4, 2, batch_first=True) for _ in range(2))
        self.second.in_proj_weight = self.first.in_proj_weight
        self.last = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x, x, x)[0]
        return self.last(self.second(y, x, x)[0])


def test_attentions_that_share_a_matrix_are_left_for_torch_func() -> None:
    """Their parts would be clipped by themselves."""
    plan = agree(Shared, drawn(5, 3, 4)).plan
    assert plan.rest["first.in_proj_weight"] == "MultiheadAttention shares a parameter with another layer"
    assert not plan.several


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_old_weight_norm_goes_by_torch_func_on_the_layer() -> None:
    """Its layer is a Linear whose weight is no parameter: the rule would give nothing for what is trained."""
    with pytest.warns(FutureWarning, match="weight_norm"):
        layer = nn.utils.weight_norm(nn.Linear(3, 3))
    gradients = FusedGradients(nn.Sequential(layer, nn.Linear(3, 2)))
    gradients.forward(((drawn(5, 3),), {}))
    assert gradients.slower_layers == {"0": "Linear is not known"}


class Drawing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.drop = nn.Parameter(torch.ones(3)), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(x * self.weight)


def test_an_unknown_layer_that_draws_would_draw_anew() -> None:
    gradients = FusedGradients(nn.Sequential(Drawing(), nn.Linear(3, 2)))
    with pytest.warns(UserWarning, match=r"draws at random, and the layer of '0\.weight' is not known"):
        gradients.forward(((drawn(5, 3),), {}))
    assert gradients.plan.rest == {"0.weight": "Drawing is not known and draws at random"}
