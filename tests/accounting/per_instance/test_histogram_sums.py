"""The histogram bound: never below the exact sum, hardly above it, whatever theta."""

import pytest
import torch

import ringfence as rf
from ringfence.accounting.per_instance import divergence_table, histogram_sums
from ringfence.accounting.per_instance.divergence_sums import exact_sums, worse_sign
from ringfence.accounting.per_instance.histogram_sums import HistogramSums
from ringfence.accounting.per_instance.setting import Setting
from ringfence.numerics.rounding import UNDERFLOW
from tests.accounting.drawing import draw
from tests.mechanisms.cases import CASES, Case
from tests.tensors import float64

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
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
    bound = HistogramSums(Setting.of(law, sensitivity), ORDERS).sums(theta)
    assert bool((bound >= exact * (1 - 1e-12)).all())
    assert bool((bound <= exact * 1.005 + 1e-280).all())


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.name != "gaussian"], ids=lambda case: case.name
)
def test_in_the_middle_of_a_cell_the_margin_is_needed(case: Case) -> None:
    """Where D is largest it bends downwards, and the chord alone would be too low."""
    law, alpha = case.make(1.0, -2.0, 2.0), float64([1.5])
    nodes = torch.arange(-512, 513, dtype=torch.float64) / 128
    top = nodes[law.renyi_divergence(nodes, 1e-3, 1.5).argmax()]
    theta = top + (torch.arange(-10, 10, dtype=torch.float64) + 0.5) / 128
    table, chords = HistogramSums(Setting.of(law, 1e-3), alpha), []
    for one in theta:
        exact = exact_sums(law, one.view(1), float64(1e-3), alpha)
        bound = table.sums(one.view(1))
        assert bool((bound >= exact).all())
        chords.append(bound / table._margin / exact)
    assert float(torch.stack(chords).min()) < 1


def test_a_coordinate_rounded_into_the_next_bin_is_charged() -> None:
    """float32 next to the edges of bins, far out where D falls by 0.7 % a bin."""
    law, alpha, c = rf.StochasticSign(0.6), float64([2.0]), 6e-4
    edges = (torch.arange(int(27.97 * 4096), 28 * 4096).double() / 4096 * 0.6).float()
    beside = [torch.nextafter(edges, torch.full_like(edges, end)) for end in (-99.0, 99.0)]
    theta = torch.cat((edges, *beside))
    exact = worse_sign(law, theta.double(), float64(c), float64([2.0]), backward=False)[0]
    table = HistogramSums(Setting.of(law, c), alpha)
    bound = torch.cat([table.sums(value)[0] for value in theta.split(1)])
    assert bool((bound >= exact).all())
    assert bool((bound <= 1.02 * exact).all())


def test_a_second_sum_reads_the_table_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    table = HistogramSums(Setting.of(rf.TruncatedGaussian(1.0, 2.0), 1e-3), ORDERS)
    first = table.sums(draw(1000))

    def refuse(*_: object) -> None:
        raise AssertionError("evaluated again")

    monkeypatch.setattr(divergence_table, "both_directions", refuse)
    monkeypatch.setattr(table.table, "rows", refuse)
    assert torch.equal(table.sums(draw(1000)), first)


def test_coordinates_too_far_apart_are_evaluated_one_by_one() -> None:
    law = rf.TruncatedGaussian(1.0, 2.0)
    theta = torch.cat((draw(500), float64([1e6, -3e5, 300.0])))
    exact = exact_sums(law, theta, float64(1e-2), ORDERS)
    bound = HistogramSums(Setting.of(law, 1e-2), ORDERS).sums(theta)
    assert bool((bound >= exact).all())
    assert bool((bound <= 1.005 * exact).all())


def test_two_clusters_far_apart_both_count() -> None:
    law, theta = rf.RectifiedGaussian(1.0, 5000.0), torch.cat((draw(500), 1000.0 + draw(400)))
    exact = exact_sums(law, theta, float64(1e-2), ORDERS)
    bound = HistogramSums(Setting.of(law, 1e-2), ORDERS).sums(theta)
    assert bool((bound >= exact).all())
    assert bool((bound <= 1.005 * exact).all())


