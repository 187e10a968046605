"""Audits of any function that draws something from data: does it keep the privacy that it claims?"""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ringfence import checks
from ringfence.auditing.bounds import Event, Floats, best_event, epsilon_of_rates, mu_of_rates
from ringfence.auditing.result import AuditResult, observed_rates

_FEWEST = 1000  # draws of either side
_ROUNDS = 6  # at most: each tests what was learned on all earlier draws, and has as many as they together
_FIRST = 250  # draws of either side in the first round, from which a test is learned
_MOST_LABELS = 64  # of an output set whose events are counted one by one
_MOST_COORDINATES = 128  # of outputs and digits that are tried one by one; the classifier sees all
_LOG_RATIO_ORDER = "log_ratio(outputs) must return a number per output, larger where data is likelier"

Mechanism = Callable[..., Any]
Statistics = Callable[[list[Any]], Floats]


def audit(
    mechanism: Mechanism,
    data: Any,
    neighbour: Any = None,
    *,
    claim: tuple[float, float],
    neighbours: Sequence[Any] = (),
    draws: int = 100_000,
    significance: float = 0.001,
    batched: bool = False,
    log_ratio: Callable[[Any], Any] | None = None,
    floating_point: bool = True,
    seed: int = 0,
) -> AuditResult:
    """Attacks a claim of (epsilon, delta): does what comes out tell the data from its neighbour?

    ``mechanism(data)`` returns a number, a vector, or a label (anything hashable); with ``batched``,
    ``mechanism(data, count)`` returns that many. At most ``draws`` are made of either dataset, in rounds that
    double. Each round tests events that were learned on all earlier draws: those of small output sets one by
    one; else thresholds of each coordinate, of its last binary digit and of a classifier of scikit-learn; or
    of ``log_ratio(outputs)``, if given. Noise of floating-point numbers shows in the last digits of a sum
    (Mironov 2012), however much of it there is: ``floating_point=False`` leaves these out.
    Both directions are tried. When the claim has fallen the audit ends. Among ``neighbours`` the one that is
    told apart best in a first look is attacked. ``seed`` is the classifier's: the mechanism has its own.

    Guarantee: a true claim is refuted with probability at most ``significance``, all rounds together, if
    every call draws afresh.

    >>> rng = np.random.default_rng(0)
    >>> noisy = lambda count, size: count + rng.laplace(size=size)  # epsilon is 1
    >>> audit(noisy, 10, 11, claim=(1.0, 0.0), draws=20_000, batched=True).refuted
    False
    >>> audit(noisy, 10, 11, claim=(0.5, 0.0), draws=20_000, batched=True).refuted
    True
    """
    epsilon, delta = _checked_claim(claim)
    checks.probability("significance", significance)
    checks.count("draws", draws, at_least=_FEWEST)
    if not callable(mechanism):
        raise TypeError(f"mechanism must be callable, got {mechanism!r}")
    candidates = [*([] if neighbour is None else [neighbour]), *neighbours]
    if not candidates:
        raise ValueError("neighbour or neighbours must be given: a dataset that differs by one record")
    sampler = _Sampler(mechanism, checks.flag("batched", batched))
    sizes = _round_sizes(draws)
    share = significance / (2 * (len(sizes) - 1))  # each round has a rate from below and one from above
    seen = _Draws(sampler.draw(data, sizes[0]), [])
    looks = [_Draws(seen.inside, sampler.draw(other, sizes[0])) for other in candidates]
    rng = np.random.default_rng(checks.seed(seed))
    attack = _Attack(log_ratio, checks.flag("floating_point", floating_point))
    _refuse_constant(looks)
    gains = [_first_look(look, delta, attack, rng) for look in looks] if len(looks) > 1 else [0.0]
    worst = int(np.argmax(gains))
    seen, other = looks[worst], candidates[worst]
    best, mu, tested = 0.0, 0.0, None
    for size in sizes[1:]:
        statistics, event = _learned(seen, delta, share, attack, rng)
        fresh = _Draws(sampler.draw(data, size), sampler.draw(other, size))
        tested = statistics(fresh.inside), statistics(fresh.outside)
        rates = event.rates(*tested, share)
        best, mu = max(best, epsilon_of_rates(*rates, delta)), max(mu, mu_of_rates(*rates))
        sign = event.sign * (-1 if event.swapped else 1)
        seen = _Draws(seen.inside + fresh.inside, seen.outside + fresh.outside)
        if best > epsilon:
            break
    assert tested is not None  # there are at least two rounds
    scores = [sign * side[event.statistic] for side in tested]
    tried = (
        "one neighbour"
        if len(candidates) == 1
        else f"the worst of {len(candidates)} neighbours in a first look"
    )
    return AuditResult(
        what=f"{getattr(mechanism, '__name__', type(mechanism).__name__)}, {tried}",
        delta=delta,
        significance=significance,
        epsilon_lower_bound=best,
        mu_lower_bound=mu,
        draws=len(seen.inside) + len(seen.outside),
        bounds={},
        conditions=("every call of the mechanism draws afresh",),
        not_tried=(
            "other datasets and neighbours",
            "events that no learned test names",
            "timing and side effects",
        ),
        claim=epsilon,
        observed=observed_rates(scores[0], scores[1], significance),
    )


