"""The cost of decisions to single voters: one epsilon each, from the voter's own ballot."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.conversion import DEFAULT_ORDERS, checked_orders, epsilon_from_rdp
from ringfence.accounting.decisions import DecisionLaw, checked_law, loss_of_any
from ringfence.accounting.induction import LARGEST_VARIANCE, Array, Grid, Loss, in_both_directions, squares
from ringfence.checks import Real
from ringfence.mechanisms import pieces
from ringfence.mechanisms.base import Mechanism
from ringfence.numerics.blocks import at_once
from ringfence.numerics.rounding import ROUNDING, UNDERFLOW

Choices = np.ndarray[tuple[int, ...], np.dtype[np.int16]]

_ROWS = 1 << 19  # values of V that are held at once: they stay in cache
_POINTS = 1 << 13
_MOST_COMPOSED = 1 << 19  # ballots times queries; a second is about 1e5
_MOST_CANDIDATES = 4096  # every one has a move, which is a row of all of them


class Ballots(NamedTuple):
    """Which ballot each voter cast at each query, by number, and the pairs of laws of taking it away.

    ``choices`` is (voters, queries), with 0 for a voter who left the query out. ``log_p`` and ``rho`` are
    (outcomes, choices, queries), where choice 0 moves nothing.
    """

    choices: Tensor
    log_p: Tensor
    rho: Tensor


def voter_epsilons(law: DecisionLaw, ballots: Real, *, delta: float, candidates: int | None = None) -> Tensor:
    """For each voter, the (epsilon, delta) of all decisions together about this voter's own ballot.

    ``ballots`` has a row per voter. For ``StochasticSign`` the entries are 1, 0 and -1, and one yes/no
    question per column is decided by the surplus. For winners they are the numbers of candidates, from 0 to
    ``candidates`` - 1, or -1 where a voter left the query out.

    Guarantee: with this voter and without, the decisions are (epsilon, delta)-indistinguishable, in both
    directions. It is the smallest of three upper bounds: what holds for any ballot on as many queries, the
    Rényi sums of the voter's own moves, and, where different ballots times queries are at most half a
    million, their losses composed on a grid. The numbers come from all ballots: do not publish them.

    >>> import ringfence as rf
    >>> ballots = torch.tensor([[1.0, 1.0, -1.0]] * 30 + [[1.0, -1.0, 0.0]] * 20)
    >>> epsilons = voter_epsilons(rf.StochasticSign(5.0), ballots, delta=1e-5)
    >>> [round(float(value), 3) for value in epsilons[[0, -1]]]
    [0.462, 0.497]
    """
    delta = checks.probability("delta", delta)
    cast = _ballots(checked_law(law), ballots, candidates)
    kinds, index = _kinds(cast.choices)  # equal ballots cost the same
    own, taken = cast._replace(choices=kinds), (kinds > 0).sum(dim=1).tolist()
    # what holds for everybody who took part as often holds here
    everybody = {count: loss_of_any(law, count, "added").epsilon(delta) for count in {*taken}}
    most = torch.tensor([everybody[count] for count in taken], dtype=torch.float64)
    epsilons = torch.minimum(_by_renyi(own, delta), most)
    if kinds.numel() <= _MOST_COMPOSED:
        found = [_composed(kinds.numpy(), *one, delta) for one in in_both_directions(own.log_p, own.rho)]
        epsilons = torch.minimum(epsilons, torch.from_numpy(np.maximum(*found)))
    if bool(epsilons.isnan().any()):
        raise FloatingPointError("epsilons of voters cannot be represented at these arguments")
    return epsilons[index]


def _ballots(law: DecisionLaw, ballots: Real, candidates: int | None) -> Ballots:
    values = checks.finite("ballots", ballots).cpu()
    values = values if values.dtype == torch.int16 else values.double()  # a quarter of the memory
    if values.ndim != 2 or not values.numel():
        raise ValueError(
            f"ballots must have a row per voter and a column per query, got shape {list(values.shape)}"
        )
    if isinstance(law, Mechanism):
        checks.require("ballots", "must be 1, 0 or -1", values, (values.abs() == 1) | (values == 0))
        log_p, rho = law.pair(values.sum(dim=0).double(), torch.tensor([[0.0], [-1.0], [1.0]]).double())
        return Ballots(torch.where(values < 0, 2, values).to(torch.int16), log_p, rho)
    if candidates is None:
        raise ValueError("candidates must be given for winners, got None")
    candidates = checks.count("candidates", candidates, at_least=2, at_most=_MOST_CANDIDATES)
    fits = (values >= -1) & (values < candidates) & (values % 1 == 0)
    choices = (
        checks.require("ballots", f"must be candidates from -1 to {candidates - 1}", values, fits).short() + 1
    )
    counts = torch.stack([(choices == k + 1).sum(dim=0) for k in range(candidates)], dim=1).double()
    moves = torch.cat((torch.zeros(1, candidates), -torch.eye(candidates))).double()
    log_p, rho = law.pair(counts.unsqueeze(1), moves)
    return Ballots(choices, log_p.mT, rho.mT)


def _kinds(choices: Tensor) -> tuple[Tensor, Tensor]:
    """The different rows, and which of them each row is."""
    rows = np.ascontiguousarray(choices.numpy())
    _, first, index = np.unique(rows.view(f"V{rows[0].nbytes}"), return_index=True, return_inverse=True)
    return choices[first], torch.from_numpy(index.reshape(-1))


def _by_renyi(cast: Ballots, delta: float) -> Tensor:
    orders = checked_orders(DEFAULT_ORDERS)
    costs = [
        torch.stack([pieces.renyi(log_p, rho, order) for order in orders], dim=2) * (1 + ROUNDING) + UNDERFLOW
        for log_p, rho in in_both_directions(cast.log_p, cast.rho)
    ]
    found = []
    for choices in cast.choices.split(at_once(_ROWS, each=len(orders))):
        sums = torch.zeros(2, len(choices), len(orders), dtype=torch.float64)
        for choice in choices.unique().tolist():
            if choice:  # 0 moves nothing
                made = (choices == choice).double()
                sums += torch.stack([made @ own[choice] for own in costs])
        epsilons = epsilon_from_rdp(orders, sums.amax(dim=0), delta)
        found.append(torch.where((choices > 0).any(dim=1), epsilons, 0.0))
    return torch.cat(found)


def _composed(choices: Choices, log_p: Tensor, rho: Tensor, delta: float) -> Array:
    """For each voter, the smallest point of a grid at which delta(epsilon) of its moves is at most delta."""
    mass, ratio = log_p.exp().numpy(), rho.numpy()
    variance = squares(mass, ratio)
    queries = np.arange(choices.shape[1])
    costliest = float(variance[choices, queries].sum(axis=1).max())
    if costliest == 0:
        return np.zeros(len(choices))
    if not costliest < LARGEST_VARIANCE:
        return np.full(len(choices), np.inf)
    grid = Grid.fitted(
        costliest,
        2 * float(np.where(mass > 1e-16, ratio, 0.0).max()),
        len(queries),
        lambda step: len(queries) * step**2 / 16,
    )
    grid = Grid(max(grid.step, 2 * grid.reach * grid.step / _POINTS), min(grid.reach, _POINTS // 2))
    length = 2 * grid.reach + 1
    losses = [
        [
            Loss.of_atoms(mass[:, choice, j], ratio[:, choice, j], grid.step).within(length)
            for choice in range(rho.shape[1])
        ]
        for j in queries
    ]
    found = [
        _block(some, losses, grid, delta)
        for some in np.array_split(choices, 1 + choices.shape[0] * length // _ROWS)
    ]
    return np.concatenate(found)


def _block(choices: Choices, losses: list[list[Loss]], grid: Grid, delta: float) -> Array:
    """For each of some voters, the smallest point of the grid at which V is at most delta."""
    step, reach = grid
    values = np.tile(grid.last_values(), (len(choices), 1))
    pad = max(int(np.abs(loss.places).max(initial=0)) for own in losses for loss in own)
    for query, own in enumerate(losses):
        for choice in np.unique(choices[:, query]):
            if choice == 0:
                continue
            rows = choices[:, query] == choice
            values[rows] = own[choice].expected(grid.padded(values[rows], pad), pad)
    covered = values * (1 + ROUNDING * (1 + len(losses))) + UNDERFLOW <= delta
    last = covered[:, : reach + 1].sum(axis=1)  # V grows with x, so these come first
    return np.where(last > 0, step * (reach + 1 - last), np.inf)
