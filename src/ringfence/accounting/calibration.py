"""The noise, the bound or the number of releases that meets a target epsilon."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Self

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.guarantee import data_independent_epsilon, guarantee
from ringfence.accounting.per_instance import ceilings, per_instance_rdp
from ringfence.checks import Real
from ringfence.mechanisms.base import Mechanism, checked_mechanism
from ringfence.mechanisms.gaussian import Gaussian

Kind = Literal["ex_post", "pdp", "data_independent"]

_FIELDS = {"ex_post": "epsilon", "pdp": "epsilon_pdp", "data_independent": "epsilon_data_independent"}
_TOLERANCE = 1e-3  # relative, of the parameter found
_LARGEST = 1e12


def calibrate_sigma(
    mechanism: Mechanism,
    theta: Real,
    sensitivity: Real,
    *,
    epsilon: float,
    delta: float,
    steps: int = 1,
    kind: Kind = "pdp",
    coordinates: int | None = None,
) -> float:
    """A sigma with which ``steps`` releases of theta cost at most ``epsilon``; a little less does not.

    ``mechanism`` gives the law and its bound; its sigma is where the search begins. ``kind`` is
    the number that must meet the target (``Guarantee``). For a per-instance number the cost need
    not fall with sigma everywhere: the answer is found from above, where the Gaussian's noise
    meets the target for every theta, so that every sigma tried on the way down was checked.

    ``theta`` may be a model: a sample whose cost is scaled up to ``coordinates``. The answer depends
    on theta. Calibrate on public or simulated data, or treat the answer as sensitive.

    Guarantee: the cost at the answer was computed and is not over the target.

    >>> from ringfence.mechanisms.truncated import TruncatedGaussian
    >>> law, theta = TruncatedGaussian(sigma=1.0, bound=2.0), torch.zeros(100)
    >>> round(calibrate_sigma(law, theta, 1e-2, epsilon=0.5, delta=1e-5, steps=10), 2)
    1.58
    """
    checked_mechanism(mechanism)
    epsilon = checks.number("epsilon", epsilon, checks.positive)
    question = _Question.asked(theta, sensitivity, delta, kind, coordinates)
    checks.count("steps", steps, at_least=1)

    def cost(sigma: float) -> float:
        own = {"sigma": torch.tensor(sigma, dtype=torch.float64)}
        law = mechanism.with_parameters({**mechanism.parameters(), **own})
        return question.costs(law)(steps)

    passing = float(mechanism.sigma.double().mean())
    while cost(passing) > epsilon:
        passing *= 2
        if passing > _LARGEST:
            raise ValueError(
                f"epsilon must be attainable, got {epsilon!r}: no sigma up to {_LARGEST:g} meets it"
            )
    while passing > 1 / _LARGEST and cost(passing / 2) <= epsilon:
        passing /= 2
    return _bisect(lambda sigma: cost(sigma) <= epsilon, failing=passing / 2, passing=passing)


def calibrate_bound(
    mechanism: Mechanism,
    theta: Real,
    sensitivity: Real,
    *,
    epsilon: float,
    delta: float,
    steps: int = 1,
    kind: Kind = "pdp",
    coordinates: int | None = None,
) -> float:
    """The largest b for which the law on [-b, b] costs at most ``epsilon``; infinite if all do.

    A wider interval gives more away: the clamp to a narrower one is a function of the clamp to a
    wider one, and the variance of a conditioned normal law grows with its interval. Arguments
    and caveats as for ``calibrate_sigma``.

    Guarantee: the cost at the answer was computed and is not over the target.

    >>> from ringfence.mechanisms.truncated import TruncatedGaussian
    >>> law, theta = TruncatedGaussian(sigma=1.0, bound=2.0), torch.zeros(100)
    >>> round(calibrate_bound(law, theta, 1e-2, epsilon=0.5, delta=1e-5, steps=10), 2)
    0.74
    """
    if "upper" not in checked_mechanism(mechanism).parameters():
        raise ValueError(f"mechanism must have a bound, got {mechanism!r}")
    epsilon = checks.number("epsilon", epsilon, checks.positive)
    question = _Question.asked(theta, sensitivity, delta, kind, coordinates)
    checks.count("steps", steps, at_least=1)
    scale = float(mechanism.sigma.double().max())

    def cost(bound: float) -> float:
        lower, upper = torch.tensor([-bound, bound], dtype=torch.float64)
        ends = {"lower": lower, "upper": upper}
        law = mechanism.with_parameters({**mechanism.parameters(), **ends})
        return question.costs(law)(steps)

    widest, narrowest = 64 * scale, scale / 1024
    if question.costs(Gaussian(mechanism.sigma))(steps) <= epsilon:
        return math.inf
    if cost(widest) <= epsilon:
        return widest
    least = cost(narrowest)
    if least > epsilon:
        raise ValueError(
            f"epsilon must be at least {least:.4g} for this law: what an interval of {narrowest:.3g} "
            f"still gives away, got {epsilon!r}"
        )
    return _bisect(lambda bound: cost(bound) <= epsilon, failing=widest, passing=narrowest)


def calibrate_steps(
    mechanism: Mechanism,
    theta: Real,
    sensitivity: Real,
    *,
    epsilon: float,
    delta: float,
    kind: Kind = "pdp",
    coordinates: int | None = None,
) -> int:
    """The largest number of releases of theta that cost at most ``epsilon`` altogether.

    Arguments and caveats as for ``calibrate_sigma``. 0 where one release is already too many.

    Guarantee: the cost of the answer was computed and is not over the target.

    >>> from ringfence.mechanisms.rectified import RectifiedGaussian
    >>> calibrate_steps(RectifiedGaussian(1.0, bound=0.5), torch.zeros(10_000), 1e-3, epsilon=1.0, delta=1e-5)
    7
    """
    epsilon = checks.number("epsilon", epsilon, checks.positive)
    cost = _Question.asked(theta, sensitivity, delta, kind, coordinates).costs(mechanism)

    def meets(steps: int) -> bool:
        return cost(steps) <= epsilon

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


@dataclass(frozen=True)
class _Question:
    """What is released and which number about it must meet the target."""

    theta: Tensor
    sensitivity: Tensor
    delta: float
    kind: Kind
    scale: float  # how many coordinates each of theta's stands for

    @classmethod
    def asked(cls, theta: Real, sensitivity: Real, delta: float, kind: Kind, coordinates: int | None) -> Self:
        """Everything checked once, before the search."""
        checks.one_of("kind", kind, _FIELDS)
        delta = checks.probability("delta", delta)
        values = checks.finite("theta", theta)
        scale = 1.0
        if coordinates is not None:
            scale = checks.count("coordinates", coordinates, at_least=1) / max(1, values.numel())
        return cls(values, checks.not_negative("sensitivity", sensitivity), delta, kind, scale)

    def costs(self, law: Mechanism) -> Callable[[int], float]:
        """The number in question by the number of releases; the sums are evaluated once."""
        rdp = per_instance_rdp(law, self.theta, self.sensitivity)
        gaussian, bounded = ceilings(law, self.theta, self.sensitivity)

        def cost(steps: int) -> float:
            times = steps * self.scale
            claim = guarantee(
                orders=rdp.orders,
                worst=times * rdp.worst,
                gaussian=times * gaussian * rdp.orders,
                epsilon_data_independent=data_independent_epsilon(
                    times * gaussian, times * bounded, self.delta
                ),
                steps=steps,
                delta=self.delta,
            )
            return float(getattr(claim, _FIELDS[self.kind]))

        return cost


def _bisect(meets: Callable[[float], bool], *, failing: float, passing: float) -> float:
    """A value that meets the target, within the tolerance of one that does not."""
    while abs(failing - passing) > _TOLERANCE * passing:
        middle = math.sqrt(failing * passing)
        if meets(middle):
            passing = middle
        else:
            failing = middle
    return passing
