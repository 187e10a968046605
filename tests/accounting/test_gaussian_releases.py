"""Gaussian releases of everything and of samples: against quadrature, enumeration and dp-accounting."""

import math
from itertools import accumulate

import dp_accounting
import numpy as np
import pytest
import torch
from dp_accounting import pld
from dp_accounting.rdp import RdpAccountant
from mpmath import mp, mpf

import ringfence as rf
from ringfence.accounting import gaussian_releases
from ringfence.accounting.conversion import gaussian_epsilon
from ringfence.accounting.gaussian_releases import (
    SAMPLED_ORDERS,
    GaussianRelease,
    merged_releases,
    sampled_gaussian_curve,
    sampled_gaussian_epsilon,
)
from tests import oracle
from tests.tensors import float64

ORDERS = float64([2.0, 4.0, 16.0, 64.0])
DELTA = 1e-5


def excess(shift: float, rate: float, power: int) -> mpf:
    """E_P[(1 - q + q r)^power] - 1 of N(0, 1) and N(shift, 1), what is integrated being positive."""
    shift, rate = mpf(shift), mpf(rate)

    def integrand(y: mpf) -> mpf:
        x = rate * mp.expm1(shift * y - shift**2 / 2)
        return mp.npdf(y) * ((1 + x) ** power - 1 - power * x)

    places = [*range(-14, 15, 4), *range(18, int(15 + max(power, 0) * shift) + 4, 4)]
    return mp.quad(integrand, places, method="gauss-legendre")


@pytest.mark.parametrize(("rate", "shift"), [(0.01, 0.3), (0.1, 0.03), (0.5, 0.3)])
def test_samples_of_the_gaussian_against_quadrature(rate: float, shift: float) -> None:
    forward, backward = GaussianRelease(shift, rate=rate, count=3).divergences(ORDERS).tolist()
    for place, alpha in enumerate([2, 4, 16]):
        found = float(mp.log1p(excess(shift, rate, alpha)) / (alpha - 1))
        assert found <= backward[place] / 3 <= found * (1 + 1e-10) + 1e-11
        reverse = float(mp.log1p(excess(shift, rate, 1 - alpha)) / (alpha - 1))
        assert reverse <= forward[place] / 3 <= backward[place] / 3  # Mironov, Talwar, Zhang 2019, Theorem 5


def test_samples_of_the_gaussian_agree_with_dp_accounting_at_every_order() -> None:
    account = RdpAccountant(list(SAMPLED_ORDERS))
    account.compose(dp_accounting.PoissonSampledDpEvent(0.05, dp_accounting.GaussianDpEvent(2.0)))
    found = GaussianRelease(0.5, rate=0.05).divergences(float64(SAMPLED_ORDERS))[1]
    np.testing.assert_allclose(found.numpy(), np.array(account._rdp), rtol=1e-8)


def discrete_pair(generator: np.random.Generator, spread: float) -> tuple[np.ndarray, np.ndarray]:
    first = generator.dirichlet(np.ones(4))
    second = first * np.exp(spread * generator.standard_normal(4))
    return first, second / second.sum()


def divergence(p: np.ndarray, q: np.ndarray, order: float) -> float:
    logs = order * np.log(p) + (1 - order) * np.log(q)
    return float(np.logaddexp.reduce(logs) / (order - 1))


@pytest.mark.parametrize("rate", [1e-3, 0.05, 0.4, 0.95])
@pytest.mark.parametrize("spread", [1e-3, 0.3, 2.0])
def test_no_pair_with_this_zcdp_costs_more_as_a_sample(rate: float, spread: float) -> None:
    """Laws on four points, whose largest D / alpha is known: the Gaussian does not help the bound."""
    generator, orders, close = np.random.default_rng(0), (2, 3, 8, 24, 64, 256), [[], []]
    for _ in range(20):
        p, q = discrete_pair(generator, spread)
        every = [
            divergence(*pair, k) / k
            for k in (*np.linspace(1.001, 4, 60), *range(5, 257))
            for pair in ((p, q), (q, p))
        ]
        zcdp = max(every) * (1 + 1e-6)
        bounds = GaussianRelease(1e3 * math.sqrt(zcdp), zcdp, rate=rate).divergences(float64(orders))
        mixture = (1 - rate) * p + rate * q
        for order, *both in zip(orders, *bounds.tolist(), strict=True):
            for bound, pair, ratios in zip(both, ((p, mixture), (mixture, p)), close, strict=True):
                exact = divergence(*pair, order)
                assert exact <= bound * (1 + 1e-9) + 1e-12
                if order == 2:
                    ratios.append(bound / exact)
    if rate < 0.5 and spread < 1:  # each direction is close where the pair is
        assert max(map(min, close)) < 2.5


@pytest.mark.parametrize(("bound", "move"), [(0.3, 0.1), (1.0, 0.1), (1.0, 1.0), (4.0, 1.0)])
def test_no_theta_of_a_truncated_law_costs_more_as_a_sample(bound: float, move: float) -> None:
    family, rate = oracle.truncated(1, -bound, bound), mpf("0.1")
    account = rf.SampledAccountant(rf.TruncatedGaussian(1.0, bound), move, 0.1)
    account.step_worst_case(0.0)
    forward, backward = account.privacy_loss().divergences(float64([2.0, 8.0])).tolist()

    def exact(theta: float, power: int) -> mpf:
        p, q = family(mpf(theta)).density, family(mpf(theta) + mpf(move)).density

        def integrand(y: mpf) -> mpf:
            return p(y) * (1 + rate * (q(y) / p(y) - 1)) ** power

        return mp.log(mp.quad(integrand, [-bound, 0, bound], method="gauss-legendre"))

    for theta in (-move / 2, 0.0, bound):
        for place, alpha in enumerate((2, 8)):
            for limit, power in ((forward, 1 - alpha), (backward, alpha)):
                found = float(exact(theta, power) / (alpha - 1))
                assert found <= limit[place]
                assert theta >= 0 or move > 0.5 or limit[place] < 1.5 * found


