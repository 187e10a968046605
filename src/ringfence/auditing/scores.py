"""Audits of membership or canary scores, wherever they come from."""

import numpy as np

from ringfence import checks
from ringfence.accounting.conversion import gaussian_epsilon
from ringfence.auditing.bounds import Floats, OneRun, best_event, epsilon_of_rates, halves, mu_of_rates
from ringfence.auditing.result import AuditResult, observed_rates

_FEWEST = 10  # scores of a side: fewer prove next to nothing
INDEPENDENT = "scores are independent draws: a run of its own for each"
COINS = "each canary was in the data or not by its own fair coin"


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
    count (arXiv 2305.08846 and 2410.22235), for which everybody must have been in by a fair coin. If each
    score comes from a run of its own, say ``independent``: thresholds count, and no coin is needed. All are
    in ``bounds``; "f-DP, Gaussian" is the epsilon of the smallest mu that is left to a mechanism with a
    Gaussian trade-off curve, such as DP-SGD with many steps. ``seed`` orders equal scores and splits halves.

    Guarantee: ``epsilon_lower_bound`` is above the true epsilon with probability at most ``significance``.

    >>> scores = np.random.default_rng(0).normal(size=(2, 10_000))
    >>> found = audit_scores(scores[0] + 2, scores[1], delta=1e-6)
    >>> 4 < found.epsilon_lower_bound < 5, found.refutes(epsilon=3.0)
    (True, True)
    """
    inside, outside = checked_scores("in_scores", in_scores), checked_scores("out_scores", out_scores)
    if min(inside.min(), outside.min()) == max(inside.max(), outside.max()):
        raise ValueError(f"scores must differ, got {inside[0]!r} for all: they tell nothing")
    checks.probability_or_zero("delta", delta)
    checks.probability("significance", significance)
    checks.flag("independent", independent)
    if claim is not None:
        checks.number("claim", claim, checks.not_negative)
    rng = np.random.default_rng(checks.seed(seed))
    run = OneRun.of(inside, outside, rng)
    first, second = halves(rng.permutation(inside), rng.permutation(outside))
    share = significance / 2
    rates = best_event(*first, delta, share).rates(*second, share)
    one_run, one_run_mu = run.epsilon(delta, significance), run.mu(significance)
    by_thresholds = epsilon_of_rates(*rates, delta)
    bounds = {
        "one run": run.by_binomial(delta, significance),
        "f-DP, one run": one_run,
        "f-DP, one run, Gaussian": gaussian_epsilon(one_run_mu, delta) if one_run_mu and delta else 0.0,
        "thresholds, independent scores": by_thresholds,
    }
    return AuditResult(
        what=what,
        delta=delta,
        significance=significance,
        epsilon_lower_bound=by_thresholds if independent else one_run,
        mu_lower_bound=mu_of_rates(*rates) if independent else one_run_mu,
        draws=len(inside) + len(outside),
        bounds=bounds,
        conditions=(INDEPENDENT if independent else COINS,),
        not_tried=("other scores of the same output",),
        claim=claim,
        observed=observed_rates(inside, outside, significance),
    )


def checked_scores(name: str, scores: object) -> Floats:
    """The scores as a vector: at least ten finite numbers or infinities, none NaN."""
    values = np.asarray(checks.real(name, scores), dtype=np.float64)
    if values.ndim != 1 or len(values) < _FEWEST:
        raise ValueError(
            f"{name} must be a list of at least {_FEWEST} numbers, got shape {list(values.shape)}"
        )
    return values
