"""Audits of any function that draws something from data: does it keep the privacy that it claims?"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ringfence import checks
from ringfence.auditing.bounds import Floats, Sides, best_event
from ringfence.auditing.result import AuditResult, observed_rates

_FEWEST = 1000  # draws of either side
_ROUNDS = 6  # at most: each tests what was learned on all earlier draws, and has as many as they together
_FIRST = 250  # draws of either side in the first round, from which a test is learned
_MOST_LABELS = 64  # of an output set whose events are counted one by one
_MOST_COORDINATES = 128  # of outputs and digits that are tried one by one; the classifier sees all

Draws = tuple[list[Any], list[Any]]  # outputs on either dataset
Statistics = Callable[[list[Any]], Floats]


def audit(
    mechanism: Callable[..., Any],
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

    ``mechanism(data)`` returns a number, a vector, or a label (anything whose repr tells it from others);
    with ``batched``, ``mechanism(data, count)`` returns that many. At most ``draws`` are made of either
    dataset, in rounds that double. Each round tests events that were learned on all earlier draws: those of
    small output sets one by one; else thresholds of each coordinate, of its last binary digit and of a
    classifier of scikit-learn; or of ``log_ratio(outputs)``, if given: a number per output, of that output
    alone. Noise of floating-point numbers shows in the last digits of a sum (Mironov 2012), however much of
    it there is: ``floating_point=False`` leaves these out. Both directions are tried. When the claim has
    fallen the audit ends. Among ``neighbours`` the one that is told apart best in a first look is attacked.
    ``seed`` is the classifier's: the mechanism has its own.

    Guarantee: a true claim is refuted with probability at most ``significance``, all rounds together, if
    every call draws afresh.

    >>> rng = np.random.default_rng(0)
    >>> noisy = lambda count, size: count + rng.laplace(size=size)  # epsilon is 1
    >>> audit(noisy, 10, 11, claim=(1.0, 0.0), draws=20_000, batched=True).refuted
    False
    >>> audit(noisy, 10, 11, claim=(0.5, 0.0), draws=20_000, batched=True).refuted
    True
    """
    if not isinstance(claim, tuple | list) or len(claim) != 2:
        raise ValueError(f"claim must be a pair (epsilon, delta), got {claim!r}")
    epsilon = checks.number("claim[0] (epsilon)", claim[0], checks.not_negative)
    delta = checks.probability_or_zero("claim[1] (delta)", claim[1])
    checks.probability("significance", significance)
    checks.count("draws", draws, at_least=_FEWEST)
    checks.flag("floating_point", floating_point)
    if not callable(mechanism):
        raise TypeError(f"mechanism must be callable, got {mechanism!r}")
    candidates = [*([] if neighbour is None else [neighbour]), *neighbours]
    if not candidates:
        raise ValueError("neighbour or neighbours must be given: a dataset that differs by one record")
    each = not checks.flag("batched", batched)
    state = checks.seed(seed) % 2**32

    def draw(dataset: Any, count: int) -> list[Any]:
        outputs = [mechanism(dataset) for _ in range(count)] if each else list(mechanism(dataset, count))
        if len(outputs) != count:
            raise ValueError(f"mechanism(data, {count}) must return as many outputs, got {len(outputs)}")
        plain = (output.tolist() if hasattr(output, "tolist") else output for output in outputs)
        return [
            tuple(np.asarray(output, dtype=object).ravel()) if isinstance(output, list | tuple) else output
            for output in plain
        ]

    def attack(seen: Draws, fresh: Draws, share: float) -> tuple[float, float, Sides]:
        """Bounds from fresh draws, by an event that half of the draws seen teach and half choose."""
        teach, choose = ((seen[0][start::2], seen[1][start::2]) for start in (0, 1))
        if log_ratio is not None:
            statistics = _given(log_ratio)
        elif len({repr(output) for side in seen for output in side}) <= _MOST_LABELS:
            statistics = _frequencies(teach)
        else:
            statistics = _features(teach, floating_point, state)
        chosen, judged = ((statistics(one), statistics(other)) for one, other in (choose, fresh))
        return best_event(chosen, judged, delta, share)

    # rounds double and end with half of all draws; from the first of either side a test is only learned
    rounds = min(_ROUNDS, 1 + int(math.log2(draws / _FIRST))) - 1
    share = significance / (2 * rounds)  # each has a rate from below and one from above
    ours = draw(data, draws >> rounds)
    looks = [(ours, draw(other, draws >> rounds)) for other in candidates]
    outputs = {repr(output) for look in looks for side in look for output in side}
    if len(outputs) == 1:
        raise ValueError(
            f"mechanism must not be constant, got {outputs.pop()} for every draw of every dataset: "
            "pass a neighbour on which its result differs"
        )
    gains = [0.0]
    if len(looks) > 1:  # half of the first draws is attacked by what the other half taught
        gains = [attack((a[::2], b[::2]), (a[1::2], b[1::2]), 0.05)[0] for a, b in looks]
    worst = int(np.argmax(gains))
    seen, best, mu = looks[worst], 0.0, 0.0
    for power in range(rounds, 0, -1):
        fresh = draw(data, draws >> power), draw(candidates[worst], draws >> power)
        proved, proved_mu, scores = attack(seen, fresh, share)
        best, mu = max(best, proved), max(mu, proved_mu)
        seen = seen[0] + fresh[0], seen[1] + fresh[1]
        if best > epsilon:
            break
    missing = ["other datasets and neighbours", "events that no learned test names", "timing"]
    if log_ratio is None and len(outputs) > _MOST_LABELS:
        missing.append(
            "a law without its last digits (floating_point=False)" if floating_point else "last digits"
        )
    tried = f"the worst of {len(looks)} neighbours in a first look" if len(looks) > 1 else "one neighbour"
    return AuditResult(
        what=f"{getattr(mechanism, '__name__', type(mechanism).__name__)}, {tried}",
        delta=delta,
        significance=significance,
        epsilon_lower_bound=best,
        mu_lower_bound=mu,
        draws=len(seen[0]) + len(seen[1]),
        bounds={},
        conditions=("every call of the mechanism draws afresh",),
        not_tried=tuple(missing),
        claim=epsilon,
        observed=observed_rates(*scores, significance),
    )


