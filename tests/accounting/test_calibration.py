"""Calibrated answers meet their target when the cost is computed again, and only just."""

import math
import warnings

import dp_accounting
import pytest
import torch
from dp_accounting import pld, rdp

import ringfence as rf
from ringfence.accounting import calibration
from ringfence.accounting.calibration import PerInstanceCalibrationWarning
from ringfence.accounting.guarantee import EpsilonKind
from tests.tensors import double_by_default

pytestmark = pytest.mark.filterwarnings(
    "ignore::ringfence.accounting.calibration.PerInstanceCalibrationWarning"
)

THETA = torch.linspace(-2, 2, 60, dtype=torch.float64)
LAW = rf.TruncatedGaussian(1.0, 3.0)
TARGET = {"epsilon": 0.8, "delta": 1e-5}
HERE = {**TARGET, "kind": "per_instance"}
VOTES = torch.tensor([51.0, 49.0, 47.0], dtype=torch.float64)


def test_confident_votes_are_not_released_without_noise() -> None:
    """They were: sigma = 4.6e-13, which costs 7e24 for every other dataset."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sigma = rf.calibrate_sigma(rf.StochasticSign(1.0), VOTES, 1.0, epsilon=1.0, delta=1e-5)
    account = rf.PerInstanceAccountant(rf.StochasticSign(sigma), 1.0)
    account.step(VOTES)
    assert account.guarantee(1e-5).epsilon <= 1.0


@pytest.mark.parametrize("kind", ["per_instance", "ex_post"])
def test_an_answer_from_theta_comes_with_what_it_costs_everyone(kind: EpsilonKind) -> None:
    sign, clamp = rf.StochasticSign(1e-12), rf.RectifiedGaussian(1.0, 1.0)
    given = {"kind": kind, "epsilon": 1.0, "delta": 1e-5}
    only = rf"for this dataset only \(kind '{kind}'\); for every dataset it costs epsilon ="
    with pytest.warns(PerInstanceCalibrationWarning, match=rf"sigma = [\d.]+e-13 was .* {only} \d{{25}}\."):
        rf.calibrate_sigma(sign, VOTES, 1.0, **given)
    with pytest.warns(PerInstanceCalibrationWarning, match=rf"bound = \d+.*{only} 8\.\d"):
        rf.calibrate_bound(clamp, VOTES, 1.0, **given)
    with pytest.warns(PerInstanceCalibrationWarning, match=rf"steps = \d+.*{only} \d+") as heard:
        rf.calibrate_steps(rf.StochasticSign(30.0), VOTES, 1.0, **given)
    assert heard[0].filename == __file__


def test_for_every_dataset_only_a_truncated_bound_counts() -> None:
    given = {"coordinates": 60, "epsilon": 0.8, "delta": 1e-5, "steps": 4}
    bound = rf.calibrate_bound(rf.TruncatedGaussian(1.0, 9.0), None, 0.05, **given)
    assert cost(rf.TruncatedGaussian(1.0, bound), 0.05, 4, "data_independent") <= 0.8
    assert cost(rf.TruncatedGaussian(1.0, 1.003 * bound), 0.05, 4, "data_independent") > 0.8
    with pytest.raises(
        ValueError, match=r"epsilon must be at least 3\.\d+ .*Gaussian does, whatever its bound"
    ):
        rf.calibrate_bound(rf.RectifiedGaussian(1.0, 9.0), None, 0.05, **given)


def _epsilon(account: dp_accounting.PrivacyAccountant, sigma: float, rate: float, steps: int) -> float:
    release = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(sigma))
    return account.compose(dp_accounting.SelfComposedDpEvent(release, steps)).get_epsilon(1e-5)


@pytest.mark.parametrize(("rate", "steps", "epsilon"), [(1 / 6, 4, 0.1), (0.01, 100, 0.1)])
def test_a_sampled_sigma_is_above_the_exact_one_and_below_the_renyi_one(
    rate: float, steps: int, epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """dp-accounting's epsilon of the Gaussian, by privacy loss (finely) and by Rényi."""
    monkeypatch.setattr(calibration, "_TOLERANCE", 0.01)
    given = {"coordinates": 1, "epsilon": epsilon, "delta": 1e-5, "steps": steps, "sampling_rate": rate}
    sigma = rf.calibrate_sigma(rf.Gaussian(1.0), None, 1.0, **given)
    exact, short = (
        _epsilon(pld.PLDAccountant(value_discretization_interval=2e-5), tried, rate, steps)
        for tried in (sigma, 0.98 * sigma)
    )
    assert exact <= epsilon < short
    assert _epsilon(rdp.RdpAccountant(), sigma, rate, steps) > epsilon


