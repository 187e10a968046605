"""The noise, the bound or the number of releases that meets a target epsilon."""

import math
from collections.abc import Callable
from dataclasses import replace

import torch

from ringfence import checks
from ringfence.accounting.calibration_question import CalibrationQuestion
from ringfence.accounting.guarantee import EpsilonKind
from ringfence.accounting.sensitivity import Sensitivity
from ringfence.checks import Real
from ringfence.mechanisms.base import Mechanism, checked_mechanism
from ringfence.mechanisms.gaussian import Gaussian

_TOLERANCE = 1e-3  # relative, of the parameter found
_LARGEST = 1e12


def calibrate_sigma(
    mechanism: Mechanism,
    theta: Real | None,
    sensitivity: Real | Sensitivity,
    *,
    epsilon: float,
    delta: float,
    steps: int = 1,
    kind: EpsilonKind = "data_independent",
    coordinates: int | None = None,
    sampling_rate: float = 1.0,
) -> float:
    """A sigma with which ``steps`` releases of theta cost at most ``epsilon``; a little less does not.

    ``mechanism`` gives the law and its bound; the search begins at its sigma. ``kind`` says which epsilon
    of ``Guarantee`` must meet the target. By default it is the epsilon that holds for every dataset: of
    theta only the shape counts, and theta may be None where ``coordinates`` says how many numbers are
    released, or where ``sensitivity`` bounds a move of any number of coordinates (``norm``, ``at_most``).
    With ``sampling_rate`` below 1 each release is of a Poisson sample and costs what
    ``SampledAccountant.step_of_any`` charges.

    The kinds "per_instance" and "ex_post" are about this theta and must be asked for: three confident votes
    are almost free to release without noise, and the answer says so to everyone who sees it. These kinds
    raise a ``PerInstanceCalibrationWarning`` and cannot be combined with sampling. Use them on public or
    simulated data. Their cost need not fall with sigma everywhere. The answer is therefore found from
    above, where the Gaussian's noise meets the target for every theta, and every sigma tried on the way
    down was checked. theta may be a model: a sample whose cost is scaled up to ``coordinates``, unless
    ``sensitivity`` has ``at_most`` or ``norm``.

    Guarantee: the cost at the answer was computed and is not over the target.

    >>> from ringfence.mechanisms.truncated import TruncatedGaussian
    >>> law = TruncatedGaussian(sigma=1.0, bound=2.0)
    >>> round(calibrate_sigma(law, None, 1e-2, coordinates=100, epsilon=0.5, delta=1e-5, steps=10), 2)
    1.59
    >>> round(calibrate_sigma(Gaussian(1.0), None, Sensitivity(norm=1.0), epsilon=1.0, delta=1e-5), 2)
    3.73
    """
    checked_mechanism(mechanism)
    epsilon = checks.number("epsilon", epsilon, checks.positive)
    question = CalibrationQuestion.asked(theta, sensitivity, delta, kind, coordinates, sampling_rate)
    steps = checks.count("steps", steps, at_least=1)

    def law(sigma: float) -> Mechanism:
        own = {"sigma": torch.tensor(sigma, dtype=torch.float64)}
        return mechanism.with_parameters({**mechanism.parameters(), **own})

    start = float(mechanism.sigma.double().mean())
    if question.sampling_rate < 1:  # releases of everything cost more, and their sigma is found sooner
        whole = replace(question, sampling_rate=1.0)
        start = _smallest(lambda sigma: whole.costs(law(sigma))(steps), epsilon, start)
    sigma = _smallest(lambda sigma: question.costs(law(sigma))(steps), epsilon, start)
    question.warn("sigma", sigma, law(sigma), steps)
    return sigma


def calibrate_bound(
    mechanism: Mechanism,
    theta: Real | None,
    sensitivity: Real | Sensitivity,
    *,
    epsilon: float,
    delta: float,
    steps: int = 1,
    kind: EpsilonKind = "data_independent",
    coordinates: int | None = None,
    sampling_rate: float = 1.0,
) -> float:
    """The largest b for which the law on [-b, b] costs at most ``epsilon``; infinite if every b does.

    A wider interval gives more away: the clamp to a narrower interval is a function of the clamp to a
    wider one, and the variance of a conditioned normal law grows with its interval. For every dataset
    (the default ``kind``) the bound matters for a truncated law only: any other law costs what the
    Gaussian does, at every b. Arguments and caveats are those of ``calibrate_sigma``.

    Guarantee: the cost at the answer was computed and is not over the target.

    >>> from ringfence.mechanisms.truncated import TruncatedGaussian
    >>> law = TruncatedGaussian(sigma=1.0, bound=2.0)
    >>> round(calibrate_bound(law, None, 1e-2, coordinates=100, epsilon=0.5, delta=1e-5, steps=10), 2)
    0.74
    """
    if "upper" not in checked_mechanism(mechanism).parameters():
        raise ValueError(f"mechanism must have a bound, got {mechanism!r}")
    epsilon = checks.number("epsilon", epsilon, checks.positive)
    question = CalibrationQuestion.asked(theta, sensitivity, delta, kind, coordinates, sampling_rate)
    steps = checks.count("steps", steps, at_least=1)
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
    sensitivity: Real | Sensitivity,
    *,
    epsilon: float,
    delta: float,
    kind: EpsilonKind = "data_independent",
    coordinates: int | None = None,
    sampling_rate: float = 1.0,
) -> int:
    """The largest number of releases of theta that cost at most ``epsilon`` altogether.

    Arguments and caveats are those of ``calibrate_sigma``. The answer is 0 where one release is already
    too many. With sampling every number tried is composed anew, which takes seconds, and minutes where the
    answer is in the millions: from 2^22 on it is not looked for.

    Guarantee: the cost of the answer was computed and is not over the target.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> calibrate_steps(Gaussian(1.0), None, 1e-3, coordinates=10_000, epsilon=1.0, delta=1e-5)
    7
    """
    epsilon = checks.number("epsilon", epsilon, checks.positive)
    question = CalibrationQuestion.asked(theta, sensitivity, delta, kind, coordinates, sampling_rate)
    cost = question.costs(mechanism)
    steps = _most(lambda steps: cost(steps) <= epsilon, _LARGEST if question.sampling_rate == 1 else 2**22)
    question.warn("steps", steps, mechanism, steps)
    return steps


def _smallest(cost: Callable[[float], float], epsilon: float, start: float) -> float:
    """A sigma that meets the target, found from above: every sigma tried on the way down was checked."""
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


def _most(meets: Callable[[int], bool], largest: float = _LARGEST) -> int:
    """The largest number that meets the target, or one from ``largest`` on that does."""
    if not meets(1):
        return 0
    passing = 1
    while meets(2 * passing):
        passing *= 2
        if passing >= largest:
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
