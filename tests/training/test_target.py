"""The noise that meets a target: never over it, and never more than is needed."""

from dataclasses import replace

import pytest

import ringfence as rf
from ringfence.accounting.conversion import gaussian_epsilon
from ringfence.accounting.guarantee import Guarantee
from ringfence.training.target import Target, law_of_target


def claim(law: rf.Mechanism, delta: float) -> Guarantee:
    """Of 20 releases of 1,000 numbers that one record moves by a length of 0.5."""
    account = rf.PerInstanceAccountant(law, rf.Sensitivity(norm=0.5))
    account.step_worst_case([0.0] * 1000, count=20)
    return account.guarantee(delta)


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


def test_a_cost_that_only_just_meets_the_target_is_not_taken() -> None:
    """An account that adds up one by one may round above what was planned."""

    def flat(law: rf.Mechanism, delta: float) -> Guarantee:
        cost = 1.0 - 5e-10 if float(law.sigma) < 4 else 0.5
        return replace(claim(law, delta), epsilon=cost)

    assert 4 <= float(Target(1.0, 1e-6).law(rf.Gaussian(1.0), flat).sigma) < 4.01


def test_mu_is_that_of_the_target() -> None:
    for epsilon in (0.03, 1.0, 8.0):
        mu = Target(epsilon, 1e-5).mu
        assert gaussian_epsilon(mu, 1e-5) <= epsilon < gaussian_epsilon(1.0011 * mu, 1e-5)


def test_a_law_by_its_name() -> None:
    assert Target.asked(None, None) is None
    for name in ("gaussian", "sign"):
        assert law_of_target(name).name == name
    with pytest.raises(ValueError, match="mechanism 'quantized' needs bound, levels: give a mechanism"):
        law_of_target("quantized")
    with pytest.raises(ValueError, match=r"mechanism must be one of .* got 'gauss'"):
        law_of_target("gauss")
    with pytest.raises(TypeError, match=r"mechanism must be a ringfence mechanism .*, got 1\.0"):
        law_of_target(1.0)  # type: ignore[arg-type]
