"""Embeddings: a word that an example has several times is clipped once."""

import pytest
import torch
from torch import Tensor, nn

import ringfence as rf
from ringfence.training.per_example.fused.gradients import FusedGradients
from tests.training.per_example.fused.alone import agree, words


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
def test_sums_are_those_of_examples_alone(padding: int | None) -> None:
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
    gradients, inputs = FusedGradients(model), ((torch.tensor([[1, 1, 1, 2]]),), {})
    gradients.forward(inputs)
    total = gradients.clipped_sum(inputs, torch.full((1, 4, 1), 5.0), rf.Clamp(1.0))
    assert total.tolist() == [0, 1, 1]
    length = gradients.clipped_sum(inputs, torch.tensor([[[1.0], [1.0], [1.0], [4.0]]]), rf.Norm(1.0))
    assert length.tolist() == pytest.approx([0, 0.6, 0.8], rel=1e-5)


def test_frequencies_are_not_known() -> None:
    model = nn.Sequential(nn.Embedding(5, 3, scale_grad_by_freq=True), nn.Linear(3, 2))
    gradients = FusedGradients(model)
    gradients.forward(((words(4, 3),), {}))
    assert "0" in gradients.slower_layers or "0.weight" in gradients.slower_layers
