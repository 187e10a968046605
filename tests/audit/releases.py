"""Attacks on single releases: the optimal distinguisher at the worst record, in settings of every law."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from ringfence import PerInstanceAccountant, Sensitivity, checks, privacy_profile
from ringfence.accounting.divergence_sums import both_directions
from ringfence.mechanisms.base import Mechanism
from ringfence.numerics.rounding import UNDERFLOW
from tests.audit.lower_bound import epsilon_lower_bound
from tests.audit.result import AuditResult

Value = TypeVar("Value")

_MOST_COORDINATES = 50
_MOST_WITH_NORM = 8  # which takes longer to account for
_KINDS, _BY_NUMBER, _BY_NORM = 16, 1, 9
_ORDER = 2.0  # of the divergences by which a record chooses the coordinates that it moves
_DELTAS = (1e-5, 1e-3, 1e-2, 0.1)


@dataclass(frozen=True)
class Target:
    """One release of theta (a vector), which a record moves as far as ``sensitivity`` says."""

    mechanism: Mechanism
    theta: Tensor
    sensitivity: float | Sensitivity
    delta: float

    @property
    def name(self) -> str:
        """The law and the setting, for the tables of an audit."""
        size = self.sensitivity
        shown = repr(size) if isinstance(size, Sensitivity) else f"sensitivity {size:.3g}"
        return f"{self.mechanism!r}, {self.theta.numel()} coordinates, {shown}"

    @property
    def move(self) -> Tensor:
        """How far the worst record moves each coordinate, up or down.

        Where a record cannot move every coordinate as far as it goes, it moves those first that tell
        most for the square of their move.
        """
        theta = checks.finite("theta", self.theta).double().reshape(-1)
        size = Sensitivity.of(self.sensitivity).binding(theta.shape)
        farthest = size.farthest.double().expand(theta.shape)
        if size.is_plain:
            return farthest
        order = torch.tensor([_ORDER], dtype=torch.float64)
        gain = both_directions(self.mechanism, theta, farthest, order).amax(dim=(0, 1))
        ranks = (gain / farthest.square().clamp(min=UNDERFLOW)).argsort(descending=True)
        left = math.inf if size.norm is None else size.norm**2
        moves = torch.zeros_like(theta)
        for place in ranks[: size.at_most].tolist():
            moves[place] = min(float(farthest[place]), math.sqrt(left))
            left = max(0.0, left - float(moves[place]) ** 2)
        return moves


def random_targets(count: int, generator: torch.Generator) -> list[Target]:
    """Settings of every law in turn: 1 to 50 coordinates inside and outside of the support, delta up to 0.1.

    Of every sixteen settings of a law, a record moves up to a quarter of the coordinates in one, and up to 8
    coordinates by an L2 norm in another one. The Gaussian with the same noise would be mu-GDP with mu
    between 0.3 and 4; the distance of either end of the interval from 0 is between 0.2 and 8 sigma.
    """
    checks.count("count", count, at_least=1)
    laws = tuple(Mechanism.known().values())
    return [
        _random_target(laws[index % len(laws)], index // len(laws) % _KINDS, generator)
        for index in range(count)
    ]


SETTINGS: dict[str, tuple[int, ...]] = {"levels": (3, 17)}  # arguments of laws that are no tensors


def example(
    law: type[Mechanism],
    sigma: float,
    bound: float | tuple[float, float],
    choose: Callable[[Sequence[int]], int] = max,
) -> Mechanism:
    """A law of this class with this sigma and, if it takes one, this bound.

    For each setting ``choose`` picks one of the values that attacks try.
    """
    settings = {name: choose(SETTINGS[name]) for name in law.fields() if name in SETTINGS}
    given = {"sigma": sigma, "bound": bound, **settings}
    return Mechanism.by_name(law.name, **{name: given.get(name) for name in law.fields()})


def _random_target(law: type[Mechanism], kind: int, generator: torch.Generator) -> Target:
    def between(low: float, high: float) -> float:
        """Evenly on a log scale."""
        share = float(torch.rand((), generator=generator, dtype=torch.float64))
        return low * math.exp(share * math.log(high / low))

    def one_of(values: Sequence[Value]) -> Value:
        return values[int(torch.randint(len(values), (), generator=generator))]

    sigma = between(0.1, 10.0)
    ends = (-sigma * between(0.2, 8.0), sigma * between(0.2, 8.0))
    size = int(between(1.0, (_MOST_WITH_NORM if kind == _BY_NORM else _MOST_COORDINATES) + 0.99))
    mechanism = example(law, sigma, ends, one_of)
    spread = torch.rand(size, generator=generator, dtype=torch.float64)
    theta = ends[0] + (ends[1] - ends[0]) * spread
    theta = theta + between(0.1, 3.0) * sigma * torch.randn(size, generator=generator, dtype=torch.float64)
    length = between(0.3, 4.0) * sigma
    sensitivity: float | Sensitivity = length / size**0.5
    if kind == _BY_NUMBER:
        few = math.ceil(size / 4)
        sensitivity = Sensitivity(length / few**0.5, at_most=few)
    elif kind == _BY_NORM:
        sensitivity = Sensitivity(norm=length)
    return Target(mechanism, theta, sensitivity, one_of(_DELTAS))


Sampler = Callable[[Mechanism, Tensor, torch.Generator], Tensor]
Claims = Callable[[Target], dict[str, float]]


def drawn(mechanism: Mechanism, theta: Tensor, generator: torch.Generator) -> Tensor:
    """Draws from the mechanism's own sampler."""
    return mechanism.sample(theta, generator=generator)


