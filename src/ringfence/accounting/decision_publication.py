"""A per-instance epsilon of decisions that may be published.

How sure a decision is says how little it costs. Every outcome has a score t: its chance is Phi(-t). One voter
moves the score of a candidate by at most ``own``, of others by at most ``other``, and by less where neither
vote was or is the leader's (``_SHIFTS``). An outcome whose score moves by so much costs no more than
``_cell``. So the worst that k voters can do is known: they leave the leader for the second, and C_k, the sum
of costs at scores that are so much smaller, bounds the cost of all votes that differ in k voters. Hence

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
    checked_at_most,
    checked_law,
    distinct_votes,
    loss_of_any,
    number_of_queries,
    zcdp,
)
from ringfence.accounting.divergence_sums import above_chord
from ringfence.accounting.privacy_loss import RenyiSums
from ringfence.accounting.publication import PublishableEpsilon, noise_for, published, upper_bound
from ringfence.accounting.sensitivity import filled
from ringfence.checks import Real
from ringfence.mechanisms import pieces
from ringfence.mechanisms.sign import StochasticSign
from ringfence.mechanisms.winner import ConfidentWinner, NoisyWinner
from ringfence.numerics.normal import log_tail, log_tail_ratio
from ringfence.numerics.rounding import ROUNDING, UNDERFLOW

# Laws with Gaussian noise, to whose scores a voter does little.
GaussianLaw = StochasticSign | NoisyWinner | ConfidentWinner

_NODES_PER_VOTER = 128  # of the tables of costs
_MOST_NODES = 1 << 20
_SUREST = 30.0  # outcomes with a larger score count as if they had this one
_OVERFLOW = 700.0  # logarithms beyond are those of numbers that floats do not hold
_LARGEST = 0.5 * 16.0**2  # zCDP of a query: where a voter moves scores by more, chords say too little
_COMPUTED = 1e-9  # how far the logarithm of the sum may be off, with the voter and without
_CERTAIN = 40.0  # threshold_sigma above the threshold, where there is an answer
_STEEPEST = 1.59  # (alpha - 1) / threshold_sigma up to which a larger count is answered more often
# s1 to s4 of docs/guarantees.md, in units of |move| / sigma: how far one voter moves the score of any
# outcome, and that of one whose own count does not move; then both for outcomes but the leader's, where the
# leader's count does not move.
_SHIFTS = {
    "replaced": (1.0, 1 / 2, math.sqrt(3) / 2, math.sqrt(1 / 12)),
    "added": (1.0, math.sqrt(1 / 2), 1.0, math.sqrt(1 / 6)),
}
# Defaults that were fitted to two assemblies (yes or no) and to teachers of CIFAR-10 (winners). With z the
# zCDP that holds for every dataset, publishing costs z^(3/4) / 50, or 3 z^(3/4) / 100 for winners, and the
# order is the best one for z^(7/10) / 5; the noise on the logarithm has this deviation.
_DEVIATION = {True: 0.13, False: 0.19}
_REFERENCE, _SPREAD = 64, 12.0  # scores from 0 to 12 on which it is tried whether publishing gains


def publishable_decision_epsilon(
    law: DecisionLaw,
    votes: Real,
    *,
    neighbours: Neighbours,
    delta: float,
    at_most: int | None = None,
    failure_probability: float = 1e-3,
) -> PublishableEpsilon:
    """The per-instance epsilon of decisions on ``votes``, safe to publish.

    The arguments are those of ``decision_profile``. Publishing costs 2 to 6 % of what the decisions cost at
    most. Where public numbers say that it gains nothing, it is refused, and costs nothing. Winners with
    Gumbel noise are refused: publish what holds for every dataset.

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
    queries = number_of_queries(law, votes)
    moved = checked_at_most(at_most, neighbours, queries) or queries
    if at_most is not None and neighbours == "replaced":  # a ballot may join queries that it was not in
        raise ValueError(
            f"at_most must be left out where a replaced voter's epsilon is published, got {at_most}"
        )
    plan = check_gain(law, moved, neighbours, delta, failure_probability)
    total = plan.total(_scores_of(plan.law, votes))
    noise, share = noise_for(plan.beta + _COMPUTED, plan.cost), min(1.0, total / plan.most)
    bound = upper_bound(noise, math.log(share), failure_probability)
    whole = min(plan.question + plan.most * math.exp(min(0.0, bound)), plan.alpha * plan.every)
    sums = (whole,)
    loss = loss_of_any(law, moved, neighbours, own=RenyiSums((plan.alpha,), sums, sums), steps=queries)
    return published(loss, plan.alpha, delta, failure_probability, plan.cost)


