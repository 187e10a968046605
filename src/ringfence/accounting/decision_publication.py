"""A per-instance epsilon of decisions that may be published.

How sure a decision is says how little it costs. Every outcome has a score t: its chance is G(-t), where G is
the normal distribution function for Gaussian noise and the logistic one for Gumbel noise. One voter moves the
score of a candidate by at most ``own``, of others by at most ``other``, and by less where neither vote was or
is the leader's (``voter_shifts``). An outcome whose score moves by so much costs no more than ``_cell``. So
the worst that k voters can do is known: they leave the leader for the second, and C_k, the sum of costs at
scores that are so much smaller, bounds the cost of all votes that differ in k voters. Hence

    S = max over k >= 0 of e^(-beta k) C_k

is an upper bound of what the decisions cost that changes by a factor of at most e^beta when a voter comes,
goes or is replaced, and its logarithm is released with noise (docs/guarantees.md has the proofs).

A confident winner asks first whether there is an answer. That question is charged what it costs any votes,
and the winner by its scores and by the chance that it is asked for, which falls with the leader's count.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.conversion import best_zcdp_order, epsilon_from_rdp
from ringfence.accounting.decisions import (
    DecisionLaw,
    Neighbours,
    bounded_zcdp,
    checked_at_most,
    checked_counts,
    checked_law,
    loss_of_any,
    number_of_queries,
    voter_shifts,
    zcdp,
)
from ringfence.accounting.publication import PublishableEpsilon, noise_for, published, upper_bound
from ringfence.accounting.sensitivity import filled
from ringfence.checks import Real
from ringfence.mechanisms import pieces
from ringfence.mechanisms.base import Mechanism
from ringfence.mechanisms.decision import Decision
from ringfence.mechanisms.sign import StochasticSign
from ringfence.mechanisms.winner import ConfidentWinner, NoisyWinner
from ringfence.numerics.normal import log_tail, log_tail_ratio
from ringfence.numerics.rounding import ROUNDING, UNDERFLOW

_NODES_PER_VOTER = 128  # of the tables of costs
_MOST_NODES = 1 << 20
_SUREST = 30.0  # outcomes with a larger score count as if they had this one
_OVERFLOW = 700.0  # logarithms beyond are those of numbers that floats do not hold
_LARGEST = 1e100  # order and costs: products of larger ones overflow
_FARTHEST = 32.0  # sigma: beyond, how a divergence curves is not known
_COMPUTED = 1e-9  # how far the logarithm of the sum may be off, with the voter and without
_CERTAIN = 40.0  # threshold_sigma above the threshold, where there is an answer
_STEEPEST = 1.59  # (alpha - 1) / threshold_sigma up to which a larger count is answered more often
# Defaults that were fitted to two assemblies (yes or no) and to teachers of CIFAR-10 (winners). With z the
# zCDP that holds for every dataset, publishing costs z^(3/4) / 50, or 3 z^(3/4) / 100 for winners, and the
# order is the best one for z^(7/10) / 5; the noise on the logarithm has this deviation.
_DEVIATION = {True: 0.13, False: 0.19}
# Whether publishing gains is asked of so many scores, spread evenly from 0 up to here (Phi^-1, log odds).
_REFERENCE, _SPREAD = 64, {False: 12.0, True: 30.0}


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
    have defaults that depend on public numbers only, and must not be chosen by looking at the votes. Where
    the public numbers say that publishing gains nothing, it is refused, and costs nothing.

    Guarantee: publishing is ``publishing_zcdp``-zCDP whatever the votes (proved in docs/guarantees.md), and
    its cost is part of the result. The result is too small with probability at most
    ``failure_probability``. The noise is fresh and exact: a second call is a second release.

    >>> import ringfence as rf
    >>> surpluses = torch.arange(-50, 50) * 17.0
    >>> law = rf.StochasticSign(20.0)
    >>> number = publishable_decision_epsilon(law, surpluses, neighbours="added", delta=1e-5)
    >>> number.per_instance_epsilon < 0.8 * number.epsilon
    True
    """
    delta = checks.probability("delta", delta)
    failure_probability = checks.probability("failure_probability", failure_probability)
    queries = number_of_queries(checked_law(law), votes)
    checks.one_of("neighbours", neighbours, ("added", "replaced"))
    if at_most is not None and neighbours == "replaced":  # a ballot may join queries that it was not in
        raise ValueError(
            f"at_most must be left out where a replaced voter's epsilon is published, got {at_most}"
        )
    moved = checked_at_most(at_most, neighbours, queries) or queries
    every = moved * zcdp(law, neighbours)
    cost = _or_default("publishing_zcdp", publishing_zcdp, publishing_cost(every, binary=_is_binary(law)))
    beta = _or_default("smoothness", smoothness, _smoothness(law, cost))
    alpha = _or_default("order", order, _order(every, delta), checks.order)
    if publishing_zcdp is smoothness is order is None:
        check_gain(law, moved, neighbours, delta, failure_probability)
    most = alpha * moved * _winner_zcdp(law, neighbours)
    total = smooth_cost(_costs(law, votes, neighbours, alpha), moved, beta, most)
    bound = upper_bound(
        noise_for(beta + _COMPUTED, cost), math.log(min(1.0, total / most)), failure_probability
    )
    whole = moved * _question_cost(law, alpha) + most * math.exp(min(0.0, bound))
    sums = torch.tensor([min(whole, alpha * every)], dtype=torch.float64)
    loss = loss_of_any(law, moved, neighbours, orders=[alpha], forward=sums, backward=sums, steps=queries)
    drawn = loss.drawn_securely(2 * queries + 1)  # a confident decision counts as two numbers
    return published(drawn, delta, failure_probability, cost)


