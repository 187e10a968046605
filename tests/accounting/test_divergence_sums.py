"""Coordinates of a release and sums over them: evaluated, or from a table and never below the exact sum."""

import math

import pytest
import torch

import ringfence as rf
from experiments.grid_accounts import stacked
from ringfence.accounting import divergence_sums, per_instance
from ringfence.accounting.divergence_sums import (
    DivergenceTable,
    Setting,
    both_directions,
    distinct,
    exact_sums,
    kind_of,
    recentre,
    split_by_setting,
    with_numbers,
)
from ringfence.accounting.examples import TabulatedSums, informations
from ringfence.numerics.rounding import UNDERFLOW
from tests.accounting.drawing import draw
from tests.mechanisms.cases import CASES, Case
from tests.tensors import float64

TABULATED = [case for case in CASES if not case.make(1.0, -1.0, 1.0).whole]
every_case = pytest.mark.parametrize("case", TABULATED, ids=lambda case: case.name)
ORDERS = float64([1.1, 8.0, 1024.0])

THETAS = {
    "spread": 2 * draw(100),
    "float32": 2 * draw(100, dtype=torch.float32),
    "one value": torch.full((30,), 0.7, dtype=torch.float64),
    "on nodes": torch.arange(-60, 60, dtype=torch.float64) / 128,
    "just below nodes": torch.arange(-60, 60, dtype=torch.float64) / 128 - 1e-12,
    "far outside": 9.0 + 0.01 * draw(50),
    "away from zero": 1e4 + 2 * draw(50),
}


@every_case
@pytest.mark.parametrize("name", THETAS)
def test_an_upper_bound_within_half_a_percent(case: Case, name: str) -> None:
    """Every law and every theta meets both sensitivities."""
    law, theta = case.make(0.8, -1.0, 1.5), THETAS[name]
    sensitivity = (1e-3, 0.3)[(CASES.index(case) + list(THETAS).index(name)) % 2]
    exact = exact_sums(law, theta, float64(sensitivity), ORDERS)
    bound = DivergenceTable(ORDERS).sums(Setting.of(law, sensitivity), theta)
    assert bool((bound >= exact * (1 - 1e-12)).all())
    assert bool((bound <= exact * 1.005 + 1e-280).all())


def test_a_second_sum_reads_the_table_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    table, setting = DivergenceTable(ORDERS), Setting.of(rf.TruncatedGaussian(1.0, 2.0), 1e-3)
    first = table.sums(setting, draw(1000))

    def refuse(*_: object) -> None:
        raise AssertionError("evaluated again")

    monkeypatch.setattr(table, "tabulated", refuse)
    assert torch.equal(table.sums(setting, draw(1000)), first)


def test_more_equal_coordinates_than_float32_can_count() -> None:
    law = rf.RectifiedGaussian(1.0, 2.0)
    theta = torch.full((1,), 0.3).expand(20_000_000)
    one = exact_sums(law, theta[:1], float64(1e-3), ORDERS)
    bound = DivergenceTable(ORDERS).sums(Setting.of(law, 1e-3), theta)
    assert bool((bound >= 20_000_000 * one * (1 - 1e-9)).all())
    assert bool((bound <= 1.005 * 20_000_000 * one).all())


@pytest.mark.parametrize("theta", [2 * draw(4000, dtype=torch.float32), 4.0 + draw(4000).abs()])
def test_bins_may_be_counted_in_several_calls(monkeypatch: pytest.MonkeyPatch, theta: torch.Tensor) -> None:
    """What a GPU does, where a call counts 8,192 bins at most."""
    monkeypatch.setitem(divergence_sums._BINS_PER_CALL, "cpu", 1024)
    law = rf.RectifiedGaussian(1.0, 2.0)
    exact = exact_sums(law, theta, float64(1e-3), ORDERS)
    bound = DivergenceTable(ORDERS).sums(Setting.of(law, 1e-3), theta)
    assert bool((bound >= exact).all())
    assert bool((bound <= 1.005 * exact).all())


