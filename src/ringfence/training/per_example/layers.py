"""Layers that treat the rows of their input apart, and each example's gradients by their parameters.

An output row of such a layer depends on one input row alone, so it may take the rows of all examples at once.
A layer of another class, or of one that changes a method, has no rule.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from ringfence.training.kernels import normalisation
from ringfence.training.kernels.clipped_sums import Contribution, Part, Products, Rows, Window, Words, summed
from ringfence.training.kernels.normalisation import group_norm_rows, layer_norm_rows

# watch(output, kept, parts): parts(gradient, kept) are the contributions of the layer, by its own names, once
# the gradient of the output is known; both tensors are then (n, positions, width)
Watch = Callable[[Tensor, Tensor, Callable[[Tensor, Tensor], Iterable[Part]]], Tensor]


class RowRule:
    """How a layer with rows of its own computes, and what its gradients are made of.

    ``output(x)`` takes rows (n k, ...): k for each of n examples. Where the layer is ``pointwise``, any
    number of dimensions may stand in their place. ``multiplies`` says that the layer is a matrix product,
    which autocast takes in half precision.
    """

    pointwise = False
    multiplies = False

    def __init__(self, layer: nn.Module) -> None:
        self.layer: Any = layer

    @staticmethod
    def suits(layer: Any) -> bool:
        """Whether the rule holds for a layer with its options."""
        return True

    def unfit(self, x: Tensor, examples: int) -> str | None:
        """Why the rule does not hold for these rows; None where it does."""
        return None

    def output(self, x: Tensor) -> Tensor:
        """What the layer computes."""
        result: Tensor = type(self.layer).forward(self.layer, x)
        return result

    def contributions(self, examples: int, gradient: Tensor, x: Tensor) -> dict[str, Contribution]:
        """The gradients of all examples by the layer's parameters, from those of its output."""
        return {}


class Rewritten:
    """A layer that is computed by ``forward(watch, *args, **kwargs)`` in the place of its own method.

    The results are the same up to rounding, and ``watch`` is called for what its parameters make. ``knows``
    says whether that holds for a call. ``dimensions`` says which dimension of each argument, in their order,
    counts rows, and which of each output; None where rows may share one.
    """

    dimensions: tuple[dict[str, int | None], tuple[int, ...]]
    forward: Callable[..., Any]
    knows: Callable[..., bool]

    def __init__(self, layer: nn.Module) -> None:
        self.layer: Any = layer

    @staticmethod
    def suits(layer: Any) -> bool:
        """Whether the rule holds for a layer with its options."""
        return True


# how many dimensions inputs with rows have; others would be read without rows
_DIMENSIONS: dict[type[nn.Module], tuple[int, ...]] = {
    **{nn.BatchNorm1d: (2, 3), nn.BatchNorm2d: (4,), nn.BatchNorm3d: (5,)},
    **{nn.InstanceNorm1d: (3,), nn.InstanceNorm2d: (4,), nn.InstanceNorm3d: (5,)},
}


class Apart(RowRule):
    """Activations, pools and dropout without parameters, which torch computes row by row."""

    @staticmethod
    def suits(layer: Any) -> bool:
        if isinstance(layer, nn.Flatten):
            return layer.start_dim >= 1
        return not getattr(layer, "return_indices", False)

    kinds: tuple[type[nn.Module], ...] = (
        *(nn.Identity, nn.Dropout, nn.Flatten),
        *(nn.CELU, nn.ELU, nn.GELU, nn.Hardshrink, nn.Hardsigmoid, nn.Hardswish, nn.Hardtanh, nn.LeakyReLU),
        *(nn.LogSigmoid, nn.Mish, nn.ReLU, nn.ReLU6, nn.SELU, nn.SiLU, nn.Sigmoid, nn.Softplus),
        *(nn.Softshrink, nn.Softsign, nn.Tanh, nn.Tanhshrink, nn.Threshold),
        *(nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d, nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d),
        *(nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d),
    )