def publishing_cost(every: float, *, binary: bool) -> float:
    """The cost of publishing beside decisions that cost ``every`` for any votes, both in zCDP.

    >>> publishing_cost(1.0, binary=True), publishing_cost(1.0, binary=False)
    (0.02, 0.03)
    """
    return float((0.02 if binary else 0.03) * every**0.75)


class Scores(NamedTuple):
    """The scores of different queries: of all but the likeliest outcome together, then of each of them."""

    t: Tensor  # (scores, queries)
    repeats: Tensor  # how many queries there are of each
    leading: Tensor  # their two largest counts, (queries, 2)


class Costs(NamedTuple):
    """Upper bounds of D_alpha of queries: ``at(k)`` of each one where k voters may be others."""

    at: Callable[[int], Tensor]
    repeats: Tensor  # how many queries there are of each
    voters: int  # with more of them, no bound is larger


class Plan:
    """How to publish beside decisions, by public numbers; one voter takes part in ``moved`` of them.

    ``every`` and ``cost`` are the zCDP of the decisions and of publishing. At the order ``alpha`` no votes
    cost more than ``question``, whether there are answers, and ``most``, all else.
    """

    def __init__(self, law: DecisionLaw, moved: int, neighbours: Neighbours, delta: float) -> None:
        if not isinstance(law := checked_law(law), GaussianLaw):
            raise ValueError(
                f"law must have Gaussian noise where a per-instance epsilon is published, got {law!r}: "
                "publish claim.epsilon, which holds for every dataset"
            )
        self.law, self.moved, self.neighbours = law, moved, neighbours
        query, binary = zcdp(law, neighbours), isinstance(law, StochasticSign)
        self.every = moved * query
        self.cost = publishing_cost(self.every, binary=binary)
        self.beta = _DEVIATION[binary] * math.sqrt(2 * self.cost)
        self.alpha = best_zcdp_order(0.2 * self.every**0.7, delta) if query <= _LARGEST else math.inf
        if not (self.alpha - 1) * self.alpha * query < _OVERFLOW:
            raise ValueError(f"law must have more noise where an epsilon is published, got {law!r}")
        self.question = moved * _question_cost(law, self.alpha)
        self.most = self.alpha * moved * zcdp(_winner(law), neighbours)

    def total(self, scores: Scores) -> float:
        """The sum that is published; of a confident winner, without the question."""
        costs = _costs(self.law, scores, self.neighbours, self.alpha)
        return smooth_cost(costs, self.moved, self.beta, self.most)


def check_gain(
    law: DecisionLaw, moved: int, neighbours: Neighbours, delta: float, failure_probability: float = 1e-3
) -> Plan:
    """How to publish; raises an error where public numbers say that publishing gains nothing.

    That is where the number of decisions whose scores are spread evenly from 0 to 12 is, with noise of 0, no
    smaller than what holds for every dataset. One voter takes part in ``moved`` of them.

    >>> import ringfence as rf
    >>> round(check_gain(rf.NoisyWinner(40.0), 640, "replaced", 1e-5).alpha, 1)
    11.5
    """
    plan = Plan(law, moved, neighbours, delta)
    t = (torch.arange(_REFERENCE, dtype=torch.float64) + 0.5) * (_SPREAD / _REFERENCE)
    top = law.threshold if isinstance(law, ConfidentWinner) else 0.0
    leading = torch.tensor([[top, -math.inf]], dtype=torch.float64)
    total = plan.total(Scores(t.expand(2, -1), torch.full_like(t, moved / _REFERENCE), leading))
    margin = -float(torch.special.ndtri(torch.tensor(failure_probability, dtype=torch.float64)))
    raised = total * math.exp(min(_OVERFLOW, margin * plan.beta / math.sqrt(2 * plan.cost)))
    whole = plan.question + min(plan.most, raised) + plan.alpha * plan.cost
    orders, sums = torch.tensor([[plan.alpha], [whole]], dtype=torch.float64)
    found = float(epsilon_from_rdp(orders, sums, delta))
    promise = loss_of_any(law, moved, neighbours).epsilon(delta)
    if found >= promise:
        raise ValueError(
            f"publishing a per-instance epsilon would gain nothing for {moved} decisions of {law!r}: about "
            f"{found:.3g}, and {promise:.3g} holds for every dataset and may be published as it is"
        )
    return plan


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


