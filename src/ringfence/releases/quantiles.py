"""Medians and other quantiles by group: of public candidates the one whose rank fits best, with noise."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting import decisions
from ringfence.accounting.conversion import DEFAULT_ORDERS, checked_orders
from ringfence.accounting.decisions import bounded_zcdp, loss_of_any, profile_of_pairs
from ringfence.accounting.induction import Pairs
from ringfence.accounting.ledger import Ledger
from ringfence.accounting.privacy_loss import PrivacyLoss
from ringfence.mechanisms.winner import GumbelWinner
from ringfence.noise import Noise
from ringfence.releases.budget import Budget
from ringfence.releases.cells import Domain, Missing, open_cells, ranks_in
from ringfence.releases.decisions import Poll, gumbel_law
from ringfence.releases.release import Measured, Release, ReleaseAccount, interval_chart, several_rows

_GRID = 1 << 20  # ranks are counted in units of 1 / _GRID people, so that utilities are exact
_MOST_PEOPLE = 1 << 32
_MOST_CANDIDATES = 2000
_MEASURED = 1 << 24  # log ratios of groups, candidates and people: with more, only the promise is told
_COLUMNS = ("quantile", "value", "low", "high", "suppressed", "standard_error")


def release_quantiles(
    data: Any,
    of: str | int,
    by: str | int | Sequence[str | int] | None = None,
    *,
    candidates: Iterable[float],
    quantiles: float | Sequence[float] = 0.5,
    epsilon: float | None = None,
    delta: float = 1e-6,
    domain: Domain | None = None,
    bins: Domain | None = None,
    missing: Missing = "refuse",
    person: str | int | None = None,
    at_most: int = 1,
    coverage: float | None = 0.95,
    seed: int | Noise | None = None,
    ledger: Ledger | None = None,
    what: str | None = None,
) -> Release:
    """Releases the median of column ``of`` in every group of ``by``, or other ``quantiles``, with intervals.

    ``candidates`` are the public values among which a quantile is looked for, in rising order: every value of
    the data counts as the nearest of them. All other arguments are those of ``release_means``; a person with
    several rows in a group counts once, with the mean of them. Levels are rounded to multiples of 2^-20.

    A candidate is the better the fewer people must be moved for it to be the quantile. Let B be the number of
    people below a candidate and C the number of those who are not above it. With n people in the group, the
    candidate is the quantile of level q if B <= q n <= C, and otherwise its utility is -max(B - q n,
    q n - C). The exponential mechanism (``GumbelWinner``) draws a candidate by its utility.

    With ``coverage`` two more candidates are drawn, ``low`` and ``high``, for the ranks q n - s and q n + s:
    s people are so many that either of them is on the wrong side of the quantile with a chance of at most
    half of 1 - coverage. A quantile whose interval reaches from the first to the last candidate is not shown,
    because nothing is known of it. With coverage=None all of the budget goes to the quantiles, and all are
    shown.

    Guarantee: (epsilon, delta)-differential privacy for every dataset and any one person added or removed,
    under the conditions of ``release_counts``; the proof is in docs/guarantees.md. The chance over the noise
    that a quantile is shown with an interval that misses it is at most 1 - ``coverage``.

    >>> import ringfence as rf
    >>> from pandas import DataFrame
    >>> people = DataFrame({"region": ["north", "south"] * 2000, "income": [30_000, 52_000] * 2000})
    >>> medians = rf.release_quantiles(people, of="income", by="region", candidates=range(0, 100_001, 1000),
    ...                                domain={"region": ["north", "south"]}, epsilon=1.0)
    >>> medians.values["value"].tolist()
    [30000, 52000]
    """
    budget = Budget.checked(epsilon, delta, None, seed, ledger, what)
    values = checked_candidates(candidates)
    levels = checked_levels(quantiles)
    if coverage is not None:
        coverage = checks.probability("coverage", coverage)
    opened = open_cells(data, by, domain, bins, _COLUMNS, missing, person, at_most)
    with opened as (rows, groups, source, most):
        people = ranks_in(rows, groups, of, values, person, most)
    if int(people.sum()) > _MOST_PEOPLE:
        raise ValueError(f"the table must have at most {_MOST_PEOPLE:,} people, got {int(people.sum()):,}")
    sides = (0,) if coverage is None else (0, -1, 1)
    charged, queries = (many * len(levels) * len(sides) for many in (most, groups.count))
    law = gumbel_law(Poll(budget, "added", charged, False), queries, 1.0)
    shift = 0.0
    if coverage is not None:
        shift = law.scale * math.log(2 * (len(values) - 1) / (1 - coverage))  # of a range of 1
        if shift > _MOST_PEOPLE / 2:  # as the range is below 2, ranks stay exact
            raise ValueError(
                f"epsilon={epsilon!r} and delta={delta!r} are too small for intervals, which would reach "
                f"over {shift:,.0f} people: take a larger epsilon, or coverage=None"
            )
    asked = [
        Rank(level, side * math.ceil(shift * level_range(level) * _GRID) / _GRID)
        for level in levels
        for side in sides
    ]
    promised = loss_of_any(law, charged, "added", steps=queries)
    counts = people.double()
    measured = partial(measure_quantiles, promised, budget.delta, law, counts, asked, charged)
    account = budget.charge(ReleaseAccount(promised, budget.delta, measured), "release_quantiles")
    found = torch.stack([one.draw(law, counts, budget) for one in asked], dim=1).view(-1, len(sides))
    if coverage is not None:  # an interval holds its quantile, and is only made longer by that
        found[:, 1], found[:, 2] = found[:, :2].amin(dim=1), found[:, ::2].amax(dim=1)
    chosen = found.tolist()
    hidden = [ends == [0, len(values) - 1] for _, *ends in chosen]
    released: dict[str, list[Any]] = {
        name: [None if gone else values[row[at]] for row, gone in zip(chosen, hidden, strict=True)]
        for at, name in enumerate(("value", "low", "high")[: len(sides)])
    }
    if coverage is not None:
        released["suppressed"] = hidden
    keys = groups.repeated("quantile", levels)
    ranks = max(level_range(level) for level in levels) * law.lead(len(values) - 1, 0.05)
    title = f"{'Medians' if levels == [0.5] else 'Quantiles'} of {of}"
    interval = "" if coverage is None else ", and what could be any of the values is not shown"
    return replace(source, keys=keys).release(
        account,
        budget,
        interval_chart(title, str(of), released, keys if len(levels) > 1 else groups.columns, coverage),
        released,
        {},  # an interval says more
        law,
        method=f"each was drawn from {len(values):,} public values between {values[0]:,} and "
        f"{values[-1]:,}, to the nearest of which every value of {of} was rounded, so that the number of "
        f"people below it is off by {math.ceil(ranks):,} or more with a chance of at most 5 %{interval}",
        public="Groups, candidate values and noise",
        promises=several_rows(source),
        coverage=coverage,
        leaves_out=(
            "Values are rounded to the nearest public value. Without an interval, how far off a quantile is "
            "depends on the data.",
            "How many people are in a group is not released.",
        ),
    )


def checked_candidates(candidates: Iterable[float]) -> list[float]:
    """Public values in rising order.

    >>> checked_candidates([1, 3, 2])
    Traceback (most recent call last):
    ValueError: candidates must rise, got 3 before 2
    """
    listed = list(candidates) if isinstance(candidates, range) else checks.listed("candidates", candidates)
    if not 2 <= len(listed) <= _MOST_CANDIDATES:
        raise ValueError(f"candidates must be from 2 to {_MOST_CANDIDATES:,} values, got {len(listed):,}")
    values = [getattr(value, "item", lambda value=value: value)() for value in listed]
    for value in values:
        checks.number("a candidate", value)
    for low, high in pairwise(values):
        if not low < high:
            raise ValueError(f"candidates must rise, got {low!r} before {high!r}")
    return values


def checked_levels(quantiles: Any) -> list[float]:
    """The levels between 0 and 1 at which quantiles are released."""
    listed = quantiles if isinstance(quantiles, list | tuple) else [quantiles]
    levels = [checks.probability("quantiles", level) for level in checks.listed("quantiles", listed)]
    if not levels or len(set(levels)) < len(levels):
        raise ValueError(f"quantiles must hold at least one level, and each once, got {quantiles!r}")
    return levels


def level_range(level: float) -> float:
    """Twice the distance by which one person can change a utility: the range of all changes."""
    return 2 * max(_rounded(level), 1 - _rounded(level))


class Rank:
    """The rank ``level`` n + ``shift`` among n people, for which a candidate is drawn.

    >>> people = torch.tensor([[3.0, 1.0, 4.0]])
    >>> Rank(0.5, 0.0).utility(people).tolist(), Rank(0.5, -5.0).utility(people).tolist()
    ([[-1.0, 0.0, 0.0]], [[0.0, -4.0, -5.0]])
    """

    def __init__(self, level: float, shift: float) -> None:
        self.level, self.shift = _rounded(level), shift
        self.range = level_range(level)

    def utility(self, people: Tensor) -> Tensor:
        """The utility of each candidate, from the numbers of people at each: the last dimension.

        The first candidate is never too high and the last one never too low, so that one has the utility 0.
        Levels and shifts are multiples of 1 / _GRID, and all of it is exact.
        """
        not_above = people.cumsum(dim=-1)
        rank = self.level * not_above[..., -1:] + self.shift
        high, low = not_above - people - rank, rank - not_above
        high[..., 0] = low[..., -1] = 0.0
        return 0.0 - torch.maximum(high, low).clamp(min=0)

    def moves(self, people: Tensor) -> Tensor:
        """The changes of the utilities by one person, (groups, persons, candidates): any one who is added,
        and those who are there and are removed."""
        one = torch.eye(people.shape[-1], dtype=people.dtype)
        own = self.utility(people).unsqueeze(-2)
        added = self.utility(people.unsqueeze(-2) + one) - own
        removed = self.utility(people.unsqueeze(-2) - one) - own
        return torch.cat((added, torch.where(people.unsqueeze(-1) > 0, removed, added)), dim=-2)

    def law(self, law: GumbelWinner) -> GumbelWinner:
        """The law for these utilities, which costs what ``law`` does where one count moves by 1."""
        return GumbelWinner(law.scale * self.range)

    def draw(self, law: GumbelWinner, people: Tensor, budget: Budget) -> Tensor:
        """The number of the candidate that is drawn in each group."""
        utility, own = self.utility(people), self.law(law)
        name = f"quantile {self.level!r} {self.shift!r}"
        return own.release(utility, draws=budget.draws(own, utility, name))


def measure_quantiles(
    promised: PrivacyLoss,
    delta: float,
    law: GumbelWinner,
    people: Tensor,
    asked: Sequence[Rank],
    charged: int,
) -> Measured:
    """The cost of quantiles to the people in the groups: the worst person for each one drawn, exactly.

    >>> law, people = GumbelWinner(10.0), torch.tensor([[40.0, 300.0, 60.0]])
    >>> promised = loss_of_any(law, 1, "added", steps=1)
    >>> found = measure_quantiles(promised, 1e-6, law, people, [Rank(0.5, 0.0)], 1)
    >>> found.cost.guarantee(1e-6).with_proofs(*found.proofs).per_instance.epsilon < 0.1
    True
    """
    details = {"people": people.tolist()}
    queries = len(people) * len(asked)
    if queries * people.shape[-1] ** 2 > _MEASURED:
        return Measured(promised, (), details)
    every = []
    for one in asked:
        log_p, rho = one.law(law).pair(one.utility(people).unsqueeze(1), one.moves(people))
        every.append(Pairs(log_p.transpose(1, 2), rho.transpose(1, 2), torch.ones(len(people))))
    charged = min(charged, queries)
    rdp = decisions.rdp_of_pairs(every, checked_orders(DEFAULT_ORDERS), bounded_zcdp(law, "added"), charged)
    profile = profile_of_pairs(law, every, rdp, "added", charged)
    cost = replace(promised, own=rdp.sums)
    return Measured(cost, (profile.best(delta),), details)


def _rounded(level: float) -> float:
    return max(1, min(_GRID - 1, round(level * _GRID))) / _GRID
