"""Private full-batch gradient descent for softmax and linear regression (Algorithm 1), with torch alone."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.per_instance import PerInstanceAccountant
from ringfence.accounting.sensitivity import Sensitivity
from ringfence.checks import Real
from ringfence.mechanisms.base import Mechanism, checked_mechanism
from ringfence.noise import Noise
from ringfence.numerics.blocks import at_once
from ringfence.numerics.rounding import gamma
from ringfence.training.assumptions import refuse_secure
from ringfence.training.clipping import Clip, secure_sensitivity

_MOST_STEPS = 10**6  # more would not end: every step looks at every example
_SPREAD = 2.0**-32  # how far, relative to the clip, rounding may move one gradient in a secure run
_CHUNK_ENTRIES = 1 << 23  # how many numbers of per-example gradients are held at once


@dataclass(frozen=True)
class LinearSettings:
    """The settings that may differ between runs on the same data. ``seed`` is that of ``train_linear``."""

    mechanism: Mechanism
    clip: Clip
    learning_rate: float
    steps: int
    seed: int | None = None
    momentum: float = 0.0

    def __post_init__(self) -> None:
        checked_mechanism(self.mechanism)
        checks.instance("clip", self.clip, Clip)
        checked: dict[str, Any] = {
            "learning_rate": checks.number("learning_rate", self.learning_rate, checks.positive),
            "steps": checks.count("steps", self.steps, at_least=1, at_most=_MOST_STEPS),
            "seed": None if self.seed is None else checks.seed(self.seed),
            "momentum": checks.number("momentum", self.momentum, checks.not_negative),
        }
        if checked["momentum"] >= 1:
            raise ValueError(f"momentum must be in [0, 1), got {self.momentum!r}")
        vars(self).update(checked)

    def noise(self, data: bytes, public_size: float, classes: int) -> Noise:
        """Returns the noise of this setting on the data with this digest (``run_noise``)."""
        numbers = (float(self.learning_rate), self.steps, public_size, float(self.momentum), classes)
        return run_noise(self.seed, data, self.mechanism, self.clip, numbers)


@dataclass(frozen=True)
class Step:
    """Weights before a step, and the clipped sum that the mechanism was applied to: both private."""

    weights: Tensor
    theta: Tensor


@dataclass(frozen=True)
class LinearRun:
    """Result of training: the weights, which were released, their account, and the private steps.

    The number of releases is fixed beforehand, and so is what they cost for every dataset, so that nothing
    depends on when the account is made: it is made when it is first asked for.

    >>> import ringfence as rf
    >>> run = train_linear(torch.ones(8, 3), torch.tensor([0, 1] * 4), 2, mechanism=rf.Gaussian(1.0),
    ...     clip=rf.Clamp(0.1), learning_rate=1.0, steps=2, public_size=8, seed=0)
    >>> run.weights.shape, run.account.steps, len(run.trajectory)
    (torch.Size([2, 3]), 2, 2)
    """

    weights: Tensor  # (classes, features)
    trajectory: tuple[Step, ...]
    mechanism: Mechanism
    sensitivity: Sensitivity

    @cached_property
    def account(self) -> PerInstanceAccountant:
        """The account of all steps."""
        account = PerInstanceAccountant(self.mechanism, self.sensitivity)
        for step in self.trajectory:
            account.step(step.theta)
        return account


def train_linear(
    features: Real,
    labels: Real,
    classes: int,
    *,
    mechanism: Mechanism,
    clip: Clip,
    learning_rate: float,
    steps: int,
    public_size: float,
    seed: int | None = None,
    momentum: float = 0.0,
    secure: bool = False,
    start: Tensor | None = None,
) -> LinearRun:
    """Trains by ``steps`` steps on features (n, p) and labels (n,) in 0 .. classes - 1.

    Where ``classes`` is 1 the labels are numbers, and the loss is half the squared error. The weights begin
    at ``start``, (classes, p), which must be public or released, or at 0.

    Each example's gradient is clipped, the mechanism is applied to the sum of the clipped gradients, and
    the weights move by learning_rate / public_size times what was released (with momentum, times a
    running sum of what was released).

    ``seed``: None takes fresh noise. An integer repeats the run. Its noise belongs to the seed, to all the
    settings and to the data, so that runs that differ in any of them share no noise (``run_noise``).

    ``secure``: releases are those of ``Mechanism.release``, with fresh randomness and no seed, and
    everything is computed in float64. The rounding of sums is charged (``secure_sensitivity``).

    Guarantee: features and labels influence the weights through the mechanism only, and the account of the
    result charges every release.

    >>> from ringfence import Clamp, Gaussian
    >>> features, labels = torch.tensor([[1.0], [-1.0]] * 50), torch.tensor([1, 0] * 50)
    >>> run = train_linear(features, labels, 2, mechanism=Gaussian(1.0), clip=Clamp(1.0), learning_rate=1.0,
    ...     steps=3, public_size=100, seed=0)
    >>> run.account.steps, bool(run.weights[1] > run.weights[0])
    (3, True)
    """
    features, labels = checked_examples(features, labels, classes)
    settings = LinearSettings(mechanism, clip, learning_rate, steps, seed, momentum)
    size = checks.number("public_size", public_size, checks.positive)
    weights = features.new_zeros(classes, features.shape[1])
    shape = mechanism.fisher_information(weights).shape
    if shape != weights.shape:
        raise ValueError(
            f"mechanism must fit weights of shape {list(weights.shape)}, its own is {list(shape)}"
        )
    refuse_secure(secure, "seed", seed, public_size)
    if secure and classes == 1:
        raise ValueError(
            "classes must be at least 2 in a secure run, which does not charge squared errors' rounding"
        )
    if start is not None:
        if checks.finite("start", start).shape != weights.shape:
            raise ValueError(f"start must have shape {list(weights.shape)}, got {list(start.shape)}")
        weights = start.to(weights)
    own = () if start is None else (weights,)
    data = b"" if seed is None else data_digest(features, labels, *own)
    noise = settings.noise(data, size, classes)
    sensitivity = charged_sensitivity(clip, len(features), size, secure=secure)
    if secure:
        features, weights = features.double(), weights.double()
        longest = torch.linalg.vector_norm(features, dim=1).amax()
    velocity = torch.zeros_like(weights)
    trajectory = []
    reach = float(torch.linalg.vector_norm(features, 1, dim=1).max())  # the largest score, were all weights 1
    for step in range(settings.steps):
        if secure:
            # A clipped product has the relative error of its residual. Where it is scaled down it has twice
            # that, and the roundings of lengths, which are fewer than those of a score.
            if not float(3 * relative_error(weights, longest)) <= _SPREAD:
                raise ValueError(
                    "features and weights must be smaller in a secure run: rounding moves single gradients "
                    "by more than is charged for"
                )
            accurate = accurate_residuals(*shares_and_others(weights, features), labels)
            theta = clip.outer_sum(accurate, features)
            released = mechanism.release(theta)
        else:
            theta = clip.outer_sum(residuals(weights, features, labels), features)
            released = mechanism.sample(theta, generator=noise.draws(step, device=theta.device))
        trajectory.append(Step(weights, theta))
        velocity = settings.momentum * velocity + released
        weights = weights - settings.learning_rate / size * velocity
        if not float(weights.abs().max()) * reach < torch.finfo(weights.dtype).max:
            raise ValueError(
                f"learning_rate must be smaller, got {learning_rate!r}: scores overflow in step {step + 1}"
            )
    return LinearRun(weights, tuple(trajectory), mechanism, sensitivity)


def charged_sensitivity(clip: Clip, examples: int, public_size: float, *, secure: bool) -> Sensitivity:
    """Returns how far one example moves a sum: the clip, and in a secure run the rounding of sums.

    >>> from ringfence import Clamp
    >>> charged_sensitivity(Clamp(0.5), 100, 100, secure=False)
    Sensitivity(each=0.5)
    """
    if not secure:
        return Sensitivity.of(clip.sensitivity)
    return secure_sensitivity(clip.sensitivity, examples, public_size, _SPREAD)


def data_digest(*data: Tensor) -> bytes:
    """Returns the SHA-256 of tensors: their dtypes, their shapes and their numbers.

    >>> data_digest(torch.zeros(2)) == data_digest(torch.zeros(2, 1))
    False
    """
    total = hashlib.sha256()
    for values in data:
        total.update(repr((values.dtype, tuple(values.shape))).encode())
        total.update(values.detach().cpu().contiguous().numpy().data)
    return total.digest()


def run_noise(
    seed: int | None, data: bytes, mechanism: Mechanism, clip: Clip, numbers: tuple[float, ...]
) -> Noise:
    """Returns the noise of one run, which no run with other settings, other data or another seed has.

    A seed that is used twice would otherwise put the same noise on two different sums, and the
    difference of the two releases would be free of noise.

    >>> from ringfence import Clamp, Gaussian
    >>> words = [run_noise(7, b"data", Gaussian(1.0), Clamp(c), (1.0, 3)).at(0).word() for c in (0.1, 0.2)]
    >>> words[0] == words[1]
    False
    """
    setting = (
        repr(mechanism.state_dict()),
        repr((type(clip).__qualname__, vars(clip))),
        *(repr(float(number)) for number in numbers),
    )
    return Noise(seed).of("linear", *setting, data)


def checked_examples(features: Real, labels: Real, classes: int) -> tuple[Tensor, Tensor]:
    """Returns features (n, p), finite, and labels (n,) in 0 .. classes - 1; anything else is refused.

    >>> checked_examples([[1.0], [2.0]], [0, 1], classes=2)[1]
    tensor([0, 1])
    """
    features = checks.finite("features", features)
    checks.count("classes", classes, at_least=1, at_most=10**6)
    if features.dim() != 2 or not features.numel():
        raise ValueError(f"features must have shape (n, p) and not be empty, got {list(features.shape)}")
    if classes > 1:
        return features, checked_labels(labels, len(features), classes)
    labels = checks.finite("labels", labels).to(features)
    if labels.shape != features.shape[:1]:
        raise ValueError(f"labels must be {len(features)} numbers, got shape {list(labels.shape)}")
    return features, labels


def checked_labels(labels: Real, count: int, classes: int) -> Tensor:
    """Returns ``count`` labels in 0 .. classes - 1 as int64; anything else is refused.

    >>> checked_labels(torch.tensor([0, 2]), 2, classes=2)
    Traceback (most recent call last):
    ValueError: labels must be integers in 0 .. 1, got 2.0 at index [1]
    """
    numbers = checks.finite("labels", labels)
    if numbers.shape != (count,):
        raise ValueError(f"labels must be {count} numbers, got shape {list(numbers.shape)}")
    inside = (numbers % 1 == 0) & (numbers >= 0) & (numbers < classes)
    return checks.require("labels", f"must be integers in 0 .. {classes - 1}", numbers, inside).long()


def residuals(weights: Tensor, features: Tensor, labels: Tensor) -> Tensor:
    """Returns softmax(W x) - e_y, (n, classes), or W x - y, (n, 1): the gradient of the loss by the scores.

    >>> residuals(torch.zeros(2, 1), torch.ones(1, 1), torch.tensor([0])).tolist()
    [[-0.5, 0.5]]
    """
    if labels.is_floating_point():
        return features @ weights.T - labels[:, None].to(features.dtype)
    result = torch.softmax(features @ weights.T, dim=1)
    result[torch.arange(len(labels), device=labels.device), labels] -= 1
    return result


def accurate_residuals(shares: Tensor, others: Tensor, labels: Tensor) -> Tensor:
    """Returns ``residuals`` without the cancellation of s_y - 1: each has the relative error of a share.

    ``shares`` and ``others`` are those of ``shares_and_others``.
    """
    return shares.scatter(1, labels[:, None], -others.gather(1, labels[:, None]))


def shares_and_others(weights: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
    """Returns softmax(W x), and 1 minus it without cancellation: the sum of the other classes' shares.

    >>> shares, others = shares_and_others(torch.zeros(4, 1), torch.ones(1, 1))
    >>> shares[0].tolist(), others[0].tolist()
    ([0.25, 0.25, 0.25, 0.25], [0.75, 0.75, 0.75, 0.75])
    """
    shares = torch.softmax(features @ weights.T, dim=1)
    return shares, shares @ (1 - torch.eye(len(weights), dtype=shares.dtype, device=shares.device))


def relative_error(weights: Tensor, lengths: Tensor) -> Tensor:
    """Returns upper bounds of the relative error of accurate residuals, for examples with |x| = ``lengths``.

    They hold in float64, in any order of the sums. The absolute error of the scores becomes a relative
    one by exp, and a few roundings are added; exp is taken to be accurate to 4 units in the last place.
    """
    classes, width = weights.shape
    reach = torch.linalg.vector_norm(weights, dim=1).amax() * lengths
    return torch.expm1(2 * gamma(width + 8) * reach) + gamma(width + 4 * classes + 64)


def clipped_gradients(weights: Tensor, features: Tensor, labels: Tensor, clip: Clip) -> Iterator[Tensor]:
    """Yields every example's clipped gradient, flattened, some examples at a time.

    >>> from ringfence import Clamp
    >>> batches = clipped_gradients(torch.zeros(2, 1), torch.ones(3, 1), torch.tensor([0, 1, 1]), Clamp(0.25))
    >>> torch.cat(list(batches)).tolist()
    [[-0.25, 0.25], [0.25, -0.25], [0.25, -0.25]]
    """
    length = at_once(_CHUNK_ENTRIES, each=weights.numel())
    for some, theirs in zip(features.split(length), labels.split(length), strict=True):
        outer = residuals(weights, some, theirs).unsqueeze(2) * some.unsqueeze(1)
        yield clip(outer).flatten(1)
