"""Which layers are known: the table of all rules.

A rule holds for a layer that treats the rows of its input alike and apart, so that the output of an example
depends on that example alone. A layer of another class, or of one that changes a method, is not known.
"""

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ringfence.training.per_example.fused.contributions import Contributions
from ringfence.training.per_example.fused.layers.attention import (
    attention,
    attention_rows,
    is_batched,
    is_plain,
)
from ringfence.training.per_example.fused.layers.embedding import adds_up, bag, counts_once, embedding
from ringfence.training.per_example.fused.layers.linear import convolution, linear, pads_alike, turned_linear
from ringfence.training.per_example.fused.layers.normalisation import (
    frozen,
    group_norm,
    group_norm_output,
    is_frozen,
    layer_norm,
    looks_at_one,
)
from ringfence.training.per_example.fused.layers.recurrent import (
    has_own_weights,
    is_sequence,
    recurrent,
    recurrent_rows,
)


@dataclass(frozen=True)
class Rule:
    """``contributions(layer, gradient, input)`` for tensors (n, k, ...): k rows for each of n examples.

    ``suits`` says whether the rule holds for a layer with its options, ``several`` whether for k > 1, and
    ``pointwise`` whether the layer treats all but its last dimensions alike. ``dimensions(layer)`` are the
    numbers of dimensions that inputs with rows have, where others would be read without them. ``multiplies``
    says that the layer is a matrix product, which autocast takes in half precision. ``output(layer, input)``
    is a faster way to the same output, up to rounding.
    """

    contributions: Callable[[nn.Module, Tensor, Tensor], Contributions]
    suits: Callable[[nn.Module], bool] = lambda layer: True
    several: bool = True
    pointwise: bool = False
    dimensions: Callable[[nn.Module], Container[int]] | None = None
    multiplies: bool = False
    output: Callable[..., Tensor] | None = None


@dataclass(frozen=True)
class Rewritten:
    """A layer that is computed by ``forward(layer, watch, *args, **kwargs)`` in the place of its own.

    The results are the same up to rounding, and ``watch`` is called for what its parameters make. ``knows``
    says whether that holds for a call with given arguments. ``dimensions(layer)`` says which dimension of
    each argument, in their order, counts rows, and which of each output; None where rows may share one.
    """

    forward: Callable[..., Any]
    suits: Callable[[nn.Module], bool]
    knows: Callable[..., bool]
    dimensions: Callable[[nn.Module], tuple[dict[str, int | None], tuple[int, ...]]]


def rule_of(layer: nn.Module) -> Rule | Rewritten | None:
    """Returns the rule for a layer, or None for one that is not known.

    >>> rule_of(nn.Linear(2, 1)) is not None, rule_of(nn.Bilinear(2, 2, 1)) is None
    (True, True)
    """
    if (type(layer).__module__, type(layer).__name__) == ("transformers.pytorch_utils", "Conv1D"):
        return _TURNED if _is_unchanged(layer, type(layer)) else None
    for kind, rule in _RULES:
        if isinstance(layer, kind) and _is_unchanged(layer, kind) and rule.suits(layer):
            return rule
    return None


def _is_unchanged(layer: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether neither the layer nor its class has a method other than that of a kind of layer."""
    own = type(layer).__mro__[: type(layer).__mro__.index(kind)]
    for name in {name for each in (layer, *own) for name in vars(each)} - {"reset_parameters", "extra_repr"}:
        counts = not name.startswith("__") or name in ("__call__", "__getattr__", "__getattribute__")
        if counts and callable(getattr(kind, name, None)):
            return False
    return True


_TURNED = Rule(turned_linear, pointwise=True, multiplies=True)
_CONVOLUTION = Rule(
    convolution,
    pads_alike,
    several=False,
    multiplies=True,
    dimensions=lambda layer: (2 + len(layer.kernel_size),),  # type: ignore[arg-type]
)
_LAYER_NORM = Rule(layer_norm, pointwise=True)
_RECURRENT = Rewritten(recurrent, has_own_weights, is_sequence, recurrent_rows)
_RULES: tuple[tuple[type[nn.Module], Rule | Rewritten], ...] = (
    (nn.Linear, Rule(linear, pointwise=True, multiplies=True)),
    (nn.Conv1d, _CONVOLUTION),
    (nn.Conv2d, _CONVOLUTION),
    (nn.Conv3d, _CONVOLUTION),
    (nn.Embedding, Rule(embedding, counts_once, pointwise=True)),
    (nn.EmbeddingBag, Rule(bag, adds_up, dimensions=lambda layer: (2,))),
    (nn.LayerNorm, _LAYER_NORM),
    (nn.RMSNorm, _LAYER_NORM),
    (nn.GroupNorm, Rule(group_norm, dimensions=lambda layer: range(2, 99), output=group_norm_output)),
    *(
        (kind, Rule(rule, suits, dimensions=lambda layer, size=size: (size,)))  # type: ignore[misc]
        for rule, suits in ((group_norm, looks_at_one), (frozen, is_frozen))
        for kind, size in ((nn.InstanceNorm1d, 3), (nn.InstanceNorm2d, 4), (nn.InstanceNorm3d, 5))
    ),
    (nn.BatchNorm1d, Rule(frozen, is_frozen, dimensions=lambda layer: (2, 3))),
    (nn.BatchNorm2d, Rule(frozen, is_frozen)),
    (nn.BatchNorm3d, Rule(frozen, is_frozen)),
    (nn.MultiheadAttention, Rewritten(attention, is_plain, is_batched, attention_rows)),
    (nn.RNN, _RECURRENT),
    (nn.LSTM, _RECURRENT),
    (nn.GRU, _RECURRENT),
)
