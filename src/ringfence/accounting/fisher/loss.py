"""Fisher information loss of one release: how well a record could be reconstructed from it."""

import math
from typing import Literal, cast

import torch
from torch import Tensor

from ringfence import checks
from ringfence.checks import Real
from ringfence.mechanisms.base import Mechanism, checked_mechanism
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.numerics.rounding import UP, square_is_representable
from ringfence.numerics.spectral.linear_operator import LinearOperator, probable_bounds
from ringfence.numerics.spectral.singular_values import (
    DENSE_LIMIT,
    SingularValueBounds,
    dense_bounds,
    squared_frobenius,
    upper_bounds,
)

InformationNorm = Literal["spectral", "trace"]

# The relative error that the contract tests allow a law's information (measured, not proved), and
# how much of it underflow may have taken, in units of 1 / sigma^2.
_INFORMATION_ERROR = 1e-12
INFORMATION_LOST = 1e-290
_DOWN = 1 - 2.0**-50
LOWER = 1 - 2 * _INFORMATION_ERROR  # lowers a lower bound that was computed with eta from above


def fisher_information_loss(
    mechanism: Mechanism, theta: Real, jacobian: Tensor, *, kind: InformationNorm = "spectral"
) -> Tensor:
    """eta of a record: the largest singular value of diag(eta_j) J, with J = d theta / d record.

    eta_j^2 is the information of coordinate j. eta is the square root of the largest eigenvalue of the
    record's Fisher information J^T diag(eta_j^2) J (Proposition 5.1). The paper's Algorithm 1 takes
    |eta^T J|^2, which is unsound (docs/errata.md, A6), and so is bounding the information by eta instead
    of eta^2 (A3).

    ``jacobian`` is (d, p) for one record of p attributes, or (n, d, p) for n records, which gives one
    number per record. ``theta`` has d coordinates in any shape. A group of records is one record with all
    their attributes: put their jacobians side by side, ``torch.cat([first, second], dim=-1)``.

    ``kind="trace"`` gives dFIL of Maeng et al. 2023, sqrt(trace(J^T diag(eta_j^2) J) / p): the root
    mean square over attributes. It is never above the spectral number of Hannun, Guo and van der Maaten
    2021, and says nothing about the worst direction.

    Guarantee: an upper bound in float64 whatever the dtypes. A Cholesky factorisation proves it up
    to the information's own rounding, which is measured. Where both d and p exceed 4,096 it is the
    smaller of |A|_F and sqrt(|A|_1 |A|_inf), which may be far above; ``fisher_information_bounds``
    shows the gap. It is never above the Gaussian's |J| / sigma, up to rounding.

    >>> from ringfence import Gaussian
    >>> jacobian = torch.tensor([[1.0], [-1.0]])
    >>> round(float(fisher_information_loss(Gaussian(sigma=1.0), torch.zeros(2), jacobian)) ** 2, 9)
    2.0
    """
    weights, matrices, single = checked_jacobian(mechanism, theta, jacobian)
    if checked_norm(kind) == "trace":
        result = (squared_frobenius(weights, matrices) / matrices.shape[2]).sqrt() * UP
    else:
        result = upper_bounds(weights, matrices)
    return result[0] if single else result


def fisher_information_bounds(
    mechanism: Mechanism,
    theta: Real,
    jacobian: Tensor | LinearOperator,
    *,
    generator: torch.Generator | None = None,
    failure_probability: float = 1e-6,
    tolerance: float = 0.01,
    maximum_degree: int = 256,
) -> SingularValueBounds:
    """Lower and upper bound of the spectral Fisher information loss, for matrices and for operators.

    A tensor whose smaller side is at most 4,096 needs no randomness, and its bounds never fail. A
    ``LinearOperator``, or a larger tensor where a ``generator`` is given, is bounded from products
    with random vectors. Work stops at a gap of ``tolerance`` or at polynomials of ``maximum_degree``;
    neither changes what holds.

    Guarantee: with random vectors the upper bound fails with at most ``failure_probability`` over the
    generator's draw (the proof is in ``numerics/spectral/chebyshev_bounds.py``), and both bounds rest on
    the operator's ``rounding``. The lower bound takes the information as measured: it may be too high
    where that is below 1e-290 / sigma^2.

    >>> from ringfence import Gaussian
    >>> bounds = fisher_information_bounds(Gaussian(sigma=2.0), torch.zeros(3), torch.eye(3))
    >>> bool(bounds.lower <= 0.5 <= bounds.upper), bool(bounds.gap < 1e-11), bounds.failure_probability
    (True, True, 0.0)
    """

    def probable(operator: LinearOperator, share: float) -> SingularValueBounds:
        ends = probable_bounds(
            operator.weighted(weights),
            generator=generator,
            failure_probability=share,
            tolerance=tolerance,
            maximum_degree=maximum_degree,
        )
        return SingularValueBounds(ends.lower * LOWER, ends.upper, share)

    if isinstance(jacobian, LinearOperator):
        weights = coordinate_losses(mechanism, theta, jacobian.shape[0])
        return probable(jacobian, failure_probability)
    weights, matrices, single = checked_jacobian(mechanism, theta, jacobian)
    dense = dense_bounds(weights, matrices)
    lower, upper, failing = dense.lower * LOWER, dense.upper, 0.0
    if generator is not None and min(matrices.shape[1:]) > DENSE_LIMIT:
        share, failing = failure_probability / len(matrices), failure_probability
        for index, matrix in enumerate(matrices):
            ends = probable(LinearOperator.of(matrix), share)
            lower[index] = torch.maximum(lower[index], ends.lower)
            upper[index] = torch.minimum(upper[index], ends.upper)
    return SingularValueBounds(*((lower[0], upper[0]) if single else (lower, upper)), failing)


