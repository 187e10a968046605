"""Poisson samples."""

import torch

from ringfence import SampledAccountant
from ringfence.accounting.sampled import poisson_mixture as mixtures
from ringfence.accounting.sampled.divergence import SampledDivergence, checked_integer_orders
from ringfence.accounting.sampled.subsampling import fixed_batch_rdp, subsampled_rdp
from ringfence.mechanisms.base import Mechanism
from ringfence.numerics.confidence import upper_confidence_bound
from tests.unchanged.cases import Values, even, laws, normal, over, vector

_ORDERS = vector(2, 3, 4, 7, 32, 33, 40, 64, 200)
_BATCHES = normal(50, 6) * 0.5


@over([1e-3, 0.1, 0.7, 1.0])
def poisson_mixture(rate: float) -> Values:
    k = torch.arange(2, 201, dtype=torch.float64)
    mixture = mixtures.PoissonMixture(rate, _ORDERS)
    found: Values = {}
    for mu in (0.01, 0.3, 3.0):
        moments = 0.5 * k * (k - 1) * mu * mu
        found[f"first {mu}"] = mixture.mixture_first(moments)
        found[f"second {mu}"] = mixture.mixture_second(moments, 0.9 * moments[1], moments)
    return found


@over(["parts"])
def poisson_mixture_parts(_: str) -> Values:
    known = vector(1, 2, 4, 8)
    return {
        "knots": [mixtures.knots(_ORDERS), mixtures.knots(vector(2)), mixtures.knots(vector(9, 1000))],
        "log_binomial": mixtures.log_binomial(_ORDERS, 2),
        "chords": mixtures.chords(known, torch.stack((known**2, known**3)), vector(1, 1.5, 5, 8)),
    }


@over(laws())
def sampled_release(law: Mechanism) -> Values:
    release = SampledDivergence(law, 0.05, 0.2, checked_integer_orders(_ORDERS))
    whole = SampledDivergence(law, 0.05, 1.0, checked_integer_orders(_ORDERS))
    return {
        "exact": release.log_excess(even(20, -2, 2), exact=True),
        "table": release.log_excess(even(100, -2, 2), exact=False),
        "whole": whole.log_excess(even(20, -2, 2), exact=True),
        "ceilings": release.ceilings(torch.zeros(20)),
        "gaussian": release.gaussian(torch.zeros(20)),
    }


@over(laws())
def subsampling(law: Mechanism) -> Values:
    rdp = subsampled_rdp(law, _BATCHES[:10], 0.05, 0.2, _ORDERS[:4], failure_probability=1e-6)
    theta = even(6, -2, 2)
    added = fixed_batch_rdp(law, theta, 0.05, 0.2, _ORDERS)
    removed = fixed_batch_rdp(law, theta, 0.05, 0.2, _ORDERS, record="removed")
    return {
        name: [rdp.forward, rdp.backward]
        for name, rdp in (("average", rdp), ("added", added), ("removed", removed))
    }


@over([laws()[0], laws()[2]])
def sampled_accountant(law: Mechanism) -> Values:
    account = SampledAccountant(law, 0.05, 0.2, _ORDERS[:6])
    account.step(_BATCHES[:20], count=5)
    account.step(_BATCHES[:1], sampling_rate=1.0)
    account.step_of_any(torch.zeros(6), sensitivity=0.1, count=2)
    claim = account.guarantee(1e-5)
    return {
        "sums": [account.forward, account.backward, account.gaussian, account.data_independent],
        "claim": [
            claim.epsilon,
            claim.epsilon_pdp,
            claim.epsilon_data_independent,
            claim.failure_probability,
        ],
    }


@over([1e-9, 1e-2])
def confidence(failing: float) -> Values:
    draws = normal(60, 3).abs() * vector(0.001, 0.05, 1.0)
    near = (1 - 0.01 * even(40)).log()
    return {
        "wide": upper_confidence_bound(draws.log(), vector(1.0, 1.0, 3.0).log(), failing),
        "near the ceiling": upper_confidence_bound(near, vector(1.0).log()[0], failing),
    }
