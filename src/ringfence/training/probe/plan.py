"""How a probe will be trained: the settings it was given, and those that follow from its target."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator

from ringfence import checks
from ringfence.accounting.claim.guarantee import Guarantee
from ringfence.accounting.costs.finite_randomness import secure_guarantee
from ringfence.accounting.per_instance import PerInstanceAccountant
from ringfence.accounting.sensitivity import Sensitivity
from ringfence.mechanisms.base import Mechanism
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.training.clipping import Clamp, Clip
from ringfence.training.linear.regression import charged_sensitivity
from ringfence.training.linear.settings import LinearSettings
from ringfence.training.probe import private_mean
from ringfence.training.probe.default_settings import default_settings
from ringfence.training.probe.input import ProbeData, seed_of
from ringfence.training.secure_run import NEEDS_SIZE
from ringfence.training.target import Target, beginning

NO_WEIGHTS = (
    "sample_weight and class_weight must be None where secure is True: the rounding of weighted sums is not "
    "charged"
)
# What a probe without a target takes where a setting is not given.
_CLIP, _RATE, _STEPS, _MOMENTUM = 1e-3, 1.0, 10, 0.0


@dataclass(frozen=True)
class ProbePlan:
    """The settings of a run, and the law of the private mean that is released before it, if any."""

    settings: LinearSettings
    mean: Gaussian | None = None


def is_secure(probe: BaseEstimator) -> bool:
    """Whether the probe's releases are secure; refuses settings that do not go together with that."""
    if checks.flag("secure", probe.secure) and probe.random_state is not None:
        raise ValueError(
            f"random_state must be None, got {probe.random_state!r}: secure releases have no seed"
        )
    if probe.secure and probe.public_size is None:
        raise ValueError(NEEDS_SIZE)
    return bool(probe.secure)


def planned(probe: BaseEstimator, data: ProbeData, *, secure: bool) -> ProbePlan:
    """The settings of a probe on data of this shape.

    Guarantee: of the data only the number of examples (where ``public_size`` is None) and the numbers of
    features and classes count.
    """
    if secure and data.weights is not None:
        raise ValueError(NO_WEIGHTS)
    seed = None if secure else seed_of(probe.random_state)
    target = Target.asked(probe.target_epsilon, probe.target_delta)
    if target is not None:
        return _for_target(probe, data, target, seed, secure)
    if probe.mechanism is None or isinstance(probe.mechanism, str):
        raise ValueError(
            f"target_epsilon must be given where mechanism is {probe.mechanism!r}, which has no sigma, "
            "got None"
        )
    return ProbePlan(
        LinearSettings(
            probe.mechanism,
            _clip(_given(probe.clip, _CLIP)),
            _given(probe.learning_rate, _RATE),
            _given(probe.steps, _STEPS),
            seed,
            _given(probe.momentum, _MOMENTUM),
        )
    )


def planned_account(
    data: ProbeData, plan: ProbePlan, public_size: float, *, secure: bool
) -> PerInstanceAccountant:
    """The account of every release of a plan, with what holds for every dataset, before any is made.

    Guarantee: of the data only what ``planned`` looks at counts.
    """
    settings, examples = plan.settings, len(data.features)
    moves = charged_sensitivity(settings.clip, examples, public_size, secure=secure)
    account = PerInstanceAccountant(settings.mechanism, moves.times(_largest_weight(data)))
    if plan.mean is not None:
        mean_moves = charged_sensitivity(private_mean.CLIP, examples, public_size, secure=secure)
        account.step_of_any(torch.zeros(data.width), mechanism=plan.mean, sensitivity=mean_moves)
    weights = torch.zeros(()).expand(len(data.classes), data.features.shape[1])
    account.step_of_any(weights, count=settings.steps)
    return account


def _largest_weight(data: ProbeData) -> float:
    return 1.0 if data.weights is None else data.weights.largest


def _for_target(
    probe: BaseEstimator, data: ProbeData, target: Target, seed: int | None, secure: bool
) -> ProbePlan:
    """First the rule, then the noise, then the learning rate, which depends on how much noise there is."""
    size, mu = public_size(probe, data), target.mu
    weights = torch.zeros(()).expand(len(data.classes), data.features.shape[1])
    rule = default_settings(
        *(mu, size, data.width, len(data.classes)),
        centred=probe.public_projection is not None or bool(np.any(np.asarray(probe.public_center) != 0)),
        unit_rows=data.lengths is not None,
    )
    given = LinearSettings(  # checked before anything is made of them
        beginning(probe.mechanism),
        _clip(_given(probe.clip, rule.clip)),
        _given(probe.learning_rate, _RATE),
        _given(probe.steps, rule.steps),
        seed,
        _given(probe.momentum, rule.momentum),
    )
    steps, momentum = given.steps, given.momentum
    mean = Gaussian(1 / (rule.share**0.5 * mu)) if rule.share > 0 else None

    def claim(law: Mechanism, delta: float) -> Guarantee:
        plan = ProbePlan(replace(given, mechanism=law), mean)
        account = planned_account(data, plan, size, secure=secure)
        return secure_guarantee(account.guarantee, account.steps * weights.numel() * secure, delta)

    law = target.law(given.mechanism, claim)
    length = Sensitivity.of(given.clip.sensitivity).longest_square(torch.ones(()), weights.shape) ** 0.5
    length *= _largest_weight(data)
    rate = _given(probe.learning_rate, rule.movement * (1 - momentum) / (steps * length))
    return ProbePlan(replace(given, mechanism=law, learning_rate=rate), mean)


def public_size(probe: BaseEstimator, data: ProbeData) -> float:
    """What the sum of gradients is divided by: ``public_size``, or else the number of examples."""
    if probe.public_size is None:
        return len(data.features)
    return checks.number("public_size", probe.public_size, checks.positive)


def _given(value: Any, default: Any) -> Any:
    return default if value is None else value


def _clip(value: float | Clip) -> Clip:
    """A number c stands for ``Clamp(c)``."""
    return value if isinstance(value, Clip) else Clamp(value)
