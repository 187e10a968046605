"""Sums of single examples: polynomials above the information, tables of shifts, and every entry evaluated."""

import math

import pytest
import torch
from torch import Tensor

import ringfence as rf
from ringfence.accounting import example_sums
from ringfence.accounting.conversion import DEFAULT_ORDERS
from ringfence.accounting.example_sums import (
    InUnits,
    ShiftTable,
    _fit_above,
    exact_bound,
    hat_moments,
    polynomial_bound,
    upper_polynomials,
)
from ringfence.accounting.examples import ExampleAccountant
from ringfence.numerics.rounding import ROUNDING, UNDERFLOW
from tests.accounting.drawing import draw
from tests.accounting.gradients import LAWS, ORDERS, both, draws
from tests.tensors import float64

# centred, wide, narrow, off-centre with another sigma, one-sided
TRUNCATED = [
    (1.0, (-2.0, 2.0)),
    (1.0, (-5.0, 5.0)),
    (1.0, (-0.1, 0.1)),
    (0.5, (-0.2, 1.5)),
    (2.0, (-1.0, math.inf)),
]


@pytest.mark.parametrize(("sigma", "bound"), TRUNCATED)
def test_truncated_is_within_one_percent_and_never_below(sigma: float, bound: tuple[float, float]) -> None:
    theta, gradients = draws(2, 30, 1e-3)
    law = rf.TruncatedGaussian(sigma, bound)
    for spread, orders in ((0.7, DEFAULT_ORDERS[::6]), (3.0, ORDERS)):
        bounds, exact = both(law, spread * sigma * theta, sigma * gradients, orders)
        assert (bounds >= exact).all()
        assert (bounds <= 1.01 * exact).all()


@pytest.mark.parametrize(("sigma", "bound"), TRUNCATED)
def test_the_polynomials_are_above_the_information(sigma: float, bound: tuple[float, float]) -> None:
    law = rf.TruncatedGaussian(sigma, bound)
    theta = sigma * torch.cat((torch.linspace(-9, 9, 73), float64([-300.0, 1e4]))).double()
    coefficients, condition = upper_polynomials(law, theta)
    y = torch.linspace(-2.05, 2.05, 501, dtype=torch.float64).unsqueeze(1)
    polynomial = sum(coefficients[k] * y**k for k in range(len(coefficients)))
    information = law.fisher_information(theta + sigma * y) * sigma**2
    assert (polynomial >= information).all()
    assert (polynomial <= 1.01 * information).all()
    assert condition < 50


def test_hat_moments_are_those_of_the_triangular_law() -> None:
    from numpy.polynomial.legendre import leggauss

    nodes, weights = (float64(part) for part in leggauss(12))
    for alpha in (1.3, 2.0, 7.5):
        for variant, corners in (("add_forward", (1 - alpha, 0.0, 1.0)), ("add_backward", (0.0, 1.0, alpha))):
            low, mode, high = corners
            rising, falling = (low + (nodes + 1) / 2 * (mode - low), mode + (nodes + 1) / 2 * (high - mode))
            up = (rising - low) / (mode - low) * 2 / (high - low) * weights * (mode - low) / 2
            down = (high - falling) / (high - mode) * 2 / (high - low) * weights * (high - mode) / 2
            truth = [float((up * rising**k).sum() + (down * falling**k).sum()) for k in range(8)]
            got = hat_moments(float64([alpha]), variant).squeeze(1)
            assert got.tolist() == pytest.approx(truth, rel=1e-12, abs=1e-13)
            mirrored = hat_moments(float64([alpha]), variant.replace("add", "remove")).squeeze(1)
            assert mirrored.tolist() == pytest.approx([(-1) ** k * value for k, value in enumerate(truth)])