@dataclass(frozen=True)
class _Attack:
    log_ratio: Callable[[Any], Any] | None
    floating_point: bool


@dataclass(frozen=True)
class _Draws:
    inside: list[Any]
    outside: list[Any]


@dataclass(frozen=True)
class _Sampler:
    mechanism: Mechanism
    batched: bool

    def draw(self, data: Any, count: int) -> list[Any]:
        """Outputs of as many calls, or of one: numbers, tuples of numbers, or labels."""
        outputs = (
            self.mechanism(data, count) if self.batched else [self.mechanism(data) for _ in range(count)]
        )
        outputs = list(outputs)
        if len(outputs) != count:
            raise ValueError(f"mechanism(data, {count}) must return as many outputs, got {len(outputs)}")
        return [_plain(output) for output in outputs]


def _plain(output: Any) -> Any:
    """An output as a number, a tuple of numbers or a label; NaN is a label of its own kind."""
    if isinstance(output, bool | str | bytes | int | float):
        return output
    if hasattr(output, "tolist"):
        output = output.tolist()
    if isinstance(output, list | tuple):
        return tuple(np.asarray(output).ravel().tolist())
    if isinstance(output, Hashable):
        return output
    raise TypeError(f"mechanism must return numbers, vectors or labels, got {type(output).__name__}")


def _round_sizes(draws: int) -> list[int]:
    """Sizes of the rounds, which double and end with half of all draws.

    >>> _round_sizes(100_000), _round_sizes(1000)
    ([3125, 3125, 6250, 12500, 25000, 50000], [250, 250, 500])
    """
    rounds = min(_ROUNDS, 1 + int(math.log2(draws / _FIRST)))
    first = draws >> (rounds - 1)
    return [first, *(draws >> power for power in range(rounds - 1, 0, -1))]


def _checked_claim(claim: object) -> tuple[float, float]:
    if hasattr(claim, "epsilon") and hasattr(claim, "delta"):
        claim = (claim.epsilon, claim.delta)
    if not isinstance(claim, tuple | list) or len(claim) != 2:
        raise ValueError(f"claim must be a pair (epsilon, delta), got {claim!r}")
    return (
        checks.number("claim[0] (epsilon)", claim[0], checks.not_negative),
        checks.probability_or_zero("claim[1] (delta)", claim[1]),
    )


def _refuse_constant(looks: list[_Draws]) -> None:
    outputs = [repr(output) for look in looks for output in (*look.inside, *look.outside)]
    if len(set(outputs)) == 1:
        raise ValueError(
            f"mechanism must not be constant, got {outputs[0]} for every draw of every dataset: "
            "pass a neighbour on which its result differs"
        )