def test_sampled_answers_are_what_the_account_charges() -> None:
    law, rate, given = rf.TruncatedGaussian(40.0, 6.0), 0.1, {"epsilon": 0.02, "delta": 1e-5}

    def charged(law: rf.Mechanism, steps: int) -> float:
        account = rf.SampledAccountant(law, 0.5, rate)
        account.step_worst_case(THETA, count=steps)
        return account.guarantee(1e-5).epsilon

    sigma = rf.calibrate_sigma(law, None, 0.5, coordinates=60, **given, steps=5, sampling_rate=rate)
    enough, less = (charged(rf.TruncatedGaussian(tried, 6.0), 5) for tried in (sigma, 0.997 * sigma))
    assert enough <= 0.02 < less
    steps = rf.calibrate_steps(law, THETA[:15], 0.5, coordinates=60, **given, sampling_rate=rate)
    assert charged(law, steps) <= 0.02 < charged(law, steps + 1)
    assert rf.calibrate_steps(rf.Gaussian(1e-5), None, 0.5, coordinates=1, **given, sampling_rate=rate) == 0


@pytest.mark.parametrize(
    ("theta", "arguments", "message"),
    [
        *((THETA, {**TARGET, "epsilon": bad}, r"epsilon must (be|not)") for bad in (0.0, math.inf, math.nan)),
        (
            THETA,
            {**HERE, "sampling_rate": 0.5},
            r"kind must be 'data_independent' where sampling_rate is 0\.5",
        ),
        (THETA, {**TARGET, "sampling_rate": 0}, r"sampling_rate must be in \(0, 1\], got 0"),
        (None, TARGET, "coordinates must be given where theta is None"),
        (None, {**HERE, "coordinates": 3}, "theta must be given for kind 'per_instance', got None"),
        (
            THETA,
            {**HERE, "coordinates": 600},
            "coordinates must be left out for kind 'per_instance', got 600",
        ),
        (THETA, {**TARGET, "kind": "best"}, "kind must be one of"),
    ],
)
def test_what_a_question_lacks_is_named(
    theta: torch.Tensor | None, arguments: dict[str, object], message: str
) -> None:
    for calibrate in (rf.calibrate_sigma, rf.calibrate_bound, rf.calibrate_steps):
        with pytest.raises(ValueError, match=message):
            calibrate(rf.RectifiedGaussian(1.0, 1.0), theta, 0.1, **arguments)


def cost(law: rf.Mechanism, sensitivity: float, steps: int, kind: str = "per_instance") -> float:
    account = rf.PerInstanceAccountant(law, sensitivity)
    account.step(THETA, count=steps)
    claim = account.guarantee(TARGET["delta"])
    fields = {
        "per_instance": claim.per_instance.epsilon,
        "ex_post": claim.per_instance.ex_post_epsilon,
        "data_independent": claim.epsilon,
    }
    return fields[kind]


