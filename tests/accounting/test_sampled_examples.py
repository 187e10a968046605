"""Single examples of sampled Gaussian runs, against quadrature and dp-accounting."""

import math

import dp_accounting
import pytest
import torch
from dp_accounting.rdp import RdpAccountant

from ringfence.accounting.examples import SampledExampleAccountant
from ringfence.accounting.subsampling import SAMPLED_ORDERS
from tests.tensors import float64


def rdp(rate: float, shift: float) -> torch.Tensor:
    """The divergences of one sampled Gaussian, by dp-accounting."""
    account = RdpAccountant(orders=SAMPLED_ORDERS)
    event = dp_accounting.GaussianDpEvent(1 / shift)
    account.compose(dp_accounting.PoissonSampledDpEvent(rate, event))
    return torch.tensor(account._rdp)


@pytest.mark.parametrize("rate", [0.01, 0.3, 1.0])
@pytest.mark.parametrize("length", [1.0, 0.7, 0.113, 1e-3])
def test_a_measured_example_is_charged_by_its_length_from_above(rate: float, length: float) -> None:
    account = SampledExampleAccountant(2, rate)
    account.step(float64([length]), torch.tensor([1]), sigma=1.6, clip=1.0)
    own, other = account.sums[1], account.sums[0]
    # the least order carries no kink: there the chord is tight
    torch.testing.assert_close(own[:1], rdp(rate, length / 1.6)[:1], rtol=1e-3, atol=1e-12)
    assert bool((own >= rdp(rate, length / 1.6) * (1 - 1e-9)).all())
    torch.testing.assert_close(other, rdp(rate, 1 / 1.6), rtol=1e-9, atol=0)


def test_both_directions_are_covered_by_quadrature() -> None:
    """D(P || mixture) and D(mixture || P), the two laws on a grid."""
    account = SampledExampleAccountant(1, 0.4)
    account.step(float64([0.9]), sigma=1.0, clip=1.0)
    x = torch.linspace(-20, 30, 100_001, dtype=torch.float64)
    without = -(x**2) / 2
    mixture = torch.logaddexp(math.log(0.6) + without, math.log(0.4) - (x - 0.9) ** 2 / 2)
    scale = math.log((x[1] - x[0]) / math.sqrt(2 * math.pi))
    for at, order in enumerate(SAMPLED_ORDERS[:7]):
        exact = [
            float(torch.logsumexp(order * p + (1 - order) * q, dim=0) + scale) / (order - 1)
            for p, q in ((without, mixture), (mixture, without))
        ]
        assert max(exact) * (1 - 1e-9) <= float(account.sums[0, at]) <= 1.002 * max(exact)


def test_settings_may_change_and_estimates_take_the_last_length() -> None:
    account = SampledExampleAccountant(2, 0.1)
    both, first = torch.tensor([0, 1]), torch.tensor([0])
    account.step(torch.tensor([0.5, 1.0]), both, sigma=2.0, clip=1.0)
    account.step(torch.tensor([0.1]), first, sigma=2.0, clip=1.0)
    account.step(torch.tensor([3.0]), first, sigma=4.0, clip=4.0)
    costs = {s: rdp(0.1, s)[0] for s in (0.25, 0.05, 0.75, 0.5, 1.0)}
    exact = torch.stack((costs[0.25] + costs[0.05] + costs[0.75], 2 * costs[0.5] + costs[1.0]))
    torch.testing.assert_close(account.sums[:, 0], exact, rtol=1e-4, atol=0)
    # the second example was measured at the clip: its estimate is its bound, here and after the change
    torch.testing.assert_close(account.epsilons(1e-5, estimated=True)[1], account.epsilons(1e-5)[1])
    account = SampledExampleAccountant(1, 0.1)
    account.step(torch.tensor([0.5]), sigma=2.0, clip=1.0)
    account.step(torch.tensor([]), torch.tensor([], dtype=torch.int64), sigma=2.0, clip=1.0)
    assert account.epsilons(1e-5, estimated=True) < account.epsilons(1e-5)
    assert account.measured.tolist() == [1]
    assert "50.0% were measured" in account.statement


@pytest.mark.parametrize(
    ("lengths", "indices", "match"),
    [
        ([2.0], [0], "norms must be at most clip 1.0"),
        ([float("nan")], [0], "norms"),
        ([0.5, 0.5], [0, 0], "2 different examples"),
        ([0.5], None, "one number for each of 3"),
    ],
)
def test_bad_lengths_are_refused_and_charge_nothing(
    lengths: list[float], indices: list[int] | None, match: str
) -> None:
    account = SampledExampleAccountant(3, 0.1)
    chosen = None if indices is None else torch.tensor(indices)
    with pytest.raises(ValueError, match=match):
        account.step(torch.tensor(lengths), chosen, sigma=1.0, clip=1.0)
    assert account.steps == 0
    assert not account.sums.any()


def test_epsilons_are_raised_by_their_rounding_and_a_release_counts_as_often_as_it_is_made() -> None:
    account = SampledExampleAccountant(2, 0.2, [2, 4, 16])
    for length, count in ((0.5, 1), (0.8, 3)):
        account.step(float64([length]), torch.tensor([1]), sigma=2.0, clip=1.0, count=count)
    orders = account.orders
    plain = (account.sums + math.log(len(orders) / 1e-5) / (orders - 1)).amin(dim=1)
    torch.testing.assert_close(account.epsilons(1e-5), plain * (1 + 1e-11), rtol=1e-14, atol=0)
    alone = SampledExampleAccountant(2, 0.2, [2, 4, 16])
    for length in (0.5, 0.8, 0.8, 0.8):
        alone.step(float64([length]), torch.tensor([1]), sigma=2.0, clip=1.0)
    torch.testing.assert_close(account.sums, alone.sums, rtol=1e-14, atol=0)
    both = (one.epsilons(1e-5, estimated=True) for one in (account, alone))
    torch.testing.assert_close(*both, rtol=1e-14, atol=0)
    assert (account.steps, account.measured.tolist()) == (4, [0, 4])
    assert "50.0% were measured" in account.statement


def test_only_what_costs_nothing_at_every_order_costs_nothing() -> None:
    account = SampledExampleAccountant(2, 0.1, [2, 4])
    account.sums[0, 1] = 1e-3
    assert [epsilon > 0 for epsilon in account.epsilons(1e-5).tolist()] == [True, False]


def test_a_cost_that_floats_do_not_hold_is_an_error_and_charges_nothing() -> None:
    account = SampledExampleAccountant(1, 0.1, [2, 4])
    with pytest.raises(FloatingPointError, match="float64 cannot represent what a sample costs"):
        account.step(float64([0.5]), sigma=1e-200, clip=1.0)
    assert (account.steps, account.sums.tolist(), account.measured.tolist()) == (0, [[0.0, 0.0]], [0])
