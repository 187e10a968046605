"""The check on made-up inputs: models that mix examples in any way are found out."""

import pytest
import torch
from torch import Tensor, nn

import ringfence as rf
from ringfence.training.per_example.fused.check import WithoutDropout, made_up
from ringfence.training.per_example.fused.gradients import FusedGradients
from tests.training.per_example.fused.alone import drawn, gradients_alone


class Mixing(nn.Module):
    """Two layers, and between them something that looks at other examples."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.first, self.how, self.last = nn.Linear(3, 3), how, nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        if self.how == "mean":
            y = y - y.mean(dim=0)
        elif self.how == "backward only":  # the outputs are those of examples alone, the gradients are not
            y = y + (y.sum(dim=0) - y.sum(dim=0).detach())
        elif self.how == "a little":  # as rounding to a grid that depends on the largest number
            y = y + 1e-5 * y.mean(dim=0).detach()
        elif self.how == "order":
            y = y.roll(1, dims=0)
        elif self.how == "weight":
            return self.last(y) + y @ self.last.weight.T
        return self.last(torch.tanh(y))


REASONS = {
    "mean": "the outputs of examples that pass together differ",
    "order": "the outputs of examples that pass together differ",
    "a little": "the outputs of an example change with the other examples, if only in the last bits",
    "backward only": "the layer of 'first.weight' comes after code that mixes examples",
    "weight": "the gradient by 'last.weight' differs",
}


@pytest.mark.parametrize("how", REASONS)
def test_what_mixes_examples_goes_one_by_one(how: str) -> None:
    model, inputs = Mixing(how), ((drawn(5, 3),), {})
    gradients = FusedGradients(model)
    with pytest.warns(UserWarning, match="examples go through the model one by one: the"):
        outputs = gradients.forward(inputs)
    assert gradients.slow_because.startswith(REASONS[how])
    alone = gradients_alone(model, inputs, [torch.ones_like(outputs)])
    total = gradients.clipped_sum(inputs, torch.ones_like(outputs), rf.Clamp(0.1))
    assert torch.allclose(total, alone.clamp(-0.1, 0.1).sum(dim=0), atol=1e-6)


def test_outputs_that_are_not_finite_prove_nothing() -> None:
    class Logarithm(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            return super().forward(input.log())

    gradients = FusedGradients(nn.Sequential(Logarithm(3, 2), nn.Linear(2, 2)))
    with pytest.warns(UserWarning, match="not finite on made-up inputs"):
        gradients.forward(((drawn(5, 3).abs(),), {}))


def test_made_up_masks_hide_something_and_not_everything() -> None:
    (mask,), _ = made_up(((torch.zeros(1, 6, dtype=torch.bool),), {}), 50)
    assert mask.dtype == torch.bool
    assert bool(mask.any(dim=1).all())
    assert not bool(mask.all(dim=1).any())


@pytest.mark.parametrize(
    "layer",
    [
        nn.Dropout(0.5),
        nn.LSTM(4, 4, num_layers=2, dropout=0.5),
        nn.TransformerEncoderLayer(4, 2, 8, dropout=0.5),
        nn.MultiheadAttention(4, 2, dropout=0.5),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_nothing_is_dropped(layer: nn.Module) -> None:
    inputs = (drawn(5, 3, 4),) * (3 if isinstance(layer, nn.MultiheadAttention) else 1)
    with WithoutDropout():
        one, other = layer(*inputs), layer(*inputs)
    first, second = (each if isinstance(each, Tensor) else each[0] for each in (one, other))
    assert torch.equal(first, second)
