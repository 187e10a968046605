"""The result of an audit: lower bounds, the observed trade-off curve, a sentence, a page and JSON."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import betainc  # type: ignore[import-untyped]

from ringfence import checks
from ringfence.auditing.bounds import Floats, approximate_blowup, rate_at_least
from ringfence.report.chart import Chart, Line, Panel

_RATES = (1e-3, 3e-3, 0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # of false positives


@dataclass(frozen=True)
class Rate:
    """The true positive rate of thresholds at a false positive rate, with a confidence band."""

    false_positive_rate: float
    true_positive_rate: float
    low: float
    high: float


def observed_rates(
    inside: Floats, outside: Floats, significance: float, at: Sequence[float] = _RATES
) -> tuple[Rate, ...]:
    """The rates at thresholds with these shares of ``outside`` above them, each with its band.

    A band is that of thresholds of ``outside`` whose own false positive rate is below, or above, the one that
    is asked for (order statistics), and of the rate of ``inside`` there (Clopper and Pearson); each of these
    four has a quarter of the significance. It holds where scores are independent draws.

    >>> [rate] = observed_rates(np.arange(1000.0) + 500, np.arange(1000.0), 0.05, [0.1])
    >>> rate.true_positive_rate, 0.5 < rate.low < 0.6 < rate.high < 0.7
    (0.6, True)
    """
    ours, count, share, found = np.sort(inside), len(outside), significance / 4, []
    theirs, places = np.append(np.sort(outside)[::-1], -math.inf), np.arange(1, count + 1)
    for rate in at:
        above = betainc(places, places[::-1], rate)  # that the k-th largest is above the threshold
        sure, never = int((above >= 1 - share).sum()), int((above > share).sum())
        hits = len(ours) - np.searchsorted(ours, theirs[[sure - 1, int(rate * count)]], side="right")
        low = float(rate_at_least(hits[0], len(ours), share)) if sure else 0.0
        misses = np.searchsorted(ours, theirs[never])
        high = 1 - float(rate_at_least(misses, len(ours), share))
        found.append(Rate(rate, float(hits[1] / len(ours)), low, high))
    return tuple(found)


@dataclass(frozen=True)
class AuditResult:
    """A lower bound of epsilon at this delta, and all that was seen on the way.

    ``bounds`` are further lower bounds of epsilon, by name. Each number by itself is above the truth with
    probability at most ``significance``. ``mu_lower_bound`` is about claims of Gaussian differential privacy:
    no smaller mu is true. ``conditions`` are what the bounds rest on, ``not_tried`` what no attack looked at.
    """

    what: str
    delta: float
    significance: float
    epsilon_lower_bound: float
    mu_lower_bound: float
    draws: int
    bounds: dict[str, float]
    conditions: tuple[str, ...] = ()
    not_tried: tuple[str, ...] = ()
    claim: float | None = None  # epsilon at delta
    observed: tuple[Rate, ...] = ()

    def refutes(self, epsilon: float | None = None, *, mu: float | None = None) -> bool:
        """Whether a claim of this epsilon, at this audit's delta, or of this mu cannot be true.

        >>> found = AuditResult("scores", 1e-6, 0.05, 1.2, 0.4, 1000, {})
        >>> found.refutes(epsilon=1.0), found.refutes(epsilon=2.0), found.refutes(mu=0.3)
        (True, False, True)
        """
        if (epsilon is None) == (mu is None):
            raise ValueError(f"either epsilon or mu must be given, got {epsilon!r} and {mu!r}")
        if mu is not None:
            return self.mu_lower_bound > checks.number("mu", mu, checks.not_negative)
        return self.epsilon_lower_bound > checks.number("epsilon", epsilon, checks.not_negative)

    @property
    def refuted(self) -> bool:
        """Whether the claim that was audited cannot be true."""
        return self.claim is not None and self.refutes(self.claim)

    @property
    def statement(self) -> str:
        """The findings in words."""
        sure = f"{100 * (1 - self.significance):.6g} %"
        at = f"delta = {self.delta:g}"
        said = ""
        if self.claim is not None:
            claim = f"The claim of epsilon = {self.claim:.4g} at {at} is"
            said = f"{claim} refuted at {sure}. " if self.refuted else f"{claim} not refuted at {sure}. "
        said += (
            f"{self.what}: at {at} epsilon is at least {_down(self.epsilon_lower_bound)} "
            f"(confidence {sure}, {self.draws:,} draws). "
            f"A claim of Gaussian differential privacy needs mu of at least {_down(self.mu_lower_bound)}."
        )
        assumed = f" This holds if {' and '.join(self.conditions)}." if self.conditions else ""
        missing = f" Not tried: {'; '.join(self.not_tried)}." if self.not_tried else ""
        return f"{said}{assumed}{missing} An audit proves claims wrong, never right."

    def chart(self) -> Chart:
        """The claimed and the observed trade-off curve with its band, which ``ringfence.report`` draws."""
        x, rates, low, high = zip(*map(astuple, self.observed), strict=True)
        lines = [Line("observed", x, rates, low, high)]
        if self.claim is not None:
            lines.append(_limit(f"allowed by the claim, {self.claim:.3g}", x, self.claim, self.delta))
        least = self.epsilon_lower_bound
        lines.append(_limit(f"allowed at the lower bound, {_down(least)}", x, least, self.delta, True))
        panel = Panel("Trade-off", "false positive rate", "true positive rate", tuple(lines), x_log=True)
        caption = (
            "The band is that of each false positive rate by itself, where scores are independent draws. "
            "Whether the claim falls is judged by the lower bound alone."
        )
        return Chart("audit", self.what, caption, (panel,))

    def as_dict(self) -> dict[str, Any]:
        """Everything that was found, as plain data."""
        refuted = None if self.claim is None else self.refuted
        return {**asdict(self), "refuted": refuted, "statement": self.statement}

    def save(self, path: str | Path) -> list[Path]:
        """Writes the page, with one chart, and the same as JSON beside it; returns both files."""
        from ringfence.report.page import Report, Section, Table, installed_versions, write_report

        page = checks.path("path", path)
        named = {"epsilon": self.epsilon_lower_bound, **self.bounds, "mu": self.mu_lower_bound}
        rows = tuple((name, _down(value)) for name, value in named.items())
        section = Section(
            "What was seen", charts=(self.chart(),), tables=(Table("Lower bounds", ("of", "at least"), rows),)
        )
        report = Report("Audit of a privacy claim", (section,), (self.statement,), (), installed_versions())
        beside = page.with_suffix(".json")
        write_report(report, page)
        beside.write_text(json.dumps(self.as_dict(), indent=1) + "\n", encoding="utf-8")
        return [page, beside]


def _limit(name: str, x: Sequence[float], epsilon: float, delta: float, dashed: bool = False) -> Line:
    """The largest true positive rate that (epsilon, delta)-DP allows: 1 - f of the trade-off curve f."""
    least = approximate_blowup(min(epsilon, 700.0), delta)  # of the complement's rates
    return Line(name, tuple(x), tuple(1 - least(1 - rate) for rate in x), dashed=dashed)


def _down(value: float) -> str:
    """A lower bound with three decimals, rounded down."""
    return f"{math.floor(1000 * value) / 1000:.3f}"
