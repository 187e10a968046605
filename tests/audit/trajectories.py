"""The optimal distinguisher of a whole training run: likelihood ratios summed over its steps."""

from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from experiments.linear_grid import train_linear_grid
from ringfence import checks
from ringfence.accounting.conversion import ex_post_epsilon
from ringfence.auditing.bounds import rate_at_least
from ringfence.mechanisms.base import Mechanism
from ringfence.training.clipping import Clip
from ringfence.training.linear import LinearRun, LinearSettings
from tests.audit.lower_bound import epsilon_lower_bound
from tests.audit.result import AuditResult

Data = tuple[Tensor, Tensor]  # features (n, p) in float64, labels (n,)

_ROUNDING = 1e-9  # of a release that is recovered from two weights


def audit_training(
    data: Data,
    record: Data,
    classes: int,
    *,
    mechanism: Mechanism,
    clip: Clip,
    learning_rate: float,
    steps: int,
    public_size: float,
    delta: float,
    runs: int,
    seed: int,
    confidence: float = 0.99,
) -> AuditResult:
    """Trains ``runs`` linear models on the data and as many on the data with ``record``; tells them apart.

    An attacker who sees every release knows the weights at every step, hence theta with and without the
    record, and adds up log p/q over the steps.

    Two claims are put to the test: the data-independent epsilon, by how well the two are told apart;
    and the ex-post one of every single run, by how often the realised loss is above it.
    """
    checks.count("runs", runs, at_least=2)
    base = (data, (torch.cat((data[0], record[0])), torch.cat((data[1], record[1]))))
    losses, exceeding, claim = [], 0, 0.0
    for side, (features, labels) in enumerate(base):
        seeds = range(seed + side * runs, seed + (side + 1) * runs)
        settings = [LinearSettings(mechanism, clip, learning_rate, steps, seed=one) for one in seeds]
        trained = train_linear_grid(
            features, labels, classes, settings, public_size=public_size, trajectories=True
        )
        loss = _losses(trained, data, record, mechanism, clip, public_size / learning_rate)
        accounts = [run.account for run in trained]
        bounds = [float(ex_post_epsilon(account.orders, account.worst, delta)) for account in accounts]
        realised = -loss if side else loss
        exceeding += sum(a > b for a, b in zip(realised.tolist(), bounds, strict=True))
        claim = accounts[0].guarantee(delta).epsilon
        losses.append(loss)
    without, present = losses
    # half of the probability of failure for the distinguisher, half for the ex-post claim
    share = (1 - checks.probability("confidence", confidence)) / 2
    bound = epsilon_lower_bound(without, present, delta, 1 - share)
    return AuditResult(
        name=f"{mechanism!r}, {steps} steps of a linear model with {classes * data[0].shape[1]} weights",
        delta=delta,
        confidence=confidence,
        trials=runs,
        epsilon_lower=bound,
        claims={"data-independent": claim},
        exceeded=float(rate_at_least(exceeding, 2 * runs, share)),
    )


def _losses(
    trained: list[LinearRun], data: Data, record: Data, mechanism: Mechanism, clip: Clip, divisor: float
) -> Tensor:
    """log of the likelihood without the record over the likelihood with it, for each run."""
    # the attacker knows the releases, which give all weights, and not the sums that the run had
    weights = torch.stack(
        [torch.stack([*(step.weights for step in run.trajectory), run.weights]) for run in trained], dim=1
    )
    total = torch.zeros(len(trained), dtype=torch.float64)
    for before, after in pairwise(weights):
        released = _snapped(mechanism, (before - after) * divisor)
        theta, moved = (_sums(before, some, clip) for some in (data, record))
        ratio = mechanism.log_prob(released, theta) - mechanism.log_prob(released, theta + moved)
        total += ratio.flatten(1).sum(dim=1)
    return total


def _sums(weights: Tensor, some: Data, clip: Clip) -> Tensor:
    """theta at the weights of every run, of shape (runs, classes, features)."""
    features, labels = some
    errors = torch.softmax(torch.einsum("np,rkp->rnk", features, weights), dim=2)
    errors = errors - one_hot(labels, errors.shape[2])
    gradients = errors.unsqueeze(3) * features.unsqueeze(1)
    return clip(gradients.flatten(0, 1)).view_as(gradients).sum(dim=1)


def _snapped(mechanism: Mechanism, released: Tensor) -> Tensor:
    """Moves the releases onto the support: differences of weights are off by rounding, atoms are points."""
    support = mechanism.support
    if support.interval is not None:
        lower, upper = support.interval
        released = torch.minimum(torch.maximum(released, lower), upper)
    for atom in support.atoms:
        near = (released - atom).abs() <= _ROUNDING * atom.abs().clamp(min=1)
        released = torch.where(near, atom.to(released), released)
    return released
