"""Layers that are not known: torch.func on one layer, whatever it is given."""

import pytest
import torch
from torch import Tensor, nn

from ringfence.training.per_example.fused import local
from tests.training.per_example.fused.alone import agree, drawn


class Tokens(nn.Module):
    """As in a vision transformer: parameters of its own, and children that are known."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.first = nn.Conv1d(2, 3, 2, stride=2), nn.Parameter(torch.zeros(1, 1, 3))
        self.positions = nn.Parameter(torch.zeros(1, 4, 3))

    def forward(self, x: Tensor, scale: float, shared: Tensor, *, names: list[str]) -> Tensor:
        rows = self.patches(x).mT
        return shared * scale * (torch.cat([self.first.expand(len(x), -1, -1), rows], dim=1) + self.positions)


class Viewing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.pair, self.last = Tokens(), nn.Bilinear(3, 3, 2), nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        rows = self.tokens(x, 2.0, torch.linspace(0, 1, 4).to(x).view(4, 1), names=["a"])
        rows = rows.flatten(0, 1)  # several rows for each example
        return self.last(torch.tanh(self.pair(rows, rows.cos()))).unflatten(0, (len(x), 4))


@pytest.mark.parametrize("numbers", [1 << 24, 40])
@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_layers_with_parameters_of_their_own(numbers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_NUMBERS", numbers)  # all examples at once, or two at a time
    found = agree(Viewing, drawn(5, 2, 6))
    assert found.plan.slower == {"tokens": "Tokens is not known", "pair": "Bilinear is not known"}
