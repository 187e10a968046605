"""Layers that treat rows apart, what each example's gradients by their parameters are, and refusals by name.

An output row of such a layer depends on one input row alone, so it may take the rows of all examples at once.
A layer of another class, or of one that changes a method, has no rule: its parameters get a copy for each
example. Layers that cannot be trained privately are refused by name.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils.parametrizations import _SpectralNorm
from torch.nn.utils.parametrize import is_parametrized
from torch.nn.utils.spectral_norm import SpectralNorm

from ringfence.training.kernels import normalisation
from ringfence.training.kernels.clipped_sums import (
    Contribution,
    Products,
    Rows,
    Window,
    Words,
    matrix_and_bias,
    summed,
    unit_sums,
)
from ringfence.training.kernels.normalisation import group_norm_rows, layer_norm_rows
from ringfence.training.kernels.standardised import Standardised
from ringfence.training.per_example.attention import Attention
from ringfence.training.per_example.isolation import RowRule, Rule
from ringfence.training.per_example.recurrent import Recurrent
from ringfence.training.standardised import StandardisedConv2d


class Linear(RowRule):
    """``nn.Linear`` with any number of positions."""

    pointwise = multiplies = True
    turned = False

    def contributions(self, units: int, gradient: Tensor, x: Tensor) -> dict[str, Contribution]:
        weight, bias = matrix_and_bias(units, gradient, x)
        weight = Products(weight.right, weight.left) if self.turned else weight
        return {"weight": weight, "bias": bias}


class TurnedLinear(Linear):
    """A linear layer whose weight stands as (inputs, outputs): the ``Conv1D`` of Hugging Face."""

    turned = True


class Convolution(RowRule):
    """A convolution in one to three dimensions."""

    multiplies = True

    def __init__(self, *known: Any) -> None:
        super().__init__(*known)
        layer, padding = self.layer, tuple(self.layer._reversed_padding_repeated_twice[::-2])
        self._window = Window(layer.kernel_size, layer.stride, padding, layer.dilation, layer.groups)

    @staticmethod
    def suits(layer: Any) -> bool:
        """Whether it adds zeros around an image, as many on the left as on the right.

        >>> [Convolution.suits(nn.Conv1d(1, 1, 2, padding=padding)) for padding in (1, "same")]
        [True, False]
        """
        gaps: list[int] = layer._reversed_padding_repeated_twice  # on both sides of the last dimension first
        return gaps[::2] == gaps[1::2] and layer.padding_mode == "zeros"

    def unfit(self, x: Tensor) -> str | None:
        fits = x.dim() == 2 + len(self.layer.kernel_size)
        return None if fits else f"is given a tensor of {x.dim()} dimensions"

    def contributions(self, units: int, gradient: Tensor, x: Tensor) -> dict[str, Contribution]:
        product = Products(gradient, x.to(gradient.dtype), self._window, len(x) // units)
        bias = summed(gradient, *range(2, gradient.dim()))
        return {"weight": product, "bias": Rows(unit_sums(bias, units))}


class StandardisedConvolution(Convolution):
    """``StandardisedConv2d``: the gradient that is clipped is that by its weight before standardising."""

    def contributions(self, units: int, gradient: Tensor, x: Tensor) -> dict[str, Contribution]:
        parts = super().contributions(units, gradient, x)
        directions, rates = self.layer.directions()
        shape = self.layer.weight.shape
        by_weight = Standardised((parts["weight"],), units, shape, directions, rates * self.layer.gain)
        parts["weight"] = by_weight
        if "gain" in self.trained:
            parts["gain"] = Rows(by_weight.along)
        return parts


class Embedding(RowRule):
    """``nn.Embedding``: nothing waits for the device, and the order of the additions is always the same."""

    pointwise = True

    @staticmethod
    def suits(layer: Any) -> bool:
        """Whether every place of a word counts the same, and the table itself stays as it is."""
        return not layer.scale_grad_by_freq and not layer.sparse and layer.max_norm is None

    def contributions(self, units: int, gradient: Tensor, x: Tensor) -> dict[str, Contribution]:
        rows, words = gradient.reshape(units, -1, gradient.shape[-1]), x.reshape(units, -1).long()
        if self.layer.padding_idx is not None:
            rows = rows.masked_fill((words == self.layer.padding_idx).unsqueeze(2), 0)
        return {"weight": Words.at_places(rows, words, self.layer.num_embeddings)}


class EmbeddingBag(Embedding):
    """``nn.EmbeddingBag`` of bags of one size: every word of a bag has the gradient of the bag."""

    pointwise = False

    @staticmethod
    def suits(layer: Any) -> bool:
        return Embedding.suits(layer) and layer.mode in ("sum", "mean") and layer.padding_idx is None

    def contributions(self, units: int, gradient: Tensor, x: Tensor) -> dict[str, Contribution]:
        share = gradient if self.layer.mode == "sum" else gradient / x.shape[1]
        return super().contributions(units, share.unsqueeze(1).expand(*x.shape, -1), x)


class LayerNorm(RowRule):
    """``nn.LayerNorm`` and ``nn.RMSNorm``, over any number of last dimensions."""

    pointwise = True

    def unfit(self, x: Tensor) -> str | None:
        few = x.dim() <= len(self.layer.normalized_shape)  # it would normalise over examples
        return f"normalises over all {x.dim()} dimensions" if few else None

    def contributions(self, units: int, gradient: Tensor, x: Tensor) -> dict[str, Contribution]:
        shape, eps = self.layer.normalized_shape, self.layer.eps
        eps = torch.finfo(x.dtype).eps if eps is None else eps
        width, centred = math.prod(shape), isinstance(self.layer, nn.LayerNorm)
        slope, rows = (value.reshape(units, -1, width) for value in (gradient, x))
        weight, bias = layer_norm_rows(slope, rows, width, eps, centred=centred)
        return {"weight": Rows(weight), "bias": Rows(bias)}


class GroupNorm(RowRule):
    """``nn.GroupNorm``, by a kernel that takes channels last as they are."""

    def output(self, x: Tensor) -> Tensor:
        layer = self.layer
        return normalisation.group_norm(x, layer.num_groups, layer.weight, layer.bias, layer.eps)

    def contributions(self, units: int, gradient: Tensor, x: Tensor) -> dict[str, Contribution]:
        weight, bias = group_norm_rows(gradient, x, self.layer.num_groups, self.layer.eps)
        return {"weight": Rows(unit_sums(weight, units)), "bias": Rows(unit_sums(bias, units))}


class FrozenNorm(RowRule):
    """A batch normalisation by running statistics as they stand."""

    @staticmethod
    def suits(layer: Any) -> bool:
        return is_frozen(layer)

    def contributions(self, units: int, gradient: Tensor, x: Tensor) -> dict[str, Contribution]:
        layer = self.layer
        normalised = functional.batch_norm(x, layer.running_mean, layer.running_var, eps=layer.eps)
        each = (value.unflatten(0, (units, -1)) for value in (gradient * normalised, gradient))
        weight, bias = (summed(value, 1, *range(3, value.dim())) for value in each)
        return {"weight": Rows(weight), "bias": Rows(bias)}


def is_frozen(layer: nn.Module) -> bool:
    """True for a normalisation that uses its running statistics as they stand and does not mix examples.

    >>> is_frozen(nn.BatchNorm1d(2).eval()), is_frozen(nn.BatchNorm1d(2))
    (True, False)
    """
    return isinstance(layer, _NormBase) and not layer.training and layer.running_mean is not None


_RULES: tuple[tuple[type[nn.Module], type[Rule]], ...] = (
    (nn.Linear, Linear),
    (StandardisedConv2d, StandardisedConvolution),
    *((kind, Convolution) for kind in (nn.Conv1d, nn.Conv2d, nn.Conv3d)),
    (nn.Embedding, Embedding),
    (nn.EmbeddingBag, EmbeddingBag),
    *((kind, LayerNorm) for kind in (nn.LayerNorm, nn.RMSNorm)),
    (nn.GroupNorm, GroupNorm),
    *((kind, FrozenNorm) for kind in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)),
    (nn.MultiheadAttention, Attention),
    *((kind, Recurrent) for kind in (nn.RNN, nn.LSTM, nn.GRU)),
)


def rule_of(layer: nn.Module) -> type[Rule] | None:
    """Returns the kind of rule for a layer, or None for one that has none.

    >>> rule_of(nn.Linear(2, 1)), rule_of(nn.Bilinear(2, 2, 1))
    (<class 'ringfence.training.per_example.layers.Linear'>, None)
    """
    if is_parametrized(layer):
        return None
    if (type(layer).__module__, type(layer).__name__) == ("transformers.pytorch_utils", "Conv1D"):
        return TurnedLinear if _is_unchanged(layer, type(layer)) else None
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


def known_layers(model: nn.Module) -> dict[str, Rule]:
    """Returns the rules of the layers that have one, by name.

    >>> list(known_layers(nn.Sequential(nn.Linear(3, 2), nn.Bilinear(2, 2, 1), nn.Tanh())))
    ['0']
    """
    names = {id(parameter): name for name, parameter in model.named_parameters()}  # one for each
    known: dict[str, Rule] = {}
    for name, layer in model.named_modules():
        rule = rule_of(layer)
        if rule is None or isinstance(known.get(name.rpartition(".")[0]), Attention):  # which knows its child
            continue
        own = layer.named_parameters(recurse=rule is Attention, remove_duplicate=False)
        trained = {own: names[id(parameter)] for own, parameter in own if parameter.requires_grad}
        known[name] = rule(name, layer, trained)
    return known


def refuse_layers(model: nn.Module) -> None:
    """Raises a ValueError that names the first layer that cannot be trained privately, and what to do.

    Where a layer's output for one example depends on other examples, clipping an example's gradient does not
    bound its influence, and no account holds. What a layer keeps of its inputs does not pass the mechanism.

    >>> refuse_layers(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2).eval()))
    >>> refuse_layers(nn.Sequential(nn.Linear(2, 2), nn.InstanceNorm1d(2, track_running_stats=True)))
    Traceback (most recent call last):
    ...
    ValueError: layer '1' (InstanceNorm1d) keeps running statistics of private data: use it with \
