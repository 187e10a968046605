"""The noise, the bound or the number of releases that meets a target epsilon."""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.guarantee import data_independent_epsilon, data_independent_proof, guarantee
from ringfence.accounting.per_instance.rdp import ceilings, per_instance_rdp
from ringfence.accounting.sampled.accountant import SampledAccountant
from ringfence.checks import Real
from ringfence.mechanisms.base import Mechanism, checked_mechanism
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.numerics.rounding import rounded_up

Kind = Literal["ex_post", "pdp", "data_independent"]

_FIELDS = {"ex_post": "epsilon", "pdp": "epsilon_pdp", "data_independent": "epsilon_data_independent"}
_TOLERANCE = 1e-3  # relative, of the parameter found
_LARGEST = 1e12


class PerInstanceCalibrationWarning(UserWarning):
    """An answer was found from theta: it meets the target for this dataset only, and is sensitive itself.

    A warning and not a field of the answer, because an answer is a number and soon a part of other
    numbers, where a field would be lost. The message has the epsilon that the answer costs for
    every dataset. Silence it where theta is public or simulated.

    >>> issubclass(PerInstanceCalibrationWarning, UserWarning)
    True
    """


def calibrate_sigma(
    mechanism: Mechanism,
    theta: Real | None,
    sensitivity: Real,
    *,
    epsilon: float,
    delta: float,
    steps: int = 1,
    kind: Kind = "data_independent",
    coordinates: int | None = None,
    sampling_rate: float = 1.0,
) -> float:
    """A sigma with which ``steps`` releases of theta cost at most ``epsilon``; a little less does not.

    ``mechanism`` gives the law and its bound; its sigma is where the search begins. ``kind`` is
    the number that must meet the target (``Guarantee``). By default that is what holds for every
    dataset: of theta only the shape counts, and it may be None where ``coordinates`` says how many
    numbers are released. ``sampling_rate`` below 1: each release is of a Poisson sample, and costs
    what ``SampledAccountant.step_of_any`` charges.

    The kinds "pdp" and "ex_post" are about this theta and have to be asked for: three confident votes
    are almost free to release without noise, and the answer says so to everyone who sees it. They come
    with a ``PerInstanceCalibrationWarning``, and not with sampling. Use them on public or simulated
    data. Their cost need not fall with sigma everywhere: the answer is found from above, where the
    Gaussian's noise meets the target for every theta, so that every sigma tried on the way down was
    checked. theta may be a model: a sample whose cost is scaled up to ``coordinates``.

    Guarantee: the cost at the answer was computed and is not over the target.

    >>> from ringfence.mechanisms.truncated import TruncatedGaussian
    >>> law = TruncatedGaussian(sigma=1.0, bound=2.0)
    >>> round(calibrate_sigma(law, None, 1e-2, coordinates=100, epsilon=0.5, delta=1e-5, steps=10), 2)
    1.59
    """
    checked_mechanism(mechanism)
    epsilon = checks.number("epsilon", epsilon, checks.positive)
    question = _Question.asked(theta, sensitivity, delta, kind, coordinates, sampling_rate)
    checks.count("steps", steps, at_least=1)

    def law(sigma: float) -> Mechanism:
        own = {"sigma": torch.tensor(sigma, dtype=torch.float64)}
        return mechanism.with_parameters({**mechanism.parameters(), **own})

    start = float(mechanism.sigma.double().mean())
    if question.sampling_rate < 1:  # releases of everything cost more, and are found sooner
        whole = replace(question, sampling_rate=1.0)
        start = _smallest(lambda sigma: whole.costs(law(sigma))(steps), epsilon, start)
    sigma = _smallest(lambda sigma: question.costs(law(sigma))(steps), epsilon, start)
    question.warn("sigma", sigma, law(sigma), steps)
    return sigma


