"""The largest sums over moves that are bounded together, where laws and moves differ by coordinate."""

import pytest
import torch
from torch import Tensor

import ringfence as rf
from ringfence.accounting.per_instance.divergence_table import Tabulated
from ringfence.accounting.per_instance.equivalent_information import equivalent_information
from ringfence.accounting.per_instance.histogram_sums import Charges, HistogramSums
from ringfence.accounting.per_instance.setting import Setting
from ringfence.accounting.per_instance.worst_move import _Charged, worst_move_sums
from tests.tensors import float64

ORDERS = float64([2.0, 16.0])


def sums(law: rf.Mechanism, theta: torch.Tensor, size: rf.Sensitivity, exact: bool) -> torch.Tensor:
    return worst_move_sums(law, theta, size.binding(theta.shape), ORDERS, HistogramSums, exact=exact)


@pytest.mark.parametrize("exact", [True, False])
def test_the_largest_are_taken_over_all_settings_together(exact: bool) -> None:
    """Two sigmas and two moves: the table of neither knows which coordinates are among the largest."""
    sigma, each = float64([1.0, 3.0]).repeat(200), float64([0.2, 0.2, 0.1, 0.1]).repeat(100)
    theta = torch.linspace(-4, 4, 400, dtype=torch.float64)
    law = rf.RectifiedGaussian(sigma, 1.0)
    terms = torch.maximum(*(law.renyi_curve(theta, each * sign, ORDERS) for sign in (1, -1)))
    for most in (1, 30):
        want = terms.topk(most).values.sum(dim=1)
        found = sums(law, theta, rf.Sensitivity(each, at_most=most), exact)[0]
        assert bool((found >= want * (1 - 1e-9)).all())
        assert bool((found <= (1 + 1e-9 if exact else 1.005) * want).all())


@pytest.mark.parametrize("exact", [True, False])
def test_a_length_goes_where_the_information_is(exact: bool) -> None:
    """Far outside of the support nothing is given away; the whole length is put on what is left."""
    theta = torch.full((300,), 60.0, dtype=torch.float64)
    theta[7] = 0.0
    law = rf.RectifiedGaussian(1.0, 2.0)
    for each, square in ((0.5, 0.25), (0.1, 0.01)):  # what one coordinate cannot take is lost
        rho = equivalent_information(law, theta[7:8], float64(each), ORDERS)[..., 0]
        found = sums(law, theta, rf.Sensitivity(each, norm=0.5), exact)
        assert torch.allclose(found, 0.5 * square * ORDERS * rho, rtol=8e-3)


def test_both_bounds_count() -> None:
    theta, law = torch.linspace(-3, 3, 40, dtype=torch.float64), rf.TruncatedGaussian(1.0, 1.0)
    each = torch.linspace(0.1, 0.2, 40, dtype=torch.float64)
    few, short = rf.Sensitivity(each, at_most=3), rf.Sensitivity(each, norm=0.25)
    both = sums(law, theta, rf.Sensitivity(each, at_most=3, norm=0.25), exact=True)
    assert bool((both <= sums(law, theta, few, exact=True) * (1 + 1e-9)).all())
    assert bool((both <= sums(law, theta, short, exact=True) * (1 + 1e-9)).all())


def test_coordinates_far_from_most_others_are_evaluated_apart() -> None:
    """The table reaches 256 sigma; a theta that is wider is split."""
    law, orders = rf.RectifiedGaussian(1.0, (-2.0, torch.inf)), float64([2.0, 32.0])
    theta = torch.cat((torch.linspace(-6, 6, 290).double(), float64([400.0, 401.0, -300.0])))
    for most in (1, 2, 3, 200):
        size = rf.Sensitivity(0.1, at_most=most)
        bound, exact = (
            rf.per_instance_rdp(law, theta, size, orders, exact=way).worst for way in (False, True)
        )
        assert bool((exact * (1 - 1e-12) <= bound).all())
        assert bool((bound <= 1.005 * exact).all())


@pytest.mark.parametrize(("apart", "finer"), [(0.9e-3, False), (1.1e-3, True)])
def test_one_sum_that_is_too_coarse_is_enough_to_ask_for_finer_bins(
    apart: float, finer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two orders the first is exact; the two ends of the other differ by a thousandth, about."""
    theta, asked = float64([0.0]), []
    charged = _Charged(rf.Gaussian(1.0), theta, theta + 1, ORDERS, HistogramSums)

    def charges(*arguments: object) -> tuple[list[Charges], list[torch.Tensor]]:
        asked.append(arguments[-1])
        upper = float64([[4.0], [4.0]]).expand(2, -1, -1)
        lower = upper * (1 - (0.0 if asked[-1] else apart) * float64([[0.0], [1.0]]))
        return [Charges(torch.ones(1).double(), lambda some: (lower[:, some], upper[:, some]))], [theta + 1]

    monkeypatch.setattr(charged, "_charges", charges)
    assert charged.largest(None, torch.ones_like, 1.0, False).flatten().tolist() == pytest.approx([4.0] * 4)  # type: ignore[arg-type]
    assert asked == ([False, True] if finer else [False])


def test_64_settings_get_a_table_each_and_more_are_evaluated() -> None:
    class Table:
        def __init__(self, *_: object) -> None: ...

        def charges(self, *_: object) -> list[str]:
            return ["read from a table"]

    for count, tables in ((64, 64), (65, 0)):
        law = rf.Gaussian(1 + torch.arange(count, dtype=torch.float64) / 100)
        charged = _Charged(law, torch.zeros(count), float64(0.1), ORDERS, Table)  # type: ignore[arg-type]
        assert charged._charges(equivalent_information, False, False)[0].count("read from a table") == tables  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("size", "last"), [(rf.Sensitivity(0.1, at_most=3), 256), (rf.Sensitivity(0.1, norm=0.15), 8)]
)
def test_tables_are_made_for_more_than_a_few_coordinates(size: rf.Sensitivity, last: int) -> None:
    """A table of the equivalent information pays earlier than one of divergences; ``exact`` needs none."""
    law, order, made = rf.StochasticSign(1.0), float64([2.0]), []

    def tables(setting: Setting, orders: Tensor, tabulated: Tabulated) -> HistogramSums:
        made.append(tabulated)
        return HistogramSums(setting, orders, tabulated)

    for count, exact, expected in ((last, False, 0), (last + 1, True, 0), (last + 1, False, 1)):
        worst_move_sums(law, torch.zeros(count).double(), size, order, tables, exact=exact)
        assert len(set(made)) == expected
