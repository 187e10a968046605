"""What one voter can do to the votes of a query: finitely many moves, all of which are looked at."""

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ringfence import checks
from ringfence.checks import Real
from ringfence.mechanisms.base import Mechanism
from ringfence.mechanisms.decision import Decision
from ringfence.numerics.blocks import at_once

# Which datasets are neighbours: those in which one voter's ballot is another one, or is there or not.
Neighbours = Literal["replaced", "added"]
NEIGHBOURS = ("replaced", "added")

# Laws of decisions: of a row of counts per query, or of one surplus (yes minus no) per question.
DecisionLaw = Decision | Mechanism

_FARTHEST = {"replaced": 2.0, "added": 1.0}  # that one voter moves a surplus
_NUMBERS = 1 << 22  # of pairs that are held at once


class Pairs(NamedTuple):
    """Decisions and all their moves: log masses and log ratios, (outcomes, moves, queries).

    Queries with the same votes, in whatever order, stand here once; ``repeats`` says how many there are.
    """

    log_p: Tensor
    rho: Tensor
    repeats: Tensor


def checked_law(law: object) -> DecisionLaw:
    """The law, if it is one of decisions.

    >>> checked_law(1.0)
    Traceback (most recent call last):
    TypeError: law must be a law of decisions (NoisyWinner, ConfidentWinner, StochasticSign), got 1.0
    """
    if isinstance(law, Decision) or (isinstance(law, Mechanism) and law.atoms_alone):
        return law
    raise TypeError(
        f"law must be a law of decisions (NoisyWinner, ConfidentWinner, StochasticSign), got {law!r}"
    )


def checked_at_most(at_most: int | None, neighbours: Neighbours, queries: float = math.inf) -> int | None:
    """In how many of the queries one voter can count; None where in all of them.

    A ballot that is replaced may leave ``at_most`` queries and join as many others. The accounts do not know
    such moves, so that ``at_most`` is refused there.

    >>> checked_at_most(2, "replaced")
    Traceback (most recent call last):
    ValueError: at_most must be left out where neighbours is 'replaced', got 2
    """
    checks.one_of("neighbours", neighbours, NEIGHBOURS)
    if at_most is None:
        return None
    if neighbours == "replaced":
        raise ValueError(f"at_most must be left out where neighbours is 'replaced', got {at_most}")
    at_most = checks.count("at_most", at_most, at_least=1)
    return None if at_most >= queries else at_most


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
    checks.one_of("neighbours", neighbours, NEIGHBOURS)
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


def number_of_queries(law: DecisionLaw, votes: Real) -> int:
    """How many decisions there are.

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