def reconstruction_error_bound(fisher_information_loss: Real) -> Tensor:
    """1 / eta^2: a lower bound of the variance of an unbiased estimate of any attribute.

    Cramér-Rao: an unbiased estimator of the record has covariance >= I^-1 >= (1 / eta^2) Id, so
    every attribute, and every direction, has mean squared error at least 1 / eta^2 (eta^2, not eta:
    docs/errata.md, A3). Of the trace-based number only the average over attributes is at least
    1 / dFIL^2, since trace(I^-1) / p >= p / trace(I); single attributes may be known better.

    Guarantee: about unbiased estimators only. Someone with prior knowledge of the record can do
    better, by a biased estimate. The bound holds for this dataset, and is itself sensitive.

    >>> float(reconstruction_error_bound(0.0)), round(float(reconstruction_error_bound(0.5)), 9)
    (inf, 4.0)
    """
    eta = checks.not_negative("fisher_information_loss", fisher_information_loss).double()
    largest = torch.finfo(torch.float64).max
    return torch.where(eta > 0, (_DOWN / eta.square()).clamp(max=largest), math.inf)


def poisson_information_factor(sampling_rate: float, pure_epsilon: float) -> float:
    """q q / (q + (1 - q) e^-epsilon): the factor by which Poisson sampling lowers a record's information.

    The release is the mixture (1 - q) p_0 + q p_x, x the record and p_0 the law without it. The
    mixture's score is w times that of p_x with w = q p_x / ((1 - q) p_0 + q p_x), so its information
    is q E_x[w score score^T], and w <= q / (q + (1 - q) e^-epsilon) where p_x <= e^epsilon p_0.

    Guarantee: it needs that every record enters the batch independently with probability
    ``sampling_rate`` = q, that nobody learns who entered, and that the likelihood ratio of the
    step with the record to the step without it is at most e^``pure_epsilon`` almost surely: pure
    differential privacy, not (epsilon, delta). ``math.inf`` asks nothing of the ratio and gives q.

    A Gaussian has no finite bound of the ratio. For the bounded laws the ratio's logarithm is monotone in
    each coordinate, so ``pure_epsilon`` is the sum over coordinates of the larger of
    log_prob(end, theta with) - log_prob(end, theta without) at the two ends of the support.

    >>> round(poisson_information_factor(0.1, math.inf), 9), round(poisson_information_factor(0.1, 0.0), 9)
    (0.1, 0.01)
    """
    sampling_rate = checks.rate("sampling_rate", sampling_rate)
    ratio = checks.number("pure_epsilon", pure_epsilon, checks.real)
    if ratio < 0:
        raise ValueError(f"pure_epsilon must be >= 0, got {pure_epsilon!r}")
    share = sampling_rate / (sampling_rate + (1 - sampling_rate) * math.exp(-ratio))
    return min(1.0, sampling_rate * share * UP)


def checked_norm(kind: object) -> InformationNorm:
    """``kind``, or a ValueError.

    >>> checked_norm("nuclear")
    Traceback (most recent call last):
    ValueError: kind must be one of ['spectral', 'trace'], got 'nuclear'
    """
    return cast(InformationNorm, checks.one_of("kind", kind, ("spectral", "trace")))


def coordinate_losses(mechanism: Mechanism, theta: Real, height: int) -> Tensor:
    """An upper bound of eta for each coordinate: its rounding is charged, and it is at most 1 / sigma.

    >>> coordinate_losses(Gaussian(2.0), torch.zeros(2), 2).tolist()
    [0.5000000000000004, 0.5000000000000004]
    """
    theta = checks.finite("theta", theta).double()
    sigma = checked_mechanism(mechanism).sigma
    # the information is a multiple of 1 / sigma^2, which is 0 in floats for a larger sigma
    checks.require(
        "sigma", "must be in [1e-140, 1e140] for its information", sigma, square_is_representable(sigma)
    )
    information = mechanism.fisher_information(theta)
    if information.numel() != height:
        raise ValueError(
            f"jacobian must have a row for each of theta's {information.numel()} coordinates, got {height}"
        )
    # no law is above its Gaussian (Mechanism.fisher_information), so the cap only removes rounding
    ceiling = Gaussian(mechanism.sigma).fisher_information(theta)
    raised = information * (1 + _INFORMATION_ERROR) + INFORMATION_LOST * ceiling
    return torch.minimum(raised, ceiling).sqrt().reshape(-1) * UP


def checked_jacobian(mechanism: Mechanism, theta: Real, jacobian: Tensor) -> tuple[Tensor, Tensor, bool]:
    """(eta of the coordinates, (d,); the jacobians as (n, d, p); whether there was only one)."""
    jacobian = checks.finite("jacobian", jacobian)
    if jacobian.ndim not in (2, 3) or not jacobian.numel():
        raise ValueError(
            f"jacobian must be (d, p) or (n, d, p) and not empty, got shape {list(jacobian.shape)}"
        )
    weights = coordinate_losses(mechanism, theta, jacobian.shape[-2])
    largest = float(jacobian.abs().max()) * float(weights.max())
    if largest and not 1e-150 <= largest <= 1e150:  # squares must be representable
        raise ValueError(f"jacobian times eta must be in [1e-150, 1e150] at its largest, got {largest!r}")
    if weights.device != jacobian.device:
        raise ValueError(f"jacobian is on {jacobian.device}, theta on {weights.device}")
    if jacobian.ndim == 2:
        return weights, jacobian[None], True
    return weights, jacobian, False
