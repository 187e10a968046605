"""Decisions: the cost to voters of winners and yes/no answers, by Rényi sums and by tight profiles.

A voter can change the votes of a query in finitely many ways, all of which are evaluated. For each query the
worst of these moves counts, and the queries are composed.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.conversion import DEFAULT_ORDERS, checked_orders, delta_from_rdp, gaussian_delta
from ringfence.accounting.guarantee import ADDED_OR_REMOVED, REPLACED
from ringfence.accounting.induction import Dominating, Others, Pairs, atoms_delta
from ringfence.accounting.per_instance import PerInstanceRdp
from ringfence.accounting.privacy_loss import PrivacyLoss, RenyiAccountant
from ringfence.accounting.profile import PrivacyProfile
from ringfence.accounting.sensitivity import filled
from ringfence.checks import Real
from ringfence.mechanisms import pieces
from ringfence.mechanisms.base import Mechanism
from ringfence.mechanisms.decision import Decision
from ringfence.mechanisms.sign import StochasticSign
from ringfence.numerics.blocks import at_once
from ringfence.numerics.rounding import ROUNDING, UNDERFLOW

# Which datasets are neighbours: those in which one voter's ballot is another one, or is there or not.
Neighbours = Literal["replaced", "added"]

# Laws of decisions: of a row of counts per query, or of one surplus (yes minus no) per question.
DecisionLaw = Decision | StochasticSign

_FARTHEST = {"replaced": 2.0, "added": 1.0}  # that one voter moves a surplus
_MOVES = {"replaced": torch.tensor([1.0, -1.0]), "added": torch.tensor([1.0])}  # of the counts that move
_NUMBERS = 1 << 22  # of pairs that are held at once
_FEW = 2  # as many moves are evaluated to full relative accuracy
_LOST = 1e-12  # of (alpha - 1) D per query, charged where there are more
_STEEP = 600.0  # logarithms up to here are those of numbers that floats hold
_MANY = 12  # with more different counts, moves between candidates who are behind are bounded first


def _law_from_state(state: Any) -> DecisionLaw:
    saved = checks.mapping("law", state)
    return checked_law((Mechanism if "parameters" in saved else Decision).from_state_dict(saved))


class DecisionAccountant(RenyiAccountant):
    """Adds up the cost of decisions.

    Call ``step(votes)`` for the queries that are decided at a time: counts of voters, (queries, candidates),
    for a winner, or one surplus (yes minus no) per question for ``StochasticSign``. ``neighbours`` says what
    makes two sets of ballots neighbours: one voter "added" or removed, or one ballot "replaced" by another.
    ``at_most`` bounds the queries of one step in which a voter takes part; left out, all voters take part in
    all of them.

    Guarantee: for each order there is one running sum per direction, over queries, of the worst of all moves
    of one voter. Each is an upper bound for every voter, and never above what holds for all votes.
    ``docs/guarantees.md`` says what the sums promise. Where the votes of no step depend on earlier decisions,
    ``decision_profile`` is sharper. ``steps`` counts queries.

    >>> import ringfence as rf
    >>> account = rf.DecisionAccountant(rf.NoisyWinner(20.0), neighbours="replaced")
    >>> account.step([[230, 12, 8], [140, 90, 20]])  # 250 voters, two queries
    >>> claim = account.guarantee(delta=1e-5)
    >>> round(claim.per_instance.epsilon, 3), round(claim.epsilon, 3)
    (0.217, 0.341)
    """

    _SETTINGS: ClassVar = ("law", "neighbours", "at_most", "orders")
    _READ: ClassVar = {"law": _law_from_state}
    _COUNTED: ClassVar = (*RenyiAccountant._COUNTED, "charged")

    charged = 0.0  # queries in which one voter takes part

    def __init__(
        self,
        law: DecisionLaw,
        *,
        neighbours: Neighbours,
        at_most: int | None = None,
        orders: Sequence[float] | Tensor = DEFAULT_ORDERS,
    ) -> None:
        self.law = checked_law(law)
        self.neighbours = neighbours
        self.at_most = checked_at_most(at_most, neighbours)
        super().__init__(checked_orders(orders))

    def step(self, votes: Real) -> None:
        """Adds one decision for each query of ``votes``."""
        queries = number_of_queries(self.law, votes)
        rdp = decision_rdp(
            self.law, votes, neighbours=self.neighbours, at_most=self.at_most, orders=self._orders
        )
        self.forward = self.forward + rdp.forward
        self.backward = self.backward + rdp.backward
        self.charged += queries if self.at_most is None else min(queries, self.at_most)
        self.steps += queries

    def privacy_loss(self) -> PrivacyLoss:
        """The steps so far as one value, which adds up with that of other accounts."""
        return loss_of_any(
            self.law, math.ceil(self.charged), self.neighbours, self.at_most, own=self.sums, steps=self.steps
        )

    def __repr__(self) -> str:
        return f"DecisionAccountant({self.law!r}, neighbours={self.neighbours!r}, steps={self.steps})"


def decision_profile(
    law: DecisionLaw, votes: Real, *, neighbours: Neighbours, at_most: int | None = None
) -> PrivacyProfile:
    """Tight (epsilon, delta) of one decision for each query of ``votes``, about any one voter.

    The arguments are those of ``DecisionAccountant`` and its ``step``. The proofs are the Gaussian's exact
    curve, the Rényi sums, and backward induction, in which a voter makes the worst of all moves at every
    query, or at ``at_most`` of them, even in the light of what was decided before. The last one is left out
    where it would take minutes.

    Guarantee: an upper bound that covers every voter and both directions. It speaks of these votes, is
    computed from them and is itself sensitive.

    >>> import ringfence as rf
    >>> counts = [[230, 12, 8], [140, 90, 20]]
    >>> profile = decision_profile(rf.NoisyWinner(20.0), counts, neighbours="replaced")
    >>> round(profile.epsilon(delta=1e-5), 3), profile.proof(delta=1e-5)
    (0.156, 'backward induction')
    """
    return profile_and_rdp(law, votes, neighbours, at_most)[0]


def profile_and_rdp(
    law: DecisionLaw, votes: Real, neighbours: Neighbours, at_most: int | None
) -> tuple[PrivacyProfile, PerInstanceRdp]:
    """``decision_profile`` and the Rényi divergences in it, which are those of ``decision_rdp``."""
    every = list(pairs(law, votes, neighbours))
    at_most = checked_at_most(at_most, neighbours, sum(int(part.repeats.sum()) for part in every))
    rdp = decision_rdp(law, votes, neighbours=neighbours, at_most=at_most, every=every)
    return profile_of_pairs(law, every, rdp, neighbours, at_most), rdp


def profile_of_pairs(
    law: DecisionLaw, every: Sequence[Pairs], rdp: PerInstanceRdp, neighbours: Neighbours, at_most: int | None
) -> PrivacyProfile:
    """Tight (epsilon, delta) of pairs, none of which costs more than the law does."""
    queries = sum(int(part.repeats.sum()) for part in every)
    mu = math.sqrt(2 * zcdp(law, neighbours, at_most) * (at_most or queries))
    proofs: dict[str, Callable[[float], float]] = {
        "Gaussian": lambda epsilon: gaussian_delta(mu, epsilon),
        "Rényi": delta_from_rdp(rdp.orders, rdp.worst),
    }
    if tight := atoms_delta(every, _charged(neighbours, at_most)):
        left_out = queries * every[0].rho.shape[0] * UNDERFLOW
        proofs["backward induction"] = lambda epsilon: left_out + tight(epsilon)
    return PrivacyProfile(proofs)


def _charged(neighbours: Neighbours, at_most: int | None) -> int | None:
    """The queries that one voter moves: a bounded ballot that is replaced may leave some and join others."""
    return 2 * at_most if at_most is not None and neighbours == "replaced" else at_most


def decision_rdp(
    law: DecisionLaw,
    votes: Real,
    *,
    neighbours: Neighbours,
    at_most: int | None = None,
    orders: Sequence[float] | Tensor = DEFAULT_ORDERS,
    every: Iterable[Pairs] | None = None,
) -> PerInstanceRdp:
    """Rényi divergences between the decisions on these votes and on those of any neighbour.

    ``votes`` are counts of voters, one row per query, for a winner, and surpluses for the sign. For each
    query and order the worst of all moves of one voter counts. It is summed over the queries, or over the
    ``at_most`` costliest ones: no voter costs more. ``every`` has the ``pairs``, where they are known.

    Guarantee: upper bounds in both directions. They are exact up to a relative 1e-11 and, for winners, an
    absolute 1e-12 / (alpha - 1) per query, and never above what holds for all votes.

    >>> import ringfence as rf
    >>> counts = [[200, 30, 20], [120, 110, 20]]
    >>> rdp = decision_rdp(rf.NoisyWinner(40.0), counts, neighbours="replaced", orders=[2, 32])
    >>> [round(float(value), 5) for value in rdp.worst], 32 * 2 / 40**2  # the Gaussian's, of two queries
    ([0.00081, 0.01356], 0.04)
    """
    every, orders = pairs(law, votes, neighbours) if every is None else every, checked_orders(orders)
    at_most = checked_at_most(at_most, neighbours)
    if neighbours != "replaced" or at_most is None:
        return rdp_of_pairs(every, orders, bounded_zcdp(law, neighbours), at_most)
    # a ballot changes its vote at k queries and leaves or joins 2 (at_most - k) others: a change counts twice
    changed, twice = _costs_of_pairs(every, orders, bounded_zcdp(law, "replaced"))
    moved, once = _costs_of_pairs(pairs(law, votes, "added"), orders, bounded_zcdp(law, "added"))
    worst = filled(torch.cat((changed / 2, moved), dim=2), torch.cat((2 * twice, once)), 2.0 * at_most)
    most = at_most * bounded_zcdp(law, neighbours, at_most) * orders
    return PerInstanceRdp(orders, *torch.minimum(worst, most))


def _of_a_ballot(cost: Callable[[Neighbours], float], neighbours: Neighbours, at_most: int | None) -> float:
    """The cost of one voter per query, of as many as ``at_most`` says, or of all.

    A ballot that is replaced and bounded may leave one query and join another instead of changing its vote.
    """
    twice = 2 * cost("added") if neighbours == "replaced" and at_most is not None else 0.0
    return max(cost(neighbours), twice)


def zcdp(law: DecisionLaw, neighbours: Neighbours, at_most: int | None = None) -> float:
    """D / alpha of a Gaussian release that tells as much as one query in every test, whatever the votes.

    >>> import ringfence as rf
    >>> round(zcdp(rf.NoisyWinner(10.0), "replaced"), 9), round(zcdp(rf.StochasticSign(10.0), "replaced"), 9)
    (0.01, 0.02)
    """

    def cost(change: Neighbours) -> float:
        if isinstance(law, Decision):
            return law.zcdp(_MOVES[change])
        mu = _FARTHEST[change] / float(law.sigma)
        return 0.5 * mu * mu  # which is infinite where a power raises an error

    return _of_a_ballot(cost, neighbours, at_most) * (1 + 1e-12)


def bounded_zcdp(law: DecisionLaw, neighbours: Neighbours, at_most: int | None = None) -> float:
    """An upper bound of D / alpha of one query over all votes, at most that of the Gaussian release.

    >>> import ringfence as rf
    >>> [round(of(rf.GumbelWinner(10.0), "replaced"), 5) for of in (bounded_zcdp, zcdp)]
    [0.005, 0.00785]
    """
    own = _of_a_ballot(lambda change: _loss_range(law, change) ** 2 / 8, neighbours, at_most)
    return min(zcdp(law, neighbours, at_most), own * (1 + 1e-12))


def _loss_range(law: DecisionLaw, neighbours: Neighbours) -> float:
    return law.loss_range(_MOVES[neighbours]) if isinstance(law, Decision) else math.inf


def loss_of_any(
    law: DecisionLaw, queries: int, neighbours: Neighbours, at_most: int | None = None, **known: Any
) -> PrivacyLoss:
    """The loss of decisions, for every dataset, where one voter takes part in this many of them.

    They are all that there are, unless there is a bound ``at_most``. ``known`` is passed on to
    ``PrivacyLoss.of_zcdp``.

    >>> import ringfence as rf
    >>> laws = rf.NoisyWinner(10.0), rf.GumbelWinner(10.0)
    >>> [round(loss_of_any(law, 7, "replaced").epsilon(1e-6), 3) for law in laws]
    [1.642, 1.075]
    """
    eta = _loss_range(law, neighbours) * (1 + 1e-12)
    moved = _charged(neighbours, None if at_most is None else queries) or queries
    dominating: Dominating = (("range", eta, moved),) if eta < math.inf else ()
    if isinstance(law, StochasticSign) and moved == queries:
        dominating = (("sign", math.sqrt(2 * zcdp(law, neighbours)), queries),)
    return PrivacyLoss.of_zcdp(
        queries * zcdp(law, neighbours, at_most),
        queries * bounded_zcdp(law, neighbours, at_most),
        change=REPLACED if neighbours == "replaced" else ADDED_OR_REMOVED,
        dominating=dominating,
        **known,
    )


def rdp_of_pairs(
    every: Iterable[Pairs], orders: Tensor, ceiling: float, at_most: int | None
) -> PerInstanceRdp:
    """``decision_rdp`` of pairs; no query counts more than ``ceiling`` times the order."""
    found, room = _costs_of_pairs(every, orders, ceiling)
    sums = found @ room if at_most is None else filled(found, room, float(at_most))
    return PerInstanceRdp(orders, *sums)


def _costs_of_pairs(every: Iterable[Pairs], orders: Tensor, ceiling: float) -> tuple[Tensor, Tensor]:
    """The worst divergences of queries, (directions, orders, queries), and how often each query repeats."""
    costs, repeats = [], []
    for part in every:
        costs.append(_worst(part, orders))
        repeats.append(part.repeats.double())
    most = ceiling * orders.unsqueeze(1)
    found = torch.minimum(torch.cat(costs, dim=2) * (1 + ROUNDING) + UNDERFLOW, most)
    room = torch.cat(repeats)
    if bool(found.isnan().any()):
        raise FloatingPointError("Rényi divergences of decisions cannot be represented at these arguments")
    return found, room


def _worst(part: Pairs, orders: Tensor) -> Tensor:
    """The largest divergence over all moves: (directions, orders, queries)."""
    if part.rho.shape[1] <= _FEW:
        found = [[pieces.renyi(*one, order).amax(dim=0) for order in orders] for one in part.seen()]
        return torch.stack([torch.stack(own) for own in found])
    largest = []
    for mass, ratio in part.seen():
        moments = _log_moments(mass, ratio, orders)
        worst = moments.amax(dim=1)
        if part.others is not None:
            for order, own, best in zip(orders, moments, worst, strict=True):
                best.copy_(torch.maximum(best, _bound(mass, ratio, part.others, order, own, best)))
        largest.append(worst)
    # E_P (P/Q)^(alpha - 1) and E_Q (Q/P)^(alpha - 1); what cancels here is charged
    return (torch.stack(largest).clamp(min=0) + _LOST) / (orders - 1).unsqueeze(1)


def _log_moments(log_p: Tensor, rho: Tensor, orders: Tensor) -> Tensor:
    """log of the sum of p (p/q)^(alpha - 1) over outcomes, the first dimension, for each of the orders."""
    found = log_p.new_empty(len(orders), *log_p.shape[1:])
    steepest = float(rho.amax()) if rho.numel() else 0.0
    for own, order in zip(found, orders.tolist(), strict=True):
        terms = torch.add(log_p, rho, alpha=order - 1)
        if (order - 1) * steepest < _STEEP:
            own.copy_(terms.exp_().sum(dim=0).log_())
        else:
            own.copy_(torch.logsumexp(terms, dim=0))
    return found


def _bound(
    log_p: Tensor, rho: Tensor, others: Others, order: Tensor, moments: Tensor, best: Tensor
) -> Tensor:
    """An upper bound of the log moments of the moves that are left out, from other moves: (queries,).

    The excess of an outcome is F = p^alpha q^(1 - alpha) - alpha p + (alpha - 1) q, and a moment is 1 more
    than the sum of F. With t the second candidate, a move from i to j has at most A_i + B_j + T of it
    (docs/guarantees.md): A_i is that of i to t outside t, B_j that of t to j outside t, and T that of t where
    i loses a voter or j gains one, and nothing else happens. All is divided by the largest moment known, lest
    it overflows.
    """
    second = others.second.expand(1, rho.shape[1], -1)
    mass, ratio = (part.gather(0, second)[0] for part in (log_p, rho))
    unit = torch.exp(-best)
    own = torch.exp(mass + (order - 1) * ratio - best)
    own = (own + unit * ((order - 1) * torch.exp(mass - ratio) - order * torch.exp(mass))).clamp(min=0)
    outside = (torch.exp(moments - best) - unit - own).clamp(min=0)
    each = (outside, others.to_second), (outside, others.from_second), (own, others.alone)
    return best + torch.log(unit + sum(cost.where(move, 0.0).amax(dim=0) for cost, move in each))


def pairs(law: DecisionLaw, votes: Real, neighbours: Neighbours) -> Iterator[Pairs]:
    """Every query of ``votes`` with every move of one voter, some queries of a ``Decision`` at a time.

    ``votes`` are counts of voters, (..., candidates), for a ``Decision``, and surpluses for the sign. "added"
    is one voter more or fewer. "replaced" is one ballot that becomes another one, and since a voter may also
    leave a query out, it includes "added".

    Guarantee: no move of one voter is missing. A voter can be taken only from a candidate who has one, which
    the counts at hand tell. Candidates with equal counts share their moves, because the laws do not know
    candidates by name. A surplus moves by at most 1 ("added") or 2 ("replaced"), and the farthest moves
    dominate the shorter ones (monotone likelihood ratios). Where moves between candidates who are behind are
    left out, ``Others`` bound them.

    >>> import ringfence as rf
    >>> [part.rho.shape for part in pairs(rf.NoisyWinner(2.0), [[5, 0, 0], [0, 5, 0]], "replaced")]
    [torch.Size([3, 4, 1])]
    """
    checks.one_of("neighbours", neighbours, _FARTHEST)
    rows, repeats = distinct_votes(law, votes)
    if isinstance(law, Mechanism):
        farthest = torch.tensor([[1.0], [-1.0]], dtype=torch.float64) * _FARTHEST[neighbours]
        yield Pairs(*law.pair(rows, farthest), repeats)
        return
    different = 1 + (rows.diff(dim=1) != 0).sum(dim=1)
    most = int(different.max())
    many = neighbours == "replaced" and most > _MANY
    size = at_once(_NUMBERS, each=8 * rows.shape[-1] * (8 * most if many else most * (most + 3)))
    if len(rows) > size:  # queries with similar numbers of moves stand together
        order = different.argsort(stable=True)
        rows, repeats = rows[order], repeats[order]
    for some, times in zip(rows.split(size), repeats.split(size), strict=True):
        if many:
            yield _without_others(law, some, times)
        else:
            log_p, rho = law.pair(some.unsqueeze(1), moves_of(some, neighbours))
            yield Pairs(log_p.mT, rho.mT, times)


def distinct_votes(law: DecisionLaw, votes: Real) -> tuple[Tensor, Tensor]:
    """The different surpluses, or rows of counts in falling order, and how many queries have each.

    >>> import ringfence as rf
    >>> [part.tolist() for part in distinct_votes(rf.NoisyWinner(1.0), [[3, 1], [2, 2], [1, 3]])]
    [[[2.0, 2.0], [3.0, 1.0]], [1, 2]]
    """
    if isinstance(checked_law(law), Mechanism):
        rows = checks.finite("votes", votes).double().cpu().reshape(-1)
    else:
        counts = checked_counts(votes)
        rows = counts.reshape(-1, max(1, counts.shape[-1])).sort(dim=1, descending=True).values
    if not rows.numel():
        raise ValueError("votes must hold at least one query, got none")
    rows, repeats = torch.unique(rows, dim=0, return_counts=True)
    return rows, repeats


def _without_others(law: Decision, counts: Tensor, repeats: Tensor) -> Pairs:
    """Pairs of all moves but those between two candidates behind the second; counts descend."""
    moves = _allowed(counts, "replaced")
    queries, numbers = moves.shape[:2]
    second = (1 + (counts == counts[:, :1]).sum(dim=1)).clamp(max=numbers - 1).unsqueeze(1)
    known = torch.zeros(queries, numbers, dtype=torch.bool).scatter(1, second, True)
    known[:, :2] = True  # nobody, and the largest
    places = _listed(moves & (known.unsqueeze(1) | known.unsqueeze(2)))
    log_p, rho = law.pair(counts.unsqueeze(1), _vectors(places, numbers - 1))
    taken, given = places // numbers, places % numbers
    loses, gains = (~known.gather(1, place) for place in (taken, given))
    alone = (loses & (given == 0)) | (gains & (taken == 0))
    masks = loses & (given == second), gains & (taken == second), alone
    return Pairs(log_p.mT, rho.mT, repeats, Others(second.T - 1, *(mask.T for mask in masks)))


def moves_of(counts: Tensor, neighbours: Neighbours) -> Tensor:
    """The moves of one voter at each of these queries, (queries, moves, candidates).

    Where a query has fewer moves than others, moves that change nothing are added.

    >>> moves_of(torch.tensor([[2.0, 0.0, 0.0]]), "added").long().tolist()
    [[[1, 0, 0], [0, 1, 0], [-1, 0, 0]]]
    """
    return _vectors(_listed(_allowed(counts, neighbours)), counts.shape[1])


def _allowed(counts: Tensor, neighbours: Neighbours) -> Tensor:
    """Whether a voter may be taken from one and given to another, (queries, taken, given); 0 is nobody."""
    candidates = counts.shape[1]
    equal = counts.unsqueeze(2) == counts.unsqueeze(1)
    earlier = equal.tril(-1).sum(dim=2)  # candidates before this one with the same count
    stands_for = earlier == 0
    with_voters = stands_for & (counts >= 1)
    allowed = torch.zeros(len(counts), candidates + 1, candidates + 1, dtype=torch.bool)
    allowed[:, 0, 1:], allowed[:, 1:, 0] = stands_for, with_voters
    if neighbours == "replaced":
        # from one candidate to another one; of equal ones, from the first to the second
        onto = stands_for.unsqueeze(1) | (equal & (earlier == 1).unsqueeze(1))
        allowed[:, 1:, 1:] = with_voters.unsqueeze(2) & onto & ~torch.eye(candidates, dtype=torch.bool)
    return allowed


def _listed(allowed: Tensor) -> Tensor:
    """The places of the moves that are allowed, (queries, moves); where there are fewer, 0 moves nothing."""
    flat = allowed.flatten(1)
    query, place = flat.nonzero(as_tuple=True)
    counts = flat.sum(dim=1)
    listed = torch.zeros(len(flat), int(counts.max()), dtype=torch.int64)
    listed[query, torch.arange(len(query)) - (counts.cumsum(0) - counts)[query]] = place
    return listed


def _vectors(places: Tensor, candidates: int) -> Tensor:
    """The moves in these places as what they add to each count."""
    unit = torch.eye(candidates + 1, dtype=torch.float64)[:, 1:]
    return unit[places % (candidates + 1)] - unit[places // (candidates + 1)]


def checked_law(law: object) -> DecisionLaw:
    """The law, if it is one of decisions.

    >>> checked_law(1.0)
    Traceback (most recent call last):
    TypeError: law must be a law of decisions, such as NoisyWinner or StochasticSign, got 1.0
    """
    if isinstance(law, StochasticSign) and law.sigma.numel() != 1:
        raise ValueError(f"law must have single numbers for parameters, got {law!r}")
    if isinstance(law, Decision | StochasticSign):
        return law
    raise TypeError(f"law must be a law of decisions, such as NoisyWinner or StochasticSign, got {law!r}")


def checked_at_most(at_most: int | None, neighbours: Neighbours, queries: float = math.inf) -> int | None:
    """The number of queries in which one voter can count; None where in all of them.

    A ballot that is replaced may leave ``at_most`` queries and join as many others.

    >>> checked_at_most(2, "replaced"), checked_at_most(2, "added", queries=2)
    (2, None)
    """
    checks.one_of("neighbours", neighbours, _FARTHEST)
    if at_most is None:
        return None
    at_most = checks.count("at_most", at_most, at_least=1)
    return None if at_most >= queries else at_most


def number_of_queries(law: DecisionLaw, votes: Real) -> int:
    """The number of decisions.

    >>> import ringfence as rf
    >>> number_of_queries(rf.NoisyWinner(1.0), [[3, 1], [2, 2]])
    2
    """
    return int(distinct_votes(law, votes)[1].sum())


def checked_counts(votes: Real) -> Tensor:
    """Counts of voters in float64: whole numbers from 0 on.

    >>> checked_counts([[3.0, 0.5]])
    Traceback (most recent call last):
    ValueError: counts must be whole numbers from 0 on, got 0.5 at index [0, 1]
    """
    counts = checks.finite("counts", votes).double().cpu()
    if not counts.ndim:
        raise ValueError(f"votes must be counts of candidates, got the single number {float(counts)!r}")
    return checks.require(
        "counts", "must be whole numbers from 0 on", counts, (counts >= 0) & (counts % 1 == 0)
    )