def printed_claims(target: Target) -> dict[str, float]:
    """The epsilons of ``PerInstanceAccountant`` after one step."""
    account = PerInstanceAccountant(target.mechanism, target.sensitivity)
    account.step(target.theta)
    claim = account.guarantee(target.delta)
    return {"data-independent": claim.epsilon, "per-instance": claim.per_instance.epsilon}


def with_profiles(target: Target) -> dict[str, float]:
    """The printed claims, and that of the tight ``privacy_profile``, which takes up to seconds."""
    profile = privacy_profile(target.mechanism, target.theta, target.sensitivity)
    return {**printed_claims(target), "profile": profile.epsilon(target.delta)}


def audit_release(
    target: Target,
    *,
    trials: int,
    generator: torch.Generator,
    confidence: float = 0.99,
    sampler: Sampler = drawn,
    claims: Claims = with_profiles,
) -> AuditResult:
    """Attacks one release of theta: does what came out tell whether a record was in?

    The worst record moves every coordinate by the whole sensitivity, or where it cannot, those that tell
    most. Two patterns of signs are tried, towards where the law tells more about theta and away from it,
    each as M(theta) against the moved law and the other way round; in one dimension these are all there
    are. The statistic is log p/q, the best one there is (Neyman and Pearson), summed over coordinates. Small
    values are tried as well as large ones: a sampler that does not follow its law may show there.
    """
    theta, move = target.theta.double().reshape(-1), target.move
    rising = target.mechanism.fisher_information(theta + move) >= target.mechanism.fisher_information(
        theta - move
    )
    towards = torch.where(rising, move, -move)

    def losses(at: Tensor, *others: Tensor) -> list[Tensor]:
        """log p/q of draws at a place, with p the law at theta and q at each of the others."""
        values = sampler(target.mechanism, at.expand(trials, -1), generator)
        here = target.mechanism.log_prob(values, theta)
        return [(here - target.mechanism.log_prob(values, other)).sum(dim=-1) for other in others]

    both = (theta + towards, theta - towards)
    inside = torch.stack(losses(theta, *both))
    outside = torch.stack([losses(moved, moved)[0] for moved in both])
    bound = epsilon_lower_bound(inside, outside, target.delta, confidence)
    return AuditResult(target.name, target.delta, confidence, trials, bound, claims(target))


def audit_releases(
    targets: Sequence[Target],
    *,
    trials: int,
    generator: torch.Generator,
    confidence: float,
    claims: Claims = printed_claims,
) -> list[AuditResult]:
    """Attacks many releases; ``confidence`` is about all of them together."""
    each = 1 - (1 - checks.probability("confidence", confidence)) / max(1, len(targets))
    return [
        audit_release(target, trials=trials, generator=generator, confidence=each, claims=claims)
        for target in targets
    ]
