"""The noise, the bound or the number of releases that meets a target epsilon.

Each answer is searched for by the cost of the account that will be made of the releases, so that no second
formula has to be right: the cost at the answer was computed, and is not over the target. By default it is the
epsilon for every dataset; an answer that was found from theta is sensitive, and comes with a warning.
"""

import math
import warnings
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count as counted

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.guarantee import EpsilonKind
from ringfence.accounting.per_instance import PerInstanceAccountant
from ringfence.accounting.sensitivity import Sensitivity
from ringfence.accounting.subsampling import SampledAccountant
from ringfence.checks import Real
from ringfence.mechanisms.base import Mechanism, checked_mechanism
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.numerics.rounding import rounded_up

_TOLERANCE = 1e-3  # relative, of the parameter found
_CLOSE = 2.0**-40  # two sigmas between which a cost jumps
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
    ``SampledAccountant.step_worst_case`` charges.

    The kinds "per_instance" and "ex_post" are about this theta and must be asked for: three confident votes
    are almost free to release without noise, and the answer says so to everyone who sees it. These kinds
    raise a ``PerInstanceCalibrationWarning`` and cannot be combined with sampling. Use them on public or
    simulated data. Their cost need not fall with sigma everywhere. The answer is therefore found from
    above, where the Gaussian's noise meets the target for every theta.

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
    question = _question(theta, sensitivity, delta, kind, coordinates, sampling_rate)
    steps = checks.count("steps", steps, at_least=1)

    def smallest(question: _Question, start: float, stride: float = 2.0**10) -> float:
        return smallest_sigma(
            lambda sigma: question.cost(with_sigma(mechanism, sigma), steps), epsilon, start, stride=stride
        )

    start = float(mechanism.sigma.double().mean())
    if question.sampling_rate < 1:  # releases of everything cost more, and their sigma is found sooner
        start = smallest(replace(question, sampling_rate=1.0), start)
    # the cost for this dataset need not fall with sigma everywhere: the search goes down in small steps
    sigma = smallest(question, start, stride=2.0**10 if question.kind == "data_independent" else 2.0)
    question.warn("sigma", sigma, with_sigma(mechanism, sigma), steps)
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

    A wider interval leaks more: the clamp to a narrower interval is a function of the clamp to a
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
    question = _question(theta, sensitivity, delta, kind, coordinates, sampling_rate)
    steps = checks.count("steps", steps, at_least=1)
    scale = float(mechanism.sigma.double().max())
    widest, narrowest = 64 * scale, scale / 1024

    def law(bound: float) -> Mechanism:
        if bound == math.inf:
            return Gaussian(mechanism.sigma)
        lower, upper = torch.tensor([-bound, bound], dtype=torch.float64)
        return mechanism.with_parameters({**mechanism.parameters(), "lower": lower, "upper": upper})

    def cost(bound: float) -> float:
        return question.cost(law(bound), steps)

    bound = next((wide for wide in (math.inf, widest) if cost(wide) <= epsilon), None)
    if bound is None:
        if (least := cost(narrowest)) > epsilon:
            reason = f"what an interval of {narrowest:.3g} still leaks"
            if least == cost(widest):
                reason = "for every dataset it costs what the Gaussian does, whatever its bound"
            raise ValueError(f"epsilon must be at least {least:.4g} for this law: {reason}, got {epsilon!r}")
        bound, failing = narrowest, widest
        while failing - bound > _TOLERANCE * bound:
            middle = math.sqrt(failing * bound)
            bound, failing = (middle, failing) if cost(middle) <= epsilon else (bound, middle)
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
    question = _question(theta, sensitivity, delta, kind, coordinates, sampling_rate)
    largest = _LARGEST if question.sampling_rate == 1 else 2.0**22

    def fails(steps: int) -> bool:
        return not question.cost(mechanism, steps) <= epsilon

    passing, failing = 0, 1
    while failing <= largest and not fails(failing):
        passing, failing = failing, 2 * failing
    if failing <= largest:
        passing = bisect_left(range(failing), True, lo=passing + 1, key=fails) - 1
    question.warn("steps", passing, mechanism, passing)
    return passing


def with_sigma(mechanism: Mechanism, sigma: float) -> Mechanism:
    """The law with this one sigma, and its other parameters as they are.

    >>> with_sigma(Gaussian(1.0), 2.0)
    Gaussian(sigma=2.0)
    """
    own = {"sigma": torch.tensor(sigma, dtype=torch.float64)}
    return mechanism.with_parameters({**mechanism.parameters(), **own})


def smallest_sigma(
    cost: Callable[[float], float],
    epsilon: float,
    start: float,
    *,
    stride: float = 2.0**10,
    name: str = "epsilon",
    tolerance: float = _TOLERANCE,
) -> float:
    """A sigma whose cost is at most epsilon, and at most 0.1 % (``tolerance``) above one whose cost is not.

    Nor is the cost more than 0.1 % below epsilon, unless it jumps there.

    Between two places the cost is about proportional to a power of 1 / sigma, so that few evaluations find
    the answer, of which each may take a second. One is at most ``stride`` times as far as the last one until
    the answer lies between two of them. ``name`` is that of the target in errors.

    Guarantee: the cost at the answer was computed and is not over the target.

    >>> round(smallest_sigma(lambda sigma: 3 / sigma, 1.0, start=1.0), 2)
    3.0
    """
    passing = failing = None
    sigma = start
    for attempt in counted():
        value = cost(sigma)
        if value <= epsilon:
            passing = (sigma, value)
        else:
            failing = (sigma, value)
        if failing is None:
            if sigma < 1 / _LARGEST:
                return sigma
            sigma *= max(1 / stride, min(0.5, value / epsilon))
        elif passing is None:
            if sigma > _LARGEST:
                raise ValueError(
                    f"{name} must be attainable, got {epsilon!r}: no sigma up to {_LARGEST:g} meets it"
                )
            sigma *= max(2.0, min(stride, value / epsilon))
        elif passing[0] - failing[0] <= tolerance * passing[0] and (
            passing[1] >= (1 - tolerance) * epsilon or passing[0] - failing[0] <= _CLOSE * passing[0]
        ):
            return passing[0]
        elif attempt % 4 == 3:  # a curve of another form must not take long
            sigma = math.sqrt(failing[0] * passing[0])
        else:
            sigma = _between(failing, passing, (1 - 0.3 * tolerance) * epsilon, 0.6 * tolerance)
    raise AssertionError("unreachable")


