"""The optimal distinguisher of one release: likelihood ratios, at the worst record."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.sensitivity import Sensitivity
from ringfence.audit.claims import Claims, with_profiles
from ringfence.audit.lower_bound import epsilon_lower_bound
from ringfence.audit.result import AuditResult
from ringfence.audit.stacks import Stack, stacks
from ringfence.audit.targets import Target
from ringfence.mechanisms.base import Mechanism
from ringfence.progress import Progress

Sampler = Callable[[Mechanism, Tensor, torch.Generator], Tensor]

_DRAWS = 1 << 19  # coordinates times trials that are held at once


def drawn(mechanism: Mechanism, theta: Tensor, generator: torch.Generator) -> Tensor:
    """Draws from the mechanism's own sampler.

    >>> from ringfence import StochasticSign
    >>> drawn(StochasticSign(1.0), torch.full((3,), 9.0), torch.Generator().manual_seed(0)).tolist()
    [1.0, 1.0, 1.0]
    """
    return mechanism.sample(theta, generator=generator)


def audit_release(
    mechanism: Mechanism,
    theta: Tensor,
    sensitivity: float | Sensitivity,
    delta: float,
    *,
    trials: int,
    generator: torch.Generator,
    confidence: float = 0.99,
    sampler: Sampler = drawn,
    claims: Claims = with_profiles,
) -> AuditResult:
    """Attacks one release of theta: does what came out tell whether a record was in?

    >>> from ringfence import TruncatedGaussian
    >>> law, theta = TruncatedGaussian(1.0, bound=1.0), torch.tensor([0.5]).double()
    >>> generator = torch.Generator().manual_seed(0)
    >>> result = audit_release(law, theta, 2.0, 1e-2, trials=20_000, generator=generator)
    >>> result.holds, 1.0 < result.epsilon_lower < result.claims["profile"]
    (True, True)
    """
    [result] = audit_targets(
        [Target(mechanism, theta, sensitivity, delta)],
        trials=trials,
        generator=generator,
        confidence=confidence,
        sampler=sampler,
        claims=claims,
    )
    return result


def audit_targets(
    targets: Sequence[Target],
    *,
    trials: int,
    generator: torch.Generator,
    confidence: float,
    sampler: Sampler = drawn,
    claims: Claims = with_profiles,
    part: str = "releases",
    progress: Progress | None = None,
) -> list[AuditResult]:
    """``audit_release`` for many targets at once; ``confidence`` is about all of them together.

    The worst record moves every coordinate by the whole sensitivity, or where it cannot, those that give
    most away. Two patterns of signs are
    tried, towards where the law tells more about theta and away from it, each as M(theta) against
    the moved law and the other way round; in one dimension these are all there are. The statistic
    is log p/q, the best one there is (Neyman and Pearson), summed over coordinates. Small values
    are tried as well as large ones: a sampler that does not follow its law may show there.
    ``progress`` is told the name of the ``part`` and the share of the targets that is done.

    Guarantee: where every claim is right, one or more ``holds`` are False with probability at most
    1 - ``confidence``.

    >>> from ringfence import Gaussian
    >>> target = Target(Gaussian(1.0), torch.zeros(1, dtype=torch.float64), 1.0, delta=0.01)
    >>> generator = torch.Generator().manual_seed(0)
    >>> [found] = audit_targets([target], trials=1000, generator=generator, confidence=0.99)
    >>> found.holds
    True
    """
    checks.count("trials", trials, at_least=2)
    each = 1 - (1 - checks.probability("confidence", confidence)) / max(1, len(targets))
    deltas = _float64([checks.probability("delta", target.delta) for target in targets])
    bounds = torch.zeros(len(targets), dtype=torch.float64)
    done = 0
    for stack in stacks(targets, max(1, _DRAWS // trials)):
        places = torch.tensor(stack.places)
        ours, theirs = _losses(stack, trials, generator, sampler)
        bounds[places] = epsilon_lower_bound(ours, theirs, deltas[places], each)
        done += len(places)
        if progress is not None:
            progress(part, done / len(targets))
    return [
        AuditResult(target.name, target.delta, each, trials, float(bound), claim)
        for target, bound, claim in zip(targets, bounds, claims(targets), strict=True)
    ]


def _float64(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _losses(stack: Stack, trials: int, generator: torch.Generator, sampler: Sampler) -> tuple[Tensor, Tensor]:
    """Statistics under P and under Q, each of shape (8 tests, targets, trials)."""
    law, theta, move = stack.mechanism, stack.theta, stack.move
    rising = law.fisher_information(theta + move) >= law.fisher_information(theta - move)
    towards = torch.where(rising, move, -move)

    def draws(at: Tensor) -> Tensor:
        return sampler(law, at.expand(trials, -1), generator)

    def loss(values: Tensor, other: Tensor) -> Tensor:
        """log p/q with p the law at theta."""
        return stack.sums(law.log_prob(values, theta) - law.log_prob(values, other)).T

    here = draws(theta)
    ours, theirs = [], []
    for moved in (theta + towards, theta - towards):
        inside, outside = loss(here, moved), loss(draws(moved), moved)
        ours += [inside, -inside, outside, -outside]
        theirs += [outside, -outside, inside, -inside]
    return torch.stack(ours), torch.stack(theirs)
