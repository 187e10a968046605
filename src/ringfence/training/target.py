"""Targets: the noise with which a training run meets an (epsilon, delta), found before there is data."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from ringfence import checks
from ringfence.accounting.calibration import smallest_sigma, with_sigma
from ringfence.accounting.conversion import gaussian_epsilon
from ringfence.accounting.guarantee import Guarantee
from ringfence.mechanisms.base import Mechanism, checked_mechanism
from ringfence.mechanisms.gaussian import Gaussian

_LARGEST = 1e12  # of a target: more is no promise

# An account adds up releases one by one, which rounds differently from what was planned.
_ROOM = 1 - 1e-9


@dataclass(frozen=True)
class Target:
    """The (epsilon, delta)-differential privacy that a whole run must have, for every dataset.

    >>> Target.asked(1.0, 1e-5)
    Target(epsilon=1.0, delta=1e-05)
    """

    epsilon: float
    delta: float

    @classmethod
    def asked(cls, target_epsilon: Any, target_delta: Any) -> Self | None:
        """Returns the target that two arguments describe; None where neither is given.

        >>> Target.asked(1.0, None)
        Traceback (most recent call last):
        ValueError: target_delta must be given together with target_epsilon, got None
        """
        if target_epsilon is None and target_delta is None:
            return None
        names = ("target_epsilon", "target_delta")
        if target_epsilon is None or target_delta is None:
            missing, given = names if target_epsilon is None else names[::-1]
            raise ValueError(f"{missing} must be given together with {given}, got None")
        epsilon = checks.number("target_epsilon", target_epsilon, checks.positive)
        if epsilon > _LARGEST:
            raise ValueError(f"target_epsilon must be at most {_LARGEST:g}, got {target_epsilon!r}")
        return cls(epsilon, checks.probability("target_delta", target_delta))

    @property
    def mu(self) -> float:
        """The Gaussian-DP parameter of the target: the largest mu that meets it, from below to 0.1 %.

        >>> round(Target(1.0, 1e-5).mu, 3)
        0.268
        """
        return 1 / self.sigma(lambda sigma: gaussian_epsilon(1 / sigma, self.delta), start=1.0)

    def law(self, mechanism: Mechanism, claim: Callable[[Mechanism, float], Guarantee]) -> Mechanism:
        """Returns the mechanism with the smallest sigma that meets the target, and its bound as it is.

        ``claim(law, delta)`` is what will be said of the run with that law, whatever the data. The search
        begins at the mechanism's own sigma. Where sigma is a tensor the answer has one number instead.

        Guarantee: the cost at the answer was computed and is not over the target. The answer is at most
        0.1 % above a sigma whose cost is.

        >>> from ringfence import PerInstanceAccountant
        >>> def once(law: Mechanism, delta: float) -> Guarantee:
        ...     account = PerInstanceAccountant(law, sensitivity=1.0)
        ...     account.step_worst_case(0.0)
        ...     return account.guarantee(delta)
        >>> round(float(Target(1.0, 1e-5).law(Gaussian(1.0), once).sigma), 2)
        3.73
        """

        def cost(sigma: float) -> float:
            return claim(with_sigma(mechanism, sigma), self.delta).epsilon / _ROOM

        return with_sigma(mechanism, self.sigma(cost, start=float(mechanism.sigma.double().mean())))

    def sigma(self, cost: Callable[[float], float], start: float) -> float:
        """Returns the smallest sigma that meets the target, from above to 0.1 %.

        >>> round(Target(1.0, 1e-5).sigma(lambda sigma: 3 / sigma, start=1.0), 2)
        3.0
        """
        return smallest_sigma(cost, self.epsilon, start, name="target_epsilon")


def law_of_target(mechanism: Mechanism | str | None) -> Mechanism:
    """Returns the law whose sigma is to be found: a mechanism, one named that has no bound, or the Gaussian.

    >>> law_of_target("sign"), law_of_target(None)
    (StochasticSign(sigma=1.0), Gaussian(sigma=1.0))
    >>> law_of_target("truncated")
    Traceback (most recent call last):
    ValueError: mechanism 'truncated' needs bound: give a mechanism with any sigma, which is replaced
    """
    if mechanism is None:
        return Gaussian(1.0)
    if not isinstance(mechanism, str):
        return checked_mechanism(mechanism)
    law = Mechanism.known().get(mechanism)
    if law is not None and law.fields() != ("sigma",):
        needed = ", ".join(law.fields()[1:])
        raise ValueError(
            f"mechanism {mechanism!r} needs {needed}: give a mechanism with any sigma, which is replaced"
        )
    return Mechanism.by_name(mechanism, sigma=1.0)
