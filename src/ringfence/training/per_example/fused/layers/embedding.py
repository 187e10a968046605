"""Embeddings: the gradients of one word's places in an example are summed before they are clipped."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ringfence.numerics.blocks import row_lengths
from ringfence.training.per_example.fused.contributions import Contribution, Contributions


@dataclass(frozen=True)
class Words(Contribution):
    """Gradients of a table of ``size`` words: row t of example i belongs to word ``words[i, t]``.

    A word has at most one row in each example. Rows of ``size``, which is no word, count nothing.

    >>> table = Words(torch.ones(2, 2, 1), torch.tensor([[0, 2], [0, 1]]), size=3)
    >>> table.sum(limit=0.5)
    tensor([[1.0000],
            [0.5000],
            [0.5000]])
    """

    rows: Tensor
    words: Tensor
    size: int

    def one(self, i: int) -> Contribution:
        return Words(self.rows[i : i + 1], self.words[i : i + 1], self.size)

    def sum(self, limit: float | None, weights: Tensor | None = None) -> Tensor:
        rows = self.rows
        if weights is not None:
            rows = rows * weights.to(rows.dtype).view(-1, 1, 1)
        if limit is not None:
            rows = rows.clamp(-limit, limit)
        return row_sums(rows, self.words, self.size)

    def squares(self) -> Tensor:
        return row_lengths(self.rows.flatten(1)).square() * (1 + 2.0**-20)


def embedding(layer: nn.Module, gradient: Tensor, words: Tensor) -> Contributions:
    """``nn.Embedding``: nothing waits for the device, and the order of the additions is always the same."""
    assert isinstance(layer, nn.Embedding)
    rows, words = gradient.reshape(len(words), -1, layer.embedding_dim), words.reshape(len(words), -1).long()
    if layer.padding_idx is not None:
        rows = rows.masked_fill((words == layer.padding_idx).unsqueeze(2), 0)
    return {"weight": _once_each(rows, words, layer.num_embeddings)}


def bag(layer: nn.Module, gradient: Tensor, words: Tensor) -> Contributions:
    """``nn.EmbeddingBag`` of bags of one size: every word of a bag has the gradient of the bag."""
    assert isinstance(layer, nn.EmbeddingBag)
    share = gradient if layer.mode == "sum" else gradient / words.shape[2]
    rows = share.unsqueeze(2).expand(*words.shape, layer.embedding_dim).flatten(1, 2)
    return {"weight": _once_each(rows, words.flatten(1).long(), layer.num_embeddings)}


def _once_each(rows: Tensor, words: Tensor, size: int) -> Words:
    """All rows of a word are added up at the place of its first row; its other places are left empty."""
    rows = rows if rows.dtype == torch.float64 else rows.float()
    ordered, order = words.sort(dim=1, stable=True)
    first = order.gather(1, torch.searchsorted(ordered, ordered))
    places = torch.empty_like(first).scatter_(1, order, first)
    others = places != torch.arange(words.shape[1], device=words.device)
    places += torch.arange(len(words), device=words.device).unsqueeze(1) * words.shape[1]
    sums = row_sums(rows, places, words.numel()).view_as(rows)
    return Words(sums, words.masked_fill(others, size), size)


def row_sums(rows: Tensor, places: Tensor, size: int) -> Tensor:
    """The sums of the rows (..., width) that belong to the same of ``size`` places: (size, width).

    The order of the additions is always the same, and nothing waits for the device. Rows of place ``size``
    are left out.

    >>> row_sums(torch.tensor([[1.0], [2.0], [4.0], [8.0]]), torch.tensor([1, 0, 1, 2]), 2)
    tensor([[2.],
            [5.]])
    """
    rows, places = rows.flatten(0, -2), places.flatten()
    if rows.is_cuda:
        # torch's own gradient of an embedding takes as many sums as there were when it was recorded
        ordered, order = places.sort(stable=True)
        starts = torch.searchsorted(ordered, torch.arange(size + 1, device=places.device))
        return torch.segment_reduce(rows[order], "sum", offsets=starts, unsafe=True, initial=0.0)
    sums: Tensor = torch.ops.aten.embedding_dense_backward(rows, places, size + 1, size, False)
    return sums[:size]


def counts_once(layer: nn.Module) -> bool:
    """Whether every place of a word counts the same, and the table itself stays as it is."""
    assert isinstance(layer, nn.Embedding | nn.EmbeddingBag)
    return not layer.scale_grad_by_freq and not layer.sparse and layer.max_norm is None


def adds_up(layer: nn.Module) -> bool:
    """Whether a bag is the sum or the mean of all of its words."""
    assert isinstance(layer, nn.EmbeddingBag)
    return counts_once(layer) and layer.mode in ("sum", "mean") and layer.padding_idx is None
