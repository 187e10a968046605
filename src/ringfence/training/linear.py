"""Private full-batch gradient descent for softmax regression (Algorithm 1): torch alone."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.per_instance import PerInstanceAccountant
from ringfence.mechanisms.base import Mechanism
from ringfence.training.clipping import Clip

_CHUNK_ENTRIES = 1 << 23  # of per-example gradients held at once


@dataclass(frozen=True)
class Step:
    """Where a step began, and the clipped sum that the mechanism was applied to: both private."""

    weights: Tensor
    theta: Tensor


@dataclass(frozen=True)
class LinearRun:
    """What training gave: the weights, which were released, and what they cost."""

    weights: Tensor  # (classes, features)
    account: PerInstanceAccountant
    trajectory: tuple[Step, ...]


def train_linear(
    features: Tensor,
    labels: Tensor,
    classes: int,
    *,
    mechanism: Mechanism,
    clip: Clip,
    learning_rate: float,
    steps: int,
    public_size: float,
    generator: torch.Generator,
    momentum: float = 0.0,
) -> LinearRun:
    """``steps`` steps from zero weights on features (n, p) and labels (n,) in 0 .. classes - 1.

    Each example's gradient is clipped, the mechanism is applied to their sum, and the weights move
    by learning_rate / public_size times what it released (with momentum, times a running sum).

    Guarantee: features and labels touch the weights through the mechanism only; every release is
    charged to the account before it is made.

    >>> from ringfence import Clamp, Gaussian
    >>> features, labels = torch.tensor([[1.0], [-1.0]] * 50), torch.tensor([1, 0] * 50)
    >>> run = train_linear(features, labels, 2, mechanism=Gaussian(1.0), clip=Clamp(1.0), learning_rate=1.0,
    ...     steps=3, public_size=100, generator=torch.Generator().manual_seed(0))
    >>> run.account.steps, bool(run.weights[1] > run.weights[0])
    (3, True)
    """
    _check(features, labels, classes)
    checks.count("steps", steps, at_least=1)
    rate = float(checks.positive("learning_rate", learning_rate))
    size = float(checks.positive("public_size", public_size))
    if not 0 <= momentum < 1:
        raise ValueError(f"momentum must be in [0, 1), got {momentum!r}")
    if not isinstance(mechanism, Mechanism):
        raise TypeError(f"mechanism must be a ringfence mechanism, got {mechanism!r}")
    weights = features.new_zeros(classes, features.shape[1])
    shape = mechanism.fisher_information(weights).shape
    if shape != weights.shape:
        raise ValueError(
            f"mechanism must fit weights of shape {list(weights.shape)}, its own is {list(shape)}"
        )

    account = PerInstanceAccountant(mechanism, clip.sensitivity)
    velocity = torch.zeros_like(weights)
    trajectory = []
    for _ in range(steps):
        theta = clip.outer_sum(residuals(weights, features, labels), features)
        account.step(theta)  # charged before it is released
        released = mechanism.sample(theta, generator=generator)
        trajectory.append(Step(weights, theta))
        velocity = momentum * velocity + released
        weights = weights - rate / size * velocity
    return LinearRun(weights, account, tuple(trajectory))


def residuals(weights: Tensor, features: Tensor, labels: Tensor) -> Tensor:
    """softmax(W x) - e_y, (n, classes): the gradient of the loss by the scores."""
    result = torch.softmax(features @ weights.T, dim=1)
    result[torch.arange(len(labels), device=labels.device), labels] -= 1
    return result


def clipped_gradients(weights: Tensor, features: Tensor, labels: Tensor, clip: Clip) -> Iterator[Tensor]:
    """Every example's clipped gradient, flattened, some examples at a time."""
    length = max(1, _CHUNK_ENTRIES // weights.numel())
    for some, theirs in zip(features.split(length), labels.split(length), strict=True):
        outer = residuals(weights, some, theirs).unsqueeze(2) * some.unsqueeze(1)
        yield clip(outer).flatten(1)


def _check(features: Tensor, labels: Tensor, classes: int) -> None:
    checks.finite("features", features)
    checks.count("classes", classes, at_least=2)
    if features.dim() != 2 or not features.numel():
        raise ValueError(f"features must have shape (n, p) and not be empty, got {list(features.shape)}")
    if labels.shape != features.shape[:1] or labels.dtype != torch.int64:
        raise ValueError(
            f"labels must be {len(features)} int64 numbers, got {labels.dtype} of shape {list(labels.shape)}"
        )
    outside = (labels < 0) | (labels >= classes)
    if bool(outside.any()):
        first = int(outside.nonzero()[0])
        raise ValueError(f"labels must be in 0 .. {classes - 1}, got {int(labels[first])} at index {first}")