def _given(log_ratio: Callable[[Any], Any]) -> Statistics:
    def statistics(outputs: list[Any]) -> Floats:
        values = np.asarray(log_ratio(np.asarray(outputs)), dtype=np.float64).reshape(1, -1)
        if values.shape[1] != len(outputs) or np.isnan(values).any():
            raise ValueError(f"log_ratio must return a number per output, got {values.size} numbers or NaN")
        return values

    return statistics


def _frequencies(teach: Draws) -> Statistics:
    """For a small output set: how much likelier each label is; one never seen is taken for even."""
    ours, others = (Counter(map(repr, outputs)) for outputs in teach)  # repr: NaN is a label like others
    return lambda outputs: np.array(
        [[math.log((ours[label] + 0.5) / (others[label] + 0.5)) for label in map(repr, outputs)]]
    )


def _features(teach: Draws, floating_point: bool, state: int) -> Statistics:
    """For numbers and vectors: the score of a classifier, each coordinate, and each last digit."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    ours, others = (_columns(side, floating_point) for side in teach)
    learner = HistGradientBoostingClassifier(max_iter=50, random_state=state)
    learner.fit(np.hstack((ours, others)).T, np.repeat([1, 0], [ours.shape[1], others.shape[1]]))

    def statistics(outputs: list[Any]) -> Floats:
        own = _columns(outputs, floating_point)
        alone = np.where(np.isnan(own), -math.inf, own)[: len(own) if len(own) <= _MOST_COORDINATES else 0]
        return np.vstack((learner.decision_function(own.T)[None], alone))

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
