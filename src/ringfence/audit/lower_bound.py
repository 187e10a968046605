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


def epsilon_lower_bound(ours: Tensor, theirs: Tensor, delta: Tensor, confidence: float) -> Tensor:
    """A confidence lower bound of epsilon, given delta, for each setting.

    ``ours`` and ``theirs`` are (tests, settings, trials): draws of a statistic under P and under Q,
    for each of several tests. Every set S = {statistic >= t} gives

        epsilon >= log((P(S) - delta) / Q(S)).

    Test and t are chosen on the first half of the draws; the rates are then bounded on the second,
    P(S) from below and Q(S) from above. Any statistic gives a bound that holds; the likelihood
    ratio gives the best one.

    Guarantee: above the true epsilon with probability at most 1 - ``confidence``, for each setting.

    >>> generator = torch.Generator().manual_seed(0)
    >>> draws = torch.randn(2, 1, 1, 100_000, generator=generator, dtype=torch.float64)
    >>> bound = epsilon_lower_bound(draws[0] + 1, draws[1], torch.tensor([0.1]).double(), 0.99)
    >>> 1.0 < float(bound) < 1.161  # the exact value is 1.1603
    True
    """
    half = ours.shape[-1] // 2
    if half < 1 or ours.shape != theirs.shape:
        raise ValueError(
            f"ours and theirs must be equally many, at least 2, got {ours.shape}, {theirs.shape}"
        )
    if bool(torch.isnan(ours).any() | torch.isnan(theirs).any()):
        raise FloatingPointError(
            "ours and theirs must not be NaN: a value that neither law can give was drawn"
        )
    share = (1 - checks.probability("confidence", confidence)) / 2
    first = [side[..., :half].sort(dim=-1).values.contiguous() for side in (ours, theirs)]
    pooled = torch.cat(first, dim=-1).sort(dim=-1).values
    ranks = torch.linspace(0, 2 * half - 1, min(_THRESHOLDS, 2 * half)).round().long()
    thresholds = pooled[..., ranks].contiguous()
    hits = [half - torch.searchsorted(side, thresholds) for side in first]
    bounds = _bound(hits[0], hits[1], half, delta[None, :, None], share)

    # tests and thresholds side by side, so that one index names both
    best = bounds.movedim(0, 1).flatten(1).argmax(dim=1)
    test, place = best // len(ranks), best % len(ranks)
    setting = torch.arange(len(best))
    threshold = thresholds[test, setting, place].unsqueeze(1)
    counts = [(side[test, setting, half:] >= threshold).sum(dim=1) for side in (ours, theirs)]
    return _bound(counts[0], counts[1], ours.shape[-1] - half, delta, share).clamp(min=0)


def _bound(hits: Tensor, false_alarms: Tensor, trials: int, delta: Tensor, share: float) -> Tensor:
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