def _first_look(seen: _Draws, delta: float, attack: _Attack, rng: np.random.Generator) -> float:
    """How well a neighbour is told apart on half of the first draws by what the other half taught."""
    cuts = [len(side) // 2 for side in (seen.inside, seen.outside)]
    statistics, event = _learned(
        _Draws(seen.inside[: cuts[0]], seen.outside[: cuts[1]]), delta, 0.05, attack, rng
    )
    rates = event.rates(statistics(seen.inside[cuts[0] :]), statistics(seen.outside[cuts[1] :]), 0.05)
    return epsilon_of_rates(*rates, delta)


def _learned(
    seen: _Draws, delta: float, share: float, attack: "_Attack", rng: np.random.Generator
) -> tuple[Statistics, Event]:
    """Statistics of outputs, and the best event of theirs: a half of the draws teaches, the other chooses."""
    orders = [rng.permutation(len(side)) for side in (seen.inside, seen.outside)]
    teach, choose = (
        _Draws(
            [seen.inside[place] for place in orders[0][start::2]],
            [seen.outside[place] for place in orders[1][start::2]],
        )
        for start in (0, 1)
    )
    if attack.log_ratio is not None:
        statistics: Statistics = _given(attack.log_ratio)
    elif len({*map(_key, seen.inside), *map(_key, seen.outside)}) <= _MOST_LABELS:
        statistics = _frequencies(teach)
    else:
        statistics = _features(teach, attack.floating_point, rng)
    return statistics, best_event(statistics(choose.inside), statistics(choose.outside), delta, share)


def _key(output: Any) -> Hashable:
    """Equal outputs have equal keys, NaN too."""
    return repr(output)


def _given(log_ratio: Callable[[Any], Any]) -> Statistics:
    def statistics(outputs: list[Any]) -> Floats:
        values = np.asarray(log_ratio(np.asarray(outputs)), dtype=np.float64).reshape(1, -1)
        if values.shape[1] != len(outputs) or np.isnan(values).any():
            raise ValueError(f"{_LOG_RATIO_ORDER}, got shape {list(values.shape[1:])} or NaN")
        return values

    return statistics


def _frequencies(teach: _Draws) -> Statistics:
    """For a small output set: how much likelier each label is; one never seen is taken for even."""
    counts: dict[Hashable, list[float]] = {}
    for side, outputs in enumerate((teach.inside, teach.outside)):
        for output in outputs:
            counts.setdefault(_key(output), [0.5, 0.5])[side] += 1
    ratios = {label: math.log(one / other) for label, (one, other) in counts.items()}
    return lambda outputs: np.array([[ratios.get(_key(output), 0.0) for output in outputs]])


def _features(teach: _Draws, floating_point: bool, rng: np.random.Generator) -> Statistics:
    """For numbers and vectors: the score of a classifier, each coordinate, and each last digit."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    columns = [_columns(side, floating_point) for side in (teach.inside, teach.outside)]
    truth = np.repeat([1, 0], [side.shape[1] for side in columns])
    learner = HistGradientBoostingClassifier(max_iter=50, random_state=int(rng.integers(2**31)))
    learner.fit(np.concatenate(columns, axis=1).T, truth)

    def statistics(outputs: list[Any]) -> Floats:
        own = _columns(outputs, floating_point)
        alone = own if len(own) <= _MOST_COORDINATES else own[:0]
        return np.vstack(
            (learner.decision_function(own.T)[None], np.where(np.isnan(alone), -math.inf, alone))
        )

    return statistics


def _columns(outputs: list[Any], floating_point: bool) -> Floats:
    """(statistics, draws): the numbers, and the place of the last binary digit of each."""
    try:
        values = np.atleast_2d(np.asarray(outputs, dtype=np.float64).reshape(len(outputs), -1).T)
    except (ValueError, TypeError):
        raise TypeError(
            f"mechanism must return numbers or vectors of one length, or at most {_MOST_LABELS} different "
            f"labels, got {outputs[0]!r} among others"
        ) from None
    if not floating_point:
        return values
    mantissas, exponents = np.frexp(np.where(np.isfinite(values), values, 0.0))
    whole = (mantissas * 2.0**53).astype(np.int64)
    digits = np.log2(np.maximum(whole & -whole, 1).astype(np.float64)) + exponents - 53
    return np.concatenate((values, np.where(whole == 0, 0.0, digits)))
