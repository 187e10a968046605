"""Many inserted examples in one training run (Steinke, Nasr and Jagielski 2023, arXiv 2305.08846).

Each canary is in the training data with probability 1/2, by its own coin. The attacker sees the trained
model and guesses as many coins as it likes. Too many right guesses refute (epsilon, delta).
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from ringfence import checks
from ringfence.audit.lower_bound import AuditResult
from ringfence.training.clipping import Clip
from ringfence.training.engine.engine import PrivacyEngine
from ringfence.training.linear import clipped_gradients

if TYPE_CHECKING:
    from ringfence.training.probe import LinearProbe

_LARGEST = 64.0  # no larger epsilon is searched for
_BISECTIONS = 50


@dataclass(frozen=True)
class Canaries:
    """Examples that nobody else has: random signs as features, a random label, and their coins."""

    features: Tensor  # (m, p)
    labels: Tensor
    included: Tensor  # (m,) of bool

    @classmethod
    def random(cls, count: int, width: int, classes: int, scale: float, generator: torch.Generator) -> Self:
        """``count`` canaries, each feature of which is +-scale.

        >>> canaries = Canaries.random(100, 8, 3, 5.0, torch.Generator().manual_seed(0))
        >>> canaries.features.abs().unique().tolist(), 30 < int(canaries.included.sum()) < 70
        ([5.0], True)
        """
        signs = 2 * torch.randint(2, (count, width), generator=generator) - 1
        labels = torch.randint(classes, (count,), generator=generator)
        included = torch.randint(2, (count,), generator=generator).bool()
        return cls(scale * signs.float(), labels, included)

    def inserted(self, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The data, and after them the canaries whose coin says that they are in."""
        return (
            torch.cat((features, self.features[self.included])),
            torch.cat((labels, self.labels[self.included])),
        )

    def right_guesses(self, scores: Tensor, guesses: int) -> int:
        """How many guesses are right: in for the highest scores, out for the lowest, none in between."""
        if not 2 <= guesses <= len(scores):
            raise ValueError(f"guesses must be from 2 to the {len(scores)} canaries, got {guesses}")
        ranked = self.included[scores.argsort()]
        low, high = guesses // 2, guesses - guesses // 2
        return int((~ranked[:low]).sum() + ranked[-high:].sum())