def _scores_of(law: GaussianLaw, votes: Real) -> Scores:
    rows, repeats = distinct_votes(law, votes)
    if isinstance(law, StochasticSign):
        t = rows.abs().unsqueeze(0) / float(law.sigma) * (1 - ROUNDING)
        return Scores(t.clamp(max=_SUREST), repeats, rows.unsqueeze(1))
    chances = NoisyWinner(law.sigma)._log_masses(rows).exp().sort(dim=0, descending=True).values[1:]
    return Scores(scores(torch.cat((chances.sum(dim=0, keepdim=True), chances))), repeats, rows[:, :2])


def _costs(law: GaussianLaw, scores: Scores, neighbours: Neighbours, alpha: float) -> Costs:
    """Costs of decisions with these scores.

    Each score is moved down to a node of a table, and a voter counts as one node more than a shift, so that
    two scores that are a shift apart are no farther apart than one voter.
    """
    every = zcdp(_winner(law), neighbours)
    shifts = tuple(math.sqrt(2 * every) * share for share in _SHIFTS[neighbours])
    spacing = _spacing(shifts[0])
    places = (scores.t / spacing).long()
    steps = [math.ceil(shift / spacing * (1 - ROUNDING)) + 1 for shift in shifts]
    if isinstance(law, StochasticSign):
        table, step = _sign_table(shifts[0], alpha, spacing).clamp(max=alpha * every), steps[0]
        farthest = int(places.max()) // step + 1
        # a pair of neighbours is seen from both ends, one of which is a voter closer
        return Costs(lambda k: table[(places[0] - step * (k + 1)).clamp(min=0)], scores.repeats, farthest)
    farthest = int(places.max()) // steps[2] + 1  # until nobody need leave the leader
    if isinstance(law, ConfidentWinner):  # and an answer is certain
        rarest = law.threshold - float(scores.leading[:, 0].min()) + _CERTAIN * law.threshold_sigma
        farthest = max(farthest, math.ceil(rarest))
    beside = {"replaced": 1, "added": 0}[neighbours]  # candidates whose counts move with the leader's
    largest = math.expm1((alpha - 1) * alpha * every)
    winners = _Winners(places, scores.leading, steps, _tables(shifts, alpha, spacing), beside, largest)

    def at(voters: int) -> Tensor:
        if isinstance(law, ConfidentWinner):
            worst = winners.where_asked(voters, law, alpha)
        else:
            worst = winners.excess(voters, 0)  # that all leave the leader costs most
        return torch.log1p(worst) / (alpha - 1) * (1 + ROUNDING) + UNDERFLOW

    return Costs(at, scores.repeats, farthest)


class _Winners(NamedTuple):
    """Winners and what they cost by items 3, 4 and 6 of "Publishing what decisions cost", docs/guarantees.md.

    ``places`` are scores and ``steps`` are s1 to s4, both in nodes of the tables. ``largest`` is
    e^((alpha - 1) D) - 1 of any votes.
    """

    places: Tensor
    leading: Tensor
    steps: list[int]
    tables: list[tuple[Tensor, Tensor, Tensor]]
    beside: int
    largest: float

    def excess(self, left: int, others: int) -> Tensor:
        """Bounds of e^((alpha - 1) D) - 1, where ``left`` voters left the leader and ``others`` moved too.

        By item 4, with a = ``left`` and k - a = ``others``, the scores of the leader and of the others fall,
        and the second is charged for all that the others share. Item 3 adds up what the outcomes add.
        """
        s1, s2, s3, s4 = self.steps
        leader = self.places[0] - left * s1 - others * s2
        closer = self.places[1:] - left * s2 - others * s4
        closer[0] = self.places[1] - left * s1 - others * s3
        lead = self.leading[:, 0] - self.leading[:, 1]
        same_leader = (closer[0] >= 0) & (lead >= 2 * left + others + 2)  # in all such votes
        leader, closer = leader.clamp(min=0), closer.clamp(min=0)
        found = [
            likeliest[leader] + untouched[closer].sum(dim=0) + more[closer[:moving]].sum(dim=0)
            for moving, (likeliest, untouched, more) in enumerate(self.tables, start=self.beside)
        ]
        return torch.maximum(*found).where(same_leader, self.largest).clamp(max=self.largest)

    def where_asked(self, voters: int, law: ConfidentWinner, alpha: float) -> Tensor:
        """The largest ``excess`` times the chance of an answer (item 6), over how many left the leader.

        Once another one may lead at every query, it makes no difference that more leave.
        """
        each = [self.excess(0, voters)]
        while len(each) <= voters and bool((each[-1] < self.largest).any()):
            each.append(self.excess(len(each), voters - len(each)))
        left = torch.arange(len(each), dtype=torch.float64).unsqueeze(1)
        answers = _chance_of_answer(law, self.leading[:, 0] + voters - 2 * left, alpha)
        return (torch.stack(each) * answers).amax(dim=0)