@pytest.mark.parametrize("size", [0.1, 5.0])
def test_between_nodes_the_chord_is_raised(size: float) -> None:
    """By 1 / (1 - K h^2 / 6), K = 4 and more at orders below 2. The Gaussian's divergence is flat."""
    bound = DivergenceTable(float64([1.1, 8.0])).sums(Setting.of(rf.Gaussian(2.0), 2 * size), float64([0.0]))[
        0
    ]
    for got, alpha, bend in zip(bound.tolist(), (1.1, 8.0), (4 + 0.9 * size**2 / 4, 4), strict=True):
        expected = alpha * size**2 / 2 / (1 - bend / 6 / 128**2) * (1 + 1e-11)
        assert got == pytest.approx(expected, rel=1e-13, abs=0)


def test_shifts_too_large_for_chords_are_evaluated_one_by_one() -> None:
    """A chord at order 1.1 would be raised by more than 0.3 % at 33 sigma."""
    law, theta = rf.StochasticSign(1.0), draw(20)
    assert torch.equal(
        DivergenceTable(ORDERS).sums(Setting.of(law, 33.0), theta),
        exact_sums(law, theta, float64(33.0), ORDERS),
    )


def test_rounding_and_underflow_are_charged() -> None:
    theta, orders, size = torch.full((3,), 50.0).double(), float64([2.0, 8.0]), float64(0.1)
    lost = exact_sums(rf.StochasticSign(1.0), theta, size, orders)  # 1e-543
    assert (lost == 3 * UNDERFLOW).all()
    gaussian = exact_sums(rf.Gaussian(1.0), theta, size, orders)
    truth = (3 * 0.5 * 0.1**2 * orders).expand(2, 2)
    assert ((gaussian / truth - 1 - 1e-11).abs() < 1e-14).all()
    table = DivergenceTable(orders).sums(Setting.of(rf.StochasticSign(1.0), 0.1), theta)
    assert (table == 3 * UNDERFLOW).all()


def test_nothing_released_costs_nothing_at_every_order() -> None:
    sums = DivergenceTable(float64([2.0, 3.0, 4.0])).sums(Setting.of(rf.Gaussian(1.0), 0.1), torch.zeros(0))
    assert sums.shape == (2, 3)
    assert (sums == 0).all()


@pytest.mark.parametrize("node", [-1000, 3, 1000])
def test_a_coordinate_on_a_node_is_charged_a_bin_and_a_sixteenth_of_one(node: int) -> None:
    """The middle of its bin, a 16th of a cell, on the chord; half a bin; and what rounding may move it by."""
    law, size, alpha = rf.StochasticSign(1.0), 0.01, float64([2.0])
    around = torch.arange(node - 1, node + 3, dtype=torch.float64) / 128
    table, setting = DivergenceTable(alpha), Setting.of(law, size)
    (alone,) = table.charges(setting, around[1:2])
    assert alone.number.tolist() == [1]
    for way, bound in enumerate(table.sums(setting, around[1:2])[:, 0].tolist()):
        nodes = both_directions(law, around, float64(size), alpha)[way, 0]
        rise, steepest = float(nodes[2] - nodes[1]), float(nodes.diff().abs().max())
        expected = float(nodes[1]) + rise / 32 + steepest / 32 + steepest / 16 / 16
        expected /= 1 - 4 / 6 / 128**2
        assert bound == pytest.approx(expected * (1 + 1e-11), rel=1e-13, abs=0)
        assert float(alone.at(slice(None))[way]) == pytest.approx(expected, rel=1e-13, abs=0)
        read, place = (float(table.at(setting, around[1:2], **off)[way]) for off in ({}, {"off": 0.0}))
        # what rounding of the place is charged, of a cell
        assert read - place == pytest.approx(2.0**-24 * steepest, rel=1e-3, abs=0)


