"""Fisher information, and the largest singular values behind it."""

import math

from ringfence import FisherAccountant, Gaussian, RectifiedGaussian
from ringfence.accounting.fisher.loss import (
    fisher_information_bounds,
    fisher_information_loss,
    poisson_information_factor,
    reconstruction_error_bound,
)
from ringfence.mechanisms.base import Mechanism
from ringfence.numerics.spectral.batched_operator import BatchedOperator
from ringfence.numerics.spectral.chebyshev_bounds import probable_bounds_of_many
from ringfence.numerics.spectral.linear_operator import LinearOperator, probable_bounds
from ringfence.numerics.spectral.operator_trace import probable_traces
from ringfence.numerics.spectral.singular_values import dense_bounds, norm_bounds, squared_frobenius
from tests.unchanged.cases import Values, even, laws, normal, over, seeded, vector

_THETA, _JACOBIAN = even(30, -1.5, 1.5), normal(3, 30, 8)


@over(laws())
def fisher(law: Mechanism) -> Values:
    bounds = fisher_information_bounds(law, _THETA, _JACOBIAN)
    one = LinearOperator.of(_JACOBIAN[0])
    probable = fisher_information_bounds(
        law, _THETA, one, generator=seeded(), tolerance=0.1, maximum_degree=32
    )
    return {
        "spectral": fisher_information_loss(law, _THETA, _JACOBIAN),
        "trace": fisher_information_loss(law, _THETA, _JACOBIAN, kind="trace"),
        "bounds": [bounds.lower, bounds.upper],
        "probable": [probable.lower, probable.upper],
    }


@over(["factor", "reconstruction"])
def fisher_numbers(name: str) -> Values:
    if name == "reconstruction":
        return {name: reconstruction_error_bound(vector(0.0, 1e-200, 1e-3, 1.0, 70.0))}
    rates, epsilons = (1e-3, 0.1, 0.5, 1.0), (0.0, 0.1, 2.0, math.inf)
    return {name: [poisson_information_factor(rate, epsilon) for rate in rates for epsilon in epsilons]}


@over(["tall", "flat"])
def singular_values(shape: str) -> Values:
    matrices = _JACOBIAN if shape == "tall" else _JACOBIAN.mT
    weights = even(matrices.shape[1], 0.1, 1.0)
    dense, norms = dense_bounds(weights, matrices), [norm_bounds(weights, one) for one in matrices]
    return {
        "dense": [dense.lower, dense.upper],
        "norms": [[one.lower, one.upper, one.gap] for one in norms],
        "frobenius": squared_frobenius(weights, matrices),
    }


@over([(failing, probes) for failing in (1e-12, 1e-6, 0.1) for probes in (1, 4, 9)])
def linear_operator(setting: tuple[float, int]) -> Values:
    failing, probes = setting
    bounds = probable_bounds(
        LinearOperator.of(_JACOBIAN[0]), generator=seeded(), failure_probability=failing, probes=probes
    )
    return {"bounds": [bounds.lower, bounds.upper]}


@over([(failing, probes) for failing in (1e-12, 1e-6, 0.1) for probes in (1, 4, 9)])
def batched_operator(setting: tuple[float, int]) -> Values:
    failing, probes = setting
    operator = BatchedOperator.of(_JACOBIAN)
    bounds = probable_bounds_of_many(operator, generator=seeded(), failure_probability=failing, probes=probes)
    traces = probable_traces(operator, generator=seeded(), failure_probability=failing, probes=probes)
    return {"bounds": [bounds.lower, bounds.upper], "traces": list(traces)}


@over([1, 3, 4, 6, 40])
def batched_operator_degree(degree: int) -> Values:
    operator = BatchedOperator.of(_JACOBIAN)
    found: Values = {}
    for tolerance in (1e-4, 0.05, 0.5):
        bounds = probable_bounds_of_many(
            operator, generator=seeded(), tolerance=tolerance, maximum_degree=degree
        )
        found[f"tolerance {tolerance}"] = [bounds.lower, bounds.upper]
    return found


@over([False, True])
def fisher_account(cheap: bool) -> Values:
    account = FisherAccountant(RectifiedGaussian(0.5, bound=1.0), cheap=cheap)
    account.step(_THETA, _JACOBIAN)
    account.step(-_THETA, _JACOBIAN.flip(0), sampling_rate=0.3, pure_epsilon=0.5)
    claim = account.guarantee()
    return {
        "claim": [claim.fisher_information_loss, claim.lower, claim.reconstruction_error],
        "others": [account.upper_bound(), account.fisher_information_loss(kind="trace")],
    }


@over([1, 3])
def fisher_account_operators(count: int) -> Values:
    account = FisherAccountant(Gaussian(1.0))
    for matrix in _JACOBIAN[:count]:
        account.step(_THETA, LinearOperator.of(matrix))
    claim = account.guarantee(generator=seeded())
    return {
        "claim": [claim.fisher_information_loss, claim.lower, claim.failure_probability],
        "one by one": account.upper_bound(generator=seeded()),
    }