@pytest.mark.parametrize(
    ("kind", "start"),
    [("per_instance", 0.1), ("ex_post", 50.0), ("data_independent", 0.1), ("data_independent", 50.0)],
)
def test_sigma_meets_the_target_and_hardly_more(kind: EpsilonKind, start: float) -> None:
    law = rf.TruncatedGaussian(start, bound=3.0)
    sigma = rf.calibrate_sigma(law, THETA, 0.05, steps=4, kind=kind, **TARGET)
    assert cost(rf.TruncatedGaussian(sigma, 3.0), 0.05, 4, kind) <= TARGET["epsilon"]
    assert cost(rf.TruncatedGaussian(sigma * 0.997, 3.0), 0.05, 4, kind) > TARGET["epsilon"]


@pytest.mark.parametrize("make", [rf.TruncatedGaussian, rf.RectifiedGaussian])
def test_bound_meets_the_target_and_hardly_more(make: type[rf.RectifiedGaussian]) -> None:
    target = 0.9 * cost(rf.Gaussian(1.0), 0.05, 4)
    law = make(1.0, 1.0)
    bound = rf.calibrate_bound(law, THETA, 0.05, steps=4, epsilon=target, delta=1e-5, kind="per_instance")
    assert cost(make(1.0, bound), 0.05, 4) <= target
    assert cost(make(1.0, bound * 1.003), 0.05, 4) > target


def test_bound_where_every_bound_will_do_and_where_none_will() -> None:
    law = rf.RectifiedGaussian(1.0, 1.0)
    assert rf.calibrate_bound(law, THETA, 1e-4, epsilon=1.0, delta=1e-5, kind="per_instance") == math.inf
    with pytest.raises(ValueError, match=r"epsilon must be at least .* for this law"):
        rf.calibrate_bound(law, THETA, 1.0, epsilon=0.01, delta=1e-5, kind="per_instance")
    with pytest.raises(ValueError, match=r"mechanism must have a bound, got Gaussian\(sigma=1.0\)"):
        rf.calibrate_bound(rf.Gaussian(1.0), THETA, 1.0, **TARGET)


def test_the_least_epsilon_that_is_named_can_be_had() -> None:
    """What costs exactly the target meets it."""
    least = cost(rf.RectifiedGaussian(1.0, 1 / 1024), 0.05, 4)
    law, given = rf.RectifiedGaussian(1.0, 1.0), {"epsilon": least, "delta": 1e-5, "kind": "per_instance"}
    assert 1 / 1024 <= rf.calibrate_bound(law, THETA, 0.05, steps=4, **given) < 1.01 / 1024


def test_steps_are_the_most_that_fit() -> None:
    law = rf.RectifiedGaussian(1.0, 1.0)
    steps = rf.calibrate_steps(law, THETA, 0.005, **HERE)
    assert steps > 20
    assert cost(law, 0.005, steps) <= TARGET["epsilon"] < cost(law, 0.005, steps + 1)
    assert rf.calibrate_steps(law, THETA, 3.0, **HERE) == 0


def test_nothing_passes_through_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was: the cost was that of another sigma or bound than the one returned."""
    monkeypatch.setattr(calibration, "_TOLERANCE", 0.1)  # a few halvings are no powers of two any more
    law, theta = rf.RectifiedGaussian(1.0, 0.5), torch.zeros(100, dtype=torch.float64)
    target = {"epsilon": 0.5, "delta": 1e-5, "kind": "per_instance"}

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
    assert rf.calibrate_bound(law, theta, 4.0, **HERE) == 128.0
    with pytest.raises(ValueError, match=r"what an interval of 0\.00195 still leaks, got 0\.01"):
        rf.calibrate_bound(law, THETA, 2.0, epsilon=0.01, delta=1e-5, kind="per_instance")


def test_a_search_evaluates_each_candidate_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up and down by factors of two, then by halves of the exponent: a tolerance of 1e-3 is 10 more."""
    tried: list[float] = []
    honest = rf.PerInstanceAccountant.step

    def counted(account: rf.PerInstanceAccountant, theta: torch.Tensor, count: int) -> None:
        tried.append(float(account.mechanism.sigma))
        honest(account, theta, count=count)

    monkeypatch.setattr(rf.PerInstanceAccountant, "step", counted)
    for start in (0.01, 40.0):
        tried.clear()
        answer = rf.calibrate_sigma(rf.Gaussian(start), THETA[:2], 0.5, **HERE)
        assert answer in tried
        assert len(tried) - abs(math.log2(answer / start)) < 14
        assert len(set(tried)) >= len(tried) - 1


