"""Accounts side by side say what ordinary accounts say."""

import math
from functools import cache

import pytest
import torch

import ringfence as rf
from experiments.grid_accounts import GridAccountant, GridTable
from ringfence.accounting.divergence_sums import exact_sums
from ringfence.accounting.per_instance import DivergenceTables
from tests.accounting.drawing import draw
from tests.mechanisms.cases import CASES
from tests.tensors import float64

ORDERS = float64([1.5, 4.0, 20.0, 64.0, 512.0])
LAWS = [
    *(case.make(sigma, -1.0, 1.5) for case in CASES for sigma in (0.8, 3.0)),
    rf.RectifiedGaussian(torch.tensor([1.0, 2.0]).view(2, 1), 2.0),
    rf.TruncatedGaussian(1.0, (-torch.inf, torch.inf)),
]
SIZES = [0.01 * (1 + i % 3) for i in range(len(LAWS))]
STEPS = [3] * 6 + [1] * (len(LAWS) - 6)  # the last ones leave after the first step


def thetas(step: int) -> torch.Tensor:
    return draw(len(LAWS), 2, 150, seed=step, dtype=torch.float32)


@cache
def charged() -> list[rf.PerInstanceAccountant]:
    accounts = GridAccountant(LAWS, SIZES, [2, 150], GridTable(ORDERS))
    for step in range(3):
        accounts.step(thetas(step)[: sum(steps > step for steps in STEPS)])
    return accounts.accounts()


def test_each_is_the_ordinary_account_and_at_least_the_exact_sums() -> None:
    for i, (law, size, account) in enumerate(zip(LAWS, SIZES, charged(), strict=True)):
        ordinary = rf.PerInstanceAccountant(law, size, ORDERS)
        exact = torch.zeros(2, len(ORDERS), dtype=torch.float64)
        for step in range(STEPS[i]):
            ordinary.step(thetas(step)[i])
            exact += exact_sums(law, thetas(step)[i], float64(size), ORDERS)
        got = torch.stack((account.forward, account.backward))
        assert bool((got >= exact * (1 - 1e-10)).all()), law
        assert torch.allclose(got, torch.stack((ordinary.forward, ordinary.backward)), rtol=5e-3, atol=0)
        assert account.steps == ordinary.steps == STEPS[i]
        assert account.gaussian_zcdp == pytest.approx(ordinary.gaussian_zcdp, rel=1e-14)
        assert account.bounded_zcdp == pytest.approx(ordinary.bounded_zcdp, rel=1e-14)
        assert account.guarantee(1e-5).per_instance.ex_post_epsilon == pytest.approx(
            ordinary.guarantee(1e-5).per_instance.ex_post_epsilon, rel=5e-3
        )


def test_a_law_on_the_whole_line_is_charged_exactly() -> None:
    for law, size, account in zip(LAWS, SIZES, charged(), strict=True):
        if law.name == "gaussian":
            exact = account.steps * 300 * size**2 / (2 * float(law.sigma) ** 2) * account.orders
            assert torch.allclose(account.forward, exact, rtol=1e-11, atol=0)
            assert bool((account.forward >= exact).all())


def test_a_law_on_the_whole_line_needs_no_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """What holds for every theta is what it costs."""
    laws = [rf.Gaussian(1.0), rf.TruncatedGaussian(2.0, (-math.inf, math.inf))]
    monkeypatch.setattr(DivergenceTables, "sums", None)
    accounts = GridAccountant(laws, [0.1, rf.Sensitivity(0.1, norm=0.2)], [300])
    accounts.step(torch.zeros(2, 300))
    for account in accounts.accounts():
        assert torch.equal(account.worst, account.bounded_zcdp * account.orders)


def test_never_above_what_holds_for_every_theta() -> None:
    for account in charged():
        assert bool((account.worst <= account.bounded_zcdp * account.orders * (1 + 1e-14)).all())


def test_few_coordinates_are_evaluated_one_by_one() -> None:
    law = rf.RectifiedGaussian(1.0, 2.0)
    accounts, theta = GridAccountant([law, law], [0.1, 0.2], [50]), draw(2, 50)
    accounts.step(theta)
    for account, size, row in zip(accounts.accounts(), (0.1, 0.2), theta, strict=True):
        exact = exact_sums(law, row, float64(size), account.orders)
        assert torch.allclose(torch.stack((account.forward, account.backward)), exact, rtol=1e-10, atol=0)


def test_an_account_can_be_saved_and_go_on() -> None:
    account = charged()[2]
    again = rf.PerInstanceAccountant.from_state_dict(account.state_dict())
    assert again.guarantee(1e-5) == account.guarantee(1e-5)
    again.step(thetas(7)[2])
    assert again.steps == 4


@pytest.mark.parametrize("row", range(len(LAWS)))
def test_nan_is_refused_and_nothing_is_charged(row: int) -> None:
    accounts, theta = GridAccountant(LAWS, SIZES, [2, 150]), thetas(0).clone()
    theta[row, 0, 0] = torch.nan
    with pytest.raises(ValueError, match="theta must not be NaN"):
        accounts.step(theta)
    assert all(account.steps == 0 and not account.worst.any() for account in accounts.accounts())


def test_as_many_sensitivities_as_mechanisms() -> None:
    with pytest.raises(ValueError, match="2 mechanisms, but 1 sensitivities"):
        GridAccountant([rf.Gaussian(1.0)] * 2, [0.1], [3])


@pytest.mark.parametrize(("count", "evaluated"), [(256, True), (257, False)])
def test_few_coordinates_are_evaluated(count: int, evaluated: bool) -> None:
    law, theta = rf.RectifiedGaussian(1.0, 1.0), draw(1, count)
    accounts = GridAccountant([law], [0.1], [count])
    accounts.step(theta)
    account = accounts.accounts()[0]
    exact = exact_sums(law, theta[0], float64(0.1), account.orders)[0]
    assert torch.allclose(account.forward, exact, rtol=1e-12, atol=0) == evaluated


@pytest.mark.parametrize("bound", [(-1.0, math.inf), (-math.inf, 1.0)])
def test_a_half_line_is_charged_as_by_itself(bound: tuple[float, float]) -> None:
    law, theta = rf.TruncatedGaussian(1.0, bound), torch.linspace(-3, 3, 50, dtype=torch.float64)
    grid, account = GridAccountant([law], [0.1], [50]), rf.PerInstanceAccountant(law, 0.1)
    grid.step(theta[None])
    account.step(theta)
    torch.testing.assert_close(grid.accounts()[0].worst, account.worst, rtol=1e-12, atol=0)


def test_a_length_is_charged_like_the_ordinary_account() -> None:
    """Where the whole move may go into one coordinate; far outside of the support that is little."""
    law, size, orders = rf.StochasticSign(2.0), rf.Sensitivity(norm=0.6), float64([2.0, 8.0])
    theta = torch.linspace(6.1, 7.9, 16, dtype=torch.float64).view(2, 8)
    grid = GridAccountant([law, law], [size, size], [8], GridTable(orders))
    grid.step(theta)
    grid.step(theta[:1])
    for account, row, steps in zip(grid.accounts(), theta, (2, 1), strict=True):
        ordinary = rf.PerInstanceAccountant(law, size, orders)
        ordinary.step(row, count=steps)
        torch.testing.assert_close(account.worst, ordinary.worst, rtol=0.03, atol=0)
        assert bool((account.worst >= ordinary.worst).all())
        assert bool((account.worst < 0.5 * account.bounded_zcdp * orders).all())