class Linear(RowRule):
    """``nn.Linear`` with any number of positions."""

    pointwise = multiplies = True

    def contributions(self, examples: int, gradient: Tensor, x: Tensor) -> dict[str, Contribution]:
        left = gradient.reshape(examples, -1, gradient.shape[-1])
        right = x.to(gradient.dtype).reshape(examples, -1, x.shape[-1])
        parts: dict[str, Contribution] = {"weight": self.weight(left.mT, right.mT)}
        if self.layer.bias is not None:
            parts["bias"] = Rows(summed(left, 1))
        return parts

    def weight(self, left: Tensor, right: Tensor) -> Contribution:
        """The gradients by the weight."""
        return Products(left, right)


class TurnedLinear(Linear):
    """A linear layer whose weight stands as (inputs, outputs): the ``Conv1D`` of Hugging Face."""

    def weight(self, left: Tensor, right: Tensor) -> Contribution:
        return Products(right, left)


class Convolution(RowRule):
    """A convolution in one to three dimensions."""

    multiplies = True

    def __init__(self, layer: nn.Module) -> None:
        super().__init__(layer)
        padding = self.layer.padding
        if padding == "valid":
            padding = (0,) * len(self.layer.kernel_size)
        elif padding == "same":
            padding = tuple(gap // 2 for gap in _gaps(layer))
        settings = (self.layer.stride, padding, self.layer.dilation, self.layer.groups)
        self._window = Window(self.layer.kernel_size, *settings)
        self._places = tuple(range(2, 2 + len(self.layer.kernel_size)))

    @staticmethod
    def suits(layer: Any) -> bool:
        """Whether it adds zeros around an image, as many on the left as on the right.

        >>> [Convolution.suits(nn.Conv1d(1, 1, 2, padding=padding)) for padding in (1, "same")]
        [True, False]
        """
        even = layer.padding != "same" or all(gap % 2 == 0 for gap in _gaps(layer))
        return even and layer.padding_mode == "zeros"

    def unfit(self, x: Tensor, examples: int) -> str | None:
        if x.dim() != 2 + len(self._places):
            return f"is given a tensor of {x.dim()} dimensions"
        return None if len(x) == examples else "is called with several rows for one example"

    def contributions(self, examples: int, gradient: Tensor, x: Tensor) -> dict[str, Contribution]:
        parts: dict[str, Contribution] = {"weight": Products(gradient, x.to(gradient.dtype), self._window)}
        if self.layer.bias is not None:
            parts["bias"] = Rows(summed(gradient, *self._places))
        return parts


def _gaps(layer: Any) -> list[int]:
    """How far the window of a convolution reaches along each dimension."""
    return [d * (k - 1) for d, k in zip(layer.dilation, layer.kernel_size, strict=True)]


class Embedding(RowRule):
    """``nn.Embedding``: nothing waits for the device, and the order of the additions is always the same."""

    pointwise = True

    @staticmethod
    def suits(layer: Any) -> bool:
        """Whether every place of a word counts the same, and the table itself stays as it is."""
        return not layer.scale_grad_by_freq and not layer.sparse and layer.max_norm is None

    def contributions(self, examples: int, gradient: Tensor, x: Tensor) -> dict[str, Contribution]:
        rows, words = gradient.reshape(examples, -1, gradient.shape[-1]), x.reshape(examples, -1).long()
        if self.layer.padding_idx is not None:
            rows = rows.masked_fill((words == self.layer.padding_idx).unsqueeze(2), 0)
        return {"weight": Words.at_places(rows, words, self.layer.num_embeddings)}


class EmbeddingBag(RowRule):
    """``nn.EmbeddingBag`` of bags of one size: every word of a bag has the gradient of the bag."""

    @staticmethod
    def suits(layer: Any) -> bool:
        return Embedding.suits(layer) and layer.mode in ("sum", "mean") and layer.padding_idx is None

    def unfit(self, x: Tensor, examples: int) -> str | None:
        return None if x.dim() == 2 else f"is given a tensor of {x.dim()} dimensions"

    def contributions(self, examples: int, gradient: Tensor, x: Tensor) -> dict[str, Contribution]:
        share = gradient if self.layer.mode == "sum" else gradient / x.shape[1]
        rows = share.unsqueeze(1).expand(*x.shape, -1).reshape(examples, -1, gradient.shape[-1])
        return {"weight": Words.at_places(rows, x.reshape(examples, -1).long(), self.layer.num_embeddings)}


class LayerNorm(RowRule):
    """``nn.LayerNorm`` and ``nn.RMSNorm``, over any number of last dimensions."""

    pointwise = True

    def unfit(self, x: Tensor, examples: int) -> str | None:
        few = x.dim() <= len(self.layer.normalized_shape)  # it would normalise over examples
        return f"normalises over all {x.dim()} dimensions" if few else None

    def contributions(self, examples: int, gradient: Tensor, x: Tensor) -> dict[str, Contribution]:
        shape, eps = self.layer.normalized_shape, self.layer.eps
        eps = torch.finfo(x.dtype).eps if eps is None else eps
        width, centred = math.prod(shape), isinstance(self.layer, nn.LayerNorm)
        slope, rows = (value.reshape(examples, -1, width) for value in (gradient, x))
        weight, bias = layer_norm_rows(slope, rows, width, eps, centred=centred)
        return {"weight": Rows(weight), "bias": Rows(bias)}


class GroupNorm(RowRule):
    """``nn.GroupNorm``, by a kernel that takes channels last as they are."""

    def unfit(self, x: Tensor, examples: int) -> str | None:
        return None if x.dim() > 1 else "is given a tensor of 1 dimension"

    def output(self, x: Tensor) -> Tensor:
        layer = self.layer
        return normalisation.group_norm(x, layer.num_groups, layer.weight, layer.bias, layer.eps)

    def contributions(self, examples: int, gradient: Tensor, x: Tensor) -> dict[str, Contribution]:
        weight, bias = group_norm_rows(gradient, x, self.groups, self.layer.eps)
        if len(x) != examples:
            weight, bias = (each.unflatten(0, (examples, -1)).sum(dim=1) for each in (weight, bias))
        return {"weight": Rows(weight), "bias": Rows(bias)}

    @property
    def groups(self) -> int:
        """How many groups of channels are normalised by themselves."""
        return int(self.layer.num_groups)


class InstanceNorm(GroupNorm):
    """``nn.InstanceNorm`` as one group per channel, with the statistics of the example at hand."""

    output = RowRule.output

    @staticmethod
    def suits(layer: Any) -> bool:
        return layer.running_mean is None

    def unfit(self, x: Tensor, examples: int) -> str | None:
        sizes = next(sizes for kind, sizes in _DIMENSIONS.items() if isinstance(self.layer, kind))
        return None if x.dim() in sizes else f"is given a tensor of {x.dim()} dimensions"

    @property
    def groups(self) -> int:
        return int(self.layer.num_features)


class FrozenNorm(RowRule):
    """A normalisation by running statistics as they stand."""

    @staticmethod
    def suits(layer: Any) -> bool:
        return is_frozen(layer)

    unfit = InstanceNorm.unfit

    def contributions(self, examples: int, gradient: Tensor, x: Tensor) -> dict[str, Contribution]:
        layer, shape = self.layer, (-1, *(1,) * (x.dim() - 2))
        normalised = (x - layer.running_mean.view(shape)) * (layer.running_var + layer.eps).rsqrt().view(
            shape
        )
        each = (value.unflatten(0, (examples, -1)) for value in (gradient * normalised, gradient))
        weight, bias = (summed(value, 1, *range(3, value.dim())) for value in each)
        return {"weight": Rows(weight), "bias": Rows(bias)}


def is_frozen(layer: nn.Module) -> bool:
    """True for a normalisation that uses its running statistics as they stand and does not mix examples.

    >>> is_frozen(nn.BatchNorm1d(2).eval()), is_frozen(nn.BatchNorm1d(2))
    (True, False)
    """
    return isinstance(layer, _NormBase) and not layer.training and layer.running_mean is not None


def in_autocast(x: Tensor) -> Tensor:
    """The input of a matrix product as autocast would take it, so that what is kept is what autocast keeps.

    >>> with torch.autocast("cpu", torch.bfloat16):
    ...     in_autocast(torch.ones(1)).dtype
    torch.bfloat16
    """
    device = x.device.type
    if not torch.is_autocast_enabled(device) or x.dtype == torch.float64:
        return x
    return x.to(torch.get_autocast_dtype(device))