def scores(chances: Tensor) -> Tensor:
    """t with chance Phi(-t), rounded down, from 0 to 30.

    >>> scores(torch.tensor([0.5, 0.02275, 0.0]).double()).round(decimals=3).tolist()
    [0.0, 2.0, 30.0]
    """
    p = (chances * (1 + ROUNDING) + UNDERFLOW).clamp(max=0.5)
    t: Tensor = -torch.special.ndtri(p) - ROUNDING
    return t.clamp(0.0, _SUREST)


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
def _tables(shifts: tuple[float, ...], alpha: float, spacing: float) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Bounds of the terms of e^((alpha - 1) D) - 1, where the leader's count moves and where it does not.

    Each time they are the leader's, that of any other outcome, and how much more of one whose count moves. At
    a node, they hold for this score and any above. The likeliest outcome may have a chance
    below 1/2 where the score of the others is 0. What others add is convex: a score that falls far adds more
    than two that share the fall.
    """
    nodes = _nodes(spacing)
    after = nodes + spacing
    likeliest, others = [], []
    for shift in shifts:
        others.append(_falling(_cell(nodes, after, shift, alpha)))
        likeliest.append(_falling(_cell(-after, -nodes, shift, alpha)))
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


def _cell(most: Tensor, ratio: Tensor, shift: float, alpha: float) -> Tensor:
    """An upper bound of what an outcome adds to e^((alpha - 1) D) - 1, from either end of a pair.

    Its chance is at most Phi(-most), and its score moves by at most ``shift`` from one that is at most
    ``ratio``: log Phi is concave, so that the logarithm of its chance then moves most. Where the score moves
    so far that this is not known to fall, the bound is infinite.
    """
    if alpha * shift > 0.5 * _SUREST:
        return torch.full_like(most, math.inf)
    order = torch.tensor(alpha, dtype=torch.float64)
    terms = []
    for move in (shift, -shift):
        rho = log_tail_ratio(ratio, torch.full_like(ratio, move))
        terms += [pieces.log_excess(rho, order) - rho, pieces.log_excess(-rho, order)]
    return torch.exp(torch.stack(terms).amax(dim=0) + log_tail(most)) * (1 + ROUNDING)


@lru_cache(maxsize=8)
def _sign_table(mu: float, alpha: float, spacing: float) -> Tensor:
    """The largest D_alpha(A || B) of laws with two outcomes, A giving at most Phi(-t) to one, A and B mu-GDP,
    at nodes from 0 to 30.

    It is that of a sign at t or beyond: B is as far from A as it can be, because D is convex in B. Between
    two nodes, D is at most the larger of its two values over 1 - K h^2 / 6 (docs/curvature.md), and beyond
    the last one no more than ``_tables`` say.
    """
    nodes = _nodes(spacing)
    law, order = StochasticSign(1.0), torch.tensor(alpha, dtype=torch.float64)
    values = torch.maximum(*(law.renyi_divergence(nodes, move, order) for move in (mu, -mu)))
    curved = above_chord(order, torch.tensor(mu, dtype=torch.float64), spacing)
    last, after = nodes[-1:], nodes[-1:] + spacing
    beyond = torch.log1p(_cell(-after, -last, mu, alpha) + _cell(last, after, mu, alpha)) / (alpha - 1)
    between = torch.maximum(values, torch.cat((values[1:], beyond))) * curved
    return _falling(between) * (1 + ROUNDING) + UNDERFLOW


def _spacing(shift: float) -> float:
    return max(shift / _NODES_PER_VOTER, _SUREST / _MOST_NODES)


def _nodes(spacing: float) -> Tensor:
    return torch.arange(int(_SUREST / spacing) + 1, dtype=torch.float64) * spacing


def _question_cost(law: GaussianLaw, alpha: float) -> float:
    """The largest D_alpha, over all votes, of the question whether there is an answer; 0 if not asked."""
    if not isinstance(law, ConfidentWinner):
        return 0.0
    mu = 1 / law.threshold_sigma
    return min(float(_sign_table(mu, alpha, _spacing(mu))[0]), 0.5 * alpha * mu * mu)


def _winner(law: GaussianLaw) -> StochasticSign | NoisyWinner:
    """The law of the decision where there is an answer."""
    return law if isinstance(law, StochasticSign) else NoisyWinner(law.sigma)