def _between(
    failing: tuple[float, float], passing: tuple[float, float], epsilon: float, step: float
) -> float:
    """The next sigma to try between one that fails and one that passes, each with its cost.

    It stays a ``step`` away from both ends, or a quarter of their distance, so that an answer close to one is
    confirmed at once.
    """
    (low, above), (high, below) = failing, passing
    if not 0 < below < above < math.inf or high / low > 2:
        return math.sqrt(low * high)
    step = min(step, (high / low - 1) / 4)
    share = math.log(above / epsilon) / math.log(above / below)
    guess = low * float((high / low) ** share)
    return min(max(guess, low * (1 + step)), high * (1 - step))


class PerInstanceCalibrationWarning(UserWarning):
    """An answer was found from theta: it meets the target for this dataset only, and is sensitive itself.

    This is a warning and not a field of the answer, because the answer is a number and soon a part of other
    numbers, where a field would be lost. The message names the epsilon that the answer costs for every
    dataset. Silence the warning where theta is public or simulated.

    >>> issubclass(PerInstanceCalibrationWarning, UserWarning)
    True
    """


@dataclass(frozen=True)
class _Question:
    """The releases, and which of their epsilons must meet the target."""

    theta: Tensor
    sensitivity: Sensitivity
    delta: float
    kind: EpsilonKind
    sampling_rate: float

    def cost(self, law: Mechanism, steps: int) -> float:
        """The epsilon of this many releases."""
        exact = PerInstanceAccountant(law, self.sensitivity)
        if self.kind != "data_independent":
            exact.step(self.theta, count=steps)
            own = exact.guarantee(self.delta).per_instance
            return own.ex_post_epsilon if self.kind == "ex_post" else own.epsilon
        account: SampledAccountant | PerInstanceAccountant = exact
        if self.sampling_rate < 1:
            account = SampledAccountant(law, self.sensitivity, self.sampling_rate)
        account.step_worst_case(self.theta, count=steps)
        return account.privacy_loss().epsilon(self.delta)

    def warn(self, name: str, answer: float, law: Mechanism, steps: int) -> None:
        """Warns what an answer from theta costs for every dataset, unless it holds for every dataset."""
        if self.kind == "data_independent":
            return
        everyone = replace(self, kind="data_independent").cost(law, steps) if steps else 0.0
        warnings.warn(
            f"{name} = {answer:.6g} was found from theta and meets the target for this dataset only (kind "
            f"{self.kind!r}); for every dataset it costs epsilon = {rounded_up(everyone)}. It is sensitive: "
            "do not publish it, nor what is released with it, unless theta is public or simulated.",
            PerInstanceCalibrationWarning,
            stacklevel=3,
        )


def _question(
    theta: Real | None,
    sensitivity: Real | Sensitivity,
    delta: float,
    kind: EpsilonKind,
    coordinates: int | None,
    sampling_rate: float,
) -> _Question:
    """The question with every argument checked once, before the search."""
    checks.one_of("kind", kind, ("data_independent", "per_instance", "ex_post"))
    delta = checks.probability("delta", delta)
    sampling_rate = checks.rate("sampling_rate", sampling_rate)
    count = None if coordinates is None else checks.count("coordinates", coordinates, at_least=1)
    size = Sensitivity.of(sensitivity)
    if kind != "data_independent" and sampling_rate < 1:
        raise ValueError(
            f"kind must be 'data_independent' where sampling_rate is {sampling_rate:g}, got {kind!r}: "
            "what a sample costs is known for every dataset alone"
        )
    if theta is None and kind != "data_independent":
        raise ValueError(f"theta must be given for kind {kind!r}, got None")
    values = None if theta is None else checks.finite("theta", theta)
    if values is not None and count not in (None, values.numel()):
        if kind != "data_independent":
            raise ValueError(
                f"coordinates must be left out for kind {kind!r}, got {count} and a theta of {values.numel()}"
            )
        values = None  # of which only the shape counts
    if values is None:
        if count is None:
            size, count = _of_any_number(size)
        values = torch.zeros((), dtype=torch.float64).expand(count)
    return _Question(values, size, delta, kind, sampling_rate)


def _of_any_number(size: Sensitivity) -> tuple[Sensitivity, int]:
    """Moves of a known number of coordinates that are as long as those of any number of coordinates."""
    if size.farthest.numel() == 1 and size.at_most is not None:
        return size, size.at_most
    if size.farthest.numel() == 1 and size.norm is not None:
        return Sensitivity(norm=size.norm), 1  # all of the move in one coordinate
    raise ValueError(
        "coordinates must be given where theta is None, got None: the length of a move depends on them"
    )
