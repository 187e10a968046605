"""Decisions: the cost to voters of winners and yes/no answers, by Rényi sums and by tight profiles.

A voter can change the votes of a query in finitely many ways, all of which are evaluated. For each query the
worst of these moves counts, and the queries are composed.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.conversion import DEFAULT_ORDERS, checked_orders, delta_from_rdp, gaussian_delta
from ringfence.accounting.guarantee import ADDED_OR_REMOVED, REPLACED
from ringfence.accounting.induction import atoms_delta
from ringfence.accounting.per_instance import PerInstanceRdp
from ringfence.accounting.privacy_loss import Accountant, PrivacyLoss, as_given
from ringfence.accounting.profile import PrivacyProfile
from ringfence.accounting.sensitivity import filled
from ringfence.checks import Real
from ringfence.mechanisms import pieces
from ringfence.mechanisms.base import Mechanism
from ringfence.mechanisms.decision import Decision
from ringfence.numerics.blocks import at_once
from ringfence.numerics.rounding import ROUNDING, UNDERFLOW

# Which datasets are neighbours: those in which one voter's ballot is another one, or is there or not.
Neighbours = Literal["replaced", "added"]

# Laws of decisions: of a row of counts per query, or of one surplus (yes minus no) per question.
DecisionLaw = Decision | Mechanism

_FARTHEST = {"replaced": 2.0, "added": 1.0}  # that one voter moves a surplus
_MOVES = {"replaced": torch.tensor([1.0, -1.0]), "added": torch.tensor([1.0])}  # of the counts that move
_NUMBERS = 1 << 22  # of pairs that are held at once
_FEW = 2  # as many moves are evaluated to full relative accuracy
_LOST = 1e-12  # of (alpha - 1) D per query, charged where there are more
_STEEP = 600.0  # logarithms up to here are those of numbers that floats hold
_STRETCHES = 6  # of how many queries of a bounded ballot change their vote
_MANY = 12  # with more different counts, moves between candidates who are behind are bounded first


class Others(NamedTuple):
    """Moves between candidates who are behind the runner-up, which ``Pairs`` leave out, and what bounds them.

    Candidates have numbers from 1 on; 0 is nobody. A voter is ``taken`` from one and ``given`` to another one
    by the moves that are there, (queries, moves). ``second`` is the first candidate behind the largest count,
    ``alike`` the first one with the same count as each, and ``left_out`` has the moves that are not there,
    (queries, taken, given).
    """

    taken: Tensor
    given: Tensor
    second: Tensor
    alike: Tensor
    left_out: Tensor

    def stand_in(self) -> Tensor:
        """The moves to or from the second candidate that stand for those left out, (moves, queries)."""
        behind = self.left_out.any(dim=2) | self.left_out.any(dim=1)
        second = self.second.unsqueeze(1)
        from_second = (self.taken == second) & behind.gather(1, self.given)
        to_second = (self.given == second) & behind.gather(1, self.taken)
        return (from_second | to_second).T


class Pairs(NamedTuple):
    """Decisions and their moves: log masses and log ratios, (outcomes, moves, queries).

    Queries with the same votes, in whatever order, stand here once; ``repeats`` says how many there are.
    ``others`` are moves that are left out, if any.
    """

    log_p: Tensor
    rho: Tensor
    repeats: Tensor
    others: Others | None = None


def _law_from_state(state: Any) -> DecisionLaw:
    saved = checks.mapping("law", state)
    return (Mechanism if "parameters" in saved else Decision).from_state_dict(saved)


class DecisionAccountant(Accountant):
    """Adds up the cost of decisions.

    Call ``step(votes)`` for the queries that are decided at a time: counts of voters, (queries, candidates),
    for a winner, or one surplus (yes minus no) per question for
    ``StochasticSign``. ``neighbours`` says what makes two sets of ballots neighbours: one voter "added" or
    removed, or one ballot "replaced" by another. ``at_most`` bounds the queries of one step in which a voter
    takes part; left out, all voters take part in all of them.

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

    _SETTINGS: ClassVar = {"law": _law_from_state, "neighbours": as_given, "at_most": as_given}
    _NUMBERS: ClassVar = ("charged",)

    charged: float  # queries in which one voter takes part

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
            self.law,
            math.ceil(self.charged),
            self.neighbours,
            self.at_most,
            orders=self._orders,
            forward=self.forward,
            backward=self.backward,
            steps=self.steps,
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
    queries = number_of_queries(checked_law(law), votes)
    at_most = checked_at_most(at_most, neighbours, queries)
    every = list(pairs(law, votes, neighbours))
    rdp = _rdp(law, votes, every, checked_orders(DEFAULT_ORDERS), neighbours, at_most)
    return profile_of_pairs(law, every, rdp, neighbours, at_most, queries), rdp


