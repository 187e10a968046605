"""``nn.MultiheadAttention`` with the same weights, computed in steps that can be watched."""

from collections.abc import Iterator
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ringfence.training.kernels.clipped_sums import ALL, Part, Products, Rows, summed
from ringfence.training.per_example.layers import Rewritten, Watch, in_autocast

_NAMES = {"in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"}
_NAMES |= {f"{name}_proj_weight" for name in "qkv"}


class Attention(Rewritten):
    """``nn.MultiheadAttention``: its outputs and, where they are needed, the weights of the attention."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__(layer)
        rows = 0 if self.layer.batch_first else 1
        given = {"query": rows, "key": rows, "value": rows, "key_padding_mask": 0, "need_weights": None}
        self.dimensions = {**given, "attn_mask": None}, (rows, 0)

    @staticmethod
    def suits(layer: Any) -> bool:
        """Whether an attention has its usual parameters, and adds no keys and values of its own.

        >>> Attention.suits(nn.MultiheadAttention(4, 2))
        True
        >>> Attention.suits(nn.MultiheadAttention(4, 2, add_zero_attn=True))
        False
        """
        return {name for name, _ in layer.named_parameters()} <= _NAMES and not layer.add_zero_attn

    def knows(self, query: Any, key: Any, value: Any, *others: Any, **named: Any) -> bool:
        """Whether a call has a query, a key and a value for each row of the batch."""
        batch, given = 0 if self.layer.batch_first else 1, (query, key, value)
        plain = all(isinstance(each, Tensor) and not each.is_nested and each.dim() == 3 for each in given)
        return plain and query.shape[batch] == key.shape[batch] == value.shape[batch]

    def forward(
        self,
        watch: Watch,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The layer's outputs and weights."""
        layer = self.layer
        if is_causal and attn_mask is None:
            raise ValueError("is_causal must come with attn_mask, as in torch.nn.MultiheadAttention")
        given = query, key, value
        if not layer.batch_first:
            turned = {id(each): each.transpose(0, 1) for each in given}  # what was one tensor stays one
            given = turned[id(query)], turned[id(key)], turned[id(value)]
        parts = _projected(layer, watch, *given)
        q, k, v = (each.unflatten(2, (layer.num_heads, -1)).transpose(1, 2) for each in parts)
        causal = is_causal and key_padding_mask is None and not need_weights
        mask = None if causal else _mask(attn_mask, key_padding_mask, layer.num_heads, q.dtype)
        dropout = layer.dropout if layer.training else 0.0
        weights = None
        if need_weights:
            scores = q @ k.mT * q.shape[3] ** -0.5
            weights = torch.softmax(scores if mask is None else scores + mask, dim=-1)
            weights = functional.dropout(weights, dropout) if dropout else weights
            heads = weights @ v
            weights = weights.mean(dim=1) if average_attn_weights else weights
        else:
            heads = functional.scaled_dot_product_attention(q, k, v, mask, dropout, causal)
        output = _linear(layer, watch, heads.transpose(1, 2).flatten(2), "out_proj.weight", "out_proj.bias")
        return (output if layer.batch_first else output.transpose(0, 1)), weights


def _projected(
    layer: nn.MultiheadAttention, watch: Watch, query: Tensor, key: Tensor, value: Tensor
) -> Iterator[Tensor]:
    """Queries, keys and values. What is one tensor is multiplied once."""
    width = layer.embed_dim
    if layer._qkv_same_embed_dim:
        stretches = [(query, 0, 1), (key, 1, 2), (value, 2, 3)]
        if key is value:
            stretches = [(query, 0, 3)] if query is key else [(query, 0, 1), (key, 1, 3)]
        for x, start, stop in stretches:
            rows = slice(start * width, stop * width)
            yield from _linear(layer, watch, x, "in_proj_weight", "in_proj_bias", rows, rows).split(width, 2)
    else:
        for i, (x, name) in enumerate(((query, "q"), (key, "k"), (value, "v"))):
            rows = slice(i * width, (i + 1) * width)
            yield _linear(layer, watch, x, f"{name}_proj_weight", "in_proj_bias", ALL, rows)


def _linear(
    layer: nn.Module,
    watch: Watch,
    x: Tensor,
    weight: str,
    bias: str,
    weight_rows: slice = ALL,
    bias_rows: slice = ALL,
) -> Tensor:
    """Multiplies by some rows of a weight and adds those of a bias, both given by name."""
    x = in_autocast(x)
    matrix, shift = attrgetter(weight)(layer)[weight_rows], attrgetter(bias)(layer)

    def parts(gradient: Tensor, x: Tensor) -> Iterator[Part]:
        yield weight, weight_rows, Products(gradient.mT, x.to(gradient.dtype).mT)
        if shift is not None:
            yield bias, bias_rows, Rows(summed(gradient, 1))

    output = functional.linear(x, matrix, None if shift is None else shift[bias_rows])
    return watch(output, x, parts)


def _mask(between: Tensor | None, keys: Tensor | None, heads: int, dtype: torch.dtype) -> Tensor | None:
    """What is added to the scores (n, heads, L, S): minus infinity where nothing may be looked at."""
    total = None
    if between is not None:
        total = _added(between, dtype)
        total = total.unflatten(0, (-1, heads)) if total.dim() == 3 else total
    if keys is not None:
        hidden = _added(keys, dtype)[:, None, None, :]
        total = hidden if total is None else total + hidden
    return total


def _added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, float("-inf"))
