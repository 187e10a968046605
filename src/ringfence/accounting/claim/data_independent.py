"""What holds for every dataset: an epsilon, how it was proved, and what attacks can achieve."""

import math
from typing import NamedTuple

import torch

from ringfence import checks
from ringfence.accounting.claim.conversion import (
    DEFAULT_ORDERS,
    best_zcdp_order,
    epsilon_from_rdp,
    gaussian_epsilon,
)
from ringfence.accounting.claim.trade_off import TradeOff

# how an epsilon was proved
GAUSSIAN, ZCDP = "Gaussian, exactly", "zCDP of the law"
SAMPLED = "Gaussian on Poisson samples, by privacy loss distributions"

_AROUND = tuple(1.02**k for k in range(-40, 41))  # orders tried around the best one, as multiples


class DataIndependent(NamedTuple):
    """An epsilon that holds for every dataset, how it was proved, the Gaussian's, and what attacks can do."""

    epsilon: float
    proof: str
    gaussian_epsilon: float
    trade_off: TradeOff


def data_independent_epsilon(gaussian_zcdp: float, bounded_zcdp: float, delta: float) -> float:
    """The epsilon of ``data_independent_proof``.

    >>> round(data_independent_epsilon(0.0512, 0.0512, 1e-5), 4)
    1.2151
    """
    return data_independent_proof(gaussian_zcdp, bounded_zcdp, delta).epsilon


def data_independent_proof(gaussian_zcdp: float, bounded_zcdp: float, delta: float) -> DataIndependent:
    """The smaller epsilon of two proofs: Gaussian differential privacy, exactly, and zCDP of the law.

    In every test the laws give away no more than the Gaussian (Blackwell), so mu-GDP with
    mu^2 = 2 ``gaussian_zcdp`` holds for all of them; the truncated law has a smaller Rényi curve.

    >>> data_independent_proof(0.0512, 0.0512, 1e-5).proof, data_independent_proof(0.0512, 0.004, 1e-5).proof
    ('Gaussian, exactly', 'zCDP of the law')
    """
    delta = checks.probability("delta", delta)
    exact = gaussian_epsilon(mu := math.sqrt(2 * gaussian_zcdp), delta)
    # the best order for D = zcdp * alpha need not be among the default ones
    best = best_zcdp_order(bounded_zcdp, delta)
    orders = torch.tensor([*DEFAULT_ORDERS, *(best * step for step in _AROUND if best * step > 1.01)])
    orders = orders.double()
    bounded = epsilon_from_rdp(orders, bounded_zcdp * orders, delta)[0]
    # at the same zCDP the Gaussian's own rates are the smaller ones
    trade_off = TradeOff(((mu, 1.0, 1),), zcdp=bounded_zcdp if bounded_zcdp < gaussian_zcdp else math.inf)
    return DataIndependent(*min((exact, GAUSSIAN), (bounded, ZCDP)), exact, trade_off)
