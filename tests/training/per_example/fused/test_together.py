"""Parameters that are used several times: clipped once, whatever they are made of."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import ringfence as rf
from ringfence.training.per_example.fused.gradients import FusedGradients
from ringfence.training.per_example.fused.together import Together
from tests.training.per_example.fused.alone import agree, drawn, words


class Writing(nn.Module):
    """Words in and words out, by one table."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.middle, self.last = nn.Embedding(5, 4), nn.LayerNorm(4), nn.Linear(4, 5, bias=False)
        self.last.weight = self.table.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.middle(self.table(x).cumsum(dim=1)))


class Repeated(nn.Module):
    """One layer several times, at more and more positions."""

    def __init__(self, make: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.layer, self.last = make(), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        for stop in (1, 2, 3):
            x = torch.cat([torch.tanh(self.layer(x[:, :stop])), x[:, stop:]], dim=1)
        return self.last(x)


def test_words_in_and_out() -> None:
    assert not agree(Writing, words(5, 3)).slower_layers


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(4, 4),
    "normalisation": lambda: nn.LayerNorm(4),
    "unknown": lambda: nn.PReLU(init=0.3),
}


@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
def test_layers_that_are_called_several_times(make: Callable[[], nn.Module]) -> None:
    agree(lambda: Repeated(make), drawn(5, 3, 4))


def test_uses_that_cancel_count_nothing_and_uses_that_add_up_count_once() -> None:
    """Clipped by themselves, two uses would add up to twice the clip."""
    layer = nn.Linear(1, 1, bias=False)

    class Twice(nn.Module):
        def __init__(self, sign: float) -> None:
            super().__init__()
            self.layer, self.sign = layer, sign

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x) + self.sign * self.layer(2 * x)

    inputs = ((torch.ones(1, 1),), {})
    for sign, expected in ((1.0, 1.0), (-0.5, 0.0)):
        gradients = FusedGradients(Twice(sign))
        gradients.forward(inputs)
        total = gradients.clipped_sum(inputs, torch.full((1, 1), 9.0), rf.Clamp(1.0))
        assert float(total) == pytest.approx(expected, abs=1e-6)


def test_lengths_and_weights_of_sums() -> None:
    model, inputs = Writing(), ((words(4, 3),), {})
    gradients = FusedGradients(model)
    gradients.forward(inputs)
    parts = []
    one = gradients._pass(inputs, 4)
    one.backward([drawn(4, 3, 5)], parts.extend)
    table = [contribution for name, _, contribution in parts if name == "table.weight"]
    both = Together(tuple(table), 4)
    formed = torch.stack([sum(part.one(i).sum(None) for part in table) for i in range(4)])
    assert torch.allclose(both.squares().float(), formed.flatten(1).square().sum(dim=1), rtol=1e-4)
    weights = torch.tensor([1.0, 0.0, 2.0, 0.5])
    expected = (formed * weights.view(4, 1, 1)).clamp(-0.3, 0.3).sum(dim=0)
    assert torch.allclose(both.sum(0.3, weights), expected, atol=1e-5)