def one_run_p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Upper bound of the probability of at least ``right`` right guesses if training is (epsilon, delta)-DP.

    Theorem 5.2 (Corollary 5.4) of Steinke, Nasr and Jagielski: with W binomial of ``guesses`` trials
    with chance e^eps / (1 + e^eps) each, v right guesses and m canaries,

        P(W >= v) + 2 m delta max_{i = 1 .. v} P(v > W >= v - i) / i.

    >>> round(one_run_p_value(1000, 100, 75, 0.673, 1e-4), 3)  # their example, page 46
    0.05
    """
    from scipy.stats import binom  # type: ignore[import-untyped]

    if not 0 <= right <= guesses <= canaries:
        raise ValueError(
            f"right, guesses and canaries must not fall, got {right!r}, {guesses!r} and {canaries!r}"
        )
    chance = 1 / (1 + math.exp(-epsilon))
    tail = float(binom.sf(right - 1, guesses, chance))
    masses = torch.from_numpy(binom.pmf(range(right), guesses, chance)).double().flip(0)
    steps = torch.arange(1, right + 1, dtype=torch.float64)
    worst = float((masses.cumsum(0) / steps).max()) if right else 0.0
    return min(1.0, tail + 2 * canaries * delta * worst)


def one_run_epsilon(canaries: int, guesses: int, right: int, delta: float, confidence: float) -> float:
    """A confidence lower bound of epsilon, given delta, after ``right`` right guesses.

    Guarantee: above the true epsilon with probability at most 1 - ``confidence``, if the number of
    guesses was fixed in advance. (epsilon, delta) implies the same at a larger epsilon, so the largest
    epsilon that the p-value refutes counts.

    >>> round(one_run_epsilon(1000, 100, 75, 1e-4, 0.95), 3)
    0.673
    """
    allowed = 1 - checks.probability("confidence", confidence)
    refuted, standing = 0.0, _LARGEST
    for _ in range(_BISECTIONS):
        middle = (refuted + standing) / 2
        if one_run_p_value(canaries, guesses, right, middle, delta) <= allowed:
            refuted = middle
        else:
            standing = middle
    return refuted


def audit_probe_canaries(
    probe: "LinearProbe",
    features: Tensor,
    labels: Tensor,
    canaries: Canaries,
    *,
    guesses: int,
    delta: float,
    confidence: float = 0.95,
) -> AuditResult:
    """Fits the probe once, to the data with canaries, and guesses from its weights which ones were in.

    A canary's own clipped gradient at the start asks for a step. Its score is how much of that step is in
    the weights (least squares over all canaries). ``probe`` needs public_size and public_classes, since the
    number of examples depends on the coins.
    """
    if probe.public_size is None or probe.public_classes is None:
        raise ValueError("probe must have public_size and public_classes: the canaries are not public")
    probe.fit(*canaries.inserted(features, labels))
    weights = torch.from_numpy(probe.coef_)
    start = torch.zeros_like(weights)
    steps = torch.cat(
        list(clipped_gradients(start, canaries.features.double(), canaries.labels, probe.clip_))
    )
    return _result(
        f"LinearProbe, {probe.mechanism_!r}",
        canaries,
        _scores(steps, weights.flatten()),
        guesses,
        probe.guarantee(delta).epsilon,
        delta,
        confidence,
    )


def audit_engine_canaries(
    engine: PrivacyEngine,
    model: nn.Module,
    features: Tensor,
    labels: Tensor,
    canaries: Canaries,
    *,
    learning_rate: float,
    epochs: int,
    batch_size: int,
    guesses: int,
    delta: float,
    confidence: float = 0.95,
) -> AuditResult:
    """Trains a model of any kind once with the engine, and guesses from its parameters which ones were in.

    The model is a classifier under cross entropy. The score is as for the probe, from the parameters before
    and after training. The engine needs public_size.
    """
    if engine.public_size is None:
        raise ValueError("engine must have public_size: the canaries are not public")
    parameters = [value for value in model.parameters() if value.requires_grad]
    start = torch.cat([value.detach().flatten() for value in parameters]).double()
    steps = torch.stack(
        [
            _gradient(model, parameters, engine.clip, *one)
            for one in zip(canaries.features, canaries.labels, strict=True)
        ]
    )
    loader = DataLoader(TensorDataset(*canaries.inserted(features, labels)), batch_size=batch_size)
    optimizer = torch.optim.SGD(parameters, lr=learning_rate)
    private, optimizer_private, batches = engine.make_private(model, optimizer, loader)
    for _ in range(epochs):
        for inputs, targets in batches:
            nn.functional.cross_entropy(private(inputs), targets).backward()
            optimizer_private.step()
    moved = torch.cat([value.detach().flatten() for value in parameters]).double() - start
    return _result(
        f"PrivacyEngine, {engine.mechanism!r}",
        canaries,
        _scores(steps, moved),
        guesses,
        engine.guarantee(delta).epsilon,
        delta,
        confidence,
    )


def _scores(steps: Tensor, moved: Tensor) -> Tensor:
    """How much of each canary's step is in the movement, by least squares over all their steps."""
    return torch.mv(torch.linalg.pinv(steps.T), -moved)


def _gradient(
    model: nn.Module, parameters: list[nn.Parameter], clip: Clip, inputs: Tensor, target: Tensor
) -> Tensor:
    loss = nn.functional.cross_entropy(model(inputs.unsqueeze(0)), target.unsqueeze(0))
    gradient = torch.cat([part.flatten() for part in torch.autograd.grad(loss, parameters)])
    return clip(gradient.unsqueeze(0))[0].double()


def _result(
    name: str, canaries: Canaries, scores: Tensor, guesses: int, claim: float, delta: float, confidence: float
) -> AuditResult:
    count = len(canaries.included)
    right = canaries.right_guesses(scores, guesses)
    bound = one_run_epsilon(count, guesses, right, delta, confidence)
    name = f"{name}: {right} of {guesses} guesses right, {count} canaries"
    return AuditResult(name, delta, confidence, 1, bound, {"data-independent": claim})
