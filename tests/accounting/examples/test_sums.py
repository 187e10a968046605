"""What holds of an example's divergences for every theta, and what rounding and underflow may have taken."""

import pytest
import torch

import ringfence as rf
from ringfence.accounting.examples.sums import InUnits, exact_bound
from ringfence.numerics.rounding import ROUNDING, UNDERFLOW
from tests.accounting.drawing import draw
from tests.tensors import float64

ORDERS = float64([2.0, 8.0])


def test_what_underflows_is_charged_for_every_coordinate() -> None:
    units = InUnits(rf.StochasticSign(1.0), torch.full((3,), 50.0).double())
    nothing = torch.zeros(4, 2, 2).double()
    sums = units.capped(nothing, ceilings=float64([1.0, 0.0]), largest=float64([1e-3, 0.0]), orders=ORDERS)
    assert (sums[:, 0] == 3 * UNDERFLOW).all()
    assert (sums[:, 1] == 0).all()  # an example that contributes nothing loses nothing


@pytest.mark.parametrize("sigma", [0.5, 2.0])
def test_the_cap_is_the_law_at_its_worst(sigma: float) -> None:
    """(alpha / 2) sum_j s_j^2 I(0) sigma^2, s in units of sigma, with rounding charged."""
    law, theta, block = rf.TruncatedGaussian(sigma, sigma), draw(5), draw(2, 5, seed=1)
    units = InUnits(law, theta)
    shifts = block * units.per_sigma
    infinite = torch.full((4, 2, 2), torch.inf).double()
    sums = units.capped(infinite, shifts.square() @ units.ceiling, shifts.abs().amax(dim=1), ORDERS)
    worst = float(law.fisher_information(0.0))
    expected = 0.5 * block.square().sum(dim=1, keepdim=True) * worst * ORDERS
    torch.testing.assert_close(sums, expected.expand(4, 2, 2) * (1 + ROUNDING), rtol=1e-12, atol=0)
    assert units.rounding == (5 + 64) * 2.0**-52
    assert (units.ceiling < 0.3).all()
    assert (InUnits(rf.Gaussian(sigma), theta).ceiling == 1).all()


def test_exact_sums_are_charged_for_underflow_too() -> None:
    law, theta = rf.StochasticSign(1.0), torch.full((3,), 50.0).double()
    sums = exact_bound(law, theta, ORDERS)(float64([[1e-3, 0.0, 0.0], [0.0, 0.0, 0.0]]))
    assert (sums[:, 0] == 3 * UNDERFLOW).all()
    assert (sums[:, 1] == 0).all()
    gaussian = exact_bound(rf.Gaussian(1.0), theta, ORDERS)(float64([[0.1, 0.2, 0.3]]))
    assert ((gaussian / (0.5 * 0.14 * ORDERS) - 1 - ROUNDING).abs() < 1e-14).all()
