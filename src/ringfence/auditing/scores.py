"""Audits of membership or canary scores, wherever they come from."""

import numpy as np

from ringfence import checks
from ringfence.auditing.bounds import Floats, best_event, epsilon_of_mu, one_run_bounds
from ringfence.auditing.result import AuditResult, observed_rates

_FEWEST = 10  # scores of a side: fewer prove next to nothing


def audit_scores(
    in_scores: object,
    out_scores: object,
    *,
    delta: float,
    significance: float = 0.05,
    claim: float | None = None,
    independent: bool = False,
    seed: int = 0,
    what: str = "These scores",
) -> AuditResult:
    """Bounds epsilon from below by the scores of those who were in the data and of those who were not.

    Larger scores should mean "in". Scores of one trained model depend on each other: the bounds of one run
    count (arXiv 2410.22235), for which everybody must have been in by a fair coin. If each score comes from a
    run of its own, say ``independent``: thresholds count, and no coin is needed. All are in ``bounds``; "one
    run, Gaussian" is the epsilon of the smallest mu that is left to a mechanism with a Gaussian trade-off
    curve, such as DP-SGD with many steps. ``seed`` orders equal scores and splits halves.

    Guarantee: ``epsilon_lower_bound`` is above the true epsilon with probability at most ``significance``.

    >>> scores = np.random.default_rng(0).normal(size=(2, 10_000))
    >>> found = audit_scores(scores[0] + 2, scores[1], delta=1e-6)
    >>> 4 < found.epsilon_lower_bound < 5, found.refutes(epsilon=3.0)
    (True, True)
    """
    inside, outside = _checked("in_scores", in_scores), _checked("out_scores", out_scores)
    if min(inside.min(), outside.min()) == max(inside.max(), outside.max()):
        raise ValueError(f"scores must differ, got {float(inside[0])!r} for all: they tell nothing")
    checks.probability_or_zero("delta", delta)
    checks.probability("significance", significance)
    if claim is not None:
        checks.number("claim", claim, checks.not_negative)
    rng = np.random.default_rng(checks.seed(seed))
    by_curve, mu = one_run_bounds(inside, outside, delta, significance, rng)
    split = (np.array_split(rng.permutation(side)[None], 2, axis=1) for side in (inside, outside))
    first, second = zip(*split, strict=True)
    apart, apart_mu, _ = best_event(first, second, delta, significance / 2)
    return AuditResult(
        what=what,
        delta=delta,
        significance=significance,
        epsilon_lower_bound=max(0.0, apart) if checks.flag("independent", independent) else by_curve,
        mu_lower_bound=max(0.0, apart_mu) if independent else mu,
        draws=len(inside) + len(outside),
        bounds={
            "one run": by_curve,
            "one run, Gaussian": epsilon_of_mu(mu, delta),
            "thresholds, independent scores": max(0.0, apart),
        },
        conditions=("scores are independent draws: a run of its own for each",)
        if independent
        else ("each canary was in the data or not by its own fair coin",),
        not_tried=("other scores of the same output",),
        claim=claim,
        observed=observed_rates(inside, outside, significance),
    )


def _checked(name: str, scores: object) -> Floats:
    """The scores as a vector: at least ten finite numbers or infinities, none NaN."""
    values = np.asarray(checks.real(name, scores), dtype=np.float64)
    if values.ndim != 1 or len(values) < _FEWEST:
        raise ValueError(
            f"{name} must be a list of at least {_FEWEST} numbers, got shape {list(values.shape)}"
        )
    return values
