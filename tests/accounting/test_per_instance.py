"""Per-instance sums and accounts: both signs, both directions, moves that are bounded together, states."""

from contextlib import nullcontext

import pytest
import torch

import ringfence as rf
from ringfence.accounting import per_instance
from ringfence.accounting.divergence_sums import exact_sums
from ringfence.accounting.equivalent_information import equivalent_information
from ringfence.accounting.per_instance import DivergenceTables
from ringfence.accounting.sensitivity import ceilings
from tests.accounting.drawing import draw
from tests.accounting.evaluation import evaluated, exact_rdp
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


def test_never_above_what_holds_for_every_theta() -> None:
    for law in (rf.Gaussian(2.0), rf.RectifiedGaussian(2.0, 50.0), rf.TruncatedGaussian(2.0, 3.0)):
        got = rf.per_instance_rdp(law, torch.zeros(1000), 0.1, ORDERS)
        ceiling = 1000 * 0.5 * 0.1**2 * float(law.information_bound()) * float64(ORDERS)
        assert bool((got.worst <= ceiling * (1 + 1e-11)).all())
        account = rf.PerInstanceAccountant(law, 0.1, ORDERS)
        account.step(torch.zeros(1000))
        assert torch.equal(account.worst, got.worst)
        assert bool((got.worst <= 1000 * 0.5 * (0.1 / 2) ** 2 * float64(ORDERS) * (1 + 1e-11)).all())


