"""Normalisations: fused sums against examples alone."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tests.training.per_example.fused.alone import agree, drawn


def frozen(layer: nn.Module) -> nn.Module:
    layer.running_mean.copy_(torch.linspace(-1, 1, len(layer.running_mean)))
    layer.running_var.copy_(torch.linspace(0.5, 2, len(layer.running_var)))
    return layer.eval()


CASES: dict[str, tuple[Callable[[], nn.Module], Tensor]] = {
    "layer": (lambda: nn.LayerNorm(4), drawn(5, 3, 4)),
    "layer without bias": (lambda: nn.LayerNorm(4, bias=False), drawn(5, 4)),
    "layer over two dimensions": (lambda: nn.LayerNorm((3, 4), eps=0.1), drawn(5, 2, 3, 4)),
    "root mean square": (lambda: nn.RMSNorm(4), drawn(5, 3, 4)),
    "root mean square, eps": (lambda: nn.RMSNorm((3, 4), eps=0.1), drawn(5, 2, 3, 4)),
    "group": (lambda: nn.GroupNorm(2, 4, eps=0.1), drawn(5, 4, 3, 2)),
    "group of a vector": (lambda: nn.GroupNorm(2, 4), drawn(5, 4)),
    "instance": (lambda: nn.InstanceNorm2d(4, eps=0.1, affine=True), drawn(5, 4, 3, 2)),
    "frozen instance": (
        lambda: frozen(nn.InstanceNorm1d(4, affine=True, track_running_stats=True)),
        drawn(5, 4, 3),
    ),
    "frozen batch": (lambda: frozen(nn.BatchNorm2d(4)), drawn(5, 4, 3, 2)),
    "frozen batch of vectors": (lambda: frozen(nn.BatchNorm1d(4, eps=0.1)), drawn(5, 4)),
}


@pytest.mark.parametrize(("make", "inputs"), CASES.values(), ids=CASES)
def test_sums_are_those_of_examples_alone(make: Callable[[], nn.Module], inputs: Tensor) -> None:
    found = agree(lambda: nn.Sequential(make(), nn.Tanh(), nn.Flatten()), inputs)
    assert not found.slower_layers


def test_activations_in_place_after_a_view() -> None:
    """The output of torch's instance normalisation is a view, and hooks on a view do not see what follows."""
    layers = (
        lambda: nn.Conv1d(2, 4, 2),
        lambda: nn.InstanceNorm1d(4, affine=True),
        lambda: nn.ReLU(inplace=True),
    )
    agree(lambda: nn.Sequential(*(make() for make in layers)), drawn(4, 2, 5))


class Folded(nn.Module):
    """Several rows of the batch belong to one example."""

    def __init__(self) -> None:
        super().__init__()
        self.group, self.layer, self.linear = nn.GroupNorm(2, 4), nn.LayerNorm(3), nn.Linear(3, 2)
        self.filters = nn.Conv1d(4, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        rows = self.linear(self.layer(torch.tanh(self.group(x.flatten(0, 1)))))
        return self.filters(rows).unflatten(0, x.shape[:2])


def test_several_rows_for_each_example() -> None:
    reason = "Conv1d is called with several rows for one example"
    copied = dict.fromkeys(("filters.weight", "filters.bias"), reason)
    assert agree(Folded, drawn(4, 2, 4, 3)).slower_layers == copied
