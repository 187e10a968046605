"""What softmax regression is not trained on is refused by name."""

from typing import Any

import pytest
import torch

from ringfence.training.linear.examples import checked_examples


@pytest.mark.parametrize(
    ("features", "labels", "complaint"),
    [
        ([["a"]], [0], "features must be a number or a tensor"),
        ([[1.0]], ["a"], "labels must be a number or a tensor"),
        ([[1.0]], [0.5], r"labels must be integers, got 0\.5 at index \[0\]"),
        ([[1.0]], torch.tensor([0.0]), "labels must be 1 int64 numbers, got torch.float32"),
        ([[1.0]], [2], r"labels must be in 0 \.\. 1, got 2 at index 0"),
        ([[float("nan")]], [0], "features must not be NaN"),
        ([1.0], [0], r"features must have shape \(n, p\) and not be empty, got \[1\]"),
    ],
)
def test_what_is_refused(features: Any, labels: Any, complaint: str) -> None:
    with pytest.raises((TypeError, ValueError), match=complaint):
        checked_examples(features, labels, classes=2)
