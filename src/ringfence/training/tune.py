"""Private choice of settings: the best of a random number of private runs, at one epsilon for all of them.

An epsilon of training, that of a single ``LinearProbe`` included, leaves out what it cost to choose the
settings by looking at the data. Here the choice is charged (``accounting/selection.py``).
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count, product
from typing import Any

import numpy as np
import torch

from ringfence import checks
from ringfence.accounting.conversion import gaussian_delta, gaussian_epsilon
from ringfence.accounting.selection import checked_runs, selection_epsilon
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.noise import Noise
from ringfence.numerics.rounding import rounded_up
from ringfence.training.clipping import Clamp, Clip, Norm
from ringfence.training.linear import LinearSettings
from ringfence.training.probe import LinearProbe, plain, seed_of
from ringfence.training.target import Target

_TUNED = ("clip", "learning_rate", "steps", "momentum")
_CHOSEN = {"mechanism", "target_epsilon", "target_delta", "random_state", "secure"}  # here, and by no caller
_VALID: dict[str, Any] = {"clip": Norm(1.0), "learning_rate": 1.0, "steps": 1}
_ROOM = 1 - 1e-6  # of mu: a probe's own epsilon is rounded
_MOST_SETTINGS = 10**6


@dataclass(frozen=True)
class TuningPlan:
    """The cost of every run, found before there is data.

    A run is mu-GDP. Training is ``training_mu``-GDP, whatever its setting, and the count of right answers has
    noise of the standard deviation ``score_sigma``, so that mu^2 = training_mu^2 + 1 / score_sigma^2.
    ``run_target`` is an (epsilon, delta) that Gaussian releases meet only if they are training_mu-GDP.
    ``epsilon`` is what all of it costs.
    """

    expected_runs: float
    mu: float
    training_mu: float
    score_sigma: float
    run_target: Target
    epsilon: float

    @classmethod
    def for_target(cls, target: Target, expected_runs: float, score_share: float) -> "TuningPlan":
        """Returns the plan with the largest mu whose cost, with that of choosing, is not over the target.

        Guarantee: the cost at this mu was computed and is not over the target.

        >>> plan = TuningPlan.for_target(Target(1.0, 1e-5), expected_runs=10, score_share=0.1)
        >>> round(plan.mu, 3), round(plan.training_mu, 3), round(plan.score_sigma, 1)
        (0.169, 0.16, 18.7)
        """
        runs, share = checked_runs(expected_runs), checks.probability("score_share", score_share)

        def cost(sigma: float) -> float:
            return selection_epsilon(1 / sigma, runs, target.delta)

        sigma = target.sigma(cost, start=2 / target.mu)
        training_mu = math.sqrt(1 - share) / sigma
        asked = training_mu * _ROOM
        delta = gaussian_delta(asked, asked * (asked / 2 + 1))
        run_target = Target(gaussian_epsilon(asked, delta), delta)
        return cls(runs, 1 / sigma, training_mu, sigma / math.sqrt(share), run_target, cost(sigma))


@dataclass(frozen=True)
class Tuned:
    """The result of tuning: the best probe, its setting and its score. All of it may be published.

    ``probe`` is a fitted ``LinearProbe`` without an account: what one run cost is not what choosing it cost.
    ``setting`` is what the grid gave it. ``right`` is the noisy count of training rows that it gets right; it
    is too high on average, because the probe was chosen by it. ``epsilon`` and ``delta`` are of all of it.
    How many runs there were is not here, nor anything about the others: that must stay secret.

    >>> from sklearn.datasets import load_iris
    >>> tuned = tune(*load_iris(return_X_y=True), {"steps": [4, 8]}, target_epsilon=8.0, target_delta=1e-3,
    ...     expected_runs=2)
    >>> sorted(tuned.setting), tuned.epsilon <= 8.0
    (['steps'], True)
    """

    probe: LinearProbe
    setting: dict[str, Any]
    right: int
    epsilon: float
    delta: float
    plan: TuningPlan
    settings: int  # in the grid
    assumptions: tuple[str, ...]

    @property
    def statement(self) -> str:
        """The promise in plain English, what was charged, and what must stay secret."""
        plan = self.plan
        promised = (
            "Differential privacy, every dataset: the chosen probe, its setting and its score together "
            f"satisfy ({rounded_up(self.epsilon)}, {self.delta:.3g})-differential privacy for every dataset "
            "and every single record added or removed. This number does not depend on the data and may be "
            "published."
        )
        charged = (
            "What was charged: all runs, also those that were not chosen, and their scores. There was a "
            f"random number of them, {plan.expected_runs:g} on average. Each was trained with a setting that "
            f"was drawn from {self.settings}, and is {rounded_up(plan.mu)}-GDP with its score, which is the "
            "number of training rows that it gets right plus noise of the standard deviation "
            f"{plan.score_sigma:.4g}."
        )
        secret = (
            "What must stay secret: how many runs there were, how long they took, and everything about those "
            "that were not chosen. The grid, the average number of runs and the target must not have been "
            "chosen by looking at the data. The score is the highest of several noisy ones and is too high "
            "on average."
        )
        assumed = ("Assumed: " + " ".join(self.assumptions),) if self.assumptions else ()
        return "\n\n".join((promised, charged, secret, *assumed))


def tune(
    features: Any,
    labels: Any,
    grid: Mapping[str, Any],
    *,
    target_epsilon: float,
    target_delta: float,
    expected_runs: float = 10.0,
    score_share: float = 0.1,
    random_state: Any = None,
    **options: Any,
) -> Tuned:
    """Trains linear probes with settings drawn from a grid, and keeps the one with the best private score.

    After every run it is decided by chance whether there is another one: their number is geometric with the
    mean ``expected_runs``. Each run draws one of the settings, which are all combinations of the lists in
    ``grid`` ("clip", "learning_rate", "steps", "momentum"), trains a ``LinearProbe`` with Gaussian noise, and
    is scored by the number of training rows that it gets right, plus Gaussian noise, rounded. ``score_share``
    of the mu^2 of a run is spent on that noise. Of equal scores the earlier one is kept. ``options`` are
    other arguments of ``LinearProbe``, the same for all runs; what is given nowhere follows from its rule.

    Guarantee: the chosen probe with its setting and its score is (target_epsilon, target_delta)-
    differentially private for every dataset and every record added or removed, as long as the number of runs
    and all else about the others stays secret; how long it took is a hint at that number. ``grid`` and all
    other arguments must be public. What ``LinearProbe`` says of its arguments holds here too.

    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(0, 2, 500)
    >>> features = rng.normal(size=(500, 4)) + 2 * labels[:, None]
    >>> grid = {"learning_rate": [0.01, 10.0, 100.0], "steps": [8, 32]}
    >>> tuned = tune(features, labels, grid, target_epsilon=3.0, target_delta=1e-3, public_center=1.0,
    ...     expected_runs=4, random_state=0)
    >>> bool(tuned.probe.score(features, labels) > 0.9), tuned.epsilon <= 3.0
    (True, True)
    """
    settings, known = tuning_settings(grid), LinearProbe().get_params().keys() - _CHOSEN
    for name in options:
        if name in grid:
            raise ValueError(f"{name} must be given once, got it in grid and beside it")
        if name not in known:
            raise TypeError(f"tune has no argument {name!r}; known are {', '.join(sorted(known))}")
    target = Target.asked(target_epsilon, target_delta)
    if target is None:
        raise ValueError("target_epsilon must be given, got None")
    plan = TuningPlan.for_target(target, expected_runs, score_share)
    noise = Noise(seed_of(random_state))

    def runs() -> Iterator[tuple[int, LinearProbe, dict[str, Any]]]:
        for run in count():
            own = noise.of("run", run)
            setting = settings[int(len(settings) * float(own.at("setting").uniforms((1,))))]
            probe = _trained(features, labels, {**options, **setting}, plan.run_target, own)
            yield _scored(probe, features, labels, plan.score_sigma, own), probe, setting
            if float(own.at("stop").uniforms((1,))) < 1 / plan.expected_runs:
                return

    right, probe, setting = max(runs(), key=lambda run: run[0])  # of equal ones the first
    # The account or the target of one run would be taken for the cost of all of them.
    probe._training = None
    probe.set_params(target_epsilon=target.epsilon, target_delta=target.delta, random_state=None)
    return Tuned(
        *(probe, setting, right, plan.epsilon, target.delta, plan, len(settings), probe.assumptions_)
    )


def _trained(
    features: Any, labels: Any, arguments: dict[str, Any], target: Target, noise: Noise
) -> LinearProbe:
    """Trains one probe with noise of its own: two runs with the same setting must not share it."""
    words = noise.at("training").words(4).numpy().view(np.uint32)
    seed = np.random.RandomState(words) if noise.seeded else None
    probe = LinearProbe(
        "gaussian", target_epsilon=target.epsilon, target_delta=target.delta, random_state=seed, **arguments
    )
    return probe.fit(features, labels)


def _scored(probe: LinearProbe, features: Any, labels: Any, sigma: float, noise: Noise) -> int:
    """Returns the number of rows that the probe gets right, with noise; one record moves it by at most 1.

    The noise belongs to the weights, which no other data gives: one seed never covers two counts.
    """
    answers = np.asarray(plain(labels)).reshape(-1)
    right = float(np.count_nonzero(probe.predict(plain(features)) == answers))
    place = noise.digest(torch.from_numpy(np.ascontiguousarray(probe.coef_)))
    return round(right + sigma * float(noise.at("score", place).normals((1,))))


def tuning_settings(grid: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns every combination of the lists, as arguments of ``LinearProbe``.

    >>> tuning_settings({"steps": [8, 32], "momentum": [0.5]})
    [{'steps': 8, 'momentum': 0.5}, {'steps': 32, 'momentum': 0.5}]
    >>> tuning_settings({"sigma": [1.0]})
    Traceback (most recent call last):
    ValueError: grid must hold lists of clip, learning_rate, steps, momentum, got 'sigma'
    """
    if not isinstance(grid, Mapping) or not grid:
        raise ValueError(f"grid must be a dict of lists, got {grid!r}")
    for name, values in grid.items():
        if name not in _TUNED:
            raise ValueError(f"grid must hold lists of {', '.join(_TUNED)}, got {name!r}")
        if not isinstance(values, list | tuple) or not values:
            raise ValueError(f"grid[{name!r}] must be a list that is not empty, got {values!r}")
        for value in values:  # before anything is released: which settings will be drawn is left to chance
            if value is not None:
                own = Clamp(value) if name == "clip" and not isinstance(value, Clip) else value
                LinearSettings(Gaussian(1.0), **{**_VALID, name: own})
    if (number := math.prod(map(len, grid.values()))) > _MOST_SETTINGS:
        raise ValueError(f"grid must have at most {_MOST_SETTINGS} combinations, got {number}")
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
