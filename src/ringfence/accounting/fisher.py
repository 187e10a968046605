"""Fisher information loss: how well a record could be reconstructed from one release, or from several.

A record of p attributes enters theta with the Jacobian J = d theta / d record. A release tells about
coordinate j with information eta_j^2, and so about the record with the p x p matrix J^T diag(eta_j^2) J. Its
largest eigenvalue is eta^2, and no unbiased estimate of an attribute has a variance below 1 / eta^2
(Cramér-Rao). Informations of several releases add up as matrices. Every number is proved from above by a
Cholesky factorisation (``singular_values``).
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from torch import Tensor

from ringfence import checks
from ringfence.checks import Real
from ringfence.mechanisms.base import Mechanism, checked_mechanism
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.numerics.rounding import UP, square_is_representable
from ringfence.numerics.singular_values import Gram, squared_norms

InformationNorm = Literal["spectral", "trace"]

# The relative error that the contract tests allow a law's information (measured, not proved), and
# how much of it underflow may have taken, in units of 1 / sigma^2.
_INFORMATION_ERROR = 1e-12
_INFORMATION_LOST = 1e-290
_RENAMED = {"upper_bound": "fisher_information_loss"}  # since 0.7


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
    to the information's own rounding, which is measured. With k the smaller of d and p it is at most
    1e-15 k^2.5 above the truth, and takes k^2 numbers of memory and k^3 operations. It is never above
    the Gaussian's |J| / sigma, up to rounding.

    >>> from ringfence import Gaussian
    >>> jacobian = torch.tensor([[1.0], [-1.0]])
    >>> round(float(fisher_information_loss(Gaussian(sigma=1.0), torch.zeros(2), jacobian)) ** 2, 9)
    2.0
    """
    weights, matrices, single = checked_jacobian(mechanism, theta, jacobian)
    trace = checked_norm(kind) == "trace"
    squares = squared_norms(weights, matrices, trace=trace) / (matrices.shape[2] if trace else 1)
    result = squares.sqrt() * UP
    return result[0] if single else result


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
    return torch.where(eta > 0, ((1 - 2.0**-50) / eta.square()).clamp(max=largest), math.inf)


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
    single = jacobian.ndim == 2
    return weights, jacobian[None] if single else jacobian, single


@dataclass(frozen=True)
class FisherGuarantee:
    """A certified upper bound of the Fisher information loss of each record over ``steps`` releases.

    >>> import torch
    >>> round(float(FisherGuarantee(1, torch.tensor(0.5).double()).reconstruction_error), 9)
    4.0
    """

    steps: int
    fisher_information_loss: Tensor

    @property
    def reconstruction_error(self) -> Tensor:
        """``reconstruction_error_bound`` of each record."""
        return reconstruction_error_bound(self.fisher_information_loss)

    @property
    def statement(self) -> str:
        """A sentence about the worst record; the docstrings of this file prove or exclude every clause."""
        eta = self.fisher_information_loss.max()
        # five digits, rounded so that the printed bounds still hold
        above = f"{float(eta) * (1 + 5.1e-5):.5g}"
        below = f"{float(reconstruction_error_bound(eta)) * (1 - 5.1e-5):.5g}"
        many = self.fisher_information_loss.ndim
        records = f"the worst of {len(self.fisher_information_loss)} records" if many else "the record"
        releases = "1 release" if self.steps == 1 else f"{self.steps} releases"
        return (
            f"Over {releases} the Fisher information loss of {records} is at most {above}: "
            f"from what was released, no unbiased estimator of the record "
            f"has mean squared error below {below} in any attribute. "
            "This holds for this dataset, if no step depends on earlier outputs; if one does, the "
            "information of the run is the average of such sums over runs, of which this is one. It does not "
            "bound biased estimators or an attacker with prior knowledge, and is not differential privacy. "
            "The numbers depend on the data and are sensitive: do not publish them."
        )


class FisherAccountant:
    """Fisher information loss over several releases, of one record or of n.

    Informations add as matrices, and the norm of their sum is at most, and often far below, the sum
    of their norms. The account keeps the p x p sums, one for each record.

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

    def __init__(self, mechanism: Mechanism) -> None:
        self.mechanism = checked_mechanism(mechanism)
        self.steps = 0
        self._records: tuple[int | None, int] | None = None  # (n, or None for one record; p)
        self._gram: Gram | None = None  # the sum of the informations

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name == "state_dict":
                raise AttributeError("FisherAccountant.state_dict is gone: pickle keeps an account")
            raise checks.missing_attribute("FisherAccountant", name, _RENAMED)

    def __repr__(self) -> str:
        return f"FisherAccountant({self.mechanism!r}, steps={self.steps})"

    def step(self, theta: Real, jacobian: Tensor, mechanism: Mechanism | None = None) -> None:
        """Adds one release. A law that differs from the account's is given as ``mechanism``."""
        law = self.mechanism if mechanism is None else mechanism
        weights, matrices, single = checked_jacobian(law, theta, jacobian)
        records = (None if single else len(matrices), matrices.shape[2])
        if self._records not in (None, records):
            raise ValueError(
                f"jacobian must be of the same records and attributes in every step, {self._records}, "
                f"got {records}"
            )
        gram = Gram.of(weights, matrices)
        self._gram = gram if self._gram is None else self._gram.plus(gram)
        self._records = records
        self.steps += 1

    def fisher_information_loss(self, *, kind: InformationNorm = "spectral") -> Tensor:
        """The certified upper bound so far, 0 before the first step."""
        checked_norm(kind)
        if self._gram is None or self._records is None:
            return torch.zeros((), dtype=torch.float64)
        count, attributes = self._records
        square = self._gram.trace() / attributes if kind == "trace" else self._gram.largest_eigenvalue()
        return (square[0] if count is None else square).sqrt() * UP

    def guarantee(self) -> FisherGuarantee:
        """The bounds of all the steps so far, and a sentence about them.

        >>> from ringfence import Gaussian
        >>> account = FisherAccountant(Gaussian(sigma=2.0))
        >>> account.step(torch.zeros(1), torch.ones(1, 1))
        >>> round(float(account.guarantee().reconstruction_error), 9)
        4.0
        """
        return FisherGuarantee(self.steps, self.fisher_information_loss())