track_running_stats=False
    """
    for name, layer in model.named_modules():
        reason = _reason_against(layer)
        if reason is not None:
            raise ValueError(f"layer {name!r} ({type(layer).__name__}) {reason}")


def _reason_against(layer: nn.Module) -> str | None:
    if isinstance(layer, LazyModuleMixin) and layer.has_uninitialized_params():
        return "has no parameters yet: call the model once, on an example that is not private"
    if isinstance(layer, _BatchNorm) and not is_frozen(layer):
        return (
            "mixes the examples of a batch: use GroupNorm or LayerNorm, or freeze it: eval() before "
            "make_private, with running statistics of public data"
        )
    if getattr(layer, "track_running_stats", False) and not is_frozen(layer):
        return "keeps running statistics of private data: use it with track_running_stats=False"
    if isinstance(layer, nn.Embedding | nn.EmbeddingBag):
        if layer.sparse:
            return "has sparse gradients: use sparse=False"
        if layer.max_norm is not None:
            return "changes its weights for the words it sees, outside of any release: use max_norm=None"
    if isinstance(layer, nn.RReLU):
        return "draws slopes, which torch.func cannot do one example at a time: use LeakyReLU"
    if isinstance(layer, _SpectralNorm):
        return "keeps what depends on how often the model was called, hence on the batch: use weight_norm"
    if any(isinstance(hook, SpectralNorm) for hook in layer._forward_pre_hooks.values()):
        return "has spectral_norm, which keeps what depends on how often it was called: use weight_norm"
    return None


def refuse_other_parameters(model: nn.Module, before: dict[str, nn.Parameter]) -> None:
    """Raises a ValueError that names the first parameter that is trained now and was not, or the reverse.

    >>> model = nn.Linear(2, 2)
    >>> trained = dict(model.named_parameters())
    >>> _ = model.bias.requires_grad_(False)
    >>> refuse_other_parameters(model, trained)
    Traceback (most recent call last):
    ...
    ValueError: parameter 'bias' is trained no longer: ...
    """
    now = {name: p for name, p in model.named_parameters() if p.requires_grad}
    for name in {**before, **now}:
        if before.get(name) is not now.get(name):
            what = "is trained no longer" if name not in now else "was not trained before"
            raise ValueError(
                f"parameter {name!r} {what}: the trained parameters are those that make_private saw, make "
                "another engine to train others"
            )


def refuse_random_layers(model: nn.Module) -> None:
    """Raises a ValueError that names the first layer that draws random numbers in training.

    >>> refuse_random_layers(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1)))
    Traceback (most recent call last):
    ...
    ValueError: layer '1' (Dropout) draws at random: Fisher information loss is not known for it
    """
    for name, layer in model.named_modules():
        dropout = isinstance(layer, nn.modules.dropout._DropoutNd) and layer.p > 0
        attention = isinstance(layer, nn.MultiheadAttention) and layer.dropout > 0
        if dropout or attention or isinstance(layer, nn.FractionalMaxPool2d | nn.FractionalMaxPool3d):
            raise ValueError(
                f"layer {name!r} ({type(layer).__name__}) draws at random: "
                "Fisher information loss is not known for it"
            )
