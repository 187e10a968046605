"""Computes the epsilons of a job from its divergence sums."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from experiments.sweep.measured import Sums
from ringfence.accounting.claim.data_independent import data_independent_proof
from ringfence.accounting.claim.guarantee import guarantee


@dataclass(frozen=True)
class Epsilons:
    """Three epsilons of ``Guarantee``, and the same three of the Gaussian with the same sigma, at one delta.

    ``epsilon_pdp`` is ``Guarantee.per_instance.renyi_epsilon``, the paper's number: Rényi sums are
    converted for every law in the same way, for the Gaussian too, so that laws are compared by one route. It
    may lie above
    the ``epsilon_data_independent``; the smaller of the two is what a comparison calls "tightest".
    """

    epsilon_pdp: float
    epsilon_ex_post: float
    epsilon_data_independent: float
    gaussian_epsilon_pdp: float
    gaussian_epsilon_ex_post: float
    gaussian_epsilon_data_independent: float


def epsilons(sums: Sums, steps: int, delta: float) -> Epsilons:
    """The epsilons that ``PerInstanceAccountant.guarantee`` computes from the same sums.

    >>> from ringfence import Gaussian, PerInstanceAccountant
    >>> account = PerInstanceAccountant(Gaussian(1.0), 1e-2)
    >>> account.step(torch.zeros(1000))
    >>> kept = Sums(tuple(account.orders.tolist()), tuple(account.worst.tolist()), 0.05, 0.05)
    >>> epsilons(kept, 1, 1e-5).epsilon_pdp == account.guarantee(1e-5).per_instance.renyi_epsilon
    True
    """
    orders = torch.tensor(sums.orders, dtype=torch.float64)
    with np.errstate(divide="ignore"):  # dp-accounting takes log 0 on its way to an epsilon of 0
        return _epsilons(sums, orders, steps, delta)


def _epsilons(sums: Sums, orders: torch.Tensor, steps: int, delta: float) -> Epsilons:
    claim = guarantee(
        orders=orders,
        worst=torch.tensor(sums.worst, dtype=torch.float64),
        gaussian=sums.gaussian_zcdp * orders,
        data_independent=_data_independent(sums.gaussian_zcdp, sums.bounded_zcdp, delta),
        steps=steps,
        delta=delta,
    )
    return Epsilons(
        claim.per_instance.renyi_epsilon,
        claim.per_instance.ex_post_epsilon,
        claim.epsilon,
        claim.per_instance.gaussian_renyi_epsilon,
        claim.per_instance.gaussian_ex_post_epsilon,
        _data_independent(sums.gaussian_zcdp, sums.gaussian_zcdp, delta).epsilon,
    )


# Many settings of a sweep have the same arguments.
_data_independent = lru_cache(maxsize=4096)(data_independent_proof)
