"""Layers with rules: which they are, and fused sums against those of examples alone."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import ringfence as rf
from ringfence.training.per_example.gradients import ExampleGradients
from ringfence.training.per_example.layers import rule_of
from tests.training.per_example.alone import agree, drawn, words


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


MODELS: dict[str, Callable[[], nn.Module]] = {
    "plain": lambda: nn.Conv2d(2, 4, 3),
    "everything": lambda: nn.Conv2d(2, 4, (3, 2), stride=2, padding=(1, 2), dilation=2, groups=2, bias=False),
    "same": lambda: nn.Conv2d(2, 4, 3, padding="same", dilation=2),
    "valid": lambda: nn.Conv2d(2, 4, 1, padding="valid"),
}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_convolutions(make: Callable[[], nn.Module]) -> None:
    found = agree(lambda: nn.Sequential(make(), nn.ReLU(inplace=True), nn.Flatten()), drawn(4, 2, 6, 6))
    assert not found.slower_layers


def test_convolutions_in_one_and_three_dimensions() -> None:
    agree(lambda: nn.Sequential(nn.Conv1d(2, 4, 3), nn.Tanh(), nn.Conv1d(4, 2, 2)), drawn(4, 2, 6))
    agree(lambda: nn.Conv3d(2, 3, 2), drawn(4, 2, 3, 3, 3))


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
def test_padding_on_one_side_and_by_reflection_is_not_known() -> None:
    for options in (
        {"kernel_size": 2, "padding": "same"},
        {"kernel_size": 3, "padding_mode": "reflect", "padding": 1},
    ):
        found = agree(lambda: nn.Sequential(nn.Conv1d(2, 2, **options), nn.Flatten()), drawn(4, 2, 6))  # noqa: B023
        assert found.slower_layers == dict.fromkeys(("0.weight", "0.bias"), "Conv1d is not known")


@pytest.mark.parametrize("middle", [(), (3,), (2, 3)])
def test_linear_layers_with_any_number_of_positions(middle: tuple[int, ...]) -> None:
    agree(
        lambda: nn.Sequential(nn.Linear(4, 3), nn.GELU(), nn.Linear(3, 2, bias=False)), drawn(5, *middle, 4)
    )


class Positions(nn.Module):
    """Words and positions; the positions have a row of their own, or none."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape, self.words, self.positions = shape, nn.Embedding(5, 3), nn.Embedding(9, 3)
        self.last = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        places = torch.arange(x.shape[1]).reshape(self.shape)
        return self.last(torch.tanh(self.words(x) + self.positions(places)))


@pytest.mark.parametrize("padding", [None, 2])
def test_embeddings(padding: int | None) -> None:
    agree(lambda: nn.Sequential(nn.Embedding(5, 3, padding), nn.Linear(3, 2)), words(6, 9))
    agree(lambda: nn.Sequential(nn.Embedding(5, 3, padding), nn.Flatten()), words(6, 2, 2))


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_bags_of_words(mode: str) -> None:
    assert not agree(
        lambda: nn.Sequential(nn.EmbeddingBag(5, 3, mode=mode), nn.Linear(3, 2)), words(6, 9)
    ).slower_layers


@pytest.mark.parametrize("shape", [(7,), (1, 7)])
def test_positions_that_all_examples_share(shape: tuple[int, ...]) -> None:
    assert not agree(lambda: Positions(shape), words(6, 7)).slower_layers


def test_a_repeated_word_counts_once() -> None:
    """Clamping every place by itself would let an example move a word by its number of places."""
    model = nn.Sequential(nn.Embedding(3, 1))
    gradients, inputs = ExampleGradients(model), ((torch.tensor([[1, 1, 1, 2]]),), {})
    gradients.forward(inputs)
    total = gradients.clipped_sum(inputs, torch.full((1, 4, 1), 5.0), rf.Clamp(1.0))
    assert total.tolist() == [0, 1, 1]
    length = gradients.clipped_sum(inputs, torch.tensor([[[1.0], [1.0], [1.0], [4.0]]]), rf.Norm(1.0))
    assert length.tolist() == pytest.approx([0, 0.6, 0.8], rel=1e-5)


def test_frequencies_are_not_known() -> None:
    model = nn.Sequential(nn.Embedding(5, 3, scale_grad_by_freq=True), nn.Linear(3, 2))
    gradients = ExampleGradients(model)
    gradients.forward(((words(4, 3),), {}))
    assert "0" in gradients.slower_layers or "0.weight" in gradients.slower_layers


def frozen(layer: nn.Module) -> nn.Module:
    layer.running_mean.copy_(torch.linspace(-1, 1, len(layer.running_mean)))
    layer.running_var.copy_(torch.linspace(0.5, 2, len(layer.running_var)))
    return layer.eval()


NORMALISATIONS: dict[str, tuple[Callable[[], nn.Module], Tensor]] = {
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


@pytest.mark.parametrize(("make", "inputs"), NORMALISATIONS.values(), ids=NORMALISATIONS)
def test_normalisations(make: Callable[[], nn.Module], inputs: Tensor) -> None:
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