def profile_of_pairs(
    law: DecisionLaw,
    every: list[Pairs],
    rdp: PerInstanceRdp,
    neighbours: Neighbours,
    at_most: int | None,
    queries: int,
) -> PrivacyProfile:
    """Tight (epsilon, delta) of pairs, which are used up; none may cost more than the law does."""
    mu = math.sqrt(2 * zcdp(law, neighbours, at_most) * (at_most or queries))
    proofs: dict[str, Callable[[float], float]] = {
        "Gaussian": lambda epsilon: gaussian_delta(mu, epsilon),
        "Rényi": delta_from_rdp(rdp.orders, rdp.worst),
    }
    together, stand_in = joined(every)
    every.clear()  # which is large
    moved = 2 * at_most if at_most is not None and neighbours == "replaced" else at_most  # left, and joined
    if tight := atoms_delta(*together[:3], moved, stand_in):
        left_out = queries * together.rho.shape[0] * UNDERFLOW
        proofs["backward induction"] = lambda epsilon: left_out + tight(epsilon)
    return PrivacyProfile(proofs)


def decision_rdp(
    law: DecisionLaw,
    votes: Real,
    *,
    neighbours: Neighbours,
    at_most: int | None = None,
    orders: Sequence[float] | Tensor = DEFAULT_ORDERS,
) -> PerInstanceRdp:
    """Rényi divergences between the decisions on these votes and on those of any neighbour.

    ``votes`` are counts of voters, one row per query, for a winner, and surpluses for the sign. For each
    query and order it takes the worst of all moves of one voter, and sums over the queries, or over the
    ``at_most`` dearest ones: no voter, however they vote, costs more.

    Guarantee: upper bounds in both directions. They are exact up to a relative 1e-11 and, for winners, an
    absolute 1e-12 / (alpha - 1) per query, and never above what holds for all votes.

    >>> import ringfence as rf
    >>> counts = [[200, 30, 20], [120, 110, 20]]
    >>> rdp = decision_rdp(rf.NoisyWinner(40.0), counts, neighbours="replaced", orders=[2, 32])
    >>> [round(float(value), 5) for value in rdp.worst], 32 * 2 / 40**2  # the Gaussian's, of two queries
    ([0.00081, 0.01356], 0.04)
    """
    number_of_queries(checked_law(law), votes)
    every = pairs(law, votes, neighbours)
    return _rdp(law, votes, every, checked_orders(orders), neighbours, checked_at_most(at_most, neighbours))


def _rdp(
    law: DecisionLaw,
    votes: Real,
    every: Iterable[Pairs],
    orders: Tensor,
    neighbours: Neighbours,
    at_most: int | None,
) -> PerInstanceRdp:
    """``decision_rdp``, where ``every`` has all moves of these neighbours.

    A ballot that is replaced and bounded changes its vote at k queries, and leaves or joins 2 (at_most - k)
    others, for some k. Whatever it is, the dearest queries of either kind cost at least as much.
    """
    if neighbours != "replaced" or at_most is None:
        return rdp_of_pairs(every, orders, bounded_zcdp(law, neighbours), at_most)
    changed = _costs_of_pairs(every, orders, bounded_zcdp(law, "replaced"))
    moved = _costs_of_pairs(pairs(law, votes, "added"), orders, bounded_zcdp(law, "added"))
    worst, knots = filled(*moved, 2.0 * at_most), torch.linspace(0, at_most, min(at_most, _STRETCHES) + 1)
    for less, more in pairwise(knots.long().unique().tolist()):
        both = filled(*changed, float(more)) + filled(*moved, 2.0 * (at_most - less - 1))
        worst = torch.maximum(worst, both)
    most = at_most * bounded_zcdp(law, neighbours, at_most) * orders
    return PerInstanceRdp(orders, *torch.minimum(worst, most))


