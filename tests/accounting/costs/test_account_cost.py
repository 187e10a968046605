"""The cost of an account at the orders that all accounts share."""

import math

import torch

from ringfence.accounting.claim.conversion import DEFAULT_ORDERS
from ringfence.accounting.costs.account_cost import at_orders


def test_a_missing_order_has_the_sum_of_the_next_larger_one() -> None:
    sums = at_orders(torch.tensor([32.0, 3.0]), torch.tensor([8.0, 1.0], dtype=torch.float64))
    by_order = dict(zip(DEFAULT_ORDERS, sums, strict=True))
    assert (by_order[1.5], by_order[3.0], by_order[3.5], by_order[32.0]) == (1.0, 1.0, 8.0, 8.0)
    assert by_order[36.0] == math.inf
