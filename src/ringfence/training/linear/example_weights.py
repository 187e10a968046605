"""How much each example counts: weights of examples and of classes, bounded by a public number."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ringfence import checks
from ringfence.training.clipping import Clip

_FEW = 32  # so many different weights are summed group by group, with the fast sums of clips
_CHUNK_ENTRIES = 1 << 22  # how many numbers of per-example gradients are held at once

BALANCED = (
    "class_weight must be a dict of public weights, got 'balanced': those weights are computed from the "
    "private counts of the labels, and would be released without noise"
)


@dataclass(frozen=True)
class ExampleWeights:
    """The weight of each example, which is private, and the public number that no weight is above.

    An example adds its clipped gradient times its weight, so that one record moves a sum by at most the clip
    times ``largest``. A weight belongs to its record: whoever knows all other records does not know it.

    >>> weights = ExampleWeights(torch.tensor([0.5, 2.0]).double(), largest=2.0)
    >>> from ringfence import Clamp
    >>> weights.outer_sum(Clamp(1.0), torch.ones(2, 1), torch.tensor([[0.5], [3.0]])).round(decimals=3)
    tensor([[2.2500]])
    """

    values: Tensor  # (n,), float64
    largest: float

    def outer_sum(self, clip: Clip, residuals: Tensor, features: Tensor) -> Tensor:
        """The weighted sum of clipped outer products of residuals (n, K) and features (n, p): (K, p).

        Guarantee: each example adds its clipped gradient times its weight. Products with weights and sums of
        them are computed in float64.
        """
        levels, which = torch.unique(self.values, return_inverse=True)
        total = torch.zeros(residuals.shape[1], features.shape[1], dtype=torch.float64).to(features.device)
        if len(levels) <= _FEW:
            for place, level in enumerate(levels.tolist()):
                own = which == place
                total += level * clip.outer_sum(residuals[own], features[own])
            return total.to(features.dtype)
        length = max(1, _CHUNK_ENTRIES // total.numel())
        parts = (part.split(length) for part in (self.values, residuals, features))
        for weights, some, theirs in zip(*parts, strict=True):
            clipped = clip(some.unsqueeze(2) * theirs.unsqueeze(1)).double()
            total += torch.tensordot(weights, clipped, dims=1)
        return total.to(features.dtype)

    def applied(self, gradients: Iterator[Tensor]) -> Iterator[Tensor]:
        """Clipped gradients (m, d), some examples at a time, each times its weight."""
        start = 0
        for some in gradients:
            yield some * self.values[start : start + len(some), None].to(some.dtype)
            start += len(some)


def example_weights(
    sample_weight: Any, class_weight: Any, largest: Any, classes: list[Any], codes: Tensor
) -> ExampleWeights | None:
    """The weights of examples whose labels have the places ``codes`` in ``classes``; None if all are 1.

    ``class_weight`` has a public number for some of the classes, and the others have 1. ``largest`` is the
    public bound of ``sample_weight``. The weight of an example is the product of both.

    >>> weights = example_weights([1.0, 0.5], {"b": 3.0}, 1.0, ["a", "b"], torch.tensor([0, 1]))
    >>> weights.values.tolist(), weights.largest
    ([1.0, 1.5], 3.0)
    """
    bound = checks.number("public_largest_weight", largest, checks.positive)
    if sample_weight is None and class_weight is None:
        return None
    own = torch.ones(len(codes), dtype=torch.float64)
    if sample_weight is None:
        bound = 1.0
    else:
        own = checks.not_negative("sample_weight", sample_weight).double().cpu()
        if own.shape != (len(codes),):
            raise ValueError(
                f"sample_weight must be one number per example, {len(codes)}, got shape {list(own.shape)}"
            )
        checks.require(
            "sample_weight", f"must be at most public_largest_weight, {bound:g}", own, own <= bound
        )
    of_class = torch.tensor(_class_weights(class_weight, classes), dtype=torch.float64)
    # a product of two floats may be rounded up: the bound is the product of both bounds, rounded alike
    return ExampleWeights((own * of_class[codes.cpu()]).to(codes.device), bound * float(of_class.max()))


def _class_weights(class_weight: Any, classes: list[Any]) -> list[float]:
    if class_weight is None:
        return [1.0] * len(classes)
    if isinstance(class_weight, str) and class_weight == "balanced":
        raise ValueError(BALANCED)
    if not isinstance(class_weight, Mapping):
        raise TypeError(f"class_weight must be a dict of public weights, got {class_weight!r}")
    for name in class_weight:
        if name not in classes:
            raise ValueError(f"class_weight must name classes only, got {name!r}: the classes are {classes}")
    weights = [
        checks.number(f"class_weight of {name!r}", class_weight.get(name, 1.0), checks.not_negative)
        for name in classes
    ]
    if max(weights) == 0:
        raise ValueError(f"class_weight must have a weight above 0, got {class_weight!r}")
    return weights