def _of_a_ballot(cost: Callable[[Neighbours], float], neighbours: Neighbours, at_most: int | None) -> float:
    """What one voter costs per query, of as many as ``at_most`` says, or of all.

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
            return law.gaussian_zcdp(_MOVES[change])
        mu = _FARTHEST[change] / float(law.sigma)
        return 0.5 * mu * mu  # which is infinite where a power raises an error

    return _of_a_ballot(cost, neighbours, at_most) * (1 + 1e-12)


def bounded_zcdp(law: DecisionLaw, neighbours: Neighbours, at_most: int | None = None) -> float:
    """An upper bound of D / alpha of one query over all votes, at most that of the Gaussian release.

    >>> import ringfence as rf
    >>> [round(of(rf.GumbelWinner(10.0), "replaced"), 5) for of in (bounded_zcdp, zcdp)]
    [0.005, 0.00785]
    """
    most = zcdp(law, neighbours, at_most)
    if not isinstance(law, Decision):
        return most
    own = _of_a_ballot(lambda change: law.zcdp(_MOVES[change]), neighbours, at_most)
    return min(most, own * (1 + 1e-12))


def voter_shifts(law: DecisionLaw, neighbours: Neighbours) -> tuple[float, float, float, float]:
    """How far one voter changes the score of an outcome, as ``Decision.score_shifts`` has it.

    >>> import ringfence as rf
    >>> voter_shifts(rf.GumbelWinner(8.0), "added"), voter_shifts(rf.StochasticSign(8.0), "added")
    ((0.125, 0.125, 0.125, 0.0625), (0.125, 0.125, 0.125, 0.125))
    """
    if isinstance(law, Decision):
        return law.score_shifts(_MOVES[neighbours])
    own = _FARTHEST[neighbours] / float(law.sigma)
    return own, own, own, own


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
    eta = law.loss_range(_MOVES[neighbours]) if isinstance(law, Decision) else math.inf
    moved = 2 * queries if neighbours == "replaced" and at_most is not None else queries  # left, and joined
    return PrivacyLoss.of_zcdp(
        queries * zcdp(law, neighbours, at_most),
        queries * bounded_zcdp(law, neighbours, at_most),
        change=REPLACED if neighbours == "replaced" else ADDED_OR_REMOVED,
        dominating=(("range", eta * (1 + 1e-12), moved),) if eta < math.inf else (),
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
    log_p, rho = part.log_p.expand_as(part.rho), part.rho
    both = (log_p, rho), (log_p - rho, -rho)
    if rho.shape[1] <= _FEW:
        found = [[pieces.renyi(*one, order).amax(dim=0) for order in orders] for one in both]
        return torch.stack([torch.stack(own) for own in found])
    largest = []
    for mass, ratio in both:
        moments = _log_moments(mass, ratio, orders)
        largest.append(moments.amax(dim=1))
        if part.others is not None:
            largest[-1] = torch.stack(
                [
                    torch.maximum(best, _bound(mass, ratio, part.others, order, own, best))
                    for order, own, best in zip(orders, moments, largest[-1], strict=True)
                ]
            )
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
    than the sum of F. With t the second candidate, a move from i to j has at most A_i + B_j of it
    (docs/guarantees.md): A_i is that of i to t outside t, and of t where i loses a voter; B_j is that of t to
    j outside t, and of t where j gains one. All is divided by the largest moment known, lest it overflows.
    """
    candidate = (others.second - 1).expand(1, rho.shape[1], -1)
    mass, ratio = (part.gather(0, candidate)[0] for part in (log_p, rho))
    unit = torch.exp(-best)
    own = torch.exp(mass + (order - 1) * ratio - best)
    own = (own + unit * ((order - 1) * torch.exp(mass - ratio) - order * torch.exp(mass))).clamp(min=0)
    outside = (torch.exp(moments - best) - unit - own).clamp(min=0)
    second = others.second.unsqueeze(1)

    def of_candidates(place: Tensor, other: Tensor) -> Tensor:
        cost = torch.where(other == second, outside.T, own.T.where(other == 0, 0.0))
        return torch.zeros_like(others.alike, dtype=cost.dtype).scatter_add(1, place, cost)

    taken = of_candidates(others.taken, others.given).gather(1, others.alike).unsqueeze(2)
    given = of_candidates(others.given, others.taken).gather(1, others.alike).unsqueeze(1)
    dearest = (taken + given).where(others.left_out, 0.0).flatten(1).amax(dim=1)
    return (best + torch.log(unit + dearest)).clamp(min=0)


def pairs(law: DecisionLaw, votes: Real, neighbours: Neighbours) -> Iterator[Pairs]:
    """Every query of ``votes`` with every move of one voter, some queries at a time.

    ``votes`` are counts of voters, (..., candidates), for a ``Decision``, and surpluses for the sign and
    other laws of single numbers. "added" is one voter more or fewer. "replaced" is one ballot that becomes
    another one, and since a voter may also leave a query out, it includes "added".

    Guarantee: no move of one voter is missing. A voter can be taken only from a candidate who has one, which
    the counts at hand tell. Candidates with equal counts share their moves, because the laws do not know
    candidates by name. A surplus moves by at most 1 ("added") or 2 ("replaced"), and the farthest moves
    dominate the shorter ones (monotone likelihood ratios).

    >>> import ringfence as rf
    >>> [part.rho.shape for part in pairs(rf.NoisyWinner(2.0), [[5, 0, 0], [0, 5, 0]], "replaced")]
    [torch.Size([3, 4, 1])]
    """
    checks.one_of("neighbours", neighbours, _FARTHEST)
    if isinstance(law, Mechanism):
        yield from _of_surpluses(law, checks.finite("votes", votes).double(), _FARTHEST[neighbours])
        return
    counts = checked_counts(votes)
    rows = counts.reshape(-1, counts.shape[-1]).sort(dim=1, descending=True).values
    rows, repeats = torch.unique(rows, dim=0, return_counts=True)
    different = 1 + (rows.diff(dim=1) != 0).sum(dim=1)
    most = int(different.max())
    many = law.log_concave_noise and neighbours == "replaced" and most > _MANY
    size = at_once(_NUMBERS, each=8 * counts.shape[-1] * (8 * most if many else most * (most + 3)))
    if len(rows) > size:  # queries with similar numbers of moves stand together
        order = different.argsort(stable=True)
        rows, repeats = rows[order], repeats[order]
    for some, times in zip(rows.split(size), repeats.split(size), strict=True):
        if many:
            yield _without_others(law, some, times)
        else:
            log_p, rho = law.pair(some.unsqueeze(1), moves_of(some, neighbours))
            yield Pairs(log_p.mT, rho.mT, times)


