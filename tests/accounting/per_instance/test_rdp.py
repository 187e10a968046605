"""Per-instance sums of one release: both signs, both directions, any shape of the parameters."""

import pytest
import torch

import ringfence as rf
from ringfence.accounting.per_instance import rdp
from ringfence.accounting.per_instance.divergence_sums import exact_sums
from tests.accounting.drawing import draw
from tests.tensors import float64

ORDERS = [1.5, 2.0, 8.0, 64.0]


def test_sums_are_over_both_signs_and_kept_by_direction() -> None:
    law, theta, c = rf.RectifiedGaussian(1.0, 0.5), draw(40), 0.8
    got = rf.per_instance_rdp(law, theta, c, ORDERS)
    for index, alpha in enumerate(ORDERS):
        forward = torch.maximum(*(law.renyi_divergence(theta, s, alpha) for s in (c, -c))).sum()
        backward = torch.maximum(*(law.renyi_divergence(theta + s, -s, alpha) for s in (c, -c))).sum()
        assert float(got.forward[index]) == pytest.approx(float(forward), rel=1e-10, abs=0)
        assert float(got.backward[index]) == pytest.approx(float(backward), rel=1e-10, abs=0)
        assert float(got.worst[index]) == max(float(got.forward[index]), float(got.backward[index]))


def test_erratum_a7_the_papers_sum_is_far_below() -> None:
    """Upward shifts only and one direction: up to 14 times too small in one dimension."""
    law = rf.RectifiedGaussian(1.0, 0.5)
    paper = float(law.renyi_divergence(4.0, 1.0, 1.5))
    right = float(rf.per_instance_rdp(law, 4.0, 1.0, [1.5]).worst)
    assert right / paper > 14


def test_the_fast_bound_and_the_exact_sum() -> None:
    law, theta = rf.RectifiedGaussian(1.0, 2.0), draw(3000, scale=2.0)
    exact = rf.per_instance_rdp(law, theta, 1e-3, ORDERS, exact=True)
    fast = rf.per_instance_rdp(law, theta, 1e-3, ORDERS)
    for high, low in ((fast.forward, exact.forward), (fast.backward, exact.backward)):
        assert bool((low <= high).all())
        assert bool((high <= 1.005 * low).all())
    assert not torch.equal(fast.forward, exact.forward)


def test_never_above_what_holds_for_every_theta() -> None:
    for law in (rf.Gaussian(2.0), rf.RectifiedGaussian(2.0, 50.0), rf.TruncatedGaussian(2.0, 3.0)):
        got = rf.per_instance_rdp(law, torch.zeros(1000), 0.1, ORDERS)
        ceiling = 1000 * 0.5 * 0.1**2 * float(law.information_bound()) * float64(ORDERS)
        assert bool((got.worst <= ceiling * (1 + 1e-11)).all())
        assert bool((got.worst <= 1000 * 0.5 * (0.1 / 2) ** 2 * float64(ORDERS) * (1 + 1e-11)).all())


@pytest.mark.parametrize("groups", [3, 100])
def test_parameters_and_sensitivity_may_differ_by_coordinate(
    groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few distinct settings are a table each, many are evaluated one by one."""
    monkeypatch.setattr(rdp, "GROUPS", 8)
    bounds = torch.linspace(1.0, 3.0, groups, dtype=torch.float64).unsqueeze(1)
    law, theta = rf.TruncatedGaussian(1.0, bounds), draw(groups, 400 // groups + 10)
    size = torch.full((theta.shape[1],), 0.01, dtype=torch.float64)
    size[0] = 0.02
    exact = exact_sums(law, theta, size, float64(ORDERS))
    got = rf.per_instance_rdp(law, theta, size, ORDERS)
    for bound, truth in zip((got.forward, got.backward), exact, strict=True):
        assert bool((bound >= truth * (1 - 1e-12)).all())
        assert bool((bound <= truth * 1.005).all())


def test_tables_kept_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rdp, "_TABLES", 2)
    account = rf.PerInstanceAccountant(rf.StochasticSign(1.0), 0.1, [2.0])
    for sigma in (1.0, 1.5, 2.0):
        account.step(torch.zeros(300), mechanism=rf.StochasticSign(sigma))
    assert len(account._tables._kept) == 2


def test_ceilings_are_rounded_up_and_small_thetas_evaluated() -> None:
    law, theta = rf.RectifiedGaussian(2.0, 1.0), torch.linspace(-3, 3, 257).double()
    gaussian, bounded = rdp.ceilings(law, theta, float64(0.3))
    assert 5e-13 < gaussian / (257 * 0.5 * 0.3**2 / 4) - 1 < 2e-12
    assert bounded <= gaussian
    for count, evaluated in ((256, True), (257, False)):
        sums = [rdp.per_instance_rdp(law, theta[:count], 0.3, exact=exact) for exact in (False, True)]
        assert torch.equal(sums[0].forward, sums[1].forward) == evaluated