def test_more_equal_coordinates_than_float32_can_count() -> None:
    law = rf.RectifiedGaussian(1.0, 2.0)
    theta = torch.full((1,), 0.3).expand(20_000_000)
    one = exact_sums(law, theta[:1], float64(1e-3), ORDERS)
    bound = HistogramSums(Setting.of(law, 1e-3), ORDERS).sums(theta)
    assert bool((bound >= 20_000_000 * one * (1 - 1e-9)).all())
    assert bool((bound <= 1.005 * 20_000_000 * one).all())


@pytest.mark.parametrize("theta", [2 * draw(4000, dtype=torch.float32), 4.0 + draw(4000).abs()])
def test_few_bins_a_call_are_refined_until_they_do(
    monkeypatch: pytest.MonkeyPatch, theta: torch.Tensor
) -> None:
    """What a GPU does, where a call counts 8,192 bins at most."""
    monkeypatch.setitem(histogram_sums._BINS_PER_CALL, "cpu", 1024)
    law = rf.RectifiedGaussian(1.0, 2.0)
    exact = exact_sums(law, theta, float64(1e-3), ORDERS)
    bound = HistogramSums(Setting.of(law, 1e-3), ORDERS).sums(theta)
    assert bool((bound >= exact).all())
    assert bool((bound <= 1.005 * exact).all())


def test_no_coordinates_cost_nothing() -> None:
    table = HistogramSums(Setting.of(rf.RectifiedGaussian(1.0, 2.0), 1e-3), ORDERS)
    assert float(table.sums(torch.zeros(0)).sum()) == 0


@pytest.mark.parametrize("size", [0.1, 5.0])
def test_between_nodes_the_chord_is_raised(size: float) -> None:
    """By 1 / (1 - K h^2 / 6), K = 4 and more at orders below 2. The Gaussian's divergence is flat."""
    bound = HistogramSums(Setting.of(rf.Gaussian(2.0), 2 * size), float64([1.1, 8.0])).sums(float64([0.0]))[0]
    for got, alpha, bend in zip(bound.tolist(), (1.1, 8.0), (4 + 0.9 * size**2 / 4, 4), strict=True):
        expected = alpha * size**2 / 2 / (1 - bend / 6 / 128**2) * (1 + 1e-11)
        assert got == pytest.approx(expected, rel=1e-13, abs=0)


def test_shifts_too_large_for_chords_are_evaluated_one_by_one() -> None:
    """A chord at order 1.1 would be raised by more than 0.3 % at 33 sigma."""
    law, theta = rf.StochasticSign(1.0), draw(20)
    assert torch.equal(
        HistogramSums(Setting.of(law, 33.0), ORDERS).sums(theta),
        exact_sums(law, theta, float64(33.0), ORDERS),
    )


def test_rounding_and_underflow_are_charged() -> None:
    theta, orders, size = torch.full((3,), 50.0).double(), float64([2.0, 8.0]), float64(0.1)
    lost = exact_sums(rf.StochasticSign(1.0), theta, size, orders)  # 1e-543
    assert (lost == 3 * UNDERFLOW).all()
    gaussian = exact_sums(rf.Gaussian(1.0), theta, size, orders)
    truth = (3 * 0.5 * 0.1**2 * orders).expand(2, 2)
    assert ((gaussian / truth - 1 - 1e-11).abs() < 1e-14).all()
    table = HistogramSums(Setting.of(rf.StochasticSign(1.0), 0.1), orders).sums(theta)
    assert (table == 3 * UNDERFLOW).all()


def test_a_table_serves_one_theta_after_the_other() -> None:
    """What is kept of the first must not be taken for the second."""
    law, orders, size = rf.RectifiedGaussian(1.0, 1.0), float64([2.0, 8.0]), 0.1
    table = HistogramSums(Setting.of(law, size), orders)
    for place in (0.3, 0.35, 2.3, -1.4, 0.3):
        theta = torch.full((5,), place).double()
        fresh = HistogramSums(Setting.of(law, size), orders).sums(theta)
        torch.testing.assert_close(table.sums(theta), fresh, rtol=0, atol=0)


def test_nothing_released_costs_nothing_at_every_order() -> None:
    sums = HistogramSums(Setting.of(rf.Gaussian(1.0), 0.1), float64([2.0, 3.0, 4.0])).sums(torch.zeros(0))
    assert sums.shape == (2, 3)
    assert (sums == 0).all()