def _without_others(law: Decision, counts: Tensor, repeats: Tensor) -> Pairs:
    """Pairs of all moves but those between two candidates behind the second; counts descend."""
    moves = _allowed(counts, "replaced")
    queries, numbers = moves.shape[:2]
    second = (1 + (counts == counts[:, :1]).sum(dim=1)).clamp(max=numbers - 1)
    kept = torch.zeros_like(moves[:, 0]).scatter(1, second.unsqueeze(1), True)
    kept[:, :2] = True  # nobody, and the largest
    examined = moves & (kept.unsqueeze(1) | kept.unsqueeze(2))
    starts = torch.nn.functional.pad(counts.diff(dim=1) != 0, (2, 0), value=True)
    alike = torch.arange(numbers).expand(queries, -1).where(starts, 0).cummax(dim=1).values
    places = _listed(examined)
    log_p, rho = law.pair(counts.unsqueeze(1), _vectors(places, numbers - 1))
    taken, given = places // numbers, places % numbers
    others = Others(taken, given, second, alike, moves & ~examined)
    return Pairs(log_p.mT, rho.mT, repeats, others)


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


def _of_surpluses(law: Mechanism, surpluses: Tensor, farthest: float) -> Iterator[Pairs]:
    if any(value.numel() != 1 for value in law.parameters().values()):
        raise ValueError(f"law must have single numbers for parameters, got {law!r}")
    values, repeats = torch.unique(surpluses.cpu().reshape(-1), return_counts=True)
    size = at_once(_NUMBERS, each=2 * law.values_per_coordinate())
    for some, many in zip(values.split(size), repeats.split(size), strict=True):
        log_p, rho = law.pair(some, torch.tensor([[farthest], [-farthest]], dtype=torch.float64))
        yield Pairs(log_p, rho, many)


def joined(every: list[Pairs]) -> tuple[Pairs, Tensor]:
    """All queries side by side, and which moves stand for those that are left out, (moves, queries).

    Where some queries have fewer moves, moves that change nothing are added.

    >>> import ringfence as rf
    >>> parts = [next(pairs(rf.NoisyWinner(2.0), row, "added")) for row in ([[5, 0]], [[5, 3], [6, 3]])]
    >>> [part.rho.shape[1] for part in parts], joined(parts)[0].rho.shape
    ([3, 4], torch.Size([2, 4, 3]))
    """
    moves = max(part.rho.shape[1] for part in every)

    def padded(part: Tensor, filler: Tensor) -> Tensor:
        return torch.cat((part, filler.expand(*part.shape[:-2], moves - part.shape[-2], -1)), dim=-2)

    stand_in = [
        torch.zeros_like(part.rho[0], dtype=torch.bool) if part.others is None else part.others.stand_in()
        for part in every
    ]
    together = Pairs(
        torch.cat([padded(part.log_p.expand_as(part.rho), part.log_p[:, :1]) for part in every], dim=2),
        torch.cat([padded(part.rho, torch.zeros_like(part.rho[:, :1])) for part in every], dim=2),
        torch.cat([part.repeats for part in every]),
    )
    return together, torch.cat([padded(own, torch.zeros_like(own[:1])) for own in stand_in], dim=1)


def checked_law(law: object) -> DecisionLaw:
    """The law, if it is one of decisions.

    >>> checked_law(1.0)
    Traceback (most recent call last):
    TypeError: law must be a law of decisions, such as NoisyWinner or StochasticSign, got 1.0
    """
    if isinstance(law, Decision) or (isinstance(law, Mechanism) and law.atoms_alone):
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
    if isinstance(law, Mechanism):
        count = checks.finite("votes", votes).double().numel()
    else:
        counts = checked_counts(votes)
        count = counts.shape[:-1].numel() if counts.numel() else 0
    if not count:
        raise ValueError("votes must hold at least one query, got none")
    return count


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
