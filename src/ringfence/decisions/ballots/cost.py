"""The account of a release of decisions, and the sensitive sentences about it."""

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from torch import Tensor

from ringfence.accounting.costs.finite_randomness import delta_left
from ringfence.accounting.decisions.accountant import DecisionAccountant
from ringfence.accounting.decisions.moves import DecisionLaw, Neighbours
from ringfence.accounting.decisions.profile import decision_profile
from ringfence.accounting.decisions.publication import publishing_cost
from ringfence.accounting.decisions.voter import voter_epsilons
from ringfence.decisions.account import ReleaseAccount
from ringfence.decisions.ballots.ballots import Ballots
from ringfence.numerics.rounding import rounded_up

_MOST = 1 << 24  # log ratios of queries, candidates and candidates: with more, voters are left out
WRONG = 0.01  # the chance of a wrong decision that public sentences speak of


def decision_account(
    law: DecisionLaw,
    votes: Tensor,
    *,
    neighbours: Neighbours,
    at_most: int | None,
    delta: float,
    ballots: Ballots | None,
    chances: Sequence[float],
    publish: bool,
) -> ReleaseAccount:
    """The account of one decision for each query: Rényi, tight, and what it cost each voter.

    ``chances`` are those of a wrong decision. They depend on the votes, so they are in ``details`` with the
    votes and, where ``ballots`` are at hand, one epsilon per voter. With ``publish`` all numbers but those of
    the voters include the cost of a ``publishable_decision_epsilon``.

    >>> import torch
    >>> import ringfence as rf
    >>> surplus = torch.tensor([40.0, -3.0], dtype=torch.float64)
    >>> account = decision_account(rf.StochasticSign(10.0), surplus, neighbours="added", at_most=None,
    ...                            delta=1e-6, ballots=None, chances=[0.0, 0.4], publish=False)
    >>> account.epsilon_tight < account.guarantee.per_instance.renyi_epsilon < account.epsilon
    True
    """
    accountant = DecisionAccountant(law, neighbours=neighbours, at_most=at_most)
    accountant.step(votes)
    profile = decision_profile(law, votes, neighbours=neighbours, at_most=at_most)
    # a confident decision counts as two numbers
    left = delta_left(2 * accountant.steps, delta, lambda at: accountant.guarantee(at).epsilon)
    tight = [(profile.epsilon(left), profile.proof(left))]
    alone = min(accountant.guarantee(left).per_instance.epsilon, tight[0][0])
    if publish:  # a Gaussian release more, which the profile does not know
        tight = []
        cost = publishing_cost(accountant.gaussian_zcdp)
        accountant.gaussian_zcdp += cost
        accountant.forward = accountant.forward + cost * accountant.orders
        accountant.backward = accountant.backward + cost * accountant.orders
    details: dict[str, Any] = {"votes": votes.tolist(), "chances_of_error": list(chances)}
    if ballots is not None:
        if votes.numel() * len(ballots.choices) <= _MOST:
            own = voter_epsilons(law, ballots.entries(law), delta=left, candidates=len(ballots.choices))
            details["voter_epsilons"] = own.clamp(max=alone).tolist()  # which holds for all of them
        if ballots.people is not None:
            details["voters"] = ballots.people
    spent = replace(accountant.cost(), numbers=2 * accountant.steps + int(publish))
    return ReleaseAccount.of(spent, delta, tight, **details)


def room_to_publish(multiplier: float) -> float:
    """The noise multiplier that leaves room for publishing within what ``multiplier`` would cost.

    >>> more = room_to_publish(4.0)
    >>> every = 0.5 / more**2
    >>> round(4.0**2 * 2 * (every + publishing_cost(every)), 9), round(more / 4.0, 3)
    (1.0, 1.024)
    """
    whole = 0.5 / multiplier**2
    low, high = 0.0, whole
    for _ in range(100):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if middle + publishing_cost(middle) < whole else (low, middle)
    return math.sqrt(0.5 / low) * (1 + 1e-12)


def sensitive_sentences(account: ReleaseAccount, queries: Sequence[Any]) -> tuple[str, ...]:
    """What only the owner of the data may read: the per-instance numbers, the voters', the chances of error.

    >>> import numpy as np
    >>> import ringfence as rf
    >>> account = rf.release_votes(np.ones((80, 2)), sigma=10.0).account
    >>> sensitive_sentences(account, ["a", "b"])[1].split(":")[0]
    "What a voter's own ballot cost that voter"
    """
    chances = account.details["chances_of_error"]
    worst = max(range(len(chances)), key=chances.__getitem__)
    voters = account.details.get("voter_epsilons")
    own: tuple[str, ...] = ()
    if voters is not None:
        low, middle, high = (rounded_up(value) for value in (min(voters), median(voters), max(voters)))
        own = (
            f"What a voter's own ballot cost that voter: an epsilon between {low} and {high}, with a median "
            f"of {middle}, where {rounded_up(account.epsilon)} holds for everybody.",
        )
    return (
        account.per_instance,
        *own,
        f"The chance of a wrong decision is largest at {queries[worst]}, {rounded_up(chances[worst])}; "
        f"{rounded_up(math.fsum(chances))} of {len(chances)} decisions are expected to be wrong.",
    )


def whole_numbers_beyond(chance_of_error: Any, most: float) -> int:
    """The smallest whole number at which a falling chance is at most ``WRONG``; ``most`` is one of them.

    >>> whole_numbers_beyond(lambda margin: 0.5 * 0.9**margin, most=100.0)
    38
    """
    low, high = 0, math.ceil(most)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if chance_of_error(middle) <= WRONG else (middle + 1, high)
    return low
