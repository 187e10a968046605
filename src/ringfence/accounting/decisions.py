"""Decisions: the cost to voters of winners and yes/no answers, by Rényi sums and by tight profiles.

A voter can change the votes of a query in finitely many ways, all of which are evaluated. For each query the
worst of these moves counts, and the queries are composed.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
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


class Pairs(NamedTuple):
    """Decisions and all their moves: log masses and log ratios, (outcomes, moves, queries).

    Queries with the same votes, in whatever order, stand here once; ``repeats`` says how many there are.
    """

    log_p: Tensor
    rho: Tensor
    repeats: Tensor


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
    >>> profile = rf.decision_profile(rf.NoisyWinner(20.0), counts, neighbours="replaced")
    >>> round(profile.epsilon(delta=1e-5), 3), profile.proof(delta=1e-5)
    (0.156, 'backward induction')
    """
    queries = number_of_queries(checked_law(law), votes)
    at_most = checked_at_most(at_most, neighbours, queries)
    every = list(pairs(law, votes, neighbours))
    orders = checked_orders(DEFAULT_ORDERS)
    rdp = rdp_of_pairs(every, orders, bounded_zcdp(law, neighbours), at_most)
    mu = math.sqrt(2 * zcdp(law, neighbours) * (at_most or queries))
    proofs: dict[str, Callable[[float], float]] = {
        "Gaussian": lambda epsilon: gaussian_delta(mu, epsilon),
        "Rényi": delta_from_rdp(orders, rdp.worst),
    }
    together = joined(every)
    if tight := atoms_delta(*together, at_most):
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
    most = checked_at_most(at_most, neighbours)
    return rdp_of_pairs(every, checked_orders(orders), bounded_zcdp(law, neighbours), most)


def zcdp(law: DecisionLaw, neighbours: Neighbours) -> float:
    """D / alpha of a Gaussian release that tells as much as one query in every test, whatever the votes.

    >>> import ringfence as rf
    >>> round(zcdp(rf.NoisyWinner(10.0), "replaced"), 9), round(zcdp(rf.StochasticSign(10.0), "replaced"), 9)
    (0.01, 0.02)
    """
    if isinstance(law, Decision):
        return law.gaussian_zcdp(_MOVES[neighbours]) * (1 + 1e-12)
    mu = _FARTHEST[neighbours] / float(law.sigma)
    return 0.5 * mu * mu * (1 + 1e-12)  # which is infinite where a power raises an error


def bounded_zcdp(law: DecisionLaw, neighbours: Neighbours) -> float:
    """An upper bound of D / alpha of one query over all votes, at most that of the Gaussian release.

    >>> import ringfence as rf
    >>> [round(of(rf.GumbelWinner(10.0), "replaced"), 5) for of in (bounded_zcdp, zcdp)]
    [0.005, 0.00785]
    """
    most = zcdp(law, neighbours)
    return min(most, law.zcdp(_MOVES[neighbours]) * (1 + 1e-12)) if isinstance(law, Decision) else most


def loss_of_any(law: DecisionLaw, queries: int, neighbours: Neighbours, **known: Any) -> PrivacyLoss:
    """The loss of decisions, for every dataset, where one voter takes part in this many of them.

    ``known`` is passed on to ``PrivacyLoss.of_zcdp``.

    >>> import ringfence as rf
    >>> laws = rf.NoisyWinner(10.0), rf.GumbelWinner(10.0)
    >>> [round(loss_of_any(law, 7, "replaced").epsilon(1e-6), 3) for law in laws]
    [1.642, 1.075]
    """
    eta = law.loss_range(_MOVES[neighbours]) if isinstance(law, Decision) else math.inf
    return PrivacyLoss.of_zcdp(
        queries * zcdp(law, neighbours),
        queries * bounded_zcdp(law, neighbours),
        change=REPLACED if neighbours == "replaced" else ADDED_OR_REMOVED,
        dominating=(("range", eta * (1 + 1e-12), queries),) if eta < math.inf else (),
        **known,
    )


def rdp_of_pairs(
    every: Iterable[Pairs], orders: Tensor, ceiling: float, at_most: int | None
) -> PerInstanceRdp:
    """``decision_rdp`` of pairs; no query counts more than ``ceiling`` times the order."""
    costs, repeats = [], []
    for part in every:
        costs.append(torch.stack([torch.stack(_worst(part, float(order))) for order in orders], dim=1))
        repeats.append(part.repeats.double())
    most = ceiling * orders.unsqueeze(1)
    found = torch.minimum(torch.cat(costs, dim=2) * (1 + ROUNDING) + UNDERFLOW, most)
    room = torch.cat(repeats)
    if bool(found.isnan().any()):
        raise FloatingPointError("Rényi divergences of decisions cannot be represented at these arguments")
    sums = found @ room if at_most is None else filled(found, room, float(at_most))
    return PerInstanceRdp(orders, *sums)


