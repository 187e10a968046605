"""Accounts side by side say what ordinary accounts say; sums read together barely exceed exact ones."""

import math
from functools import cache

import pytest
import torch
from torch import Tensor

import ringfence as rf
from experiments import grid_accounts as reader
from experiments.grid_accounts import GridAccountant, GridTable, block_sums
from ringfence.accounting import divergence_sums
from ringfence.accounting.divergence_sums import Setting, exact_sums
from ringfence.accounting.equivalent_information import EQUIVALENT_INFORMATION
from tests.accounting.drawing import draw
from tests.mechanisms.cases import CASES
from tests.tensors import float64

ORDERS = float64([1.5, 4.0, 20.0, 64.0, 512.0])
LAWS = [
    *(case.make(sigma, -1.0, 1.5) for case in CASES for sigma in (0.8, 3.0)),
    rf.TruncatedGaussian(1.0, (-torch.inf, torch.inf)),
    rf.TruncatedGaussian(1.0, (-1.0, math.inf)),
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
        assert bool((account.worst <= account.bounded_zcdp * account.orders * (1 + 1e-14)).all())
        assert account.steps == ordinary.steps == STEPS[i]
        assert account.gaussian_zcdp == pytest.approx(ordinary.gaussian_zcdp, rel=1e-14)
        assert account.bounded_zcdp == pytest.approx(ordinary.bounded_zcdp, rel=1e-14)
        assert account.guarantee(1e-5).per_instance.ex_post_epsilon == pytest.approx(
            ordinary.guarantee(1e-5).per_instance.ex_post_epsilon, rel=5e-3
        )


def test_a_law_on_the_whole_line_is_charged_what_holds_for_every_theta(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    laws = [rf.Gaussian(0.8), rf.TruncatedGaussian(0.8, (-math.inf, math.inf))]
    monkeypatch.setattr(reader, "block_sums", None)
    monkeypatch.setattr(reader, "block_maxima", None)
    accounts = GridAccountant(laws, [0.1, rf.Sensitivity(norm=0.1)], [2, 150])
    accounts.step(torch.zeros(2, 2, 150))
    for account, coordinates in zip(accounts.accounts(), (300, 1), strict=True):
        exact = coordinates * 0.1**2 / (2 * 0.8**2) * account.orders
        for sums in (account.forward, account.backward):
            assert torch.allclose(sums, exact, rtol=1e-11, atol=0)
            assert bool((sums >= exact).all())


@pytest.mark.parametrize("row", [0, 2, -1])
def test_nan_is_refused_and_nothing_is_charged(row: int) -> None:
    accounts, theta = GridAccountant(LAWS, SIZES, [2, 150]), thetas(0).clone()
    theta[row, 0, 0] = torch.nan
    with pytest.raises(ValueError, match="theta must not be NaN"):
        accounts.step(theta)
    assert all(account.steps == 0 and not account.worst.any() for account in accounts.accounts())


@pytest.mark.parametrize(
    ("law", "size", "complaint"),
    [
        (rf.Gaussian(torch.ones(3)), 0.1, "parameters of a mechanism must be single numbers"),
        (
            rf.Gaussian(1.0),
            rf.Sensitivity(each=0.1, norm=0.15),
            r"sensitivities\[1\] must be a number or a norm",
        ),
        (
            rf.Gaussian(1.0),
            rf.Sensitivity(each=0.1, at_most=1),
            r"sensitivities\[1\] must be a number or a norm",
        ),
    ],
)
def test_what_is_not_charged_side_by_side_is_refused(
    law: rf.Mechanism, size: float | rf.Sensitivity, complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        GridAccountant([rf.Gaussian(1.0), law], [0.1, size], [3])


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


FEW_ORDERS = float64([1.1, 8.0, 1024.0])
TABULATED = [case for case in CASES if case.name != "laplace"]  # which has kinks
ALONE = [case.make(sigma, -1.0, 1.5) for case in TABULATED for sigma in (0.8, 0.3)]
MOVES = [1e-3, 0.3] * len(TABULATED)
SETTINGS = [Setting.of(law, size) for law, size in zip(ALONE, MOVES, strict=True)]
THETAS = {
    "spread": 0.4 * draw(len(ALONE), 100),
    "float32": draw(len(ALONE), 40, dtype=torch.float32),
    "one value": torch.full((len(ALONE), 30), 0.7, dtype=torch.float64),
    "on nodes": (torch.arange(-60, 60, dtype=torch.float64) / 128).repeat(len(ALONE), 1),
    "just below nodes": (torch.arange(-60, 60, dtype=torch.float64) / 128 - 1e-12).repeat(len(ALONE), 1),
    "just below zero": torch.full((len(ALONE), 3), -1e-25, dtype=torch.float64),
    "away from zero": 1e3 + 0.3 * draw(len(ALONE), 50),
    "wide": torch.linspace(0.7, 900.0, len(ALONE), dtype=torch.float64).unsqueeze(1) * draw(len(ALONE), 40),
}


@cache
def spread() -> tuple[GridTable, Tensor]:
    """The sums of coordinates that are spread out, and the pages they were read from."""
    pages = GridTable(FEW_ORDERS)
    return pages, block_sums(pages, SETTINGS, THETAS["spread"])


@pytest.mark.parametrize("name", THETAS)
def test_upper_bounds_close_to_the_exact_sums(name: str) -> None:
    theta = THETAS[name]
    bounds = block_sums(GridTable(FEW_ORDERS), SETTINGS, theta)
    for law, size, row, bound in zip(ALONE, MOVES, theta, bounds, strict=True):
        exact = exact_sums(law, row, float64(size), FEW_ORDERS)
        assert bool((bound >= exact * (1 - 1e-12)).all()), law
        close = 1.01 if name == "wide" else 1.005  # some sums are of coordinates far outside, and 1e-60
        assert bool((bound <= exact * close + 1e-280).all()), law


def test_the_order_and_the_company_of_a_setting_do_not_matter() -> None:
    theta = THETAS["spread"]
    pages, together = spread()
    alone = torch.cat(
        [block_sums(pages, [one], row.unsqueeze(0)) for one, row in zip(SETTINGS, theta, strict=True)]
    )
    turned = block_sums(GridTable(FEW_ORDERS), SETTINGS[::-1], theta.flip(0)).flip(0)
    assert torch.allclose(alone, together, rtol=1e-13, atol=0)
    assert torch.allclose(turned, together, rtol=1e-13, atol=0)


def test_a_second_sum_reads_the_pages_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    pages, first = spread()
    monkeypatch.setattr(pages, "tabulated", None)  # nothing is evaluated again
    assert torch.equal(block_sums(pages, SETTINGS, THETAS["spread"]), first)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_nan_and_infinities_are_refused(bad: float) -> None:
    theta = THETAS["spread"].clone()
    theta[3, 5] = bad
    with pytest.raises(ValueError, match=r"theta must .*at index \[3, 5\]"):
        block_sums(GridTable(FEW_ORDERS), SETTINGS, theta)


@pytest.mark.parametrize("side", [1, -1])
def test_pages_end_where_float64_no_longer_tells_parts_of_a_cell_apart(side: int) -> None:
    """Farther out the key of a page would be that of another release."""

    def near(first: float, last: float) -> bool:
        return divergence_sums.is_near(*sorted((side * first, side * last)))

    assert near(-100.0, 100.0)
    assert near(999_900.0, 1e6)
    assert not near(1e6, 1e6 + 1)
    assert not near(-200.0, 100.0)
    assert not near(0.0, float("nan"))
    far = side * 2.5e6 + draw(len(ALONE), 5)
    bounds = block_sums(GridTable(FEW_ORDERS), SETTINGS, far)
    for release, row, bound in zip(SETTINGS, far, bounds, strict=True):
        exact = exact_sums(release.mechanism, row, float64(release.sensitivity), FEW_ORDERS)
        assert bool((bound >= exact * (1 - 1e-12)).all())


def test_a_coordinate_counts_once_on_its_chord_and_a_little_on_its_slope() -> None:
    """Rounded down by up to a part of 2^-20 of a cell, and by less where theta / sigma was rounded."""
    pages = reader._Pages.between([[0.5, 0.6]], torch.device("cpu"))
    weights = reader._weights(float64([[0.5 + 0.25 / 128]]), pages)[0]
    nodes, slopes = weights[:129], weights[129:]
    assert nodes.nonzero().flatten().tolist() == [64, 65]
    assert nodes[64:66].tolist() == [0.75, 0.25]
    assert slopes.nonzero().flatten().tolist() == [64]
    assert float(slopes[64]) == 2 * 2.0**-20


def test_chords_are_raised_by_what_each_release_may_bend() -> None:
    """By 1 / (1 - K h^2 / 6), K larger for large shifts at orders below 2; above 32 sigma by nothing."""
    sizes, orders, theta = (0.1, 5.0, 33.0), float64([1.1, 8.0]), float64([[0.0]])
    bounds = block_sums(
        GridTable(orders), [Setting.of(rf.Gaussian(2.0), 2 * size) for size in sizes], theta.expand(3, 1)
    )
    for size, bound in zip(sizes, bounds, strict=True):
        bend = (4 + (2 - orders).clamp(min=0) * size**2 / 4) * (size <= 32)
        expected = orders * size**2 / 2 / (1 - bend / 6 / 128**2) * (1 + 1e-11)
        torch.testing.assert_close(bound, expected.expand(2, 2), rtol=1e-13, atol=0)


def test_rows_that_are_all_out_of_reach_have_no_largest_value() -> None:
    orders, far = float64([2.0, 8.0]), float64([[2e6, 2e6], [-2e6, 0.0]])
    table = GridTable(orders, tabulated=EQUIVALENT_INFORMATION)
    for count in (1, 2):
        found = reader.block_maxima(table, [Setting.of(rf.StochasticSign(1.0), 1e-3)] * count, far[:count])
        assert torch.equal(found, torch.full((count, 2, 2), torch.inf, dtype=torch.float64))


def test_no_page_is_filled_once_a_row_is_settled() -> None:
    """Far inside the support a law has the largest information of all; outside, all pages are looked at."""
    setting = [Setting.of(rf.RectifiedGaussian(1.0, 8.0), 1e-3)]
    for row, pages in (([0.5, 12.5, 19.5], 1), ([12.5, 19.5], 2)):
        table = GridTable(float64([2.0]), tabulated=EQUIVALENT_INFORMATION)
        reader.block_maxima(table, setting, float64([row]))
        assert len(table._keys) == pages
