"""Fisher information loss over several releases, and what may be said about it."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.fisher.loss import (
    INFORMATION_LOST,
    LOWER,
    InformationNorm,
    checked_jacobian,
    coordinate_losses,
    poisson_information_factor,
    reconstruction_error_bound,
)
from ringfence.checks import Real
from ringfence.mechanisms.base import Mechanism, checked_mechanism
from ringfence.numerics.rounding import UP
from ringfence.numerics.spectral.linear_operator import LinearOperator, probable_bounds
from ringfence.numerics.spectral.singular_values import (
    Gram,
    SingularValueBounds,
    squared_frobenius,
    upper_bounds,
)

_STATE = {
    *("version", "mechanism", "cheap", "gram_limit", "steps", "records"),
    *("gram", "gram_error", "squares", "trace"),
}


@dataclass(frozen=True)
class FisherGuarantee:
    """What an account may say, a number a record: certified from above, and how far from below.

    ``lower`` and ``gap`` are about the norm of the sum that the account holds. Where steps were
    sampled that sum is itself a bound, and the record's information may be below.

    >>> one = torch.ones(())
    >>> FisherGuarantee(2 * one, 1.9 * one, 0.05 * one, 0.25 * one, 0.0, "...").fisher_information_loss
    tensor(2.)
    """

    fisher_information_loss: Tensor
    lower: Tensor
    gap: Tensor
    reconstruction_error: Tensor
    failure_probability: float
    statement: str


class FisherAccountant:
    """Fisher information loss over several releases, of one record or of n.

    Informations add as matrices, and the norm of their sum is at most, and often far below, the sum
    of their norms. Up to ``gram_limit`` attributes the p x p sums are kept, one for each record;
    above, or with ``cheap=True``, only the sum of the squared norms. Steps given as
    ``LinearOperator`` are kept and applied again.

    Guarantee: every number is an upper bound of the norm of the sum of the informations along this
    trajectory. If later steps do not depend on earlier outputs, that sum is the information of
    the whole run; if they do, the information is its average over runs, of which this is one
    draw. A failure probability is over the generator's draw alone.

    >>> from ringfence import TruncatedGaussian
    >>> account = FisherAccountant(TruncatedGaussian(sigma=1.0, bound=1.0))
    >>> account.step(torch.zeros(2), torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    >>> account.step(torch.zeros(2), torch.tensor([[1.0, 0.0], [0.0, 0.5]]))
    >>> round(float(account.fisher_information_loss()) ** 2, 9)  # 2 I(0)
    0.58225019
    """

    _VERSION = 1

    def __init__(self, mechanism: Mechanism, *, cheap: bool = False, gram_limit: int = 2048) -> None:
        self.mechanism = checked_mechanism(mechanism)
        self.cheap = cheap
        self.gram_limit = checks.count("gram_limit", gram_limit, at_least=0)
        self.steps = 0
        self._records: tuple[int | None, int] | None = None  # (n, or None for one record; p)
        self._gram: Gram | None = None
        self._squares = torch.zeros(1, dtype=torch.float64)  # of the dense steps' norms, summed
        self._trace = torch.zeros(1, dtype=torch.float64)
        self._operators: list[LinearOperator] = []

    def step(
        self,
        theta: Real,
        jacobian: Tensor | LinearOperator,
        mechanism: Mechanism | None = None,
        *,
        sampling_rate: float = 1.0,
        pure_epsilon: float | None = None,
    ) -> None:
        """Adds one release. A law that differs from the account's is given as ``mechanism``.

        With ``sampling_rate`` < 1 the records were Poisson sampled: theta and jacobian are those of
        the step with the record present, and ``pure_epsilon`` is required; see
        ``poisson_information_factor`` for what must hold. If the other records were sampled too, the
        information is at most the average over their batches (it is convex in the law), and theta
        with one such batch gives one draw of that average, as along an adaptive run.
        """
        sampling_rate = checks.rate("sampling_rate", sampling_rate)
        if sampling_rate != 1 and pure_epsilon is None:
            raise ValueError(
                f"pure_epsilon must be given when sampling_rate is {sampling_rate!r}"
                " (math.inf if the likelihood ratio has no bound)"
            )
        factor = poisson_information_factor(sampling_rate, 0.0 if pure_epsilon is None else pure_epsilon)
        root = 1.0 if factor == 1 else math.sqrt(factor) * UP
        law = self.mechanism if mechanism is None else mechanism
        if isinstance(jacobian, LinearOperator):
            weights = root * coordinate_losses(law, theta, jacobian.shape[0])
            self._same_records(None, jacobian.shape[1])
            self._operators.append(jacobian.weighted(weights))
        else:
            weights, matrices, single = checked_jacobian(law, theta, jacobian)
            self._add(root * weights, matrices, single=single)
        self.steps += 1

    def _add(self, weights: Tensor, matrices: Tensor, *, single: bool) -> None:
        count, _, attributes = matrices.shape
        square = upper_bounds(weights, matrices).square()
        trace = squared_frobenius(weights, matrices)
        gram = Gram.of(weights, matrices) if self._keeps_gram(attributes) else None
        self._same_records(None if single else count, attributes)
        if gram is not None:
            self._gram = gram if self._gram is None else self._gram.plus(gram)
        self._squares = (self._squares.to(square.device) + square) * UP
        self._trace = (self._trace.to(trace.device) + trace) * UP

    def __repr__(self) -> str:
        return f"FisherAccountant({self.mechanism!r}, steps={self.steps})"

    def _same_records(self, count: int | None, attributes: int) -> None:
        if self._records is not None and self._records != (count, attributes):
            raise ValueError(
                f"jacobian must be of the same records and attributes in every step, {self._records}, "
                f"got {(count, attributes)}"
            )
        self._records = (count, attributes)

    def fisher_information_loss(
        self,
        *,
        kind: InformationNorm = "spectral",
        generator: torch.Generator | None = None,
        failure_probability: float = 1e-6,
    ) -> Tensor:
        """The best certified upper bound so far; 0 before the first step.

        Operators need a ``generator`` and hold except with ``failure_probability``; they have no trace.
        """
        if kind == "trace":
            if self._operators:
                raise ValueError("kind 'trace' is not known of steps given as LinearOperator")
            return self._shaped((self._trace / self._attributes()).sqrt() * UP)
        if kind != "spectral":
            raise ValueError(f"kind must be 'spectral' or 'trace', got {kind!r}")
        return self._upper(self._operator_bounds(generator, failure_probability))

    def upper_bound(
        self, *, generator: torch.Generator | None = None, failure_probability: float = 1e-6
    ) -> Tensor:
        """The cheap one: the square root of the sum of the steps' squared norms."""
        total = self._squares.clone()
        for operator in self._operators:
            share = failure_probability / len(self._operators)
            one = probable_bounds(operator, generator=generator, failure_probability=share)
            total += one.upper.to(total.device).square()
        return self._shaped(total.sqrt() * (1 + (len(self._operators) + 4) * 2.0**-52))

    def guarantee(
        self, *, generator: torch.Generator | None = None, failure_probability: float = 1e-6
    ) -> FisherGuarantee:
        """The number, its gap, what follows for reconstruction, and a sentence that says so."""
        operators = self._operator_bounds(generator, failure_probability)
        upper = self._upper(operators)
        # the largest eigenvalue is at least the average one, and at least that of a part
        known = (self._trace / self._attributes() * (1 - 1e-6) - INFORMATION_LOST).clamp(min=0)
        if self._gram is not None:
            known = torch.maximum(known, self._gram.lower())
        lower = self._shaped(torch.maximum(known.sqrt(), operators.lower.to(known.device)) * LOWER)
        bounds = SingularValueBounds(lower, upper, operators.failure_probability)
        error = reconstruction_error_bound(upper)
        statement = _statement(self.steps, bounds, error)
        return FisherGuarantee(upper, lower, bounds.gap, error, bounds.failure_probability, statement)

    def _operator_bounds(
        self, generator: torch.Generator | None, failure_probability: float
    ) -> SingularValueBounds:
        if not self._operators:
            return SingularValueBounds(torch.zeros(1).double(), torch.zeros(1).double())
        everything = LinearOperator.stacked(self._operators)
        return probable_bounds(everything, generator=generator, failure_probability=failure_probability)

    def _upper(self, operators: SingularValueBounds) -> Tensor:
        square = self._squares
        if self._gram is not None:
            square = torch.minimum(square, self._gram.upper())
        return self._shaped((square + operators.upper.to(square.device).square()).sqrt() * UP)

    def _keeps_gram(self, attributes: int) -> bool:
        return attributes <= self.gram_limit and not self.cheap

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
        if self._operators:
            raise ValueError(f"an account that holds {len(self._operators)} LinearOperator has no state_dict")
        return {
            "version": self._VERSION,
            "mechanism": self.mechanism.state_dict(),
            "cheap": self.cheap,
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
        """The account that ``state_dict`` described; refuses a state it does not understand."""
        version = checks.mapping("state", state).get("version")
        if type(version) is not int or version != cls._VERSION:
            raise ValueError(f"version must be {cls._VERSION}, got {version!r}")
        checks.keys("state", state, _STATE)
        account = cls(
            Mechanism.from_state_dict(state["mechanism"]),
            cheap=checks.flag("cheap", state["cheap"]),
            gram_limit=state["gram_limit"],
        )
        account.steps = checks.count("steps", state["steps"], at_least=0)
        if state["records"] is not None:
            count, attributes = checks.listed("records", state["records"], length=2)
            if count is not None:
                checks.count("records[0]", count, at_least=1)
            account._records = (count, checks.count("records[1]", attributes, at_least=1))
        records = 1 if account._records is None or account._records[0] is None else account._records[0]
        account._squares = _numbers(state, "squares", records)
        account._trace = _numbers(state, "trace", records)
        if account.steps and account._keeps_gram(account._attributes()):
            shape = (records, account._attributes(), account._attributes())
            account._gram = Gram(_numbers(state, "gram", *shape), _numbers(state, "gram_error", records))
        return account


def _numbers(state: dict[str, Any], name: str, *shape: int) -> Tensor:
    value = checks.finite(name, state[name])
    if value.shape != shape:
        raise ValueError(f"{name} must have shape {list(shape)}, got {list(value.shape)}")
    return value if len(shape) == 3 else checks.not_negative(name, value)


def _statement(steps: int, bounds: SingularValueBounds, error: Tensor) -> str:
    """About the worst record; every clause is one that the docstrings above prove or exclude."""
    worst = int(bounds.upper.reshape(-1).argmax())
    upper, variance = float(bounds.upper.reshape(-1)[worst]), float(error.reshape(-1)[worst])
    records = f"the worst of {len(bounds.upper)} records" if bounds.upper.ndim else "the record"
    gap = 100 * float(bounds.gap.reshape(-1)[worst])
    releases = "1 release" if steps == 1 else f"{steps} releases"
    failing = bounds.failure_probability
    chance = f", except with probability {failing:g} over its random probes" if failing else ""
    return (
        f"Over {releases} the Fisher information loss of {records} is at most {_above(upper)}{chance} "
        f"(computed to within {_above(gap)} %): from what was released, no unbiased estimator of the record "
        f"has mean squared error below {_below(variance)} in any attribute. "
        "This holds for this dataset, if no step depends on earlier outputs; if one does, the information "
        "of the run is the average of such sums over runs, of which this is one. It does not bound biased "
        "estimators or an attacker with prior knowledge, and is not differential privacy. "
        "The numbers depend on the data and are sensitive: do not publish them."
    )


def _above(value: float) -> str:
    """Five digits, rounded up: a printed bound still holds."""
    return f"{value * (1 + 5.1e-5):.5g}"


def _below(value: float) -> str:
    return f"{value * (1 - 5.1e-5):.5g}"
