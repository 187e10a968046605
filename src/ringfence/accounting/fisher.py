"""Fisher information loss: how well a record could be reconstructed from one release, or from several."""

import math
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
from torch import Tensor

from ringfence import checks
from ringfence.checks import Real
from ringfence.mechanisms.base import Mechanism, checked_mechanism
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.numerics.operators import LinearOperator, probable_bounds_of_many
from ringfence.numerics.rounding import UP, square_is_representable
from ringfence.numerics.singular_values import (
    DENSE_LIMIT,
    Gram,
    SingularValueBounds,
    dense_bounds,
    squared_frobenius,
)

InformationNorm = Literal["spectral", "trace"]

# The relative error that the contract tests allow a law's information (measured, not proved), and
# how much of it underflow may have taken, in units of 1 / sigma^2.
_INFORMATION_ERROR = 1e-12
_INFORMATION_LOST = 1e-290
_DOWN = 1 - 2.0**-50
_STATE = {"mechanism", "gram_limit", "steps", "records", "gram", "gram_error", "squares", "trace"}
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
        result = dense_bounds(weights, matrices).upper
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
    generator's draw (the proof is in ``numerics/operators.py``), and both bounds rest on
    the operator's ``rounding``. The lower bound takes the information as measured: it may be too high
    where that is below 1e-290 / sigma^2.

    >>> from ringfence import Gaussian
    >>> bounds = fisher_information_bounds(Gaussian(sigma=2.0), torch.zeros(3), torch.eye(3))
    >>> bool(bounds.lower <= 0.5 <= bounds.upper), bool(bounds.gap < 1e-11), bounds.failure_probability
    (True, True, 0.0)
    """

    def probable(operator: LinearOperator, share: float) -> SingularValueBounds:
        ends = probable_bounds_of_many(
            operator.weighted(weights).batch_of_one(weights.device),
            generator=generator,
            failure_probability=share,
            probes=4,
            tolerance=tolerance / 8,  # because the last products close the gap fastest
            maximum_degree=maximum_degree,
        )
        return SingularValueBounds(ends.lower[0] * LOWER, ends.upper[0], share)

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
    raised = information * (1 + _INFORMATION_ERROR) + _INFORMATION_LOST * ceiling
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


@dataclass(frozen=True)
class FisherGuarantee:
    """Certified bounds of the Fisher information loss of each record over ``steps`` releases.

    ``lower`` and ``gap`` are about the norm of the sum that the account holds. Where steps were
    sampled that sum is itself an upper bound, and the record's information may be below ``lower``.

    >>> import torch
    >>> claim = FisherGuarantee(1, torch.tensor(0.5).double(), torch.tensor(0.25).double())
    >>> round(float(claim.gap), 9), round(float(claim.reconstruction_error), 9)
    (1.0, 4.0)
    """

    steps: int
    fisher_information_loss: Tensor
    lower: Tensor

    @property
    def gap(self) -> Tensor:
        """The relative distance of the two bounds, upper / lower - 1."""
        return SingularValueBounds(self.lower, self.fisher_information_loss).gap

    @property
    def reconstruction_error(self) -> Tensor:
        """``reconstruction_error_bound`` of each record."""
        return reconstruction_error_bound(self.fisher_information_loss)

    @property
    def statement(self) -> str:
        """A sentence about the worst record; the docstrings of this file prove or exclude every clause."""
        upper, gap = self.fisher_information_loss.reshape(-1), self.gap.reshape(-1)
        worst = int(upper.argmax())
        # five digits, rounded so that the printed bounds still hold
        above, within, below = (
            f"{float(values[worst]) * rounding:.5g}"
            for values, rounding in (
                (upper, 1 + 5.1e-5),
                (100 * gap, 1 + 5.1e-5),
                (self.reconstruction_error.reshape(-1), 1 - 5.1e-5),
            )
        )
        records = f"the worst of {len(upper)} records" if self.lower.ndim else "the record"
        releases = "1 release" if self.steps == 1 else f"{self.steps} releases"
        return (
            f"Over {releases} the Fisher information loss of {records} is at most {above} "
            f"(computed to within {within} %): from what was released, no unbiased estimator of the record "
            f"has mean squared error below {below} in any attribute. "
            "This holds for this dataset, if no step depends on earlier outputs; if one does, the "
            "information of the run is the average of such sums over runs, of which this is one. It does not "
            "bound biased estimators or an attacker with prior knowledge, and is not differential privacy. "
            "The numbers depend on the data and are sensitive: do not publish them."
        )


class FisherAccountant:
    """Fisher information loss over several releases, of one record or of n.

    Informations add as matrices, and the norm of their sum is at most, and often far below, the sum
    of their norms. Up to ``gram_limit`` attributes the account keeps the p x p sums, one for each record.
    Above that it keeps only the sum of the squared norms. Steps whose jacobians are known by their products
    are one release: ``fisher_information_bounds`` of ``LinearOperator.stacked``, and of all thetas.

    Guarantee: every number is an upper bound of the norm of the sum of the informations along this
    trajectory. If later steps do not depend on earlier outputs, that sum is the information of
    the whole run; if they do, the information is its average over runs, of which this is one draw.

    >>> from ringfence import TruncatedGaussian
    >>> account = FisherAccountant(TruncatedGaussian(sigma=1.0, bound=1.0))
    >>> account.step(torch.zeros(2), torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    >>> account.step(torch.zeros(2), torch.tensor([[1.0, 0.0], [0.0, 0.5]]))
    >>> round(float(account.fisher_information_loss()) ** 2, 9)  # 2 I(0)
    0.58225019
    """

    def __init__(self, mechanism: Mechanism, *, gram_limit: int = 2048) -> None:
        self.mechanism = checked_mechanism(mechanism)
        self.gram_limit = checks.count("gram_limit", gram_limit, at_least=0)
        self.steps = 0
        self._records: tuple[int | None, int] | None = None  # (n, or None for one record; p)
        self._gram: Gram | None = None  # the sum of the informations, up to ``gram_limit``; else
        self._squares = torch.zeros(1, dtype=torch.float64)  # the sum of their norms
        self._trace = torch.zeros(1, dtype=torch.float64)  # and of their traces

    def __repr__(self) -> str:
        return f"FisherAccountant({self.mechanism!r}, steps={self.steps})"

    def step(
        self,
        theta: Real,
        jacobian: Tensor,
        mechanism: Mechanism | None = None,
        *,
        sampling_rate: float = 1.0,
        pure_epsilon: float | None = None,
    ) -> None:
        """Adds one release. A law that differs from the account's is given as ``mechanism``.

        With ``sampling_rate`` < 1 the records were Poisson sampled: theta and jacobian are those of
        the step with the record present, and ``pure_epsilon`` is required; see
        ``poisson_information_factor`` for what must hold. If the other records were sampled too, the
        information is at most the average over their batches, because it is convex in the law. Theta
        with one such batch gives one draw of that average, as along an adaptive run.
        """
        sampling_rate = checks.rate("sampling_rate", sampling_rate)
        if sampling_rate != 1 and pure_epsilon is None:
            raise ValueError(
                f"pure_epsilon must be given when sampling_rate is {sampling_rate!r}"
                " (math.inf if the likelihood ratio has no bound)"
            )
        factor = poisson_information_factor(sampling_rate, 0.0 if pure_epsilon is None else pure_epsilon)
        law = self.mechanism if mechanism is None else mechanism
        weights, matrices, single = checked_jacobian(law, theta, jacobian)
        records = (None if single else len(matrices), matrices.shape[2])
        if self._records not in (None, records):
            raise ValueError(
                f"jacobian must be of the same records and attributes in every step, {self._records}, "
                f"got {records}"
            )
        if factor != 1:
            weights = weights * (math.sqrt(factor) * UP)
        if records[1] <= self.gram_limit:
            gram = Gram.of(weights, matrices)
            self._gram = gram if self._gram is None else self._gram.plus(gram)
        else:
            square = dense_bounds(weights, matrices).upper.square()
            self._squares = (self._squares.to(square.device) + square) * UP
            trace = squared_frobenius(weights, matrices)
            self._trace = (self._trace.to(trace.device) + trace) * UP
        self._records = records
        self.steps += 1

    def fisher_information_loss(self, *, kind: InformationNorm = "spectral") -> Tensor:
        """The certified upper bound so far, 0 before the first step."""
        if checked_norm(kind) == "trace":
            trace = self._trace if self._gram is None else self._gram.trace()
            return self._shaped((trace / self._attributes).sqrt() * UP)
        return self.guarantee().fisher_information_loss

    def guarantee(self) -> FisherGuarantee:
        """The bounds of all the steps so far, and a sentence about them.

        >>> from ringfence import Gaussian
        >>> account = FisherAccountant(Gaussian(sigma=2.0))
        >>> account.step(torch.zeros(1), torch.ones(1, 1))
        >>> round(float(account.guarantee().reconstruction_error), 9)
        4.0
        """
        if self._gram is not None:
            lower, upper = self._gram.largest_eigenvalues()
        else:  # the largest eigenvalue is at least the average eigenvalue
            lower = (self._trace / self._attributes * (1 - 1e-6) - _INFORMATION_LOST).clamp(min=0)
            upper = self._squares
        return FisherGuarantee(
            self.steps, self._shaped(upper.sqrt() * UP), self._shaped(lower.sqrt() * LOWER)
        )

    @property
    def _attributes(self) -> int:
        return 1 if self._records is None else self._records[1]

    def _shaped(self, values: Tensor) -> Tensor:
        return values[0] if self._records is None or self._records[0] is None else values

    def state_dict(self) -> dict[str, Any]:
        """The account as plain data, which JSON keeps exactly.

        >>> from ringfence import Gaussian
        >>> account = FisherAccountant(Gaussian(sigma=1.0))
        >>> FisherAccountant.from_state_dict(account.state_dict()).mechanism
        Gaussian(sigma=1.0)
        """
        return {
            "kind": type(self).__name__,
            "version": 1,
            "mechanism": self.mechanism.state_dict(),
            "gram_limit": self.gram_limit,
            "steps": self.steps,
            "records": None if self._records is None else list(self._records),
            "gram": None if self._gram is None else self._gram.matrix.tolist(),
            "gram_error": None if self._gram is None else self._gram.error.tolist(),
            "squares": self._squares.tolist(),
            "trace": self._trace.tolist(),
        }

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> "FisherAccountant":
        """The account that a ``state_dict`` describes. Loading rejects an unknown kind or version."""
        state = {"kind": "FisherAccountant", **checks.mapping("state", state)}
        # states saved before version 0.7 do not name their kind, and may be cheap, which is a limit of 0
        if state.pop("cheap", False):
            state["gram_limit"] = 0
        checks.state("FisherAccountant", 1, state, _STATE)
        account = cls(Mechanism.from_state_dict(state["mechanism"]), gram_limit=state["gram_limit"])
        account.steps = checks.count("steps", state["steps"], at_least=0)
        records = 1
        if state["records"] is not None:
            count, attributes = checks.listed("records", state["records"], length=2)
            if count is not None:
                records = checks.count("records[0]", count, at_least=1)
            account._records = (count, checks.count("records[1]", attributes, at_least=1))
        if account.steps and account._attributes <= account.gram_limit:
            shape = (records, account._attributes, account._attributes)
            account._gram = Gram(_numbers(state, "gram", *shape), _numbers(state, "gram_error", records))
        else:
            account._squares = _numbers(state, "squares", records)
            account._trace = _numbers(state, "trace", records)
        return account


def _numbers(state: dict[str, Any], name: str, *shape: int) -> Tensor:
    value = checks.finite(name, state[name])
    if value.shape != shape:
        raise ValueError(f"{name} must have shape {list(shape)}, got {list(value.shape)}")
    return value if len(shape) == 3 else checks.not_negative(name, value)
