"""What softmax regression may be trained on: features and labels, checked."""

import torch
from torch import Tensor

from ringfence import checks
from ringfence.checks import Real


def checked_examples(features: Real, labels: Real, classes: int) -> tuple[Tensor, Tensor]:
    """Features (n, p), finite, and labels (n,) in 0 .. classes - 1, as tensors; anything else is refused.

    >>> checked_examples([[1.0], [2.0]], [0, 1], classes=2)[1]
    tensor([0, 1])
    """
    features = checks.finite("features", features)
    if not isinstance(labels, Tensor):  # containers of integers, which float64 holds on the way
        numbers = checks.finite("labels", labels)
        labels = checks.require("labels", "must be integers", numbers, numbers % 1 == 0).long()
    checks.count("classes", classes, at_least=2, at_most=10**6)
    if features.dim() != 2 or not features.numel():
        raise ValueError(f"features must have shape (n, p) and not be empty, got {list(features.shape)}")
    check_labels(labels, len(features), classes)
    return features, labels


def check_labels(labels: Tensor, count: int, classes: int) -> None:
    """Refuses what is not ``count`` labels in 0 .. classes - 1.

    >>> check_labels(torch.tensor([0, 2]), 2, classes=2)
    Traceback (most recent call last):
    ValueError: labels must be in 0 .. 1, got 2 at index 1
    """
    if labels.shape != (count,) or labels.dtype != torch.int64:
        raise ValueError(
            f"labels must be {count} int64 numbers, got {labels.dtype} of shape {list(labels.shape)}"
        )
    outside = (labels < 0) | (labels >= classes)
    if bool(outside.any()):
        first = int(outside.nonzero()[0])
        raise ValueError(f"labels must be in 0 .. {classes - 1}, got {int(labels[first])} at index {first}")
