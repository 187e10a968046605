"""Private full-batch gradient descent for softmax regression (Algorithm 1), with torch alone."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.per_instance import PerInstanceAccountant
from ringfence.accounting.sensitivity import Sensitivity
from ringfence.checks import Real
from ringfence.mechanisms.base import Mechanism, checked_mechanism
from ringfence.noise import side_by_side
from ringfence.training.clipping import Clip
from ringfence.training.linear.example_weights import ExampleWeights
from ringfence.training.linear.examples import checked_examples
from ringfence.training.linear.residuals import (
    accurate_residuals,
    relative_error,
    residuals,
    shares_and_others,
)
from ringfence.training.linear.run_noise import data_digest, run_noise
from ringfence.training.secure_run import largest_count, stretched

MOST_STEPS = 10**6  # more would not end: every step looks at every example
_SPREAD = 2.0**-32  # how far, relative to the clip, rounding may move one gradient in a secure run


@dataclass(frozen=True)
class Step:
    """The weights before a step, and the clipped sum that the mechanism was applied to: both private.

    >>> Step(torch.zeros(2, 3), torch.ones(2, 3)).theta.shape
    torch.Size([2, 3])
    """

    weights: Tensor
    theta: Tensor


@dataclass(frozen=True)
class Descent:
    """Steps that were released, and what is needed to account for them when somebody asks."""

    weights: Tensor  # (classes, features)
    trajectory: tuple[Step, ...]
    mechanism: Mechanism
    sensitivity: Sensitivity

    def charge(self, account: PerInstanceAccountant) -> None:
        """Charges every step to the account."""
        for step in self.trajectory:
            account.step(step.theta, mechanism=self.mechanism, sensitivity=self.sensitivity)

    def charged(self) -> "LinearRun":
        """The same steps with their account."""
        account = PerInstanceAccountant(self.mechanism, self.sensitivity)
        self.charge(account)
        return LinearRun(self.weights, account, self.trajectory)


@dataclass(frozen=True)
class LinearRun:
    """The result of training: the weights, which were released, their account, and the private steps.

    >>> import ringfence as rf
    >>> run = rf.train_linear(torch.ones(8, 3), torch.tensor([0, 1] * 4), 2, mechanism=rf.Gaussian(1.0),
    ...     clip=rf.Clamp(0.1), learning_rate=1.0, steps=2, public_size=8, seed=0)
    >>> run.weights.shape, run.account.steps, len(run.trajectory)
    (torch.Size([2, 3]), 2, 2)
    """

    weights: Tensor  # (classes, features)
    account: PerInstanceAccountant
    trajectory: tuple[Step, ...]


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
) -> LinearRun:
    """Takes ``steps`` steps from zero weights on features (n, p) and labels (n,) in 0 .. classes - 1.

    Each example's gradient is clipped, the mechanism is applied to the sum of the clipped gradients, and
    the weights move by learning_rate / public_size times what was released (with momentum, times a
    running sum of what was released).

    ``seed``: None takes fresh noise. An integer repeats the run. Its noise belongs to the seed, to all the
    settings and to the data, so that runs that differ in any of them share no noise (``run_noise``).

    ``secure``: releases are those of ``Mechanism.release``, with fresh randomness and no seed, and
    everything is computed in float64. Their rounding is charged as a larger
    sensitivity (``secure_run``); their finite randomness is not in the account, see ``secure_guarantee``.

    Guarantee: features and labels influence the weights through the mechanism only, and every release is
    charged to the account before the weights are handed out.

    >>> from ringfence import Clamp, Gaussian
    >>> features, labels = torch.tensor([[1.0], [-1.0]] * 50), torch.tensor([1, 0] * 50)
    >>> run = train_linear(features, labels, 2, mechanism=Gaussian(1.0), clip=Clamp(1.0), learning_rate=1.0,
    ...     steps=3, public_size=100, seed=0)
    >>> run.account.steps, bool(run.weights[1] > run.weights[0])
    (3, True)
    """
    return descend(
        features,
        labels,
        classes,
        mechanism=mechanism,
        clip=clip,
        learning_rate=learning_rate,
        steps=steps,
        public_size=public_size,
        seed=seed,
        momentum=momentum,
        secure=secure,
    ).charged()


def descend(
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
    example_weights: ExampleWeights | None = None,
) -> Descent:
    """``train_linear`` without its account, which ``Descent.charge`` makes later.

    The number of releases is fixed beforehand, and so is what they cost for every dataset, so that nothing
    depends on when the account is made. ``example_weights`` multiply clipped gradients: a record is then
    charged with the clip times their public bound, and the noise of a seed belongs to the weights too.

    >>> from ringfence import Clamp, Gaussian
    >>> run = descend(torch.ones(8, 3), torch.tensor([0, 1] * 4), 2, mechanism=Gaussian(1.0),
    ...     clip=Clamp(0.1), learning_rate=1.0, steps=2, public_size=8, seed=0)
    >>> len(run.trajectory), run.sensitivity
    (2, Sensitivity(each=0.1))
    """
    features, labels = checked_examples(features, labels, classes)
    steps = checks.count("steps", steps, at_least=1, at_most=MOST_STEPS)
    rate = checks.number("learning_rate", learning_rate, checks.positive)
    size = checks.number("public_size", public_size, checks.positive)
    momentum = checks.number("momentum", momentum, checks.not_negative)
    if momentum >= 1:
        raise ValueError(f"momentum must be in [0, 1), got {momentum!r}")
    checked_mechanism(mechanism)
    checks.instance("clip", clip, Clip)
    weights = features.new_zeros(classes, features.shape[1])
    shape = mechanism.fisher_information(weights).shape
    if shape != weights.shape:
        raise ValueError(
            f"mechanism must fit weights of shape {list(weights.shape)}, its own is {list(shape)}"
        )

    if checks.flag("secure", secure) and seed is not None:
        raise ValueError(f"seed must be None, got {seed!r}: secure releases have no seed")
    if secure and example_weights is not None:
        raise ValueError("example_weights must be None in a secure run, which does not charge their rounding")
    own = () if example_weights is None else (example_weights.values,)
    data = b"" if seed is None else data_digest(features, labels, *own)
    noise = run_noise(seed, data, mechanism, clip, (rate, steps, size, momentum, classes))

    sensitivity = charged_sensitivity(clip, len(features), size, secure=secure)
    if example_weights is not None:
        sensitivity = sensitivity.times(example_weights.largest)
    if secure:
        features, weights = features.double(), weights.double()
        longest = torch.linalg.vector_norm(features, dim=1).amax()
    velocity = torch.zeros_like(weights)
    trajectory = []
    reach = float(torch.linalg.vector_norm(features, 1, dim=1).max())  # the largest score, were all weights 1
    for step in range(steps):
        if secure:
            _require_digits(weights, longest)
            accurate = accurate_residuals(*shares_and_others(weights, features), labels)
            theta = clip.outer_sum(accurate, features)
        elif example_weights is not None:
            theta = example_weights.outer_sum(clip, residuals(weights, features, labels), features)
        else:
            theta = clip.outer_sum(residuals(weights, features, labels), features)
        if secure:
            released = mechanism.release(theta)
        else:
            released = mechanism.sample(theta, generator=side_by_side([noise], step, device=theta.device))
        trajectory.append(Step(weights, theta))
        velocity = momentum * velocity + released
        weights = weights - rate / size * velocity
        if not float(weights.abs().max()) * reach < torch.finfo(weights.dtype).max:
            raise ValueError(
                f"learning_rate must be smaller, got {rate!r}: scores overflow after {step + 1} steps"
            )
    return Descent(weights, tuple(trajectory), mechanism, sensitivity)


def charged_sensitivity(clip: Clip, examples: int, public_size: float, *, secure: bool) -> Sensitivity:
    """What one example is charged with in every step: the clip, and in a secure run the rounding of sums.

    >>> from ringfence import Clamp
    >>> charged_sensitivity(Clamp(0.5), 100, 100, secure=False)
    Sensitivity(each=0.5)
    """
    if not secure:
        return Sensitivity.of(clip.sensitivity)
    return stretched(clip.sensitivity, largest_count(examples, public_size), _SPREAD)


def _require_digits(weights: Tensor, longest: Tensor) -> None:
    # A clipped product has the relative error of its residual. Where it is scaled down it has twice that, and
    # the roundings of lengths, which are fewer than those of a score.
    if not float(3 * relative_error(weights, longest)) <= _SPREAD:
        raise ValueError(
            "features and weights must be smaller in a secure run: rounding moves single gradients by "
            "more than is charged for"
        )