def calibrate_bound(
    mechanism: Mechanism,
    theta: Real | None,
    sensitivity: Real,
    *,
    epsilon: float,
    delta: float,
    steps: int = 1,
    kind: Kind = "data_independent",
    coordinates: int | None = None,
    sampling_rate: float = 1.0,
) -> float:
    """The largest b for which the law on [-b, b] costs at most ``epsilon``; infinite if all do.

    A wider interval gives more away: the clamp to a narrower one is a function of the clamp to a
    wider one, and the variance of a conditioned normal law grows with its interval. For every dataset
    (the default ``kind``) only a truncated law has a bound that counts: any other law costs what the
    Gaussian does, at every b. Arguments and caveats as for ``calibrate_sigma``.

    Guarantee: the cost at the answer was computed and is not over the target.

    >>> from ringfence.mechanisms.truncated import TruncatedGaussian
    >>> law = TruncatedGaussian(sigma=1.0, bound=2.0)
    >>> round(calibrate_bound(law, None, 1e-2, coordinates=100, epsilon=0.5, delta=1e-5, steps=10), 2)
    0.74
    """
    if "upper" not in checked_mechanism(mechanism).parameters():
        raise ValueError(f"mechanism must have a bound, got {mechanism!r}")
    epsilon = checks.number("epsilon", epsilon, checks.positive)
    question = _Question.asked(theta, sensitivity, delta, kind, coordinates, sampling_rate)
    checks.count("steps", steps, at_least=1)
    scale = float(mechanism.sigma.double().max())

    def law(bound: float) -> Mechanism:
        if bound == math.inf:
            return Gaussian(mechanism.sigma)
        lower, upper = torch.tensor([-bound, bound], dtype=torch.float64)
        return mechanism.with_parameters({**mechanism.parameters(), "lower": lower, "upper": upper})

    def cost(bound: float) -> float:
        return question.costs(law(bound))(steps)

    def largest() -> float:
        widest, narrowest = 64 * scale, scale / 1024
        if cost(math.inf) <= epsilon:
            return math.inf
        most = cost(widest)
        if most <= epsilon:
            return widest
        least = cost(narrowest)
        if least > epsilon:
            reason = f"what an interval of {narrowest:.3g} still gives away"
            if least == most:
                reason = "for every dataset it costs what the Gaussian does, whatever its bound"
            raise ValueError(f"epsilon must be at least {least:.4g} for this law: {reason}, got {epsilon!r}")
        return _bisect(lambda bound: cost(bound) <= epsilon, failing=widest, passing=narrowest)

    bound = largest()
    question.warn("bound", bound, law(bound), steps)
    return bound


def calibrate_steps(
    mechanism: Mechanism,
    theta: Real | None,
    sensitivity: Real,
    *,
    epsilon: float,
    delta: float,
    kind: Kind = "data_independent",
    coordinates: int | None = None,
    sampling_rate: float = 1.0,
) -> int:
    """The largest number of releases of theta that cost at most ``epsilon`` altogether.

    Arguments and caveats as for ``calibrate_sigma``. 0 where one release is already too many. With
    sampling every number tried is composed anew: seconds, minutes where the answer is in the millions.

    Guarantee: the cost of the answer was computed and is not over the target.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> calibrate_steps(Gaussian(1.0), None, 1e-3, coordinates=10_000, epsilon=1.0, delta=1e-5)
    7
    """
    epsilon = checks.number("epsilon", epsilon, checks.positive)
    question = _Question.asked(theta, sensitivity, delta, kind, coordinates, sampling_rate)
    cost = question.costs(mechanism)
    steps = _most(lambda steps: cost(steps) <= epsilon)
    question.warn("steps", steps, mechanism, steps)
    return steps


