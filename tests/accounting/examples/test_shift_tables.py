"""Other laws: tables over theta and the size of the shift, against every entry evaluated."""

import pytest
import torch
from torch import Tensor

import ringfence as rf
from ringfence.accounting.examples import shift_tables
from ringfence.accounting.examples.shift_tables import ShiftTable
from tests.accounting.gradients import LAWS, both, draws
from tests.tensors import float64

TABULATED = {
    **{name: LAWS[name] for name in ("rectified", "sign", "quantized")},
    "narrow": rf.RectifiedGaussian(0.5, (-0.05, 0.1)),
}


@pytest.mark.parametrize("law", TABULATED.values(), ids=TABULATED.keys())
@pytest.mark.parametrize(("scale", "above"), [(1e-3, 1.03), (1e-2, 1.25)])
def test_tabulated_laws_are_never_below(law: rf.Mechanism, scale: float, above: float) -> None:
    sigma = float(law.sigma)
    theta, gradients = draws(4, 40, scale * sigma)
    theta = theta * sigma
    orders = [1.5, 4.0, 16.0, 64.0, 256.0, 2048.0]
    bounds, exact = both(law, theta, gradients, orders)
    assert (bounds >= exact).all()
    # how loose where alpha s is 0.06 and 0.6; signs that cancel in the exact sums do not in the bound
    worst = [sums[..., orders.index(64.0)].amax(dim=0) for sums in (bounds, exact)]
    assert (worst[0] <= above * worst[1]).all()


@pytest.mark.parametrize("law", TABULATED.values(), ids=TABULATED.keys())
def test_the_tables_cover_every_shift_of_their_octave(law: rf.Mechanism) -> None:
    orders, sigma = float64([1.2, 2.0, 7.0, 90.0, 2048.0]), float(law.sigma)
    table = ShiftTable(law, orders)
    generator = torch.Generator().manual_seed(3)
    theta = sigma * float64([0.01, 1.77, -1.5, 3.4, -3.4, 7.9]).unsqueeze(1)
    for octave in (-15, -9, -4, 1):
        flat, slope = table.weights(theta.squeeze(1), octave)
        fractions = torch.cat((torch.rand(7, generator=generator), torch.tensor([1.0, 1e-3]))).double()
        shift = (fractions * 2.0**octave).view(-1, 1, 1)
        moves = [move * shift * sigma for move in (1, -1)]
        forward = [law.renyi_divergence(theta, move, orders) for move in moves]
        backward = [law.renyi_divergence(theta + move, -move, orders) for move in moves]
        truth = torch.stack(forward + backward).amax(dim=0) / shift**2
        bound = torch.minimum(flat + slope * shift, 0.5 * orders)  # the Gaussian's is proved
        assert (bound * (1 + 1e-11) + 1e-280 >= truth).all(), octave


def test_tables_for_few_settings_and_the_gaussian_beyond() -> None:
    theta, gradients = draws(2, 80, 1e-3)
    few = torch.tensor([1.0, 2.0]).repeat(40).double()
    bounds, exact = both(rf.RectifiedGaussian(1.0, few), theta, gradients, [2.0, 64.0])
    assert (bounds >= exact).all()
    assert (bounds <= 1.02 * exact).all()
    many = torch.linspace(1, 2, 80).double()
    bounds, exact = both(rf.RectifiedGaussian(1.0, many), theta, gradients, [2.0, 64.0])
    assert (bounds >= exact).all()
    gaussian = 0.5 * gradients.square().sum(dim=1, keepdim=True) * float64([2.0, 64.0])
    assert bounds[2].flatten().tolist() == pytest.approx(gaussian.flatten().tolist())


def test_shifts_above_the_tables_get_the_gaussian() -> None:
    bounds, exact = both(LAWS["sign"], float64([0.3]), float64([[2.0], [2.5], [40.0]]), [2.0, 8.0])
    assert (bounds >= exact).all()
    gaussian = 0.5 * float64([[2.5], [40.0]]).square() * float64([2.0, 8.0])
    assert bounds[0, 1:].flatten().tolist() == pytest.approx(gaussian.flatten().tolist())


@pytest.mark.parametrize("largest", [0.5, 0.75, 1.0, 2.0**-6])
def test_an_octave_ends_with_its_power_of_two(largest: float) -> None:
    """A shift of 2^k belongs to the octave below it, any other to its own: no jump just below either."""
    law, orders = LAWS["rectified"], [2.0]
    theta = float64([7.0])
    below, at = (both(law, theta, float64([[s]]), orders)[0] for s in (largest * (1 - 1e-13), largest))
    torch.testing.assert_close(below, at, rtol=1e-11, atol=0)
    assert (at < 0.45 * largest**2 * float64(orders)).all()  # what the table says, not the Gaussian


