"""What single examples are charged."""

import torch

from ringfence import ExampleAccountant, RectifiedGaussian, TruncatedGaussian
from ringfence.accounting.examples.information_polynomials import (
    hat_moments,
    polynomial_bound,
    upper_polynomials,
)
from ringfence.accounting.examples.shift_tables import ShiftTable, table_bound
from ringfence.accounting.examples.sums import VARIANTS, exact_bound
from ringfence.mechanisms.base import Mechanism
from tests.unchanged.cases import DELTAS, Values, even, laws, normal, over, vector

_ORDERS = vector(1.1, 2, 16, 512)
_THETA = even(40, -1.5, 1.5)
_SIGMA = torch.where(_THETA > 0, 0.5, 0.8).double()
_GRADIENTS = normal(8, 40) * vector(1e-5, 1e-4, 1e-3, 0.0, 1e-2, 0.1, 0.5, 1.0).unsqueeze(1)


@over(laws())
def examples(law: Mechanism) -> Values:
    account = ExampleAccountant(law, [1.005, 1.25, 3.0, 20.0, 100.0])
    account.step(_THETA, _GRADIENTS)
    account.step(_THETA + 0.1, _GRADIENTS, count=2)
    return {kind: [account.epsilons(d, kind=kind) for d in DELTAS] for kind in ("ex_post", "pdp")}  # type: ignore[arg-type]


@over(laws())
def example_sums(law: Mechanism) -> Values:
    return {"exact": exact_bound(law, _THETA, _ORDERS)(_GRADIENTS[2:6])}


@over([laws()[1], *laws()[3:]])
def shift_tables(law: Mechanism) -> Values:
    table = ShiftTable(law, _ORDERS)
    found: Values = {f"weights {k}": table.weights(_THETA[:10], k) for k in (-14, -13, -10, -4, 1)}
    return {**found, "sums": table_bound(law, _THETA, _ORDERS, {})(_GRADIENTS)}


@over(["two sigmas"])
def shift_tables_of_tensors(_: str) -> Values:
    return {"sums": table_bound(RectifiedGaussian(_SIGMA, bound=1.0), _THETA, _ORDERS, {})(_GRADIENTS)}


@over(["one sigma", "two sigmas", "gaussian"])
def information_polynomials(name: str) -> Values:
    law = {"one sigma": laws()[2], "two sigmas": TruncatedGaussian(_SIGMA, bound=1.0), "gaussian": laws()[0]}[
        name
    ]
    coefficients, condition = upper_polynomials(law, _THETA)
    powers = 1.5 ** torch.arange(len(coefficients)).double().unsqueeze(1)
    return {
        "at two points": [coefficients[0], (coefficients * powers).sum(0)],
        "condition": condition,
        "sums": polynomial_bound(law, _THETA, _ORDERS)(_GRADIENTS),
        "hat moments": [hat_moments(_ORDERS, variant) for variant in VARIANTS],
    }