@dataclass(frozen=True)
class _Question:
    """What is released and which number about it must meet the target."""

    theta: Tensor
    sensitivity: Tensor
    delta: float
    kind: Kind
    scale: float  # how many coordinates each of theta's stands for
    sampling_rate: float

    @classmethod
    def asked(
        cls,
        theta: Real | None,
        sensitivity: Real,
        delta: float,
        kind: Kind,
        coordinates: int | None,
        sampling_rate: float,
    ) -> Self:
        """Everything checked once, before the search."""
        checks.one_of("kind", kind, _FIELDS)
        delta = checks.probability("delta", delta)
        sampling_rate = checks.rate("sampling_rate", sampling_rate)
        count = None if coordinates is None else checks.count("coordinates", coordinates, at_least=1)
        size = checks.not_negative("sensitivity", sensitivity)
        if kind != "data_independent" and sampling_rate < 1:
            raise ValueError(
                f"kind must be 'data_independent' where sampling_rate is {sampling_rate:g}, got {kind!r}: "
                "what a sampled release of this theta costs takes batches (SampledAccountant.step)"
            )
        if theta is None and kind != "data_independent":
            raise ValueError(f"theta must be given for kind {kind!r}, got None")
        if theta is None and count is None:
            raise ValueError("coordinates must be given where theta is None, got None")
        any_theta = torch.zeros((), dtype=torch.float64).expand(count or 1)
        values = any_theta if theta is None else checks.finite("theta", theta)
        scale = 1.0 if count is None else count / max(1, values.numel())
        return cls(values, size, delta, kind, scale, sampling_rate)

    def costs(self, law: Mechanism) -> Callable[[int], float]:
        """The number in question by the number of releases; the sums are evaluated once."""
        if self.kind != "data_independent":
            return self._for_this_dataset(law)
        if self.sampling_rate < 1:
            return self._for_samples_of_any_dataset(law)
        gaussian, bounded = ceilings(law, self.theta, self.sensitivity)

        def cost(steps: int) -> float:
            times = steps * self.scale
            return data_independent_epsilon(times * gaussian, times * bounded, self.delta)

        return cost

    def _for_this_dataset(self, law: Mechanism) -> Callable[[int], float]:
        rdp = per_instance_rdp(law, self.theta, self.sensitivity)
        gaussian, bounded = ceilings(law, self.theta, self.sensitivity)

        def cost(steps: int) -> float:
            times = steps * self.scale
            claim = guarantee(
                orders=rdp.orders,
                worst=times * rdp.worst,
                gaussian=times * gaussian * rdp.orders,
                data_independent=data_independent_proof(times * gaussian, times * bounded, self.delta),
                steps=steps,
                delta=self.delta,
            )
            return float(getattr(claim, _FIELDS[self.kind]))

        return cost

    def _for_samples_of_any_dataset(self, law: Mechanism) -> Callable[[int], float]:
        # s coordinates that move by c have the ceilings of one that moves by c sqrt(s)
        size = self.sensitivity * math.sqrt(self.scale)

        def cost(steps: int) -> float:
            account = SampledAccountant(law, size, self.sampling_rate)
            account.step_of_any(self.theta, count=steps)
            try:
                return account.guarantee(self.delta).epsilon_data_independent
            except OverflowError:  # losses that dp-accounting cannot hold are above any target
                return math.inf

        return cost

    def warn(self, name: str, answer: float, law: Mechanism, steps: int) -> None:
        """Says what an answer from theta costs everyone else; nothing where it is for everyone."""
        if self.kind == "data_independent":
            return
        everyone = replace(self, kind="data_independent").costs(law)(steps)
        warnings.warn(
            f"{name} = {answer:.6g} was found from theta and meets the target for this dataset only (kind "
            f"{self.kind!r}); for every dataset it costs epsilon = {rounded_up(everyone)}. It is sensitive: "
            "do not publish it, nor what is released with it, unless theta is public or simulated.",
            PerInstanceCalibrationWarning,
            stacklevel=3,
        )


def _smallest(cost: Callable[[float], float], epsilon: float, start: float) -> float:
    """A sigma that meets the target, found from above: every one tried on the way down was checked."""
    passing = start
    while cost(passing) > epsilon:
        passing *= 2
        if passing > _LARGEST:
            raise ValueError(
                f"epsilon must be attainable, got {epsilon!r}: no sigma up to {_LARGEST:g} meets it"
            )
    while passing > 1 / _LARGEST and cost(passing / 2) <= epsilon:
        passing /= 2
    return _bisect(lambda sigma: cost(sigma) <= epsilon, failing=passing / 2, passing=passing)


def _most(meets: Callable[[int], bool]) -> int:
    """The largest number that meets the target."""
    if not meets(1):
        return 0
    passing = 1
    while meets(2 * passing):
        passing *= 2
        if passing > _LARGEST:
            return passing
    failing = 2 * passing
    while failing - passing > 1:
        middle = (passing + failing) // 2
        passing, failing = (middle, failing) if meets(middle) else (passing, middle)
    return passing


def _bisect(meets: Callable[[float], bool], *, failing: float, passing: float) -> float:
    """A value that meets the target, within the tolerance of one that does not."""
    while abs(failing - passing) > _TOLERANCE * passing:
        middle = math.sqrt(failing * passing)
        if meets(middle):
            passing = middle
        else:
            failing = middle
    return passing
