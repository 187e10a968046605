"""Everything that tabulates, with supports far from 0, tiny and huge: never below the exact sum.

A law moved by a has the divergences it had, so the exact sum of a far law is that of the same law near 0,
with theta and both ends measured from one end in rational arithmetic.
"""

from collections.abc import Callable
from fractions import Fraction
from functools import cache

import pytest
import torch
from torch import Tensor

import ringfence as rf
from experiments.grid_accounts import GridAccountant, GridTable, block_sums
from ringfence.accounting.divergence_sums import DivergenceTable, Setting, exact_sums, recentre
from tests.tensors import float64

SIGMA, MOVE = 0.7, 0.2
ORDERS = float64([2.0, 64.0])
AROUND = float64([-2.3, -0.6, 0.2, 1.303]) * SIGMA  # which lose a bit at 2e13
SUPPORTS = {  # the two ends, and the end that theta is near
    "far, 1e11 sigma": (1e11 * SIGMA, 1e11 * SIGMA + 1.5, 1e11 * SIGMA),
    "far, 1e13 sigma": (1e13 * SIGMA, 1e13 * SIGMA + 1.5, 1e13 * SIGMA),
    "far below, 1e14 sigma": (-1e14 * SIGMA - 1.5, -1e14 * SIGMA, -1e14 * SIGMA),
    "tiny and far": (1e6, 1e6 + 2.0**-30, 1e6),
    "huge": (-1e13, 1e13, 1e13),
}
LAWS: dict[str, Callable[[float, float], rf.Mechanism]] = {
    "truncated": lambda low, high: rf.TruncatedGaussian(SIGMA, (low, high)),
    "rectified": lambda low, high: rf.RectifiedGaussian(SIGMA, (low, high)),
    "quantized": lambda low, high: rf.QuantizedGaussian(SIGMA, (low, high), levels=5),
}


def moved(support: tuple[float, float, float], theta: Tensor) -> tuple[tuple[float, float], Tensor]:
    """Ends and theta measured from the end that theta is near."""
    low, high, place = map(Fraction, support)
    values = [float(Fraction(value) - place) for value in theta.tolist()]
    return (float(low - place), float(high - place)), float64(values)


@cache
def exact_near(make: Callable[[float, float], rf.Mechanism], support: tuple[float, float, float]) -> Tensor:
    """The larger of both signs at each theta, forward and backward, by the law moved to 0."""
    ends, near = moved(support, support[2] + AROUND)
    law = make(*ends)
    ways = [[(near, s) for s in (MOVE, -MOVE)], [(near + s, -s) for s in (MOVE, -MOVE)]]
    return torch.stack([torch.maximum(*(law.renyi_curve(*pair, ORDERS) for pair in way)) for way in ways])


def table(law: rf.Mechanism, theta: Tensor) -> Tensor:
    one, setting = DivergenceTable(ORDERS), Setting.of(law, MOVE)
    return torch.stack([one.sums(setting, value.view(1)) for value in theta], dim=-1)


def pages(law: rf.Mechanism, theta: Tensor) -> Tensor:
    one = DivergenceTable(ORDERS)
    return torch.stack(
        [block_sums(one, [Setting.of(law, MOVE)], value.view(1, 1))[0] for value in theta], dim=-1
    )


def evaluated(law: rf.Mechanism, theta: Tensor) -> Tensor:
    return torch.stack([exact_sums(law, value.view(1), float64(MOVE), ORDERS) for value in theta], dim=-1)


def account(law: rf.Mechanism, theta: Tensor) -> Tensor:
    """Enough coordinates for tables, each a 300th of the sums."""
    rdp = [rf.per_instance_rdp(law, value.expand(300), MOVE, ORDERS) for value in theta]
    return torch.stack([torch.stack((one.forward, one.backward)) / 300 for one in rdp], dim=-1)


def grid(law: rf.Mechanism, theta: Tensor) -> Tensor:
    """The same by the accounts of many settings at once."""
    accounts = GridAccountant([law] * len(theta), [MOVE] * len(theta), [300], GridTable(ORDERS))
    accounts.step(theta.unsqueeze(1).expand(-1, 300))
    sums = [torch.stack((one.forward, one.backward)) / 300 for one in accounts.accounts()]
    return torch.stack(sums, dim=-1)


