"""``nn.MultiheadAttention`` with the same weights, computed in steps that can be watched."""

from collections.abc import Iterator
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ringfence.training.kernels.clipped_sums import ALL, Part, matrix_and_bias
from ringfence.training.per_example.isolation import Rule, Tape, UnfitError, enter_rows, in_autocast

_NAMES = {"in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"}
_NAMES |= {f"{name}_proj_weight" for name in "qkv"}


class Attention(Rule):
    """``nn.MultiheadAttention``: its outputs and, where they are needed, the weights of the attention."""

    @staticmethod
    def suits(layer: Any) -> bool:
        """Whether an attention has its usual parameters, and adds no keys and values of its own.

        >>> from torch import nn
        >>> Attention.suits(nn.MultiheadAttention(4, 2))
        True
        >>> Attention.suits(nn.MultiheadAttention(4, 2, add_zero_attn=True))
        False
        """
        return {name for name, _ in layer.named_parameters()} <= _NAMES and not layer.add_zero_attn

    def computed(
        self,
        tape: Tape,
        query: Any,
        key: Any,
        value: Any,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The layer's outputs and weights."""
        layer, at = self.layer, 0 if self.layer.batch_first else 1
        if any(tape.uses[name] > 1 for name in self.trained.values()):  # parts would be clipped in pieces
            raise UnfitError(self.name, "is called several times in one pass, or shares a parameter")
        if is_causal and attn_mask is None:
            raise UnfitError(self.name, "is called with is_causal and no attn_mask")
        # what is one tensor stays one, and is multiplied once
        given = {id(each): self.rows(tape, each, at).movedim(at, 0) for each in (query, key, value)}
        parts = self._projected(tape, given[id(query)], given[id(key)], given[id(value)])
        q, k, v = (each.unflatten(2, (layer.num_heads, -1)).transpose(1, 2) for each in parts)
        causal = is_causal and key_padding_mask is None and not need_weights
        mask = None if causal else self._mask(tape, attn_mask, key_padding_mask, q.dtype)
        dropout = layer.dropout if layer.training else 0.0
        weights = None
        if need_weights:
            scores = q @ k.mT * q.shape[3] ** -0.5
            weights = torch.softmax(scores if mask is None else scores + mask, dim=-1)
            weights = functional.dropout(weights, dropout) if dropout else weights
            heads = weights @ v
            weights = enter_rows(tape, weights.mean(dim=1) if average_attn_weights else weights, 0)
        else:
            heads = functional.scaled_dot_product_attention(q, k, v, mask, dropout, causal)
        output = self._linear(tape, heads.transpose(1, 2).flatten(2), "out_proj.weight", "out_proj.bias")
        return enter_rows(tape, output.movedim(0, at), at), weights

    def _projected(self, tape: Tape, query: Tensor, key: Tensor, value: Tensor) -> Iterator[Tensor]:
        """Queries, keys and values. What is one tensor is multiplied once."""
        width = self.layer.embed_dim
        stretches = [(query, 0, 1), (key, 1, 2), (value, 2, 3)]
        if self.layer._qkv_same_embed_dim and key is value:
            stretches = [(query, 0, 3)] if query is key else [(query, 0, 1), (key, 1, 3)]
        for x, start, stop in stretches:
            own = slice(start * width, stop * width)
            if self.layer._qkv_same_embed_dim:
                made = self._linear(tape, x, "in_proj_weight", "in_proj_bias", own, own)
            else:
                made = self._linear(tape, x, f"{'qkv'[start]}_proj_weight", "in_proj_bias", ALL, own)
            yield from made.split(width, 2)

    def _linear(
        self, tape: Tape, x: Tensor, weight: str, bias: str, some: slice = ALL, own: slice = ALL
    ) -> Tensor:
        """Multiplies rows (n k, ..., width) by some rows of a weight, and adds its own of a bias, if any."""
        x, matrix, shift = in_autocast(x), attrgetter(weight)(self.layer), attrgetter(bias)(self.layer)

        def parts(gradient: Tensor, x: Tensor) -> Iterator[Part]:
            yield from zip((weight, bias), (some, own), matrix_and_bias(tape.units, gradient, x), strict=True)

        output = functional.linear(x, matrix[some], None if shift is None else shift[own])
        return self.watch(tape, output, x, parts)

    def _mask(
        self, tape: Tape, between: Tensor | None, keys: Tensor | None, dtype: torch.dtype
    ) -> Tensor | None:
        """The mask that is added to the scores (n, heads, L, S): minus infinity where attention is barred."""
        total = None
        if between is not None:
            between = between if tape.values(between) is None else self.rows(tape, between, 0)
            total = _added(between, dtype)
            total = total.unflatten(0, (-1, self.layer.num_heads)) if total.dim() == 3 else total
        if keys is not None:
            hidden = _added(self.rows(tape, keys, 0, dimensions=2), dtype)[:, None, None, :]
            total = hidden if total is None else total + hidden
        return total


def _added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, float("-inf"))
