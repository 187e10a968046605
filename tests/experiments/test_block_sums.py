"""Sums of many settings at once: never below the exact ones, hardly above, as the tables of one."""

from functools import cache

import pytest
import torch
from torch import Tensor

import ringfence as rf
from experiments import grid_accounts as reader
from experiments.grid_accounts import GridTable, block_sums, exact_sums_of_many
from ringfence.accounting import divergence_sums
from ringfence.accounting.coordinates import Setting
from ringfence.accounting.divergence_sums import exact_sums
from ringfence.accounting.equivalent_information import equivalent_information
from tests.accounting.drawing import draw
from tests.mechanisms.cases import CASES
from tests.tensors import float64

ORDERS = float64([1.1, 8.0, 1024.0])
LAWS = [case.make(sigma, -1.0, 1.5) for case in CASES for sigma in (0.8, 0.3)]
SIZES = [1e-3, 0.3] * len(CASES)
SETTINGS = [Setting.of(law, size) for law, size in zip(LAWS, SIZES, strict=True)]
THETAS = {
    "spread": 0.4 * draw(len(LAWS), 100),
    "float32": draw(len(LAWS), 40, dtype=torch.float32),
    "one value": torch.full((len(LAWS), 30), 0.7, dtype=torch.float64),
    "on nodes": (torch.arange(-60, 60, dtype=torch.float64) / 128).repeat(len(LAWS), 1),
    "just below nodes": (torch.arange(-60, 60, dtype=torch.float64) / 128 - 1e-12).repeat(len(LAWS), 1),
    "just below zero": torch.full((len(LAWS), 3), -1e-25, dtype=torch.float64),
    "away from zero": 1e3 + 0.3 * draw(len(LAWS), 50),
    "wide": torch.linspace(0.7, 900.0, len(LAWS), dtype=torch.float64).unsqueeze(1) * draw(len(LAWS), 40),
}


@cache
def spread() -> tuple[GridTable, Tensor]:
    """The sums of coordinates that are spread out, and the pages they were read from."""
    pages = GridTable(ORDERS)
    return pages, block_sums(pages, SETTINGS, THETAS["spread"])


@pytest.mark.parametrize("name", THETAS)
def test_upper_bounds_within_half_a_percent(name: str) -> None:
    theta = THETAS[name]
    bounds = block_sums(GridTable(ORDERS), SETTINGS, theta)
    for law, size, row, bound in zip(LAWS, SIZES, theta, bounds, strict=True):
        exact = exact_sums(law, row, float64(size), ORDERS)
        assert bool((bound >= exact * (1 - 1e-12)).all()), law
        assert bool((bound <= exact * 1.005 + 1e-280).all()), law


def test_they_agree_with_the_table_of_one_setting() -> None:
    theta = 0.1 * draw(len(LAWS), 2000)
    bounds = block_sums(GridTable(ORDERS), SETTINGS, theta)
    for release, row, bound in zip(SETTINGS, theta, bounds, strict=True):
        table = GridTable(ORDERS).sums(release, row)
        assert torch.allclose(bound, table, rtol=1e-3, atol=1e-280)


def test_the_order_and_the_company_of_a_setting_do_not_matter() -> None:
    theta = THETAS["spread"]
    pages, together = spread()
    alone = torch.cat(
        [block_sums(pages, [one], row.unsqueeze(0)) for one, row in zip(SETTINGS, theta, strict=True)]
    )
    turned = block_sums(GridTable(ORDERS), SETTINGS[::-1], theta.flip(0)).flip(0)
    assert torch.allclose(alone, together, rtol=1e-13, atol=0)
    assert torch.allclose(turned, together, rtol=1e-13, atol=0)


def test_a_second_sum_reads_the_pages_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    pages, first = spread()

    def refuse(*_: object) -> None:
        raise AssertionError("evaluated again")

    monkeypatch.setattr(divergence_sums, "both_directions", refuse)
    assert torch.equal(block_sums(pages, SETTINGS, THETAS["spread"]), first)


def test_pages_are_dropped_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    theta, (_, kept) = THETAS["spread"], spread()
    monkeypatch.setattr(reader, "_KEPT", 1)
    monkeypatch.setattr(reader, "_READ_TOGETHER", 1)
    monkeypatch.setattr(reader, "_FILLED_TOGETHER", 3)
    few = GridTable(ORDERS)
    for _ in range(2):
        assert torch.allclose(block_sums(few, SETTINGS, theta), kept, rtol=1e-13, atol=0)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_nan_and_infinities_are_refused(bad: float) -> None:
    theta = THETAS["spread"].clone()
    theta[3, 5] = bad
    with pytest.raises(ValueError, match=r"theta must .*at index \[3, 5\]"):
        block_sums(GridTable(ORDERS), SETTINGS, theta)


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
    far = side * 2.5e6 + draw(len(LAWS), 5)
    bounds = block_sums(GridTable(ORDERS), SETTINGS, far)
    for release, row, bound in zip(SETTINGS, far, bounds, strict=True):
        exact = exact_sums(release.mechanism, row, float64(release.sensitivity), ORDERS)
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
    table = GridTable(orders, tabulated=equivalent_information)
    for count in (1, 2):
        found = reader.block_maxima(table, [Setting.of(rf.StochasticSign(1.0), 1e-3)] * count, far[:count])
        assert torch.equal(found, torch.full((count, 2, 2), torch.inf, dtype=torch.float64))


def test_no_page_is_filled_once_a_row_is_settled() -> None:
    """Far inside the support a law has the largest information of all; outside, all pages are looked at."""
    setting = [Setting.of(rf.RectifiedGaussian(1.0, 8.0), 1e-3)]
    for row, pages in (([0.5, 12.5, 19.5], 1), ([12.5, 19.5], 2)):
        table = GridTable(float64([2.0]), tabulated=equivalent_information)
        reader.block_maxima(table, setting, float64([row]))
        assert len(table._keys) == pages


def test_exact_sums_of_many_are_those_of_each() -> None:
    orders = float64([1.1, 8.0, 1024.0])
    laws = [case.make(sigma, -1.0, 1.5) for case in CASES for sigma in (0.8, 0.3)]
    settings = [Setting.of(law, size) for law, size in zip(laws, [1e-3, 0.3] * len(CASES), strict=True)]
    theta = 0.4 * draw(len(laws), 100)
    for setting, row, got in zip(settings, theta, exact_sums_of_many(settings, theta, orders), strict=True):
        exact = exact_sums(setting.mechanism, row, float64(setting.sensitivity), orders)
        assert torch.allclose(got, exact, rtol=1e-11, atol=0)