def test_searches_end_at_the_last_number_that_meets_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where all of them do, or none; a cost that is the target itself meets it."""
    for start in (1e-3, 8.0, 2.0**20):
        found = calibration.smallest_sigma(lambda sigma: 8 / sigma, 1.0, start)
        assert 8 <= found <= 8 * (1 + 1e-3)
        for power in (0.3, 6.0, 40.0):  # neither the noise nor the cost is more than 0.1 % off
            found = calibration.smallest_sigma(lambda sigma, power=power: (8 / sigma) ** power, 1.0, start)
            assert 8 <= found <= 8 * (1 + 1e-3)
            assert (8 / found) ** power >= 1 - 1e-3
        found = calibration.smallest_sigma(lambda sigma: 0.5 if sigma >= 8 else 2.0, 1.0, start)
        assert 8 <= found <= 8 * (1 + 1e-9)
    assert 1e-12 / 4 < calibration.smallest_sigma(lambda _: 1.0, 1.0, 1.0) <= 1e-12
    with pytest.raises(
        ValueError, match=r"epsilon must be attainable, got 1\.0: no sigma up to 1e\+12 meets"
    ):
        calibration.smallest_sigma(lambda _: math.nextafter(1.0, 2.0), 1.0, 1.0)
    for most in (0, 1, 2, 3, 7, 8, 100, math.inf):
        monkeypatch.setattr(
            calibration._Question, "cost", lambda _, law, steps, most=most: steps / most if most else 1
        )
        target = {"epsilon": 1.0 if most else 0.5, "delta": 1e-5}
        assert rf.calibrate_steps(rf.Gaussian(1.0), THETA, 1.0, **target) == min(most, 2**39)


def test_moves_too_large_to_compose_have_a_cost() -> None:
    given = {"coordinates": 1, "delta": 1e-5, "sampling_rate": 0.5}
    assert rf.calibrate_steps(rf.Gaussian(1.0), None, 1e4, epsilon=4e7, **given) == 0
    assert rf.calibrate_steps(rf.Gaussian(1.0), None, 1e4, epsilon=6e7, **given) == 1


def test_for_every_dataset_only_the_length_of_a_move_counts() -> None:
    """A theta, a shape, or neither where the length is bounded by itself."""
    expected = rf.calibrate_sigma(LAW, None, 0.4, coordinates=1, **TARGET)
    sizes = (
        rf.Sensitivity(norm=0.4),
        rf.Sensitivity(0.2, at_most=4),
        rf.Sensitivity(0.2, norm=0.4),
        rf.Sensitivity(0.2, at_most=4, norm=9.0),
        rf.Sensitivity(0.2, at_most=9, norm=0.4),
    )
    for size in sizes:
        for theta, coordinates in ((None, None), (None, 60), (THETA, None), (THETA[:7], 60)):
            sigma = rf.calibrate_sigma(LAW, theta, size, coordinates=coordinates, **TARGET)
            assert sigma == pytest.approx(expected, rel=1e-9)
    for theta, coordinates in ((None, 4), (THETA[:4] + 9, None), (THETA, 4)):
        sigma = rf.calibrate_sigma(LAW, theta, 0.2, coordinates=coordinates, **TARGET)
        assert sigma == pytest.approx(expected, rel=1e-9)
    for each in (0.1, rf.Sensitivity(0.1), rf.Sensitivity([0.1, 0.2], norm=0.2)):
        with pytest.raises(ValueError, match="coordinates must be given where theta is None"):
            rf.calibrate_sigma(LAW, None, each, **TARGET)