def publishing_cost(every: float, *, binary: bool) -> float:
    """The default cost of publishing beside decisions that cost ``every`` for any votes, both in zCDP.

    >>> publishing_cost(1.0, binary=True), publishing_cost(1.0, binary=False)
    (0.02, 0.03)
    """
    return float((0.02 if binary else 0.03) * every**0.75)


def _smoothness(law: DecisionLaw, cost: float) -> float:
    return _DEVIATION[_is_binary(law)] * math.sqrt(2 * cost)


def _order(every: float, delta: float) -> float:
    return best_zcdp_order(0.2 * every**0.7, delta)


def check_gain(
    law: DecisionLaw, moved: int, neighbours: Neighbours, delta: float, failure_probability: float = 1e-3
) -> None:
    """Raises an error where public numbers say that publishing gains nothing.

    That is where the number of decisions whose scores are spread evenly from 0 to 12 (log odds: 30) is, with
    noise of 0, no smaller than what holds for every dataset. One voter takes part in ``moved`` of them.

    >>> import ringfence as rf
    >>> check_gain(rf.NoisyWinner(40.0), 640, "replaced", 1e-5)
    """
    every = moved * zcdp(law, neighbours)
    cost, alpha = publishing_cost(every, binary=_is_binary(law)), _order(every, delta)
    beta, most = _smoothness(law, cost), alpha * moved * _winner_zcdp(law, neighbours)
    total = smooth_cost(_reference(law, moved, neighbours, alpha), moved, beta, most)
    margin = -float(torch.special.ndtri(torch.tensor(failure_probability, dtype=torch.float64)))
    total *= math.exp(min(_OVERFLOW, margin * beta / math.sqrt(2 * cost)))
    whole = moved * _question_cost(law, alpha) + min(most, total) + alpha * cost
    found = float(epsilon_from_rdp(torch.tensor([alpha]).double(), torch.tensor([whole]).double(), delta))
    promise = loss_of_any(law, moved, neighbours).epsilon(delta)
    if found >= promise:
        raise ValueError(
            f"publishing a per-instance epsilon would gain nothing for {moved} decisions of {law!r}: about "
            f"{found:.3g}, and {promise:.3g} holds for every dataset and may be published as it is"
        )


class Costs(NamedTuple):
    """Upper bounds of D_alpha of queries: ``at(k)`` of each one where k voters may be others."""

    at: Callable[[int], Tensor]
    repeats: Tensor  # how many queries there are of each
    voters: int  # with more of them, no bound is larger


def smooth_cost(costs: Costs, moved: int, beta: float, most: float) -> float:
    """max over k of e^(-beta k) C_k, with C_k the sum of the ``moved`` largest costs and at most ``most``.

    As C_k grows with k, a stretch of k is left out where its largest weight and last sum say so.

    >>> falling = torch.tensor([1.0, 0.5])
    >>> costs = Costs(lambda k: falling * min(k + 1, 8), torch.ones(2), 8)
    >>> smooth_cost(costs, 2, 50.0, 100.0), smooth_cost(costs, 1, 1e-9, 100.0) > 7.9
    (1.5, True)
    """

    def weighted(voters: int, at: int) -> float:
        whole = filled(costs.at(at).view(1, 1, -1), costs.repeats.double(), float(moved))
        return math.exp(-beta * voters) * min(most, float(whole))

    best, voters, step = weighted(0, 0), 0, 1
    while voters < costs.voters and math.exp(-beta * (voters + 1)) * most > best:
        farther = min(voters + step, costs.voters)
        bound = weighted(voters + 1, farther)
        if bound <= best or farther == voters + 1:
            best = max(best, bound * math.exp(-beta * (farther - voters - 1)))
            voters, step = farther, 2 * step
        else:
            step = (farther - voters) // 2
    return best