def test_rounding_is_charged_in_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    law, theta, orders, block = LAWS["rectified"], float64([3.0]), float64([2.0, 8.0]), float64([[0.1]])
    plain = shift_tables.table_bound(law, theta, orders, {})(block)

    class Rough(shift_tables.InUnits):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments)
            self.rounding = 1e-3

    monkeypatch.setattr(shift_tables, "InUnits", Rough)
    raised = shift_tables.table_bound(law, theta, orders, {})(block)
    torch.testing.assert_close(raised, plain * (1 + 1e-3), rtol=1e-9, atol=0)


class Plain(rf.Gaussian):
    """D = (alpha / 2) s^2 (1 + |s|): its limit and its steepest chord are both alpha / 2."""

    def renyi_divergence(self, theta: object, shift: Tensor, alpha: Tensor) -> Tensor:
        return 0.5 * alpha * shift**2 * (1 + shift.abs()) + 0 * theta


@pytest.mark.parametrize("octave", [-20, -3, -1, 1])
def test_margins_grow_with_alpha_times_the_shift(octave: int) -> None:
    """2 % on D / s^2 and 5 % on its slope, times alpha s between 1/16 and 1."""
    orders = float64([1.5, 2.0, 100.0])
    flat, slope = ShiftTable(Plain(1.0), orders).weights(float64([0.1]), octave)
    reach = (orders * 2.0**octave).clamp(1 / 16, 1)
    chord = 1 / (1 - (1 / 16) ** 2 / 4)
    torch.testing.assert_close(flat[0], 0.5 * orders * chord * (1 + 0.02 * reach), rtol=1e-12, atol=0)
    if octave > -20:
        torch.testing.assert_close(slope[0], 0.5 * orders * chord * (1 + 0.05 * reach), rtol=1e-9, atol=0)


def test_rounding_is_charged_on_top_of_the_weights() -> None:
    law, theta, orders = LAWS["rectified"], float64([3.0]), float64([2.0, 8.0])
    sums = shift_tables.table_bound(law, theta, orders, {})(float64([[0.125]]))
    flat, slope = ShiftTable(law, orders).weights(theta, -3)
    plain = 0.125**2 * flat[0] + 0.125**3 * slope[0]
    assert ((sums[:, 0] / plain - 1 - 1e-11).abs() < 1e-13).all()


def test_four_shifts_an_octave_are_evaluated_and_no_page_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """From alpha s = 1 / 16 up to the octave asked for, each once for a page of theta."""
    seen: list[float] = []
    honest = ShiftTable.worst

    def recorded(self: ShiftTable, theta: Tensor, shift: Tensor, orders: Tensor) -> Tensor:
        seen.extend(shift.unique().tolist())
        return honest(self, theta, shift, orders)

    monkeypatch.setattr(ShiftTable, "worst", recorded)
    sigma, order = 2.0, 4.0
    table = ShiftTable(rf.RectifiedGaussian(sigma, 1.0), float64([order]))
    assert table.smallest == -6  # 1 / 16 / 4
    for theta in ([0.1, 0.3], [0.1, 0.2]):
        table.weights(float64(theta), -4)
    expected = [2.0**-6, *(2.0 ** (octave - k / 4) for octave in (-5, -4) for k in range(4))]
    assert sorted(seen) == pytest.approx(sorted(sigma * shift for shift in expected))
    seen.clear()
    table.weights(float64([0.1, 5.0]), -4)  # a page more, and nothing else
    assert len(seen) == 9


def test_between_nodes_the_chord_is_raised() -> None:
    """Enough for D'' >= -1.5 D: twice the strongest bend ever found."""
    assert pytest.approx(1 / (1 - 1.5 * (1 / 16) ** 2 / 6), rel=1e-15, abs=0) == shift_tables._ABOVE_CHORD


@pytest.mark.parametrize("octave", [-1, 0])
def test_the_chord_from_the_limit_is_taken_where_it_is_lower_at_half_the_largest_shift(octave: int) -> None:
    """Otherwise the largest quotient, which has no slope; both are the better one somewhere."""
    table, node = ShiftTable(LAWS["sign"], float64([1.5, 8.0])), torch.arange(-16, 24)
    flat, slope = table.weights(node.double() * table.sigma / 16, octave)
    pages = torch.stack(table._pages_of([-2, -1, 0, 1, 2], octave), dim=1)
    limit, largest, steepest = pages[:, node // 8 + 2, node % 8]
    lower = limit + steepest * 2.0**octave / 2 < largest
    chord, reach = 1 / (1 - (1 / 16) ** 2 / 4), (table.orders * 2.0**octave).clamp(1 / 16, 1)
    expected = torch.where(lower, limit, largest) * chord * (1 + 0.02 * reach)
    torch.testing.assert_close(flat, expected, rtol=1e-12, atol=0)
    expected = torch.where(lower, steepest, 0.0) * chord * (1 + 0.05 * reach)
    torch.testing.assert_close(slope, expected, rtol=1e-12, atol=0)
    assert 0 < int(lower.sum()) < lower.numel()