def test_orders_out_of_reach_get_what_holds_for_every_theta() -> None:
    law, gradients = rf.TruncatedGaussian(1.0, 2.0), float64([[0.5, 0.01], [0.01, -0.01]])
    theta = float64([1.0, -3.0])
    bounds, exact = both(law, theta, gradients, [4.0, 5.0, 64.0, 256.0])
    assert (bounds >= exact).all()
    ceiling = 0.5 * gradients.square().sum(dim=1) * law.information_bound()
    assert bounds[0, 0, 1:].tolist() == pytest.approx((ceiling[0] * float64([5.0, 64.0, 256.0])).tolist())
    assert (bounds[:, 0, 0] <= 1.01 * exact[:, 0, 0]).all()
    # an example with small entries keeps its own reach, whatever the others are
    assert (bounds[:, 1, :3] <= 1.01 * exact[:, 1, :3]).all()


def test_a_rough_information_is_refused() -> None:
    class Rough(rf.Gaussian):
        def _fisher_information(self, theta: Tensor, sigma: Tensor) -> Tensor:  # type: ignore[override]
            return torch.where(theta > 0.3, 1.0, 1e-6)

    with pytest.raises(FloatingPointError, match="not smooth enough"):
        ExampleAccountant(Rough(1.0)).step(torch.zeros(2), torch.ones(1, 2))


def test_parameters_may_differ_by_coordinate() -> None:
    theta, gradients = draws(3, 40, 1e-3)
    sigma, bound = torch.linspace(0.5, 2.0, 40).double(), torch.linspace(0.3, 4.0, 40).double()
    bounds, exact = both(rf.TruncatedGaussian(sigma, bound), theta, gradients * sigma)
    assert (bounds >= exact).all()
    assert (bounds <= 1.01 * exact).all()


def test_rounding_is_charged_as_far_as_the_polynomials_amplify_it(monkeypatch: pytest.MonkeyPatch) -> None:
    law, theta, orders = rf.TruncatedGaussian(1.0, 1.0), float64([0.3, -0.2]), float64([2.0, 8.0])
    block = float64([[1e-3, 2e-3]])
    plain = polynomial_bound(law, theta, orders)(block)
    coefficients, condition = upper_polynomials(law, theta)
    more = 1e9
    monkeypatch.setattr(
        "ringfence.accounting.example_sums.upper_polynomials", lambda *_: (coefficients, more)
    )
    raised = polynomial_bound(law, theta, orders)(block)
    each = (2 + 64) * 2.0**-52
    assert condition >= 1
    torch.testing.assert_close(raised, plain * (1 + (more - condition) * each), rtol=1e-9, atol=0)


def test_the_condition_is_what_the_terms_add_up_to_against_their_sum() -> None:
    theta = float64([0.0, 0.7, -3.0])
    coefficients, condition = upper_polynomials(rf.TruncatedGaussian(1.0, 1.0), theta)
    degrees = torch.arange(8).double()
    y = torch.linspace(-2.05, 2.05, 2001).double().unsqueeze(1)
    least = ((y**degrees) @ coefficients).amin(dim=0)
    terms = (coefficients.abs() * 2.05 ** degrees.unsqueeze(1)).sum(dim=0)
    assert float((terms / least).max()) <= condition <= 1.5 * float((terms / least).max())


@pytest.mark.parametrize("curvature", [0.0, 0.1])
def test_the_fit_is_raised_by_what_may_happen_between_two_points(curvature: float) -> None:
    """I at most its chord + h^2 M / 4, M itself; the fit at least its chord - h^2 max|Q''| / 8."""
    y = torch.linspace(-1, 1, 541).double() * (2.05 + 1 / 16)
    information = (0.5 + curvature * y**2).unsqueeze(0)
    fitted, lowest = _fit_above(information, rf.TruncatedGaussian(1.0, 1.0))
    square = float(y[1] - y[0]) ** 2
    around = torch.stack([information[0, i - 1 : i + 2].max() for i in range(1, 540)])
    most = information[0, 1:-1] + square / 4 * around / (1 - square / 4)
    factor = float((most / (information[0, 1:-1] - square / 8 * 2 * curvature)).max())
    assert factor > 1 + 1e-5
    expected = [factor * 0.5, 0.0, factor * curvature, *[0.0] * 5]
    assert fitted[0].tolist() == pytest.approx(expected, rel=0, abs=1e-8)
    assert float(fitted[0, 0]) == pytest.approx(expected[0], rel=1e-8, abs=0)
    assert float(lowest) == pytest.approx(factor * (0.5 - square / 4 * curvature), rel=1e-7, abs=0)


