"""Confidence lower bounds on epsilon from what an attack saw, beside the claims that they must not exceed."""

from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor

from ringfence import checks

_THRESHOLDS = 64  # how many are tried on the first half of the draws


@lru_cache(maxsize=32)
def rate_bounds(trials: int, failure_probability: float) -> tuple[Tensor, Tensor]:
    """Lower and upper confidence bounds of a rate after k = 0 .. trials hits (Clopper and Pearson 1934).

    Guarantee: each end fails with at most ``failure_probability``, whatever the rate.

    >>> lower, upper = rate_bounds(10, 0.05)
    >>> round(float(lower[10]), 4), round(float(upper[0]), 4)
    (0.7411, 0.2589)
    """
    from scipy.special import betaincinv  # type: ignore[import-untyped]

    hits = torch.arange(1, checks.count("trials", trials, at_least=1) + 1, dtype=torch.float64)
    ends = betaincinv(hits.numpy(), (trials + 1 - hits).numpy(), failure_probability)
    lower = torch.cat((torch.zeros(1, dtype=torch.float64), torch.from_numpy(ends)))
    return lower, 1 - lower.flip(0)


def epsilon_lower_bound(inside: Tensor, outside: Tensor, delta: float, confidence: float) -> float:
    """A confidence lower bound of epsilon, given delta, from draws on two neighbouring datasets.

    ``inside`` and ``outside`` are draws of a statistic on either dataset, (trials,), or of several of them,
    (statistics, trials). With P and Q the laws of a release, in either order, every set S of large or of
    small values of a statistic gives

        epsilon >= log((P(S) - delta) / Q(S)).

    The statistic and the set are chosen on the first half of the draws; the rates are then bounded on the
    second, P(S) from below and Q(S) from above. Any statistic gives a bound that holds; the likelihood ratio
    gives the best one.

    Guarantee: above the true epsilon with probability at most 1 - ``confidence``.

    >>> generator = torch.Generator().manual_seed(0)
    >>> draws = torch.randn(2, 100_000, generator=generator, dtype=torch.float64)
    >>> 1.0 < epsilon_lower_bound(draws[0] + 1, draws[1], 0.1, 0.99) < 1.161  # the exact value is 1.1603
    True
    """
    sides = [torch.atleast_2d(side).double() for side in (inside, outside)]
    half = sides[0].shape[-1] // 2
    if half < 1 or sides[0].shape != sides[1].shape:
        raise ValueError(
            f"inside and outside must be equally many, at least 2, got {inside.shape}, {outside.shape}"
        )
    if any(bool(torch.isnan(side).any()) for side in sides):
        raise FloatingPointError(
            "inside and outside must not be NaN: a value that neither law can give was drawn"
        )
    ours = torch.cat([sign * side for side in sides for sign in (1, -1)])
    theirs = torch.cat([sign * side for side in sides[::-1] for sign in (1, -1)])
    share = (1 - checks.probability("confidence", confidence)) / 2
    first = [side[:, :half].sort(dim=1).values for side in (ours, theirs)]
    pooled = torch.cat(first, dim=1).sort(dim=1).values
    ranks = torch.linspace(0, 2 * half - 1, min(_THRESHOLDS, 2 * half)).round().long()
    thresholds = pooled[:, ranks].contiguous()
    hits = [half - torch.searchsorted(side, thresholds) for side in first]
    test, place = divmod(int(_bound(hits[0], hits[1], half, delta, share).argmax()), len(ranks))
    counts = [(side[test, half:] >= thresholds[test, place]).sum() for side in (ours, theirs)]
    return float(_bound(counts[0], counts[1], ours.shape[1] - half, delta, share).clamp(min=0))


def _bound(hits: Tensor, false_alarms: Tensor, trials: int, delta: float, share: float) -> Tensor:
    lower, upper = rate_bounds(trials, share)
    return torch.log((lower[hits] - delta).clamp(min=1e-300) / upper[false_alarms])


@dataclass(frozen=True)
class AuditResult:
    """A lower bound on epsilon at this delta and confidence, and the claims that it must not exceed.

    ``exceeded`` is about ex-post numbers: a lower bound on the probability that the realised loss is above
    the epsilon that was claimed for its run, which may be delta.

    >>> AuditResult("a release", 1e-5, 0.99, 1000, epsilon_lower=0.7, claims={"data-independent": 1.2}).holds
    True
    """

    name: str
    delta: float
    confidence: float
    trials: int
    epsilon_lower: float
    claims: dict[str, float] = field(default_factory=dict)
    exceeded: float | None = None

    @property
    def violated(self) -> tuple[str, ...]:
        """The names of the claims that cannot be true, at this confidence."""
        broken = [name for name, epsilon in self.claims.items() if not self.epsilon_lower <= epsilon]
        if self.exceeded is not None and not self.exceeded <= self.delta:
            broken.append("ex-post")
        return tuple(broken)

    @property
    def holds(self) -> bool:
        """Whether the attack leaves every claim standing."""
        return not self.violated