@pytest.mark.parametrize("groups", [3, 100])
def test_parameters_and_sensitivity_may_differ_by_coordinate(
    groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few distinct settings are a table each, many are evaluated one by one."""
    monkeypatch.setattr(per_instance, "_SETTINGS", 8)
    bounds = torch.linspace(1.0, 3.0, groups, dtype=torch.float64).unsqueeze(1)
    law, theta = rf.TruncatedGaussian(1.0, bounds), draw(groups, 400 // groups + 10)
    size = torch.full((theta.shape[1],), 0.01, dtype=torch.float64)
    size[0] = 0.02
    exact = exact_sums(law, theta, size, float64(ORDERS))
    got = rf.per_instance_rdp(law, theta, size, ORDERS)
    for bound, truth in zip((got.forward, got.backward), exact, strict=True):
        assert bool((bound >= truth * (1 - 1e-12)).all())
        assert bool((bound <= truth * 1.005).all())


def test_ceilings_are_rounded_up_and_small_thetas_evaluated() -> None:
    law, theta = rf.RectifiedGaussian(2.0, 1.0), torch.linspace(-3, 3, 257).double()
    gaussian, bounded = ceilings(law, theta, float64(0.3))
    assert 5e-13 < gaussian / (257 * 0.5 * 0.3**2 / 4) - 1 < 2e-12
    assert bounded <= gaussian
    for count, few in ((256, True), (257, False)):
        found = rf.per_instance_rdp(law, theta[:count], 0.3, ORDERS)
        exact = exact_sums(law, theta[:count], float64(0.3), float64(ORDERS))
        assert torch.equal(torch.stack((found.forward, found.backward)), exact) == few


MOVE_ORDERS = float64([2.0, 16.0])


def sums(law: rf.Mechanism, theta: torch.Tensor, size: rf.Sensitivity, exact: bool) -> torch.Tensor:
    with evaluated() if exact else nullcontext():
        return DivergenceTables(MOVE_ORDERS).sums(law, theta, size)


@pytest.mark.parametrize("exact", [True, False])
def test_the_largest_are_taken_over_all_settings_together(exact: bool) -> None:
    """Two sigmas and two moves: the table of neither knows which coordinates are among the largest."""
    sigma, each = float64([1.0, 3.0]).repeat(200), float64([0.2, 0.2, 0.1, 0.1]).repeat(100)
    theta = torch.linspace(-4, 4, 400, dtype=torch.float64)
    law = rf.RectifiedGaussian(sigma, 1.0)
    terms = torch.maximum(*(law.renyi_curve(theta, each * sign, MOVE_ORDERS) for sign in (1, -1)))
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
        rho = equivalent_information(law, theta[7:8], float64(each), MOVE_ORDERS)[..., 0]
        found = sums(law, theta, rf.Sensitivity(each, norm=0.5), exact)
        assert torch.allclose(found, 0.5 * square * MOVE_ORDERS * rho, rtol=8e-3)


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
        bound, exact = (rdp(law, theta, size, orders).worst for rdp in (rf.per_instance_rdp, exact_rdp))
        assert bool((exact * (1 - 1e-12) <= bound).all())
        assert bool((bound <= 1.005 * exact).all())


@pytest.mark.parametrize(
    ("size", "last"), [(rf.Sensitivity(0.1, at_most=3), 256), (rf.Sensitivity(0.1, norm=0.15), 8)]
)
def test_tables_are_made_for_more_than_a_few_coordinates(size: rf.Sensitivity, last: int) -> None:
    """A table of the equivalent information pays earlier than one of divergences."""
    for count, expected in ((last, 0), (last + 1, 1)):
        tables = DivergenceTables(float64([2.0]))
        tables.sums(rf.StochasticSign(1.0), torch.zeros(count).double(), size)
        assert sum(len(table._kept) > 0 for table in (tables.divergences, tables.information)) == expected


def test_settings_may_change_between_steps() -> None:
    theta = draw(500)
    steps = [
        (rf.RectifiedGaussian(1.0, 2.0), 1e-2),
        (rf.RectifiedGaussian(2.0, 1.0), 2e-2),
        (rf.StochasticSign(1.5), 1e-2),
    ]
    account = rf.PerInstanceAccountant(steps[0][0], steps[0][1], ORDERS)
    for law, size in steps:
        account.step(theta, mechanism=law, sensitivity=size)
    expected = sum(rf.per_instance_rdp(law, theta, size, ORDERS).forward for law, size in steps)
    assert torch.allclose(account.forward, expected, rtol=1e-12, atol=0)
    mu_squared = sum(500 * (size / float(law.sigma)) ** 2 for law, size in steps)
    assert account.gaussian_zcdp == pytest.approx(mu_squared / 2, rel=1e-9)
    account.step(theta)  # and back to its own
    assert torch.allclose(
        account.forward - expected, rf.per_instance_rdp(*steps[0][:1], theta, 1e-2, ORDERS).forward, rtol=1e-9
    )


def test_counted_steps_are_steps() -> None:
    law, theta = rf.TruncatedGaussian(1.0, 0.5), draw(40)
    single, counted = (rf.PerInstanceAccountant(law, 0.1, ORDERS) for _ in range(2))
    for _ in range(5):
        single.step(theta)
    counted.step(theta, count=5)
    for name in ("forward", "backward"):
        assert torch.allclose(getattr(counted, name), getattr(single, name), rtol=1e-12, atol=0)
    for name in ("gaussian_zcdp", "bounded_zcdp", "steps"):
        assert getattr(counted, name) == pytest.approx(getattr(single, name), rel=1e-12)


def test_directions_are_summed_apart_and_compared_at_the_end() -> None:
    account = rf.PerInstanceAccountant(rf.RectifiedGaussian(1.0, 0.5), 2.0, [1.5])
    for theta in (0.0, 3.0):
        account.step(theta)
    each = [rf.per_instance_rdp(account.mechanism, theta, 2.0, [1.5]) for theta in (0.0, 3.0)]
    apart = max(sum(float(rdp.forward) for rdp in each), sum(float(rdp.backward) for rdp in each))
    assert float(account.worst) == pytest.approx(apart, rel=1e-12)
    assert float(account.worst) < sum(float(rdp.worst) for rdp in each)


@pytest.mark.parametrize(
    ("make", "theta"), [(rf.RectifiedGaussian, 0.0), (rf.TruncatedGaussian, torch.zeros(2, 1))]
)
def test_a_bound_that_spreads_theta_out_is_charged_for_every_coordinate(
    make: type[rf.RectifiedGaussian], theta: torch.Tensor | float
) -> None:
    """One theta and two bounds are two releases: the ceiling must not cut their sum to one."""
    law, one = make(1.0, float64([5.0, 5.0])), make(1.0, 5.0)
    count = 2 * torch.as_tensor(theta).numel()
    single = rf.per_instance_rdp(one, 0.0, 0.1, [2.0]).worst
    together = rf.per_instance_rdp(law, theta, 0.1, [2.0]).worst
    assert float(together) == pytest.approx(count * float(single), rel=1e-9)
    account = rf.PerInstanceAccountant(law, 0.1)
    account.step(theta)
    assert account.gaussian_zcdp == pytest.approx(count * 0.005, rel=1e-9)
    profile = rf.privacy_profile(law, theta, 0.1)
    alone = rf.privacy_profile(one, torch.zeros(count, dtype=torch.float64), 0.1)
    assert profile.delta(0.05) == pytest.approx(alone.delta(0.05), rel=1e-3)


@pytest.mark.parametrize("scale", [1e-320, 1e-200, 1e-160, 1e160, 1e200, 1e300])
@pytest.mark.parametrize("name", ["gaussian", "rectified", "truncated", "sign"])
def test_the_unit_does_not_matter_however_small_or_large(name: str, scale: float) -> None:
    """Squares of sigma and of the sensitivity left the range of floats: epsilon was 0, or NaN."""
    claims = []
    for unit in (1.0, scale):
        bound = 2 * unit if name in ("rectified", "truncated") else None
        account = rf.PerInstanceAccountant(rf.Mechanism.by_name(name, sigma=unit, bound=bound), unit)
        account.step(0.0)
        claims.append(account.guarantee(1e-5))
    usual, extreme = claims
    assert extreme.per_instance.epsilon >= usual.per_instance.epsilon * (1 - 1e-9)
    assert extreme.epsilon >= usual.epsilon * (1 - 1e-9)


def test_an_account_is_about_a_mechanism() -> None:
    for call in (
        lambda: rf.PerInstanceAccountant(1.0, 1.0),
        lambda: rf.per_instance_rdp("truncated", 0.0, 1.0),
        lambda: rf.ExampleAccountant(None),
        lambda: rf.SampledAccountant(None, 1.0, 0.5),
        lambda: rf.FisherAccountant(None),
        lambda: rf.fisher_information_loss(None, torch.zeros(2), torch.eye(2)),
        lambda: rf.calibrate_sigma(None, 0.0, 1.0, epsilon=1.0, delta=1e-5),
    ):
        with pytest.raises(TypeError, match="mechanism must be a ringfence mechanism"):
            call()


def test_shapes_that_do_not_fit_are_named() -> None:
    law = rf.RectifiedGaussian(torch.ones(3), bound=1.0)
    with pytest.raises(
        ValueError, match=r"theta \[4\], sensitivity \[\], sigma \[3\], lower \[\], upper \[\]$"
    ):
        rf.PerInstanceAccountant(law, 0.1).step(torch.zeros(4))
    with pytest.raises(ValueError, match=r"theta \[4\], sigma \[3\], lower \[\], upper \[\]$"):
        rf.ExampleAccountant(law).step(torch.zeros(4), torch.zeros(2, 4))