@pytest.mark.parametrize("node", [-1000, 3, 1000])
def test_a_coordinate_on_a_node_is_charged_a_bin_and_a_sixteenth_of_one(node: int) -> None:
    """The larger end of its bin, a 32nd of a cell, on the chord; and what rounding may have moved it by."""
    law, size, alpha = rf.StochasticSign(1.0), 0.01, float64([2.0])
    around = torch.arange(node - 1, node + 3, dtype=torch.float64) / 128
    for way, bound in enumerate(HistogramSums(Setting.of(law, size), alpha).sums(around[1:2])[:, 0].tolist()):
        nodes = worse_sign(law, around, float64(size), alpha, backward=way == 1)[0]
        rise, steepest = float(nodes[2] - nodes[1]), float(nodes.diff().abs().max())
        expected = float(nodes[1]) + max(rise, 0.0) / 32 + steepest / 32 / 16
        assert bound == pytest.approx(expected / (1 - 4 / 6 / 128**2) * (1 + 1e-11), rel=1e-13, abs=0)


def test_float32_far_from_zero_is_counted_in_float64() -> None:
    low, high = 1000.3, 1001.7  # which float32 does not hold
    theta = (1000.5 + (draw(100_000) % 1)).float()
    counts = histogram_sums._counts(theta, low, high, 4096)
    assert torch.equal(counts.double(), histogram_sums._counts(theta.double(), low, high, 4096))
    assert not torch.equal(counts.float(), torch.histc(theta, 4096, low, high))


def test_a_page_more_only_where_rounding_may_lead_onto_it() -> None:
    """A coordinate may be binned into the next cell, 1/128 sigma away."""
    assert histogram_sums._places(0.01, 0.99) == range(1)
    assert histogram_sums._places(0.007, 0.99) == range(-1, 1)
    assert histogram_sums._places(-2.5, 0.993) == range(-3, 2)


def test_charges_lie_between_the_two_ends_of_the_bin() -> None:
    """The chord rises by a 32nd of its rise over a cell, where bins are finest, and else by an eighth."""
    law, size, alpha = rf.StochasticSign(1.0), 0.01, float64([2.0])
    around = torch.arange(300, 302, dtype=torch.float64) / 128
    for finest, bins in ((True, 32), (False, 8)):
        (charge,) = HistogramSums(Setting.of(law, size), alpha).charges(around[:1], finest)
        lower, upper = charge.between(slice(None))
        fall = [float(-worse_sign(law, around, float64(size), alpha, way)[0].diff()) for way in (False, True)]
        expected = [one / bins / (1 - 4 / 6 / 128**2) for one in fall]
        assert (upper - lower).flatten().tolist() == pytest.approx(expected, rel=1e-9, abs=0)
        assert charge.number.tolist() == [1]


def test_only_what_the_table_does_not_reach_is_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Around the median of all coordinates, also of few."""
    table = HistogramSums(Setting.of(rf.RectifiedGaussian(1.0, 2.0), 0.1), ORDERS)
    theta = float64([900.0, 0.0, 901.0, 0.0, 2.0])
    assert table._near(theta).tolist() == [False, True, False, True, True]
    far, near = table.charges(theta, finest=False)
    assert (far.number.tolist(), near.number.tolist()) == ([1, 1], [2, 1])
    evaluated, honest = [], table._exact_sums
    monkeypatch.setattr(table, "_exact_sums", lambda some: evaluated.append(some.tolist()) or honest(some))
    table.sums(theta)
    assert evaluated == [[900.0, 901.0]]


@pytest.mark.parametrize(("gap", "calls"), [(3.9e-3, 1), (4.1e-3, 2)])
def test_bins_are_refined_where_one_sum_may_be_too_high_by_four_thousandths(
    gap: float, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(histogram_sums._BINS_PER_CALL, "cpu", 8 * 128)
    table, bins = HistogramSums(Setting.of(rf.Gaussian(1.0), 0.1), ORDERS), []

    def bounds(*arguments: object) -> tuple[torch.Tensor, torch.Tensor]:
        bins.append(arguments[-1])
        return torch.ones(2, 3).double(), float64([[0.0, 0.0, gap], [0.0, 0.0, 0.0]])

    monkeypatch.setattr(table, "_bounds", bounds)
    table.sums(float64([0.5]))
    assert bins == [8, 32][:calls]


def test_a_theta_that_is_no_number_is_an_error() -> None:
    for value in (torch.nan, torch.inf, -torch.inf):
        with pytest.raises(ValueError, match=r"theta must (not be NaN|be finite)"):
            HistogramSums(Setting.of(rf.Gaussian(1.0), 0.1), ORDERS).sums(float64([0.0, value]))