def test_float32_far_from_zero_is_counted_in_float64() -> None:
    low, high = 1000.3, 1001.7  # which float32 does not hold
    theta = (1000.5 + (draw(100_000) % 1)).float()
    counts = divergence_sums._histogram(theta, low, high, 4096)
    assert torch.equal(counts.double(), divergence_sums._histogram(theta.double(), low, high, 4096))
    assert not torch.equal(counts.float(), torch.histc(theta, 4096, low, high))


def test_a_page_more_only_where_rounding_may_lead_onto_it() -> None:
    """A coordinate may be binned into the next cell, 1/128 sigma away."""
    assert divergence_sums._places(0.01, 0.99) == range(1)
    assert divergence_sums._places(0.007, 0.99) == range(-1, 1)
    assert divergence_sums._places(-2.5, 0.993) == range(-3, 2)


def test_only_what_the_table_does_not_reach_is_evaluated() -> None:
    """Around the median of all coordinates, also of few."""
    setting, theta = Setting.of(rf.RectifiedGaussian(1.0, 2.0), 0.1), float64([900.0, 0.0, 901.0, 0.0, 2.0])
    near, places, far = divergence_sums._split(setting, theta)
    assert (near.tolist(), far.tolist(), places) == ([0.0, 0.0, 2.0], [900.0, 901.0], range(-1, 3))
    apart, binned = DivergenceTable(ORDERS).charges(setting, theta)
    assert (apart.number.tolist(), binned.number.tolist()) == ([1, 1], [2, 1])


@pytest.mark.parametrize("place", [1e6, -1e6])
def test_what_lies_beyond_the_table_is_evaluated(place: float) -> None:
    setting = Setting.of(rf.RectifiedGaussian(1.0, 2.0), 0.1)
    for theta in (float64([place, 1.01 * place]), float64([place, place + 1, 0.0]), float64([place] * 3) * 2):
        near, _, far = divergence_sums._split(setting, theta)
        assert (near.numel(), far.numel()) == (0, theta.numel())


def test_a_theta_that_is_no_number_is_an_error() -> None:
    for value in (torch.nan, torch.inf, -torch.inf):
        with pytest.raises(ValueError, match=r"theta must (not be NaN|be finite)"):
            DivergenceTable(ORDERS).sums(Setting.of(rf.Gaussian(1.0), 0.1), float64([0.0, value]))


@pytest.mark.parametrize(("room", "kept"), [(3, [2, 3]), (2, [2, 1])])
def test_pages_are_kept_while_there_is_room(
    monkeypatch: pytest.MonkeyPatch, room: int, kept: list[int]
) -> None:
    pages, setting = DivergenceTable(float64([2.0])), Setting.of(rf.StochasticSign(1.0), 0.1)
    monkeypatch.setattr(divergence_sums, "_KEPT", room * 2 * (129 + 128))
    found = []
    for theta in (float64([0.5, 1.5]), float64([2.5, 2.6])):
        pages.sums(setting, theta)
        found.append(len(pages._kept))
    assert found == kept


def test_every_coordinate_finds_its_row() -> None:
    columns = (float64([[1.0], [2.0]]), torch.tensor([3.0, 4.0, 3.0]), float64(7.0))
    rows, index = distinct(*columns)
    assert rows.shape == (4, 3)
    assert torch.equal(rows[index], torch.stack(torch.broadcast_tensors(*columns), dim=-1))
    single, index = distinct(float64([1.0]), float64(2.0))
    assert (single.tolist(), index.tolist()) == ([[1.0, 2.0]], [0])


def test_a_law_gets_its_numbers_in_the_order_of_its_parameters() -> None:
    law = with_numbers(rf.TruncatedGaussian(torch.ones(3), (-1.0, 1.0)), float64([2.0, -3.0, 4.0]))
    assert repr(law) == "TruncatedGaussian(sigma=2.0, bound=(-3.0, 4.0))"


def test_a_law_with_tensors_of_parameters_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must be single numbers, got Gaussian\(sigma=tensor\[3\]\)"):
        Setting.of(rf.Gaussian(torch.ones(3)), 0.1)