def _costs(law: DecisionLaw, votes: Real, neighbours: Neighbours, alpha: float) -> Costs:
    """The costs of decisions on these votes; of a confident winner, without the question for an answer."""
    if isinstance(law, Mechanism):
        values, repeats = torch.unique(checks.finite("votes", votes).double().reshape(-1), return_counts=True)
        still = torch.zeros(1, dtype=torch.float64)
        alone = torch.tensor([[0.0, -math.inf]], dtype=torch.float64)
        return _of_chances(law, law.pair(values, still)[0].exp(), repeats, neighbours, alpha, alone)
    counts = checked_counts(votes)
    rows = counts.reshape(-1, counts.shape[-1]).sort(dim=1, descending=True).values
    rows, repeats = torch.unique(rows, dim=0, return_counts=True)
    return _of_chances(law, _winner(law)._log_masses(rows).exp(), repeats, neighbours, alpha, rows[:, :2])


def _reference(law: DecisionLaw, moved: int, neighbours: Neighbours, alpha: float) -> Costs:
    """Costs of decisions between two outcomes with scores that are spread evenly."""
    logistic = _is_logistic(law)
    t = (torch.arange(_REFERENCE, dtype=torch.float64) + 0.5) * (_SPREAD[logistic] / _REFERENCE)
    unlikely = torch.exp(_log_chance(t, logistic))
    repeats = torch.full_like(t, moved / _REFERENCE)
    top = law.threshold if isinstance(law, ConfidentWinner) else 0.0
    leading = torch.tensor([[top, -math.inf]], dtype=torch.float64)
    return _of_chances(law, torch.stack((1 - unlikely, unlikely)), repeats, neighbours, alpha, leading)


