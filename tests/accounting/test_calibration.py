"""Calibrated answers meet their target when the cost is computed again, and only just."""

import math

import pytest
import torch

import ringfence as rf
from ringfence.accounting import calibration
from ringfence.accounting.calibration import Kind
from tests.tensors import double_by_default

THETA = torch.linspace(-2, 2, 60, dtype=torch.float64)
TARGET = {"epsilon": 0.8, "delta": 1e-5}


def cost(law: rf.Mechanism, sensitivity: float, steps: int, kind: str = "pdp") -> float:
    account = rf.PerInstanceAccountant(law, sensitivity)
    account.step(THETA, count=steps)
    claim = account.guarantee(TARGET["delta"])
    fields = {
        "pdp": claim.epsilon_pdp,
        "ex_post": claim.epsilon,
        "data_independent": claim.epsilon_data_independent,
    }
    return fields[kind]


@pytest.mark.parametrize("kind", ["pdp", "ex_post", "data_independent"])
@pytest.mark.parametrize("start", [0.1, 50.0])
def test_sigma_meets_the_target_and_hardly_more(kind: Kind, start: float) -> None:
    law = rf.TruncatedGaussian(start, bound=3.0)
    sigma = rf.calibrate_sigma(law, THETA, 0.05, steps=4, kind=kind, **TARGET)
    assert cost(rf.TruncatedGaussian(sigma, 3.0), 0.05, 4, kind) <= TARGET["epsilon"]
    assert cost(rf.TruncatedGaussian(sigma * 0.997, 3.0), 0.05, 4, kind) > TARGET["epsilon"]


def test_bounded_support_needs_less_noise() -> None:
    bounded = rf.calibrate_sigma(rf.TruncatedGaussian(1.0, 1.0), THETA, 0.05, steps=4, **TARGET)
    plain = rf.calibrate_sigma(rf.Gaussian(1.0), THETA, 0.05, steps=4, **TARGET)
    assert bounded < plain


@pytest.mark.parametrize("make", [rf.TruncatedGaussian, rf.RectifiedGaussian])
def test_bound_meets_the_target_and_hardly_more(make: type[rf.RectifiedGaussian]) -> None:
    target = 0.9 * cost(rf.Gaussian(1.0), 0.05, 4)
    law = make(1.0, 1.0)
    bound = rf.calibrate_bound(law, THETA, 0.05, steps=4, epsilon=target, delta=1e-5)
    assert cost(make(1.0, bound), 0.05, 4) <= target
    assert cost(make(1.0, bound * 1.003), 0.05, 4) > target


def test_bound_where_every_bound_will_do_and_where_none_will() -> None:
    law = rf.RectifiedGaussian(1.0, 1.0)
    assert rf.calibrate_bound(law, THETA, 1e-4, epsilon=1.0, delta=1e-5) == math.inf
    with pytest.raises(ValueError, match=r"epsilon must be at least .* for this law"):
        rf.calibrate_bound(law, THETA, 1.0, epsilon=0.01, delta=1e-5)
    with pytest.raises(ValueError, match=r"mechanism must have a bound, got Gaussian\(sigma=1.0\)"):
        rf.calibrate_bound(rf.Gaussian(1.0), THETA, 1.0, **TARGET)


def test_steps_are_the_most_that_fit() -> None:
    law = rf.RectifiedGaussian(1.0, 1.0)
    steps = rf.calibrate_steps(law, THETA, 0.005, **TARGET)
    assert steps > 20
    assert cost(law, 0.005, steps) <= TARGET["epsilon"] < cost(law, 0.005, steps + 1)
    assert rf.calibrate_steps(law, THETA, 3.0, **TARGET) == 0


def test_a_sample_stands_for_many_coordinates() -> None:
    law = rf.RectifiedGaussian(1.0, 1.0)
    many = rf.calibrate_steps(law, THETA.repeat(4), 0.01, **TARGET)
    model = rf.calibrate_steps(law, THETA, 0.01, coordinates=4 * THETA.numel(), **TARGET)
    assert model == many


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
def test_targets_are_checked(epsilon: float) -> None:
    for calibrate in (rf.calibrate_sigma, rf.calibrate_bound, rf.calibrate_steps):
        with pytest.raises(ValueError, match=r"epsilon must (be|not)"):
            calibrate(rf.RectifiedGaussian(1.0, 1.0), THETA, 0.1, epsilon=epsilon, delta=1e-5)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="kind must be one of"):
        rf.calibrate_sigma(rf.Gaussian(1.0), THETA, 0.1, kind="best", **TARGET)  # type: ignore[arg-type]


def test_one_step_that_is_all_there_is() -> None:
    law, theta, settings = rf.RectifiedGaussian(1.0, 0.5), torch.zeros(100), {"delta": 1e-5}
    costs = []
    for steps in (1, 2, 3):
        account = rf.PerInstanceAccountant(law, 0.1)
        account.step(theta, count=steps)
        costs.append(account.guarantee(1e-5).epsilon_pdp)
    for steps in (0, 1, 2):
        target = (costs[steps] + (costs[steps - 1] if steps else 0.0)) / 2
        assert rf.calibrate_steps(law, theta, 0.1, epsilon=target, **settings) == steps


def test_a_theta_far_outside_allows_the_widest_bound() -> None:
    """At 64 sigma the clamp still says nothing of a theta at 200; the Gaussian would."""
    law, theta = rf.RectifiedGaussian(2.0, 1.0), torch.full((3,), 400.0).double()
    assert rf.calibrate_bound(law, theta, 1.0, epsilon=0.1, delta=1e-5) == 128.0


def test_nothing_passes_through_float32() -> None:
    """It was: the cost was that of another sigma or bound than the one returned."""
    law, theta = rf.RectifiedGaussian(1.0, 0.5), torch.zeros(100, dtype=torch.float64)
    target = {"epsilon": 0.5, "delta": 1e-5, "kind": "pdp"}

    def found() -> tuple[float, float]:
        return rf.calibrate_sigma(law, theta, 5e-2, **target), rf.calibrate_bound(
            law, theta, 1.5e-2, **target
        )

    ours = found()
    with double_by_default():
        assert found() == ours


def test_the_widest_and_the_narrowest_bound_are_in_units_of_sigma() -> None:
    """So far out a clamp to 64 sigma gives nothing away, where the Gaussian would; and no bound is tiny."""
    law, theta = rf.RectifiedGaussian(2.0, 1.0), torch.full((3,), 1000.0)
    assert rf.calibrate_bound(law, theta, 4.0, **TARGET) == 128.0
    with pytest.raises(ValueError, match=r"what an interval of 0\.00195 still gives away, got 0\.01"):
        rf.calibrate_bound(law, THETA, 2.0, epsilon=0.01, delta=1e-5)


def test_a_search_evaluates_each_candidate_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up and down by factors of two, then by halves of the exponent: a tolerance of 1e-3 is 10 more."""
    tried: list[float] = []
    honest = calibration.per_instance_rdp

    def counted(law: rf.Mechanism, *arguments: object) -> object:
        tried.append(float(law.sigma))
        return honest(law, *arguments)

    monkeypatch.setattr(calibration, "per_instance_rdp", counted)
    for start in (0.01, 1.0, 40.0):
        tried.clear()
        answer = rf.calibrate_sigma(rf.Gaussian(start), THETA[:2], 0.5, **TARGET)
        assert answer in tried
        assert len(tried) - abs(math.log2(answer / start)) < 14
        assert len(set(tried)) >= len(tried) - 1