def test_extreme_samples_stay_numbers() -> None:
    for mu in (0.0, 1e-12, 100.0, 1e200):
        for rate in (2.3e-308, 1e-6, 0.999, math.nextafter(1.0, 0.0)):
            for zcdp in (0.0, 1e-30, 0.3, math.inf):
                found = GaussianRelease(mu, zcdp, rate=rate).divergences(ORDERS)
                assert bool((found >= 0).all())
                assert mu > 0 or bool((found < 1e-9).all())


def test_what_floats_cannot_hold_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gaussian_releases, "_log_excess", lambda *_: torch.full((2, 47), math.nan))
    with pytest.raises(FloatingPointError, match="float64 cannot represent what a sample costs"):
        GaussianRelease(0.123, rate=0.1).divergences(ORDERS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mu": -1.0}, "a release must have numbers from 0 on, got mu=-1.0"),
        ({"mu": math.nan}, "a release must have numbers from 0 on, got mu=nan"),
        ({"mu": 1.0, "zcdp": -0.5}, "got mu=1.0, zcdp=-0.5"),
        ({"mu": 1.0, "zcdp": math.nan}, "zcdp=nan"),
        ({"mu": 1.0, "rate": 0.0}, "rate must be in"),
        ({"mu": 1.0, "rate": 0.1, "cut": 1.5}, "cut must be"),
        ({"mu": 1.0, "cut": 0.5}, "cut must be 0 where everything is released, got 0.5"),
        ({"mu": 1.0, "epoch": 0}, "epoch must be at least 1"),
        ({"mu": 1.0, "epoch": 2, "rate": 0.1}, "epoch must be 1 where samples are released, got 2"),
        ({"mu": 1.0, "count": 0}, "count must be at least 1"),
    ],
)
def test_a_release_that_is_none_is_refused(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GaussianRelease(**arguments)


def test_equal_releases_are_counted_together() -> None:
    one, other = GaussianRelease(1.0, rate=0.1), GaussianRelease(1.0, 0.2, rate=0.1, count=3)
    assert merged_releases([one, other, one]) == (GaussianRelease(1.0, rate=0.1, count=2), other)


def test_nothing_released_costs_nothing() -> None:
    assert sampled_gaussian_epsilon((GaussianRelease(0.0, rate=0.1, count=10),), DELTA) == 0
    assert sampled_gaussian_epsilon((), DELTA) == 0
    whole = (GaussianRelease(3.0, count=2), GaussianRelease(0.0, rate=0.5, count=7))
    assert sampled_gaussian_epsilon(whole, DELTA) == pytest.approx(
        gaussian_epsilon(math.sqrt(18), DELTA), rel=1e-12
    )


@pytest.mark.parametrize("shift", [2700.0, 1e6, 1e160])
def test_losses_too_large_to_compose_are_charged_as_releases_of_everything(shift: float) -> None:
    """dp-accounting raises a bare OverflowError."""
    several = (
        GaussianRelease(shift, rate=0.1, count=3),
        GaussianRelease(1.0, rate=0.5, count=2),
        GaussianRelease(2.0),
    )
    together = math.sqrt(3 * shift * shift + 2 * 1.0 + 4.0)
    found = sampled_gaussian_epsilon(several, DELTA)
    assert found == pytest.approx(gaussian_epsilon(together, DELTA), rel=1e-14)
    below = sampled_gaussian_epsilon((GaussianRelease(2600.0, rate=0.1),), DELTA)
    assert below < sampled_gaussian_epsilon((GaussianRelease(shift, rate=0.1),), DELTA)


def test_the_curve_of_samples_is_that_of_dp_accounting_rounded_up() -> None:
    """At every multiple of 1e-4 up to where delta is 1e-12, with a billionth and 1e-15 for running sums. Two
    releases of everything beside the samples are one Gaussian."""
    releases = (GaussianRelease(0.05, rate=0.1, count=3), GaussianRelease(0.02, count=2))
    epsilons, deltas = sampled_gaussian_curve(releases)
    release = dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(1 / 0.05))
    accountant = pld.PLDAccountant(value_discretization_interval=1e-4)
    accountant.compose(dp_accounting.GaussianDpEvent(1 / (0.02 * math.sqrt(2)))).compose(release, 3)
    count = math.ceil(accountant.get_epsilon(1e-12) / 1e-4) + 1
    assert epsilons.tolist() == pytest.approx([1e-4 * place for place in range(count)], rel=1e-12)
    expected = [delta * (1 + 1e-9) + 1e-15 for delta in accountant.get_delta(epsilons.tolist())]
    assert deltas.tolist() == pytest.approx(list(accumulate(expected, min)), rel=1e-10, abs=1e-16)
    found = sampled_gaussian_epsilon(releases, DELTA)
    assert found == pytest.approx(accountant.get_epsilon(DELTA) * (1 + 1e-11), rel=1e-12)