def examples(law: rf.Mechanism, theta: Tensor) -> Tensor:
    """Each coordinate moved by an example of its own; the worst of adding and removing."""
    running = rf.ExampleAccountant(law, ORDERS)
    running.step(theta, MOVE * torch.eye(len(theta), dtype=torch.float64))
    added_or_removed = running.sums.view(2, 2, len(theta), len(ORDERS)).amax(dim=0)
    return added_or_removed.transpose(1, 2)


BOUNDS = (table, pages, evaluated, account, grid, examples)


@pytest.mark.parametrize(  # every law with every bound and every support
    ("bounds", "support", "law"),
    [
        (bounds, support, list(LAWS)[(i + j) % 3])
        for i, bounds in enumerate(BOUNDS)
        for j, support in enumerate(SUPPORTS)
    ],
)
def test_never_below_the_exact_sum(
    bounds: Callable[[rf.Mechanism, Tensor], Tensor], support: str, law: str
) -> None:
    make, ends = LAWS[law], SUPPORTS[support]
    exact = exact_near(make, ends)
    bound = bounds(make(*ends[:2]), ends[2] + AROUND)
    assert bool((bound >= exact * (1 - 1e-12)).all())
    if bounds is not examples:  # which may be the Gaussian's at the larger order
        assert bool((bound <= 1.005 * exact + 1e-280).all())


@pytest.mark.parametrize("make", LAWS.values(), ids=LAWS)
@pytest.mark.parametrize("name", ["far, 1e13 sigma", "tiny and far", "huge"])
def test_profiles_and_samples_are_those_of_the_law_near_0(
    make: Callable[[float, float], rf.Mechanism], name: str
) -> None:
    support = SUPPORTS[name]
    theta = support[2] + AROUND
    ends, near = moved(support, theta)
    both = ((make(*support[:2]), theta), (make(*ends), near))
    for count, place in ((1, 0), (40, 1)):  # dominating pairs, exactly; central limit and the Rényi sums
        far, here = (
            rf.privacy_profile(law, where[place].expand(count), 0.02).delta(0.05) for law, where in both
        )
        assert far == pytest.approx(here, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("bound", [1e11, 1e15, 1e160])
def test_a_cut_near_zero_between_far_ends_keeps_its_digits(bound: float) -> None:
    """Two levels far apart are the sign: measured from an end, theta would lose all of its digits."""
    theta = float64([0.3, -0.2])
    two, sign = (
        rf.per_instance_rdp(law, theta, 0.1, [2.0, 8.0]).worst
        for law in (rf.QuantizedGaussian(1.0, bound, levels=2), rf.StochasticSign(1.0))
    )
    torch.testing.assert_close(two, sign, rtol=1e-12, atol=0)


def test_each_coordinate_is_measured_from_its_own_end_if_that_is_closer_than_half_of_theta() -> None:
    theta = float64([999.0, -998.0, 3.0, 600.0, 700.0])
    law, moved = recentre(rf.TruncatedGaussian(1.0, 1000.0), theta)
    assert moved.tolist() == [-1.0, 2.0, 3.0, 600.0, -300.0]
    ends = law.parameters()
    assert ends["lower"].tolist() == [-2000.0, 0.0, -1000.0, -1000.0, -2000.0]
    assert ends["upper"].tolist() == [0.0, 2000.0, 1000.0, 1000.0, 0.0]
    alike = recentre(rf.TruncatedGaussian(1.0, 1000.0), theta[[0, 4]])[0].parameters()
    assert (alike["lower"].shape, float(alike["lower"]), float(alike["upper"])) == ((), -2000.0, 0.0)
    near = rf.TruncatedGaussian(2.0, (300.0, 2000.0))  # the one end is 150 sigma away, the other 1,000
    assert recentre(near, float64([301.0, 1999.0]))[1].tolist() == [301.0, -1.0]
    several = rf.TruncatedGaussian(float64([1.0, 100.0]), 300.0)
    assert recentre(several, float64([299.0, 299.0]))[1].tolist() == [-1.0, 299.0]


@pytest.mark.parametrize(
    ("law", "theta"),
    [
        (rf.Gaussian(1.0), [1e6]),
        (rf.TruncatedGaussian(2.0, 512.0), [511.0]),
        (rf.RectifiedGaussian(1.0, (0.0, torch.inf)), [1e6]),
        (rf.TruncatedGaussian(1.0, 1000.0), []),
    ],
)
def test_what_is_near_or_has_no_end_stays_as_it_is(law: rf.Mechanism, theta: list[float]) -> None:
    here = float64(theta)
    found = recentre(law, here)
    assert found[0] is law
    assert found[1] is here
