"""Per-instance epsilons that may be published: noise is added to them, and the release is paid for.

``publishable_epsilon`` releases the share that the Rényi sum of theta has of the largest sum of any theta.
``publishable_decision_epsilon`` releases the logarithm of that share, where no voter changes it much:

How sure a decision is says how little it costs. Let q be the chance of every outcome but the likeliest one
and t = -Phi^-1(q). One voter moves t by at most mu, the Gaussian parameter of one decision, because
probabilities under neighbours differ by no more than those of N(0, 1) and N(mu, 1). And whatever t, the
decision leaks no more than a Gaussian release of which only a tail of mass q is seen (docs/guarantees.md
has the proofs). So

    S = max over k >= 0 of e^(-beta k) sum_j c(t_j - (k + 1) mu),   c(t) >= D_alpha at any votes with this t,

is an upper bound of what the decisions cost that changes by a factor of at most e^beta when a voter comes,
goes or is replaced: whatever the neighbour has with k voters, these votes have with k + 1.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.conversion import best_zcdp_order
from ringfence.accounting.decisions import (
    DecisionLaw,
    Neighbours,
    Pairs,
    checked_at_most,
    checked_law,
    number_of_queries,
    pairs,
    zcdp,
)
from ringfence.accounting.divergence_sums import both_directions
from ringfence.accounting.per_instance import ceilings
from ringfence.accounting.privacy_loss import PrivacyLoss
from ringfence.accounting.sensitivity import Sensitivity
from ringfence.accounting.steepness import largest_share
from ringfence.checks import Real
from ringfence.mechanisms import pieces
from ringfence.mechanisms.base import Mechanism, checked_mechanism
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.mechanisms.rectified import RectifiedGaussian
from ringfence.mechanisms.secure import SecureRelease
from ringfence.mechanisms.sign import StochasticSign
from ringfence.numerics.normal import log_tail
from ringfence.numerics.rounding import ROUNDING, UNDERFLOW, rounded_up

# The public grid reaches at least 2^40 deviations from 0, so that a share of 1 lies on it.
_LEAST_DEVIATION = 2.0**-40
_HALF_STEP = 2.0**-11  # of a deviation: the grid rounds down by at most this much

# decisions
_PER_VOTER = 33  # nodes of the table that a voter moves a t by: mu is 32 of them, and rounding may take one
_SUREST = 30.0  # decisions with a larger t count as if they had this one
_SPLITS = 16
_LARGEST = 1e100  # order and costs: products of larger ones overflow
_FARTHEST = 32.0  # sigma: beyond, how a divergence curves is not known
_COMPUTED = 1e-9  # how far the logarithm of the sum may be off, with the voter and without
# Defaults fitted to two real assemblies. With z the zCDP that holds for every dataset, publishing costs
# z^(3/4) / 50, and the order is the best one for z^(7/10) / 5; the noise on the logarithm has deviation 0.13.
_DEVIATION = 0.13


@dataclass(frozen=True)
class PublishableEpsilon:
    """Upper bounds of per-instance numbers that are themselves released privately.

    ``epsilon`` is ordinary differential privacy of the releases and of the published number together.
    ``per_instance_epsilon`` and ``ex_post_epsilon`` are those of ``Guarantee.per_instance`` with the cost of
    publishing included. The probability that they are too small is at most ``failure_probability``, over the
    noise added here.

    >>> PublishableEpsilon(1.2, 0.7, 0.9, 40.0, 1e-5, 1e-3, 1e-4).statement[:79]
    'The releases and this number together satisfy (1.2, 1e-05)-differential privacy'
    """

    epsilon: float
    per_instance_epsilon: float
    ex_post_epsilon: float
    order: float
    delta: float
    failure_probability: float
    publishing_zcdp: float

    @property
    def statement(self) -> str:
        """In plain English: what is promised, with which probability, and that it may be published."""
        return (
            f"The releases and this number together satisfy ({rounded_up(self.epsilon)}, "
            f"{self.delta:.3g})-differential privacy for every dataset. Except with probability "
            f"{self.failure_probability:.3g} over the noise in this number, the ex-post privacy loss about "
            f"each single record of this dataset is at most {rounded_up(self.ex_post_epsilon)} except with "
            f"probability {self.delta:.3g} over the run, and at a theta fixed in advance the releases are "
            f"({rounded_up(self.per_instance_epsilon)}, {self.delta:.3g})-indistinguishable from those of "
            "any neighbour of this dataset. These numbers were released with noise and may be published."
        )


def publishable_epsilon(
    mechanism: Mechanism,
    thetas: Tensor | Sequence[Tensor],
    sensitivity: float | Sensitivity,
    *,
    delta: float,
    publishing_zcdp: float,
    failure_probability: float,
    order: float | None = None,
) -> PublishableEpsilon:
    """The per-instance epsilon of releases of ``thetas`` (one tensor, or one per step), safe to publish.

    The order alpha is fixed without looking at the data. What is released is the share

        sum of D_alpha over coordinates and steps / largest sum that any theta can have,

    plus Gaussian noise, where D is the worst over both signs and directions. When a record comes or goes
    every coordinate of every step moves by at most ``sensitivity``, and the share by at most
    ``largest_share``. Where a ``Sensitivity`` says that a record moves ``at_most`` m coordinates, the sum is
    that of the m largest D of each step: m of the terms change, and the sum by no more than they do. Noise
    for such a change costs ``publishing_zcdp``. A margin that the noise exceeds
    with probability ``failure_probability`` makes the result an upper bound. The noise is fresh, exact and
    on a public grid (``Mechanism.release``): there is no seed, and a second call is a second release that
    has to be paid for.

    Guarantee: publishing is ``publishing_zcdp``-zCDP whatever theta (proved in docs/guarantees.md).
    The parameters of the mechanism and the sensitivity must be single numbers, and a ``norm`` that bounds
    moves beyond ``each`` and ``at_most`` is refused: how fast its sum changes with theta is not known.

    >>> from ringfence.mechanisms.rectified import RectifiedGaussian
    >>> law, thetas = RectifiedGaussian(1.0, bound=1.0), [torch.full((10_240,), 2.5)] * 10
    >>> number = publishable_epsilon(law, thetas, 1e-3, delta=1e-5, publishing_zcdp=1e-4,
    ...     failure_probability=1e-3)
    >>> 0.6 < number.per_instance_epsilon < 1.1, round(number.epsilon, 2)
    (True, 1.22)
    """
    delta = checks.probability("delta", delta)
    failure_probability = checks.probability("failure_probability", failure_probability)
    publishing_zcdp = checks.number("publishing_zcdp", publishing_zcdp, checks.positive)
    given = list(thetas) if isinstance(thetas, list | tuple) else [thetas]
    if not given:
        raise ValueError("thetas must hold at least one step, got none")
    steps = [checks.finite("thetas", theta).double() for theta in given]
    size = Sensitivity.of(sensitivity)
    move = size.farthest.double()
    if move.numel() != 1 or any(
        value.numel() != 1 for value in checked_mechanism(mechanism).parameters().values()
    ):
        raise ValueError("mechanism and sensitivity must be single numbers to publish from them")
    sizes = [size.binding(theta.shape) for theta in steps]
    if any(own.norm is not None for own in sizes):
        raise ValueError(
            f"sensitivity must not be bounded by norm to publish from it, got {size!r}: give each, and "
            "at_most where few coordinates move, or publish claim.epsilon, which holds for a norm"
        )

    both = [ceilings(mechanism, theta, own) for theta, own in zip(steps, sizes, strict=True)]
    gaussian, bounded = (sum(ends[i] for ends in both) for i in (0, 1))
    alpha = best_zcdp_order(bounded, delta) if order is None else checks.number("order", order, checks.order)
    largest = alpha * bounded
    count = sum(theta.numel() for theta in steps)
    realised = 0.0
    for theta, own in zip(steps, sizes, strict=True):
        worst = _worst(mechanism, theta, move, alpha)
        realised += float((worst if own.at_most is None else worst.reshape(-1).topk(own.at_most)[0]).sum())
    share, change = 0.0, 0.0
    if largest > 0:
        share = min(1.0, (realised * (1 + ROUNDING) + count * UNDERFLOW) / largest)
        # with the record and without it the share may be computed a little off
        computed = 2 * (ROUNDING + count * UNDERFLOW / largest)
        change = min(1.0, largest_share(mechanism, float(move), alpha) + computed)
    bound = upper_bound(noise_for(change, publishing_zcdp), share, failure_probability)
    sums = torch.tensor([alpha * bounded * min(1.0, max(0.0, bound))], dtype=torch.float64)
    loss = PrivacyLoss.of_zcdp(
        gaussian, bounded, orders=[alpha], forward=sums, backward=sums, steps=len(steps)
    )
    return _published(loss.drawn_securely(count + 1), delta, failure_probability, publishing_zcdp)


def _published(
    loss: PrivacyLoss, delta: float, failure_probability: float, publishing_zcdp: float
) -> PublishableEpsilon:
    """The numbers of this loss, whose sums at its one order were published, and of publishing together."""
    publishing = PrivacyLoss.of_zcdp(publishing_zcdp, publishing_zcdp, orders=loss.orders, steps=0)
    claim = (loss + publishing).guarantee(delta)
    return PublishableEpsilon(
        epsilon=claim.epsilon,
        per_instance_epsilon=claim.per_instance.epsilon,
        ex_post_epsilon=claim.per_instance.ex_post_epsilon,
        order=loss.orders[0],
        delta=delta,
        failure_probability=failure_probability,
        publishing_zcdp=publishing_zcdp,
    )


def noise_for(change: float, zcdp: float) -> SecureRelease:
    """Gaussian noise under which a change of this size costs zcdp: change^2 / (2 deviation^2).

    >>> round(float(noise_for(0.1, 0.02).law.sigma), 9)
    0.5
    """
    return SecureRelease(Gaussian(max(_LEAST_DEVIATION, change / math.sqrt(2 * zcdp))))


def upper_bound(noise: SecureRelease, value: float, failure_probability: float) -> float:
    """The value with noise and a margin, below the value with probability at most ``failure_probability``.

    >>> 0.0 < upper_bound(noise_for(0.001, 0.02), 0.5, 1e-9) < 1.0
    True
    """
    chance = failure_probability - noise.delta(1, 0.0)
    if chance <= 0:
        raise ValueError(f"failure_probability must be above 2^-199, got {failure_probability!r}")
    quantile = -float(torch.special.ndtri(torch.tensor(chance, dtype=torch.float64)))
    margin = float(noise.law.sigma) * (quantile + _HALF_STEP)
    return float(noise.draw(value)) + margin


def _worst(mechanism: Mechanism, theta: Tensor, move: Tensor, alpha: float) -> Tensor:
    """The largest divergence over both signs and both directions, for each coordinate."""
    order = torch.tensor([alpha], dtype=torch.float64)
    return both_directions(mechanism, theta, move, order).amax(dim=(0, 1))


def publishable_decision_epsilon(
    law: DecisionLaw,
    votes: Real,
    *,
    neighbours: Neighbours,
    delta: float,
    at_most: int | None = None,
    failure_probability: float = 1e-3,
    publishing_zcdp: float | None = None,
    smoothness: float | None = None,
    order: float | None = None,
) -> PublishableEpsilon:
    """The per-instance epsilon of decisions on ``votes``, safe to publish.

    The first arguments are those of ``decision_profile``. Publishing costs ``publishing_zcdp``, by default 2
    to 6 % of what the decisions cost at most. ``smoothness`` is beta above, and ``order`` alpha. All of them
    have defaults that depend on public numbers only, and must not be chosen by looking at the votes.

    Guarantee: publishing is ``publishing_zcdp``-zCDP whatever the votes (proved in docs/guarantees.md), and
    its cost is part of the result. The result is too small with probability at most
    ``failure_probability``. The noise is fresh and exact: a second call is a second release.

    >>> import ringfence as rf
    >>> surpluses = torch.arange(-50, 50) * 17.0
    >>> law = rf.StochasticSign(20.0)
    >>> number = rf.publishable_decision_epsilon(law, surpluses, neighbours="added", delta=1e-5)
    >>> number.per_instance_epsilon < 0.8 * number.epsilon
    True
    """
    delta = checks.probability("delta", delta)
    failure_probability = checks.probability("failure_probability", failure_probability)
    queries = number_of_queries(checked_law(law), votes)
    moved = checked_at_most(at_most, neighbours, queries) or queries
    one = zcdp(law, neighbours)
    every = moved * one
    cost = _or_default("publishing_zcdp", publishing_zcdp, publishing_cost(every))
    beta = _or_default("smoothness", smoothness, _DEVIATION * math.sqrt(2 * cost))
    alpha = _or_default("order", order, best_zcdp_order(0.2 * every**0.7, delta), checks.order)
    least_sure = _least_sure(pairs(law, votes, neighbours), moved)
    total = smooth_cost(*least_sure, one=one, beta=beta, alpha=alpha, binary=_is_binary(law))
    share = math.log(min(1.0, total / (alpha * every)))
    bound = upper_bound(noise_for(beta + _COMPUTED, cost), share, failure_probability)
    sums = torch.tensor([alpha * every * math.exp(min(0.0, bound))], dtype=torch.float64)
    loss = PrivacyLoss.of_zcdp(every, every, orders=[alpha], forward=sums, backward=sums, steps=queries)
    drawn = loss.drawn_securely(2 * queries + 1)  # a confident decision counts as two numbers
    return _published(drawn, delta, failure_probability, cost)


def publishing_cost(every: float) -> float:
    """The default cost of publishing beside decisions that cost ``every`` for any votes, both in zCDP."""
    return float(0.02 * every**0.75)


def surety(log_p: Tensor) -> Tensor:
    """t = -Phi^-1(q), where q is the chance of every outcome but the likeliest one, of each query.

    ``log_p`` has the outcomes first. It is rounded down, and never above 30.

    >>> round(float(surety(torch.tensor([[0.97725], [0.02275]]).double().log())), 3)
    2.0
    """
    likeliest = log_p.argmax(dim=0, keepdim=True)
    rest = torch.exp(log_p).scatter(0, likeliest, 0.0).sum(dim=0) * (1 + ROUNDING) + UNDERFLOW
    t: Tensor = -torch.special.ndtri(rest.clamp(max=0.5)) - ROUNDING
    return t.clamp(0.0, _SUREST)


def _least_sure(every: Iterable[Pairs], moved: int) -> tuple[Tensor, Tensor]:
    """The t of the ``moved`` least sure queries, which are the dearest ones, and how often each occurs."""
    found = [(surety(part.log_p[:, 0]), part.repeats) for part in every]
    t, order = torch.cat([own for own, _ in found]).sort()
    repeats = torch.cat([many for _, many in found])[order]
    before = repeats.cumsum(0) - repeats
    return t, torch.minimum(repeats, (moved - before).clamp(min=0))


def smooth_cost(t: Tensor, repeats: Tensor, *, one: float, beta: float, alpha: float, binary: bool) -> float:
    """max over k of e^(-beta k) C_k, where C_k bounds the sum of D_alpha if k voters were others.

    ``one`` is D / alpha of a decision over all votes. Each t is moved down to a node of a table. Two t
    that are mu apart are at most 33 nodes apart, so 33 nodes count as one voter.

    >>> t, repeats = torch.tensor([1.0, 3.0, 6.0]).double(), torch.ones(3)
    >>> law = {"one": 0.005, "beta": 0.02, "alpha": 8.0, "binary": True}
    >>> sums = [smooth_cost(t - move, repeats, **law) for move in (0, 0.1)]
    >>> 1 < sums[1] / sums[0] <= math.exp(0.02)
    True
    """
    spacing, costs = _table(one, alpha, binary)
    places = (t / spacing).long()
    held = torch.bincount(places, repeats.double(), minlength=int(places.max()) + 1)
    best = 0.0
    for voters in range(int(places.max()) // _PER_VOTER + 2):
        # a pair of neighbours is seen from both ends, one of which is a voter closer
        closer = (torch.arange(len(held)) - _PER_VOTER * (voters + 1)).clamp(min=0)
        best = max(best, math.exp(-beta * voters) * float(costs[closer] @ held))
    return best


@lru_cache(maxsize=8)
def _table(one: float, alpha: float, binary: bool) -> tuple[float, Tensor]:
    """The spacing of the nodes, and c at each of them, never above what holds for all votes."""
    mu = math.sqrt(2 * one)
    spacing = mu / (_PER_VOTER - 1)
    nodes = torch.arange(int(_SUREST / spacing) + 1, dtype=torch.float64) * spacing
    return spacing, (_sign_cost if binary else _tail_cost)(nodes, mu, alpha).clamp(max=alpha * one)


def _sign_cost(t: Tensor, mu: float, alpha: float) -> Tensor:
    """The largest D_alpha(A || B) of laws with two outcomes, A giving at most Phi(-t) to one, A and B mu-GDP.

    It is that of a sign at t or beyond: B is as far from A as it can be, because D is convex in B. Between
    two nodes of ``t``, D is at most the larger of its two values over 1 - K h^2 / 6 (docs/curvature.md), and
    beyond the last one at most ``_tail_cost``, which falls.
    """
    if mu > _FARTHEST:
        return torch.full_like(t, math.inf)
    law, order = StochasticSign(1.0), torch.tensor(alpha, dtype=torch.float64)
    values = torch.maximum(*(law.renyi_divergence(t, move, order) for move in (mu, -mu)))
    spacing = float(t[1] - t[0])
    curved = 1 - (4 + max(0.0, 2 - alpha) * mu * mu / 4) * spacing * spacing / 6
    between = torch.maximum(values, torch.cat((values[1:], _tail_cost(t[-1:], mu, alpha)))) / curved
    return between.flip(0).cummax(0).values.flip(0) * (1 + ROUNDING) + UNDERFLOW


def _tail_cost(t: Tensor, mu: float, alpha: float) -> Tensor:
    """An upper bound of D_alpha(A || B) if A gives Phi(-t) to all outcomes but one, and A and B are mu-GDP.

    Some of these outcomes are likelier under A, with mass b in all, the others under B, with mass a. Each
    kind costs no more than a Gaussian tail of its mass, which is what a one-sided rectified law shows.
    Infinite for t < mu / 2, where that is not proved.
    """

    def tail(where: Tensor, move: float) -> Tensor:
        law, order = RectifiedGaussian(1.0, (0.0, math.inf)), torch.tensor(alpha, dtype=torch.float64)
        return torch.expm1((alpha - 1) * law.renyi_divergence(-where, move, order))

    q = torch.exp(log_tail(t))
    parts = -torch.special.ndtri(q.unsqueeze(1) * torch.arange(1, _SPLITS + 1) / _SPLITS) - ROUNDING
    down, up = tail(parts, -mu), tail(parts, mu)  # of mass i q / 16, i = 1, ..., 16
    # for b in [(i - 1) q / 16, i q / 16] the other mass is at most q - (i - 1) q / 16
    excess = (down + up.flip(1)).amax(dim=1)
    # the likeliest outcome: log Phi is concave and sinh(alpha x) >= alpha sinh(x), so that it costs more to
    # become less likely than likelier
    likeliest = pieces.atoms(t, t, torch.full_like(t, mu))[1][0]
    excess = excess + torch.exp(pieces.log_excess(likeliest, torch.tensor(alpha).double()))
    found = torch.log1p(excess) / (alpha - 1) * (1 + ROUNDING) + UNDERFLOW
    return torch.where(t < mu / 2, math.inf, found)


def _is_binary(law: DecisionLaw) -> bool:
    return isinstance(law, Mechanism) and len(law.support.atoms) == 2


def _or_default(
    name: str, value: float | None, default: float, check: Callable[[str, object], Tensor] = checks.positive
) -> float:
    number = default if value is None else checks.number(name, value, check)
    if number > _LARGEST:
        raise ValueError(f"{name} must be at most {_LARGEST:g}, got {number!r}")
    return number
