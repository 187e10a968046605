"""Reconstruction of a training example from a release, against the Fisher information loss.

At its first step, from zero weights, a linear model releases M(theta) with theta the sum of
r_i x_i^T over the examples, where r_i is known from the label. An attacker who knows all examples but one
estimates its features x from that. Every feature of an unbiased estimate, and every direction u, has
variance at least 1 / eta^2 (``reconstruction_error_bound``).
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.fisher import fisher_information_loss, reconstruction_error_bound
from ringfence.mechanisms.base import Mechanism

_STEP = 0.25  # how far the example is moved to see how its estimate follows, in units of 1 / eta
_DIFFERENCE = 1e-4  # of theta, in sigma: a score is a difference quotient of log_prob


@dataclass(frozen=True)
class ReconstructionResult:
    """The measured variance of the best unbiased estimate, and the lower bound that was claimed for it."""

    name: str
    confidence: float
    trials: int
    variance: float
    variance_high: float  # an upper bound of the variance at this confidence
    claim: float

    @property
    def holds(self) -> bool:
        """Whether the claim stands: the variance is not below it, at this confidence."""
        return self.variance_high >= self.claim


def linear_jacobian(classes: int, features: int, label: int) -> Tensor:
    """d theta / d x of an example of this label at zero weights: (classes * features, features)."""
    residual = torch.full((classes,), 1 / classes, dtype=torch.float64)
    residual[label] -= 1
    return torch.kron(residual.unsqueeze(1), torch.eye(features, dtype=torch.float64))


def audit_reconstruction(
    mechanism: Mechanism,
    theta: Tensor,
    jacobian: Tensor,
    *,
    trials: int,
    generator: torch.Generator,
    confidence: float = 0.999,
    eta: float | None = None,
) -> ReconstructionResult:
    """Estimates an example's features along the direction that the release tells most about.

    The estimate of t in x + t u is T = S / slope with S the score of t at the truth, by differences
    of ``log_prob``, and slope the rate at which E S follows t, from draws at small +-t: unbiased near
    the truth, and the best such estimate (it attains the Cramér-Rao bound; for the Gaussian it is
    the least squares estimate, unbiased everywhere). Its variance is measured on other draws.
    ``eta`` is the claim to be tested, ``fisher_information_loss`` unless given.

    Guarantee: where the claim is right, ``holds`` is False with probability at most about
    1 - ``confidence`` (a normal law of means of many draws).
    """
    checks.count("trials", trials, at_least=2)
    theta = checks.finite("theta", theta).double().reshape(-1)
    loss = float(fisher_information_loss(mechanism, theta, jacobian)) if eta is None else eta
    weights = mechanism.fisher_information(theta).sqrt().unsqueeze(1)
    direction = torch.linalg.svd(weights * jacobian.double(), full_matrices=False)[2][0]
    along = jacobian.double() @ direction  # how theta moves with t
    far = _STEP / float((weights[:, 0] * along).norm())
    tiny = _DIFFERENCE * mechanism.sigma.double()

    def scores(t: float) -> Tensor:
        values = mechanism.sample((theta + t * along).expand(trials, -1), generator=generator)
        ends = [mechanism.log_prob(values, theta + sign * tiny) for sign in (1, -1)]
        return torch.mv((ends[0] - ends[1]) / (2 * tiny), along)

    # the same random numbers at both ends: their difference then varies little
    state = generator.get_state()
    ahead = scores(far)
    generator.set_state(state)
    rises = (ahead - scores(-far)) / (2 * far)
    slope, slope_error = float(rises.mean()), float(rises.std()) / math.sqrt(trials)
    here = scores(0.0)
    squares = (here - here.mean()).square()
    spread, spread_error = float(squares.mean()), float(squares.std()) / math.sqrt(trials)
    # either bound may fail with half of the probability
    quantile = NormalDist().inv_cdf(1 - (1 - checks.probability("confidence", confidence)) / 2)
    smallest = slope - quantile * slope_error
    return ReconstructionResult(
        name=f"{mechanism!r}, {theta.numel()} coordinates, {jacobian.shape[1]} features",
        confidence=confidence,
        trials=trials,
        variance=spread / slope**2,
        variance_high=(spread + quantile * spread_error) / smallest**2 if smallest > 0 else math.inf,
        claim=float(reconstruction_error_bound(loss)),
    )
