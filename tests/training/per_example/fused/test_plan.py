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
        y = self.last(torch.tanh(self.first(x)))
        return self.end(self.last(y) if self.how == "twice" else y)


REST = {
    "tied": {"first.weight", "first.bias", "last.bias"},
    "twice": {"last.weight", "last.bias"},
    "unused": {"other.weight", "other.bias"},
    "normalised": {"last.parametrizations.weight.original0", "last.parametrizations.weight.original1"},
    "frozen": set(),
}


@pytest.mark.parametrize("how", REST)
def test_what_is_left_for_torch_func(how: str) -> None:
    assert set(agree(lambda: Using(how), drawn(5, 3)).plan.rest) == REST[how]


def test_reasons_are_given() -> None:
    rest = agree(lambda: Using("tied"), drawn(5, 3)).plan.slower
    assert rest["first.weight"] == "Linear shares a parameter with another layer"
    rest = agree(lambda: Using("twice"), drawn(5, 3)).plan.slower
    assert rest["last.bias"] == "Linear is called 2 times in one pass"


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_old_weight_norm_goes_by_torch_func_on_the_layer() -> None:
    """Its layer is a Linear whose weight is no parameter: the rule would give nothing for what is trained."""
    with pytest.warns(FutureWarning, match="weight_norm"):
        layer = nn.utils.weight_norm(nn.Linear(3, 3))
    gradients = FusedGradients(nn.Sequential(layer, nn.Linear(3, 2)))
    gradients.forward(((drawn(5, 3),), {}))
    assert gradients.plan.slower == {"0": "Linear is not known"}


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
