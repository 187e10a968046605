"""Conversions agree with dp-accounting, and where they are ours with their definition."""

import math

import dp_accounting
import pytest
from dp_accounting import rdp

from ringfence.accounting import conversion
from tests.fuzz import exact
from tests.tensors import float64

ORDERS = conversion.checked_orders(conversion.DEFAULT_ORDERS)


@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.3])
def test_every_row_is_converted_as_dp_accounting_does(delta: float) -> None:
    orders = float64([1.005, 1.5, 2.0, 8.0, 64.0])
    rows = float64([[0.0] * 5, [1e-9, 1e-8, 1e-7, 1e-6, 1e-5], [0.1, 0.2, 0.3, 2.0, math.inf], [5.0] * 5])
    found = conversion.epsilon_from_rdp(orders, rows, delta)
    expected = [rdp.compute_epsilon(orders.tolist(), row, delta)[0] for row in rows.tolist()]
    assert found.tolist() == pytest.approx(expected, rel=1e-10)
    ex_post = conversion.ex_post_epsilon(orders, rows, delta)
    assert ex_post.tolist() == [float(conversion.ex_post_epsilon(orders, row, delta)) for row in rows]


@pytest.mark.parametrize("mu", [5e-4, 0.01, 0.3, 2.0])
def test_gaussian_epsilon_and_delta_are_inverse(mu: float) -> None:
    delta = min(1e-5, 1e-3 * mu)
    epsilon = conversion.gaussian_epsilon(mu, delta)
    assert conversion.gaussian_delta(mu, epsilon) <= delta
    assert conversion.gaussian_delta(mu, epsilon * (1 - 1e-6)) > delta
    assert epsilon >= dp_accounting.get_epsilon_gaussian(1 / mu, delta) or mu < 1e-3  # where it loses digits


def test_nothing_released_costs_nothing() -> None:
    assert conversion.gaussian_epsilon(0.0, 1e-5) == 0
    assert conversion.gaussian_delta(0.0, 0.0) == 0
    assert conversion.gaussian_delta(1e6, 0.0) == 1


def test_ex_post_is_the_union_over_orders() -> None:
    orders, sums = float64([2.0, 11.0]), float64([0.1, 0.5])
    epsilon = float(conversion.ex_post_epsilon(orders, sums, 1e-3))
    assert epsilon == pytest.approx(0.5 + math.log(2 / 1e-3) / 10, rel=1e-10)
    assert epsilon >= 0.5 + math.log(2 / 1e-3) / 10


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, 2.0, math.nan])
def test_delta_outside_its_range_is_refused(delta: float) -> None:
    for convert in (conversion.epsilon_from_rdp, conversion.ex_post_epsilon):
        with pytest.raises(ValueError, match="delta must"):
            convert(ORDERS, ORDERS, delta)
    with pytest.raises(ValueError, match="delta must"):
        conversion.gaussian_epsilon(1.0, delta)


@pytest.mark.parametrize(
    ("orders", "message"),
    [
        ([], "orders must hold at least one order, got none"),
        ([2.0, 1.0], r"orders must be > 1, got 1.0 at index \[1\]"),
        ([math.nan], "orders must not be NaN"),
        ([math.inf], "orders must be finite"),
        *((bad, "orders must be a number or a tensor") for bad in (None, "2", ["a"], object())),
    ],
)
def test_orders_are_checked(orders: object, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        conversion.checked_orders(orders)  # type: ignore[arg-type]


@pytest.mark.parametrize("mu", [1e-160, 1e-9, 1e-5, 1e-4, 1e-3, 0.1, 3.0, 100.0, 1e5, 1e12, 1e160])
@pytest.mark.parametrize("delta", [5e-324, 1e-285, 1e-15, 1e-9, 1e-5, 0.4, 1 - 2.0**-53])
def test_no_gaussian_epsilon_is_below_the_exact_one(mu: float, delta: float) -> None:
    """A root found to within 1e-12 was below it where epsilon is small, and warned where mu is extreme."""
    epsilon = conversion.gaussian_epsilon(mu, delta)
    assert epsilon == math.inf or exact.gaussian_delta(mu, epsilon) <= delta


@pytest.mark.parametrize("mu", [1e-6, 1.0, 1e6])
def test_no_gaussian_delta_is_below_the_exact_one(mu: float) -> None:
    """Was 0 where the exact one is e^(-5e11)."""
    for epsilon in (0.0, 1.0, mu * mu):
        assert conversion.gaussian_delta(mu, epsilon) >= exact.gaussian_delta(mu, epsilon)


def test_a_sum_that_is_no_number_is_not_converted() -> None:
    """Gave an epsilon of 0."""
    for convert in (conversion.epsilon_from_rdp, conversion.ex_post_epsilon):
        with pytest.raises(FloatingPointError, match="epsilon cannot be represented"):
            convert(float64([2.0, 8.0]), float64([1.0, math.nan]), 1e-5)


def test_the_best_order_of_next_to_nothing_is_a_number() -> None:
    assert conversion.best_zcdp_order(1e-40, 1e-5) == conversion.best_zcdp_order(1e-300, 1e-5) == 1e15
    assert conversion.best_zcdp_order(0.0, 1e-5) == 2