def test_settings_differ_where_divergences_do() -> None:
    law = rf.QuantizedGaussian(1.0, 2.0, levels=5)
    others = [
        Setting.of(law, 0.2),
        Setting.of(rf.QuantizedGaussian(1.0, 2.0, levels=7), 0.1),
        Setting.of(rf.QuantizedGaussian(1.0, 2.5, levels=5), 0.1),
        Setting.of(rf.RectifiedGaussian(1.0, 2.0), 0.1),
    ]
    one = Setting.of(law, 0.1)
    assert one == Setting.of(rf.QuantizedGaussian(torch.tensor(1.0), 2.0, levels=5), 0.1)
    assert len({one, *others}) == 5
    assert one.sigma == 1.0


@every_case
def test_a_stacked_law_is_each_of_its_laws(case: Case) -> None:
    laws, theta = [case.make(sigma, -1.0, 1.5) for sigma in (0.8, 0.3)], draw(2, 7)
    assert kind_of(laws[0]) == kind_of(laws[1])
    expected = torch.stack([law.fisher_information(row) for law, row in zip(laws, theta, strict=True)])
    torch.testing.assert_close(stacked(laws, 1).fisher_information(theta), expected, rtol=1e-14, atol=0)


def test_theta_is_split_by_parameters_and_sensitivity() -> None:
    sigma, size = float64([[1.0], [2.0]]), float64([0.1, 0.2, 0.1])
    theta = torch.arange(3, dtype=torch.float64)  # which the two sigmas spread out
    parts = split_by_setting(rf.Gaussian(sigma), theta, size, most=4)
    found = {(setting.sigma, setting.sensitivity): values.tolist() for setting, values in parts}
    assert found == {(s, c): [1.0] if c == 0.2 else [0.0, 2.0] for s in (1.0, 2.0) for c in (0.1, 0.2)}
    assert split_by_setting(rf.Gaussian(sigma), theta, size, most=3) is None


@pytest.mark.parametrize("sigma", [1.0, 4.0])
@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("other", [0.0, math.inf])
def test_only_beyond_256_sigma_and_only_where_the_end_is_closer_than_zero(
    sigma: float, sign: float, other: float
) -> None:
    """One of the ends is enough. A theta at half its way to the end is moved, one before it is not."""
    edge = 256 * sigma
    for end, moved in ((edge, False), (math.nextafter(edge, math.inf), True)):
        bound = (-other, end) if sign > 0 else (-end, other)
        law = rf.RectifiedGaussian(sigma, bound)
        theta = sign * float64([end - 0.5])
        expected = theta - sign * end if moved else theta
        found, at = recentre(law, theta)
        assert at.tolist() == expected.tolist()
        assert (found is law) == (not moved)
    law = rf.RectifiedGaussian(sigma, (-other, 3 * edge) if sign > 0 else (-3 * edge, other))
    halfway = sign * float64([2.0 * edge, math.nextafter(2 * edge, 0.0), -edge])
    assert recentre(law, halfway)[1].tolist() == [-sign * edge, *halfway[1:].tolist()]


def test_a_theta_of_256_sigma_is_read_from_the_table_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(divergence_sums, "exact_sums", lambda *_: torch.full((2, 3), math.nan))
    sums = [
        DivergenceTable(ORDERS).sums(Setting.of(rf.StochasticSign(1.0), 0.1), float64([-1.0, width - 1.0]))
        for width in (256.0, 256.001)
    ]
    assert [bool(found.isnan().all()) for found in sums] == [False, True]


def test_settings_that_get_a_table_each() -> None:
    for count, tables in ((64, 64), (65, 0)):
        law = rf.StochasticSign(1 + torch.arange(count, dtype=torch.float64))
        theta = torch.zeros(count, dtype=torch.float64)
        parts = split_by_setting(law, theta, float64(0.1), per_instance._SETTINGS)
        assert len(list(parts or ())) == tables
        release = TabulatedSums(law, theta, ORDERS, informations(ORDERS))
        assert len(release._parts) == tables
