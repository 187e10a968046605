"""The accountant of Fisher information loss: adds up releases, of one record or of many."""

import math
from typing import Any

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.fisher.guarantee import FisherGuarantee
from ringfence.accounting.fisher.loss import (
    INFORMATION_LOST,
    LOWER,
    InformationNorm,
    checked_jacobian,
    checked_norm,
    coordinate_losses,
    poisson_information_factor,
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

_STATE = {"mechanism", "cheap", "gram_limit", "steps", "records", "gram", "gram_error", "squares", "trace"}


class FisherAccountant:
    """Fisher information loss over several releases, of one record or of n.

    Informations add as matrices, and the norm of their sum is at most, and often far below, the sum
    of their norms. Up to ``gram_limit`` attributes the account keeps the p x p sums, one for each record.
    Above that, or with ``cheap=True``, it keeps only the sum of the squared norms. Steps given as
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

    def __init__(self, mechanism: Mechanism, *, cheap: bool = False, gram_limit: int = 2048) -> None:
        self.mechanism = checked_mechanism(mechanism)
        self.cheap = cheap
        self.gram_limit = checks.count("gram_limit", gram_limit, at_least=0)
        self.steps = 0
        self._records: tuple[int | None, int] | None = None  # (n, or None for one record; p)
        self._gram: Gram | None = None
        self._squares = torch.zeros(1, dtype=torch.float64)  # sum over dense steps of their squared norms
        self._trace = torch.zeros(1, dtype=torch.float64)  # sum over dense steps of their traces
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
        """The best certified upper bound so far, 0 before the first step.

        Where steps were given as ``LinearOperator`` a ``generator`` is needed, the bound holds except with
        ``failure_probability`` over its draw, and there is no ``kind="trace"``.
        """
        if checked_norm(kind) == "trace":
            if self._operators:
                raise ValueError("kind 'trace' is not known of steps given as LinearOperator")
            return self._shaped((self._trace / self._attributes()).sqrt() * UP)
        return self._upper(self._operator_bounds(generator, failure_probability))

    def upper_bound(
        self, *, generator: torch.Generator | None = None, failure_probability: float = 1e-6
    ) -> Tensor:
        """The cheap upper bound: the square root of the sum of the steps' squared norms."""
        total = self._squares.clone()
        for operator in self._operators:
            share = failure_probability / len(self._operators)
            one = probable_bounds(operator, generator=generator, failure_probability=share)
            total += one.upper.to(total.device).square()
        return self._shaped(total.sqrt() * (1 + (len(self._operators) + 4) * 2.0**-52))

    def guarantee(
        self, *, generator: torch.Generator | None = None, failure_probability: float = 1e-6
    ) -> FisherGuarantee:
        """What may be said about all the steps so far.

        >>> from ringfence import Gaussian
        >>> account = FisherAccountant(Gaussian(sigma=2.0))
        >>> account.step(torch.zeros(1), torch.ones(1, 1))
        >>> round(float(account.guarantee().reconstruction_error), 9)
        4.0
        """
        operators = self._operator_bounds(generator, failure_probability)
        upper = self._upper(operators)
        # the largest eigenvalue is at least the average eigenvalue, and at least that of a part of the sum
        known = (self._trace / self._attributes() * (1 - 1e-6) - INFORMATION_LOST).clamp(min=0)
        if self._gram is not None:
            known = torch.maximum(known, self._gram.lower())
        lower = self._shaped(torch.maximum(known.sqrt(), operators.lower.to(known.device)) * LOWER)
        bounds = SingularValueBounds(lower, upper, operators.failure_probability)
        return FisherGuarantee.of(self.steps, bounds)

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
            "kind": type(self).__name__,
            "version": 1,
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
        """The account that a ``state_dict`` describes. Loading rejects an unknown kind or version."""
        # states saved before version 0.7 do not name their kind
        state = {"kind": "FisherAccountant", **checks.mapping("state", state)}
        checks.state("FisherAccountant", 1, state, _STATE)
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