def _worst(part: Pairs, order: float) -> tuple[Tensor, Tensor]:
    """The largest divergence over all moves, for each query, in both directions."""
    log_p, rho, _ = part
    if rho.shape[1] <= _FEW:
        alpha = torch.tensor(order, dtype=torch.float64)
        both = pieces.renyi(log_p, rho, alpha), pieces.renyi(log_p - rho, -rho, alpha)
        return both[0].amax(dim=0), both[1].amax(dim=0)
    # E_P (P/Q)^(alpha - 1) and E_Q (Q/P)^(alpha - 1); what cancels here is charged
    moments = torch.logsumexp(log_p + (order - 1) * rho, dim=0), torch.logsumexp(log_p - order * rho, dim=0)
    forward, backward = ((moment.amax(dim=0).clamp(min=0) + _LOST) / (order - 1) for moment in moments)
    return forward, backward


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
    size = at_once(_NUMBERS, each=64 * counts.shape[-1] ** 2)
    for some, many in zip(rows.split(size), repeats.split(size), strict=True):
        moves = moves_of(some, neighbours)
        log_p, rho = law.pair(some.unsqueeze(1), moves)
        yield Pairs(log_p.mT, rho.mT, many)


def moves_of(counts: Tensor, neighbours: Neighbours) -> Tensor:
    """The moves of one voter at each of these queries, (queries, moves, candidates).

    Where a query has fewer moves than others, moves that change nothing are added.

    >>> moves_of(torch.tensor([[2.0, 0.0, 0.0]]), "added").long().tolist()
    [[[1, 0, 0], [0, 1, 0], [-1, 0, 0]]]
    """
    candidates = counts.shape[1]
    unit = torch.eye(candidates, dtype=torch.float64)
    equal = counts.unsqueeze(2) == counts.unsqueeze(1)
    earlier = equal.tril(-1).sum(dim=2)  # candidates before this one with the same count
    stands_for, has_voters = earlier == 0, counts >= 1
    kinds = [(unit, stands_for), (-unit, stands_for & has_voters)]
    if neighbours == "replaced":
        # from one candidate to another one; of equal ones, from the first to the second
        onto = stands_for.unsqueeze(1) | (equal & (earlier == 1).unsqueeze(1))
        allowed = (stands_for & has_voters).unsqueeze(2) & onto & ~torch.eye(candidates, dtype=torch.bool)
        swaps = unit.unsqueeze(0) - unit.unsqueeze(1)
        kinds.append((swaps.reshape(-1, candidates), allowed.reshape(len(counts), -1)))
    moves = torch.cat([kind for kind, _ in kinds])
    allowed = torch.cat([valid for _, valid in kinds], dim=1)
    order = (~allowed).to(torch.uint8).argsort(dim=1, stable=True)[:, : int(allowed.sum(dim=1).max())]
    return torch.where(allowed.gather(1, order).unsqueeze(2), moves[order], 0.0)


def _of_surpluses(law: Mechanism, surpluses: Tensor, farthest: float) -> Iterator[Pairs]:
    if any(value.numel() != 1 for value in law.parameters().values()):
        raise ValueError(f"law must have single numbers for parameters, got {law!r}")
    values, repeats = torch.unique(surpluses.cpu().reshape(-1), return_counts=True)
    size = at_once(_NUMBERS, each=2 * law.values_per_coordinate())
    for some, many in zip(values.split(size), repeats.split(size), strict=True):
        log_p, rho = law.pair(some, torch.tensor([[farthest], [-farthest]], dtype=torch.float64))
        yield Pairs(log_p, rho, many)


def joined(every: list[Pairs]) -> Pairs:
    """All queries side by side; where some have fewer moves, moves that change nothing are added.

    >>> import ringfence as rf
    >>> parts = [next(pairs(rf.NoisyWinner(2.0), row, "added")) for row in ([[5, 0]], [[5, 3], [6, 3]])]
    >>> [part.rho.shape[1] for part in parts], joined(parts).rho.shape
    ([3, 4], torch.Size([2, 4, 3]))
    """
    moves = max(part.rho.shape[1] for part in every)

    def padded(part: Tensor, log_p: Tensor | None = None) -> Tensor:
        more = moves - part.shape[1]
        filler = torch.zeros_like(part[:, :1]) if log_p is None else log_p[:, :1]
        return torch.cat((part, filler.expand(-1, more, -1)), dim=1)

    return Pairs(
        torch.cat([padded(part.log_p.expand_as(part.rho), part.log_p) for part in every], dim=2),
        torch.cat([padded(part.rho) for part in every], dim=2),
        torch.cat([part.repeats for part in every]),
    )


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

    A ballot that is replaced may leave ``at_most`` queries and join as many others. The accounts do not know
    such moves, so that ``at_most`` is refused there.

    >>> checked_at_most(2, "replaced")
    Traceback (most recent call last):
    ValueError: at_most must be left out where neighbours is 'replaced', got 2
    """
    checks.one_of("neighbours", neighbours, _FARTHEST)
    if at_most is None:
        return None
    if neighbours == "replaced":
        raise ValueError(f"at_most must be left out where neighbours is 'replaced', got {at_most}")
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