def _of_chances(
    law: DecisionLaw, chances: Tensor, repeats: Tensor, neighbours: Neighbours, alpha: float, leading: Tensor
) -> Costs:
    """Costs of decisions with these chances, (outcomes, queries), and two largest counts, (queries, 2).

    Each score is moved down to a node of a table, and a voter counts as one node more than a shift, so that
    two scores that are a shift apart are no farther apart than one voter.
    """
    shifts = voter_shifts(law, neighbours)
    spacing = max(shifts[0] / _NODES_PER_VOTER, _SUREST / _MOST_NODES)
    own, other, own_behind, other_behind = (
        math.ceil(shift / spacing * (1 - ROUNDING)) + 1 for shift in shifts
    )
    ordered = chances.sort(dim=0, descending=True).values
    rest = ordered[1:].sum(dim=0, keepdim=True)
    t = scores(torch.cat((rest, ordered[1:])), _is_logistic(law))
    places = (t / spacing).long()
    farthest = int(places.max()) // own + 1
    one = alpha * _winner_zcdp(law, neighbours)
    if _is_binary(law):
        table = _sign_table(shifts[0], alpha, spacing).clamp(max=one)
        # a pair of neighbours is seen from both ends, one of which is a voter closer
        return Costs(lambda voters: table[(places[0] - own * (voters + 1)).clamp(min=0)], repeats, farthest)
    if isinstance(law, ConfidentWinner):  # until nobody need leave the leader and an answer is certain
        rarest = law.threshold - float(leading[:, 0].min()) + _CERTAIN * law.threshold_sigma
        farthest = max(int(places.max()) // own_behind + 1, math.ceil(rarest))
    if (alpha - 1) * one > _OVERFLOW:
        return Costs(lambda voters: torch.full_like(t[0], one), repeats, 0)
    tables = _tables(shifts, alpha, spacing, _is_logistic(law))
    beside = {"replaced": 1, "added": 0}[neighbours]  # candidates whose counts move with the leader's
    largest = math.expm1((alpha - 1) * one)
    top, lead = leading[:, 0], leading[:, 0] - leading[:, 1]

    def excess(left: int, others: int) -> Tensor:
        """Of e^((alpha - 1) D) - 1, where so many left the leader and so many others vote otherwise."""
        leader = (places[0] - left * own - others * other).clamp(min=0)
        closer = places[1:] - left * other - others * other_behind
        closer[0] = places[1] - left * own - others * own_behind
        known = (closer[0] >= 0) & (lead >= 2 * left + others + 2)  # the leader is the same in all such votes
        closer.clamp_(min=0)
        found = [
            likeliest[leader] + untouched[closer].sum(dim=0) + more[closer[:moving]].sum(dim=0)
            for (likeliest, untouched, more), moving in zip(tables, (beside, beside + 1), strict=True)
        ]
        return torch.maximum(*found).where(known, largest).clamp(max=largest)

    def at(voters: int) -> Tensor:
        if isinstance(law, ConfidentWinner):
            each = [excess(0, voters)]
            while len(each) <= voters and bool((each[-1] < largest).any()):
                each.append(excess(len(each), voters - len(each)))
            left = torch.arange(len(each), dtype=torch.float64).unsqueeze(1)
            answers = _chance_of_answer(law, top + voters - 2 * left, alpha)
            worst = (torch.stack(each) * answers).amax(dim=0)
        else:
            worst = excess(voters, 0)
        return torch.log1p(worst) / (alpha - 1) * (1 + ROUNDING) + UNDERFLOW

    return Costs(at, repeats, farthest)


def scores(chances: Tensor, logistic: bool) -> Tensor:
    """t with chance G(-t), rounded down, from 0 to 30.

    >>> scores(torch.tensor([0.5, 0.02275, 0.0]).double(), logistic=False).round(decimals=3).tolist()
    [0.0, 2.0, 30.0]
    """
    p = (chances * (1 + ROUNDING) + UNDERFLOW).clamp(max=0.5)
    t = torch.log1p(-p) - torch.log(p) if logistic else -torch.special.ndtri(p)
    return (t - ROUNDING).clamp(0.0, _SUREST)


def _chance_of_answer(law: ConfidentWinner, top: Tensor, alpha: float) -> Tensor:
    """An upper bound of the chance of an answer under the law that is proportional to P^alpha Q^(1 - alpha).

    a and a' are the chances of an answer of two neighbours whose largest counts are at most ``top``, and one
    more. The logarithm of its odds is log(a / (1 - a)) + (alpha - 1) (log(a / (1 - a)) - log(a' / (1 - a'))),
    which grows with the count, because the slope of log(Phi / (1 - Phi)) is at least 2 sqrt(2 / pi) > 1.59
    and changes by less than 1 per unit.
    """
    if (alpha - 1) / law.threshold_sigma > _STEEPEST:
        return torch.ones_like(top)
    ends = (top + 1 - law.threshold) / law.threshold_sigma
    here, there = (log_tail(-end) - log_tail(end) for end in (ends, ends - 1 / law.threshold_sigma))
    return torch.sigmoid(here + (alpha - 1) * (here - there)) * (1 + ROUNDING)


@lru_cache(maxsize=8)
def _tables(
    shifts: tuple[float, float, float, float], alpha: float, spacing: float, logistic: bool
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """What outcomes add to e^((alpha - 1) D) - 1, where the leader's count moves and where it does not.

    Each time it is that of the leader, of any other outcome, and how much more of one whose count moves. At
    a node, it is at least the largest at this score or any above. The likeliest outcome may have a chance
    below 1/2 where the score of the others is 0. What others add is convex: a score that falls far adds more
    than two that share the fall.
    """
    nodes = torch.arange(int(_SUREST / spacing) + 1, dtype=torch.float64) * spacing
    after = nodes + spacing
    likeliest, others = [], []
    for shift in shifts:
        others.append(_falling(_cell(nodes, after, shift, alpha, logistic)))
        likeliest.append(_falling(_cell(-after, -nodes, shift, alpha, logistic)))
        likeliest[-1][0] = others[-1][0] = torch.maximum(likeliest[-1][0], others[-1][0])
    own, other, own_behind, other_behind = others
    return [
        (likeliest[0], _convex(other), _convex(own - other)),
        (likeliest[1], _convex(other_behind), _convex(own_behind - other_behind)),
    ]


def _convex(values: Tensor) -> Tensor:
    """The smallest sequence above these values that falls ever more slowly to the last of them.

    >>> _convex(torch.tensor([4.0, 4.0, 1.0, 0.0])).tolist()
    [7.0, 4.0, 1.0, 0.0]
    """
    if not bool(values.isfinite().all()):
        return torch.full_like(values, math.inf)
    steps = _falling((values[:-1] - values[1:]).clamp(min=0))
    return torch.cat((steps.flip(0).cumsum(0).flip(0) + values[-1], values[-1:]))


def _falling(values: Tensor) -> Tensor:
    """The largest of each value and all later ones."""
    return values.flip(0).cummax(0).values.flip(0)


def _cell(most: Tensor, ratio: Tensor, shift: float, alpha: float, logistic: bool) -> Tensor:
    """An upper bound of what an outcome adds to e^((alpha - 1) D) - 1, from either end of a pair.

    Its chance is at most G(-most), and its score moves by at most ``shift`` from one that is at most
    ``ratio``: log G is concave, so that the logarithm of its chance then moves most. Where the score moves so
    far that this is not known to fall, the bound is infinite.
    """
    if alpha * shift > 0.5 * _SUREST:
        return torch.full_like(most, math.inf)
    order = torch.tensor(alpha, dtype=torch.float64)
    terms = []
    for move in (shift, -shift):
        if logistic:
            rho = torch.log1p(math.expm1(move) * torch.sigmoid(ratio))
        else:
            rho = log_tail_ratio(ratio, torch.full_like(ratio, move))
        terms += [pieces.log_excess(rho, order) - rho, pieces.log_excess(-rho, order)]
    return torch.exp(torch.stack(terms).amax(dim=0) + _log_chance(most, logistic)) * (1 + ROUNDING)


def _log_chance(t: Tensor, logistic: bool) -> Tensor:
    """log G(-t), the inverse of ``scores``."""
    return torch.nn.functional.logsigmoid(-t) if logistic else log_tail(t)


@lru_cache(maxsize=8)
def _sign_table(mu: float, alpha: float, spacing: float) -> Tensor:
    """The largest D_alpha(A || B) of laws with two outcomes, A giving at most Phi(-t) to one, A and B mu-GDP,
    at nodes from 0 to 30.

    It is that of a sign at t or beyond: B is as far from A as it can be, because D is convex in B. Between
    two nodes, D is at most the larger of its two values over 1 - K h^2 / 6 (docs/curvature.md), and beyond
    the last one no more than ``_tables`` say.
    """
    nodes = torch.arange(int(_SUREST / spacing) + 1, dtype=torch.float64) * spacing
    if mu > _FARTHEST:
        return torch.full_like(nodes, math.inf)
    law, order = StochasticSign(1.0), torch.tensor(alpha, dtype=torch.float64)
    values = torch.maximum(*(law.renyi_divergence(nodes, move, order) for move in (mu, -mu)))
    curved = 1 - (4 + max(0.0, 2 - alpha) * mu * mu / 4) * spacing * spacing / 6
    likeliest, other, _ = _tables((mu,) * 4, alpha, spacing, logistic=False)[0]
    beyond = torch.log1p(likeliest[-1:] + other[-1:]) / (alpha - 1)
    between = torch.maximum(values, torch.cat((values[1:], beyond))) / curved
    return _falling(between) * (1 + ROUNDING) + UNDERFLOW


def _question_cost(law: DecisionLaw, alpha: float) -> float:
    """The largest D_alpha, over all votes, of the question whether there is an answer; 0 if not asked."""
    if not isinstance(law, ConfidentWinner):
        return 0.0
    mu = 1 / law.threshold_sigma
    spacing = max(mu / _NODES_PER_VOTER, _SUREST / _MOST_NODES)
    return min(float(_sign_table(mu, alpha, spacing)[0]), 0.5 * alpha * mu * mu)


def _winner_zcdp(law: DecisionLaw, neighbours: Neighbours) -> float:
    """D / alpha of one decision over all votes, without the question for an answer."""
    return bounded_zcdp(law if isinstance(law, Mechanism) else _winner(law), neighbours)


def _winner(law: Decision) -> Decision:
    """The law of the winner where there is an answer."""
    return NoisyWinner(law.sigma) if isinstance(law, ConfidentWinner) else law


def _is_binary(law: DecisionLaw) -> bool:
    return isinstance(law, Mechanism) and len(law.support.atoms) == 2


def _is_logistic(law: DecisionLaw) -> bool:
    return not isinstance(law, Mechanism) and law.logistic


def _or_default(
    name: str, value: float | None, default: float, check: Callable[[str, object], Tensor] = checks.positive
) -> float:
    number = default if value is None else checks.number(name, value, check)
    if number > _LARGEST:
        raise ValueError(f"{name} must be at most {_LARGEST:g}, got {number!r}")
    return number