def test_two_coordinates_have_their_own_parameters_in_their_own_order() -> None:
    theta, sigma = float64([3.0, -1.0]), float64([1.0, 2.0])
    together, _ = upper_polynomials(rf.TruncatedGaussian(sigma, 1.5), theta)
    for j in range(2):
        alone, _ = upper_polynomials(rf.TruncatedGaussian(sigma[j], 1.5), theta[j : j + 1])
        torch.testing.assert_close(together[:, j : j + 1], alone, rtol=1e-12, atol=0)


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
    plain = example_sums.table_bound(law, theta, orders, {})(block)

    class Rough(example_sums.InUnits):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments)
            self.rounding = 1e-3

    monkeypatch.setattr(example_sums, "InUnits", Rough)
    raised = example_sums.table_bound(law, theta, orders, {})(block)
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
    sums = example_sums.table_bound(law, theta, orders, {})(float64([[0.125]]))
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
    assert pytest.approx(1 / (1 - 1.5 * (1 / 16) ** 2 / 6), rel=1e-15, abs=0) == example_sums._ABOVE_CHORD


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


TWO_ORDERS = float64([2.0, 8.0])


def test_what_underflows_is_charged_for_every_coordinate() -> None:
    units = InUnits(rf.StochasticSign(1.0), torch.full((3,), 50.0).double())
    nothing = torch.zeros(4, 2, 2).double()
    sums = units.capped(
        nothing, ceilings=float64([1.0, 0.0]), largest=float64([1e-3, 0.0]), orders=TWO_ORDERS
    )
    assert (sums[:, 0] == 3 * UNDERFLOW).all()
    assert (sums[:, 1] == 0).all()  # an example that contributes nothing loses nothing


@pytest.mark.parametrize("sigma", [0.5, 2.0])
def test_the_cap_is_the_law_at_its_worst(sigma: float) -> None:
    """(alpha / 2) sum_j s_j^2 I(0) sigma^2, s in units of sigma, with rounding charged."""
    law, theta, block = rf.TruncatedGaussian(sigma, sigma), draw(5), draw(2, 5, seed=1)
    units = InUnits(law, theta)
    shifts = block * units.per_sigma
    infinite = torch.full((4, 2, 2), torch.inf).double()
    sums = units.capped(infinite, shifts.square() @ units.ceiling, shifts.abs().amax(dim=1), TWO_ORDERS)
    worst = float(law.fisher_information(0.0))
    expected = 0.5 * block.square().sum(dim=1, keepdim=True) * worst * TWO_ORDERS
    torch.testing.assert_close(sums, expected.expand(4, 2, 2) * (1 + ROUNDING), rtol=1e-12, atol=0)
    assert units.rounding == (5 + 64) * 2.0**-52
    assert (units.ceiling < 0.3).all()
    assert (InUnits(rf.Gaussian(sigma), theta).ceiling == 1).all()


def test_exact_sums_are_charged_for_underflow_too() -> None:
    law, theta = rf.StochasticSign(1.0), torch.full((3,), 50.0).double()
    sums = exact_bound(law, theta, TWO_ORDERS)(float64([[1e-3, 0.0, 0.0], [0.0, 0.0, 0.0]]))
    assert (sums[:, 0] == 3 * UNDERFLOW).all()
    assert (sums[:, 1] == 0).all()
    gaussian = exact_bound(rf.Gaussian(1.0), theta, TWO_ORDERS)(float64([[0.1, 0.2, 0.3]]))
    assert ((gaussian / (0.5 * 0.14 * TWO_ORDERS) - 1 - ROUNDING).abs() < 1e-14).all()
