"""Rates from Rényi divergences: above every pair that has them, and as sharp as riskcal's."""

import math

import pytest
import torch

from ringfence.accounting.claim.conversion import gaussian_delta
from ringfence.accounting.claim.renyi_rates import (
    _excess,
    _orders,
    _start,
    renyi_advantage,
    renyi_rates,
    zcdp_advantage,
    zcdp_rates,
)
from ringfence.accounting.claim.trade_off import gaussian_rates
from tests.tensors import float64

RATES = float64([1e-300, 1e-9, 1e-3, 0.1, 0.3, 0.5, 0.7, 0.9, 0.999, 1 - 1e-9])


def coins(first: float, second: float, orders: torch.Tensor) -> torch.Tensor:
    """D_alpha of two coins, by definition."""
    total = first**orders * second ** (1 - orders) + (1 - first) ** orders * (1 - second) ** (1 - orders)
    return torch.log(total) / (orders - 1)


@pytest.mark.parametrize("zcdp", [1e-20, 1e-9, 1e-4, 0.02, 0.5, 5.0, 300.0])
def test_above_the_gaussian_which_has_this_zcdp(zcdp: float) -> None:
    highest, lowest = zcdp_rates(zcdp, RATES)
    mu = (2 * zcdp) ** 0.5
    exact = gaussian_rates(mu, RATES)
    assert (highest >= exact[0].clamp(max=1.0) * (1 - 1e-10)).all()
    assert (lowest <= exact[1] * (1 + 1e-10)).all()
    assert zcdp_advantage(zcdp) >= gaussian_delta(mu, 0.0) * (1 - 1e-10)
    if zcdp < 1e-3:
        assert (highest <= exact[0] * 1.02 + 1e-6).all()


@pytest.mark.parametrize(("found", "alarm"), [(0.3, 0.1), (0.9, 0.2), (0.004, 0.001), (0.6, 0.4)])
def test_exact_where_the_pair_is_a_coin(found: float, alarm: float) -> None:
    """One order and the larger direction decide: the coin itself is the test that is allowed at most."""
    orders = float64([2.0, 8.0])
    forward, backward = coins(found, alarm, orders), coins(alarm, found, orders)
    for order in range(2):
        both = torch.maximum(forward, backward)[order : order + 1]
        highest, lowest = renyi_rates(orders[order : order + 1], both, float64([alarm]))
        assert float(highest) == pytest.approx(found, rel=1e-9)
        assert float(highest) >= found
        assert float(lowest) <= 1 - found
    mirrored = coins(0.7, 0.3, orders)  # the same in both directions
    assert renyi_advantage(orders, mirrored) == pytest.approx(0.4, rel=1e-9)


def test_without_a_false_positive_nothing_is_found_and_with_all_of_them_everything() -> None:
    highest, lowest = zcdp_rates(0.5, float64([0.0, 1.0]))
    assert (highest.tolist(), lowest.tolist()) == ([0.0, 1.0], [1.0, 0.0])


def test_the_sharpest_order_decides() -> None:
    orders = 1 + 2.0 ** torch.linspace(-4, 9, 14, dtype=torch.float64)
    pairs = zip(orders.split(1), (0.1 * orders).split(1), strict=True)
    alone = torch.stack([renyi_rates(order, bound, RATES)[0] for order, bound in pairs])
    together = renyi_rates(orders, 0.1 * orders, RATES)[0]
    assert torch.allclose(together, alone.amin(dim=0), rtol=1e-9, atol=0)
    assert (zcdp_rates(0.1, RATES)[0] <= together * (1 + 1e-9)).all()
    assert (renyi_rates(orders, torch.full_like(orders, torch.inf), RATES)[0] == 1).all()
    assert renyi_advantage(orders, torch.full_like(orders, torch.inf)) == 1.0
    assert (zcdp_rates(0.0, RATES)[0] <= RATES + 1e-6).all()


def test_which_orders_are_tried_and_from_where() -> None:
    """Eight an octave around 1 + 1 / sqrt(zcdp), none but 1 below 1.03; from the least rate on."""
    steps = [2 * 2.0 ** (k / 8) for k in range(-48, 40)]
    assert _orders(0.25).flatten().tolist() == pytest.approx([1.0, *(1 + step for step in steps)], rel=1e-12)
    halves = [1.0, *(1 + step / 2 for step in steps if step > 0.06)]
    assert (
        _orders(1.0).flatten().tolist() == _orders(0.0).flatten().tolist() == pytest.approx(halves, rel=1e-12)
    )
    assert _start(float64([0.0, 1.0])).tolist() == pytest.approx(
        [math.log(1e-300), 53 * math.log(2)], rel=1e-12
    )


@pytest.mark.parametrize("zcdp", [0.02, 0.5, 3.0])
def test_as_sharp_as_riskcal(zcdp: float) -> None:
    """Up to 0.9: at 0.999 and zCDP 0.02 riskcal 1.5.1 is above the Gaussian, which has that zCDP."""
    riskcal = pytest.importorskip("riskcal.analysis")
    at = RATES[2:-2]
    theirs = torch.as_tensor(riskcal.get_beta_from_zcdp(zcdp, at.numpy()))
    lowest = zcdp_rates(zcdp, at)[1]
    assert (lowest - theirs).abs().max() < 1e-5  # how much the orders that riskcal tries leave out
    assert (lowest >= theirs - 1e-6).all()
    assert zcdp_advantage(zcdp) == pytest.approx(
        riskcal.get_advantage_from_zcdp(zcdp, max_order=16, grid_size=60), abs=1e-6
    )


def test_what_rounding_may_have_added_to_a_divergence_is_taken_off() -> None:
    """Of equal coins nothing is left but 1e-14 of the logarithms, more at orders close to 1."""
    orders, logit = float64([[1.0], [1.01], [2.0], [64.0]]), float64([-2.0])
    logs = 1 + 2 * (math.log1p(math.exp(-2)) + math.log1p(math.exp(2)))
    expected = [-1e-14 * logs * factor for factor in (1 / 0.03, 1.01 / 0.03, 2.0, 64 / 63)]
    assert _excess(orders, 0 * orders, logit, logit).flatten().tolist() == pytest.approx(expected, rel=0.1)
    charged = _excess(orders, 1 + 0 * orders, logit, logit).flatten() + 1
    assert charged.tolist() == pytest.approx([-1e-11] * 4, rel=0.25)
