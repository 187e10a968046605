"""Running accounts of releases: steps, directions, saved and restored."""

import json

import pytest
import torch

import ringfence as rf
from tests.accounting.drawing import draw
from tests.tensors import float64

ORDERS = [1.5, 2.0, 8.0, 64.0]


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


def test_a_state_with_tensors_goes_through_json() -> None:
    law = rf.TruncatedGaussian(float64([1.0, 2.0]), (float64([0.0, -1.0]), torch.inf))
    account = rf.PerInstanceAccountant(law, float64([0.1, 0.2]), ORDERS)
    account.step(float64([0.3, 0.4]))
    again = rf.PerInstanceAccountant.from_state_dict(json.loads(json.dumps(account.state_dict())))
    for side in (account, again):
        side.step(float64([-1.0, 2.0]))
    assert torch.equal(again.worst, account.worst)
    assert again.guarantee(1e-5) == account.guarantee(1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version must be 1, got 2"),
        ({"kind": "Other"}, "kind must be 'PerInstanceAccountant', got 'Other'"),
        ({"forward": [1.0]}, "forward must hold 4 sums"),
        ({"backward": [float("nan")] * 4}, "backward must not be NaN"),
        ({"steps": -1}, "steps must be at least 0"),
        ({"gaussian_zcdp": -1.0}, "gaussian_zcdp must be >= 0"),
        ({"surprise": 1}, r"unknown keys \['surprise'\]"),
    ],
)
def test_a_state_it_does_not_understand_is_refused(change: dict[str, object], message: str) -> None:
    account = rf.PerInstanceAccountant(rf.Gaussian(1.0), 0.1, ORDERS)
    with pytest.raises(ValueError, match=message):
        rf.PerInstanceAccountant.from_state_dict({**account.state_dict(), **change})


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


def test_a_delta_in_a_list_is_that_delta() -> None:
    account = rf.PerInstanceAccountant(rf.Gaussian(1.0), 0.1)
    account.step(0.0)
    assert account.guarantee([1e-5]) == account.guarantee(1e-5)


def test_shapes_that_do_not_fit_are_named() -> None:
    law = rf.RectifiedGaussian(torch.ones(3), bound=1.0)
    with pytest.raises(
        ValueError, match=r"theta \[4\], sensitivity \[\], sigma \[3\], lower \[\], upper \[\]$"
    ):
        rf.PerInstanceAccountant(law, 0.1).step(torch.zeros(4))
    with pytest.raises(ValueError, match=r"theta \[4\], sigma \[3\], lower \[\], upper \[\]$"):
        rf.ExampleAccountant(law).step(torch.zeros(4), torch.zeros(2, 4))
