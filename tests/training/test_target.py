"""The noise that meets a target: never over it, and never more than is needed."""

import math

import pytest

import ringfence as rf
from ringfence.accounting.conversion import gaussian_epsilon
from ringfence.training.target import Target, law_of_target


def claim(law: rf.Mechanism, delta: float, secure: bool = False) -> rf.Guarantee:
    """Of 20 releases of 1,000 numbers that one record moves by a length of 0.5."""
    account = rf.PerInstanceAccountant(law, rf.Sensitivity(norm=0.5))
    account.step_worst_case([0.0] * 1000, count=20)
    return account.privacy_loss().drawn_securely(account.steps * 1000 * secure).guarantee(delta)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 50.0])
@pytest.mark.parametrize(
    "law",
    [rf.Gaussian(1.0), rf.Gaussian(1e-9), rf.StochasticSign(1e9), rf.TruncatedGaussian(3.0, 0.5)],
    ids=repr,
)
def test_a_little_less_noise_would_not_do(law: rf.Mechanism, epsilon: float) -> None:
    found = Target(epsilon, 1e-6).law(law, claim)
    assert claim(found, 1e-6).epsilon <= epsilon
    less = found.with_parameters({**found.parameters(), "sigma": found.sigma * (1 - 1.1e-3)})
    assert claim(less, 1e-6).epsilon > epsilon * (1 - 2e-9)


def test_few_evaluations_are_enough_where_each_takes_a_second() -> None:
    asked: list[float] = []

    def cost(sigma: float) -> float:
        asked.append(sigma)
        return gaussian_epsilon(1 / sigma, 1e-5)

    assert Target(1.0, 1e-5).sigma(cost, start=40.0) == pytest.approx(3.73, rel=2e-3)
    assert len(asked) <= 8


def test_a_cost_that_jumps_is_met_too() -> None:
    jump = Target(1.0, 1e-5).sigma(lambda sigma: 0.0 if sigma >= math.pi else 1e9, start=1.0)
    assert math.pi <= jump <= math.pi * 1.001


def test_mu_is_that_of_the_target() -> None:
    for epsilon in (0.03, 1.0, 8.0):
        mu = Target(epsilon, 1e-5).mu
        assert gaussian_epsilon(mu, 1e-5) <= epsilon < gaussian_epsilon(1.0011 * mu, 1e-5)


def test_what_no_sigma_can_meet_is_an_error_that_names_the_target() -> None:
    with pytest.raises(ValueError, match="delta must be larger, got 1e-60: finite randomness of 20000"):
        Target(1.0, 1e-60).law(rf.Gaussian(1.0), lambda law, delta: claim(law, delta, secure=True))
    with pytest.raises(ValueError, match="target_epsilon must be attainable"):
        Target(1.0, 1e-5).sigma(lambda _: math.inf, start=1.0)


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ((None, 1e-5), "target_epsilon must be given together with target_delta, got None"),
        ((1.0, None), "target_delta must be given together with target_epsilon, got None"),
        ((-1.0, 1e-5), "target_epsilon must be > 0, got -1.0"),
        ((math.nan, 1e-5), "target_epsilon must not be NaN"),
        ((1.0, 1.5), r"target_delta must be in \(0, 1\), got 1.5"),
    ],
)
def test_bad_targets_are_named(pair: tuple[float | None, float | None], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Target.asked(*pair)


def test_a_law_by_its_name() -> None:
    assert Target.asked(None, None) is None
    for name in ("gaussian", "sign"):
        assert law_of_target(name).name == name
    with pytest.raises(ValueError, match="mechanism 'quantized' needs bound, levels: give a mechanism"):
        law_of_target("quantized")
    with pytest.raises(ValueError, match=r"mechanism must be one of .* got 'gauss'"):
        law_of_target("gauss")
    with pytest.raises(TypeError, match=r"mechanism must be a ringfence mechanism, got 1\.0"):
        law_of_target(1.0)  # type: ignore[arg-type]
