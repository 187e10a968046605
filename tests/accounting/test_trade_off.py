"""Rates of attacks: exact ones, those of dp-accounting and riskcal, and attacks that are carried out."""

import math
from typing import Any

import dp_accounting
import mpmath
import numpy as np
import pytest
import torch
from dp_accounting import pld
from scipy.stats import norm, truncnorm

import ringfence as rf
from ringfence.accounting import gaussian_releases
from ringfence.accounting.conversion import CurveBound, GaussianBound, RenyiBound, _excess, gaussian_delta
from ringfence.accounting.gaussian_releases import GaussianRelease, sampled_gaussian_curve, smallest_mu
from tests.tensors import float64

RATES = float64([0.0, 1e-300, 1e-12, 1e-6, 1e-3, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.999, 1 - 1e-12, 1.0])
INNER = float64([1e-300, 1e-9, 1e-3, 0.1, 0.3, 0.5, 0.7, 0.9, 0.999, 1 - 1e-9])
SAMPLES = GaussianRelease(0.2, rate=0.1, count=200)


def whole(mu: float, **more: Any) -> rf.PrivacyLoss:
    return rf.PrivacyLoss.of_gaussian(GaussianRelease(mu, **more))


def composed(mu: float, rate: float, count: int) -> pld.PLDAccountant:
    """As the package does, with another library's names."""
    release = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(1 / mu))
    return pld.PLDAccountant(value_discretization_interval=1e-4).compose(release, count)


@pytest.mark.parametrize("mu", [0.0, 1e-6, 0.3, 2.0, 25.0])
def test_the_gaussian_is_exact_and_rounded_against_the_defender(mu: float) -> None:
    highest, lowest = whole(mu).attack_rates(RATES)
    with mpmath.workdps(40):
        for x, y, z in zip(RATES.tolist(), highest.tolist(), lowest.tolist(), strict=True):
            if 0 < x < 1:
                place = mpmath.findroot(lambda q, x=x: mpmath.ncdf(q) / x - 1, norm.ppf(x)) + mu
                assert mpmath.ncdf(place) <= y <= min(1, mpmath.ncdf(place) * (1 + 1e-8))
                assert mpmath.ncdf(-place) * (1 - 1e-8) <= z <= mpmath.ncdf(-place)
        exact = mpmath.erf(mu / mpmath.sqrt(8))
        assert exact <= whole(mu).advantage <= exact * (1 + 1e-10) + 1e-280
    assert (float(highest[0]), float(lowest[0])) == (0.0, pytest.approx(1.0))
    assert (float(highest[-1]), float(lowest[-1])) == (1.0, 0.0)


def test_nothing_is_hidden_where_floats_do_not_hold_the_cost() -> None:
    assert [values.tolist() for values in whole(math.inf).attack_rates(float64([0.0, 0.5]))] == [
        [1.0, 1.0],
        [0.0, 0.0],
    ]
    assert (whole(math.inf).advantage, smallest_mu(whole(math.inf).releases, 1e-5)) == (1.0, math.inf)


@pytest.mark.parametrize(("bound", "move"), [(0.3, 0.1), (0.3, 3.0), (1.0, 1.0), (4.0, 0.1), (4.0, 3.0)])
def test_no_attack_on_the_truncated_law_is_better(bound: float, move: float) -> None:
    """Its likelihood ratio grows with what is released, so the best attacks are thresholds."""
    account = rf.PerInstanceAccountant(rf.TruncatedGaussian(1.0, bound=bound), sensitivity=move)
    account.step([0.0])
    claim = account.guarantee(1e-5)
    cuts = torch.linspace(-bound, bound, 31).numpy()
    pairs = []
    for theta in (-bound, -move / 2, 0.0, 2 * bound):
        laws = [truncnorm(-bound - at, bound - at, loc=at) for at in (theta, theta + move)]
        pairs += [(laws[0].sf(cuts), laws[1].sf(cuts)), (laws[1].cdf(cuts), laws[0].cdf(cuts))]
    false, true = np.concatenate(pairs, axis=1)
    highest, lowest = claim.loss.attack_rates(torch.as_tensor(false).clamp(0, 1))
    assert (highest.numpy() >= true - 1e-12).all()
    assert (lowest.numpy() <= 1 - true + 1e-12).all()
    assert (true - false).max() <= claim.advantage
    gaussian = GaussianBound(move).rates(RATES)[0]
    sharper = (claim.loss.attack_rates(RATES)[0] < gaussian * (1 - 1e-6)).any()
    assert bool(sharper) == (bound < 4)  # its zCDP is 0.03, 0.29 and 0.99 of the Gaussian's


def sampled_by_hand(mu: float, rate: float) -> list[tuple[Any, Any]]:
    """(false positive rates, true positive rates) of thresholds, for a record that is added and removed."""
    cuts = torch.linspace(-9, 9 + mu, 4001).double().numpy()
    without, mixed = norm.sf(cuts), (1 - rate) * norm.sf(cuts) + rate * norm.sf(cuts - mu)
    below, mixed_below = norm.cdf(cuts), (1 - rate) * norm.cdf(cuts) + rate * norm.cdf(cuts - mu)
    return [(without, mixed), (mixed_below, below)]


@pytest.mark.parametrize(("mu", "rate"), [(0.3, 0.1), (0.6, 0.3)])
def test_no_attack_on_a_sample_is_better_and_one_is_as_good(mu: float, rate: float) -> None:
    bound = rf.PrivacyLoss.of_gaussian(GaussianRelease(mu, rate=rate))
    for false, true in sampled_by_hand(mu, rate):
        highest, lowest = bound.attack_rates(torch.as_tensor(false))
        assert (highest.numpy() >= true).all()
        assert (lowest.numpy() <= 1 - true + 1e-15).all()
        assert 0 <= bound.advantage - (true - false).max() < 1e-6
    false, true = sampled_by_hand(mu, rate)[0]
    inside = (false > 1e-6) & (false < 0.03)
    assert bound.attack_rates(torch.as_tensor(false[inside]))[0].numpy() == pytest.approx(
        true[inside], rel=2e-3
    )


@pytest.mark.parametrize("slack", [1e-3, 1e-6])
@pytest.mark.parametrize(("mu", "rate"), [(0.3, 0.1), (0.6, 0.3)])
def test_mu_of_a_sample_holds_up_to_delta_and_not_below(mu: float, rate: float, slack: float) -> None:
    found = smallest_mu((GaussianRelease(mu, rate=rate),), slack)
    assert found < mu
    beyond = []
    for false, true in sampled_by_hand(mu, rate):
        at = torch.as_tensor(false)
        assert (GaussianBound(found).rates(at)[0].numpy() + slack >= true).all()
        beyond.append((true - GaussianBound(0.999 * found).rates(at)[0].numpy()).max())
    assert max(beyond) > slack


def test_samples_are_those_of_dp_accounting_and_riskcal() -> None:
    bound, accountant = rf.PrivacyLoss.of_gaussian(SAMPLES), composed(0.2, 0.1, 200)
    assert bound.advantage == pytest.approx(accountant.get_delta(0.0), abs=1e-8)
    highest, lowest = bound.attack_rates(RATES)
    for epsilon in (0.0, 0.1, 0.5, 1.0):
        allowed = math.exp(epsilon) * RATES + accountant.get_delta(epsilon)
        assert (highest <= allowed + 1e-8).all()
    assert (highest + lowest - 1).abs().max() < 1e-9
    riskcal = pytest.importorskip("riskcal.analysis")
    theirs = riskcal.get_beta_from_pld(accountant._pld, RATES[2:-1].numpy())
    assert lowest[2:-1].numpy() == pytest.approx(theirs, rel=0, abs=1e-6)


def test_samples_cost_no_more_than_everything() -> None:
    everything = rf.PrivacyLoss.of_gaussian(GaussianRelease(0.2, count=3))
    mixed = rf.PrivacyLoss.of_gaussian(GaussianRelease(0.2), GaussianRelease(0.2, rate=0.1, count=2))
    largest = 0.2 * math.sqrt(3) * (1 + 1e-11)
    assert 0.2 < smallest_mu(mixed.releases, 1e-6) < smallest_mu(everything.releases, 1e-6)
    assert smallest_mu(everything.releases, 1e-6) == pytest.approx(largest, rel=1e-13)
    highest = mixed.attack_rates(RATES)[0]
    assert (highest <= everything.attack_rates(RATES)[0]).all()
    assert (highest >= whole(0.2).attack_rates(RATES)[0] * (1 - 1e-9)).all()
    assert smallest_mu((GaussianRelease(1e4, rate=0.1),), 1e-6) == pytest.approx(
        1e4
    )  # too large for dp-accounting
    last = float(sampled_gaussian_curve(mixed.releases)[1][-1])  # where the curve ends
    below = smallest_mu(mixed.releases, math.nextafter(last, 0.0))
    assert smallest_mu(mixed.releases, last) < below == smallest_mu(mixed.releases, 1e-14)
    assert below == pytest.approx(largest, rel=1e-13)


def test_the_best_attack_on_a_pair_is_randomised_response_with_a_share_of_delta() -> None:
    """Its rates are those of the corner where both lines cross."""
    epsilons, deltas = float64([1.0, 2.0]), float64([0.1, 0.01])
    corners = [(math.exp(e) + d) / (1 + math.exp(e)) for e, d in ((1.0, 0.1), (2.0, 0.01))]
    bound = CurveBound(epsilons, deltas)
    assert bound.advantage == pytest.approx(2 * min(corners) - 1, rel=1e-10)
    corner = float64([1 - min(corners)])
    assert float(bound.rates(corner)[0]) == pytest.approx(min(corners), rel=1e-9)


def test_lines_of_a_curve_are_all_used() -> None:
    """Against the smallest over all lines, both those of an attack and those of its opposite."""
    epsilons = torch.linspace(0, 3, 40, dtype=torch.float64)
    deltas = rf.Gaussian(1.0).hockey_stick(0.0, 1.0, epsilons)
    at = RATES[1:-1].unsqueeze(1)
    straight = (epsilons.exp() * at + deltas).amin(dim=1)
    opposite = (1 - (1 - deltas - at) / epsilons.exp()).amin(dim=1)
    highest, lowest = CurveBound(epsilons, deltas).rates(RATES[1:-1])
    assert torch.allclose(highest, torch.minimum(straight, opposite), rtol=1e-9, atol=1e-10)
    assert torch.allclose(lowest, 1 - torch.minimum(straight, opposite), rtol=0, atol=1e-10)
    assert (highest >= GaussianBound(1.0).rates(RATES[1:-1])[0]).all()
    one = CurveBound(epsilons[:1], deltas[:1]).rates(float64([0.25]))
    assert float(one[0]) == pytest.approx(0.25 + float(deltas[0]))


@pytest.mark.parametrize("spacing", [0.25, 1.0])
def test_mu_covers_a_curve_between_its_points(spacing: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Points are so far apart that what the chord of g may miss between two of them decides."""
    slack, epsilons = 1e-3, torch.arange(0, 8, spacing, dtype=torch.float64)
    deltas = rf.Gaussian(1.0).hockey_stick(0.0, 1.0, epsilons).clamp(max=0.2)  # flat where it begins
    monkeypatch.setattr(gaussian_releases, "sampled_gaussian_curve", lambda _: (epsilons, deltas))
    at = epsilons.numpy()[: int((deltas <= slack).nonzero()[0]) + 1]

    def holds(mu: float) -> bool:
        g = norm.cdf(mu / 2 - at / mu) - np.exp(at) * norm.cdf(-mu / 2 - at / mu)
        room = g + slack - deltas.numpy()[: len(at)]
        slopes, u = -norm.cdf(-at / mu - mu / 2), np.exp(at)
        missed = [(u[i + 1] - u[i]) * (slopes[i + 1] - slopes[i]) / 4 for i in range(len(at) - 1)]
        return min(room) >= 0 and all(min(room[i], room[i + 1]) >= one for i, one in enumerate(missed))

    found = smallest_mu((GaussianRelease(5.0, rate=0.5),), slack)
    assert found < 5
    assert holds(found * (1 + 1e-9))
    assert not holds(found * (1 - 1e-9))


def coins(first: float, second: float, orders: torch.Tensor) -> torch.Tensor:
    """D_alpha of two coins, by definition."""
    total = first**orders * second ** (1 - orders) + (1 - first) ** orders * (1 - second) ** (1 - orders)
    return torch.log(total) / (orders - 1)


@pytest.mark.parametrize("zcdp", [1e-20, 1e-9, 1e-4, 0.02, 0.5, 5.0, 300.0])
def test_above_the_gaussian_which_has_this_zcdp(zcdp: float) -> None:
    highest, lowest = RenyiBound.of_zcdp(zcdp).rates(INNER)
    mu = (2 * zcdp) ** 0.5
    exact = GaussianBound(mu).rates(INNER)
    assert (highest >= exact[0].clamp(max=1.0) * (1 - 1e-10)).all()
    assert (lowest <= exact[1] * (1 + 1e-10)).all()
    assert RenyiBound.of_zcdp(zcdp).advantage >= gaussian_delta(mu, 0.0) * (1 - 1e-10)
    if zcdp < 1e-3:
        assert (highest <= exact[0] * 1.02 + 1e-6).all()


@pytest.mark.parametrize(("found", "alarm"), [(0.3, 0.1), (0.9, 0.2), (0.004, 0.001), (0.6, 0.4)])
def test_exact_where_the_pair_is_a_coin(found: float, alarm: float) -> None:
    """One order and the larger direction decide: the coin itself is the test that is allowed at most."""
    orders = float64([2.0, 8.0])
    forward, backward = coins(found, alarm, orders), coins(alarm, found, orders)
    for order in range(2):
        both = torch.maximum(forward, backward)[order : order + 1]
        highest, lowest = RenyiBound(orders[order : order + 1], both).rates(float64([alarm]))
        assert float(highest) == pytest.approx(found, rel=1e-9)
        assert float(highest) >= found
        assert float(lowest) <= 1 - found
    mirrored = coins(0.7, 0.3, orders)  # the same in both directions
    assert RenyiBound(orders, mirrored).advantage == pytest.approx(0.4, rel=1e-9)


def test_without_a_false_positive_nothing_is_found_and_with_all_of_them_everything() -> None:
    highest, lowest = RenyiBound.of_zcdp(0.5).rates(float64([0.0, 1.0]))
    assert (highest.tolist(), lowest.tolist()) == ([0.0, 1.0], [1.0, 0.0])


def test_the_sharpest_order_decides() -> None:
    orders = 1 + 2.0 ** torch.linspace(-4, 9, 14, dtype=torch.float64)
    pairs = zip(orders.split(1), (0.1 * orders).split(1), strict=True)
    alone = torch.stack([RenyiBound(order, bound).rates(INNER)[0] for order, bound in pairs])
    together = RenyiBound(orders, 0.1 * orders).rates(INNER)[0]
    assert torch.allclose(together, alone.amin(dim=0), rtol=1e-9, atol=0)
    assert (RenyiBound.of_zcdp(0.1).rates(INNER)[0] <= together * (1 + 1e-9)).all()
    assert (RenyiBound(orders, torch.full_like(orders, torch.inf)).rates(INNER)[0] == 1).all()
    assert RenyiBound(orders, torch.full_like(orders, torch.inf)).advantage == 1.0
    assert (RenyiBound.of_zcdp(0.0).rates(INNER)[0] <= INNER + 1e-6).all()


@pytest.mark.parametrize("zcdp", [0.02, 0.5, 3.0])
def test_as_sharp_as_riskcal(zcdp: float) -> None:
    """Up to 0.9: at 0.999 and zCDP 0.02 riskcal 1.5.1 is above the Gaussian, which has that zCDP."""
    riskcal = pytest.importorskip("riskcal.analysis")
    at = INNER[2:-2]
    theirs = torch.as_tensor(riskcal.get_beta_from_zcdp(zcdp, at.numpy()))
    lowest = RenyiBound.of_zcdp(zcdp).rates(at)[1]
    assert (lowest - theirs).abs().max() < 1e-5  # how much the orders that riskcal tries leave out
    assert (lowest >= theirs - 3e-6).all()
    assert RenyiBound.of_zcdp(zcdp).advantage == pytest.approx(
        riskcal.get_advantage_from_zcdp(zcdp, max_order=16, grid_size=60), abs=1e-6
    )


def test_what_rounding_may_have_added_to_a_divergence_is_taken_off() -> None:
    """Of equal coins nothing is left but 1e-14 of the logarithms, more at orders close to 1."""
    orders, logit = float64([[1.0], [1.01], [2.0], [64.0]]), float64([-2.0])
    logs = 1 + 2 * (math.log1p(math.exp(-2)) + math.log1p(math.exp(2)))
    expected = [-1e-14 * logs * factor for factor in (1 / 0.03, 1.01 / 0.03, 2.0, 64 / 63)]
    assert _excess(orders, 0 * orders, logit, logit).flatten().tolist() == pytest.approx(expected, rel=0.1)
    charged = _excess(orders, 1 + 0 * orders, logit, logit).flatten() + 1
    assert charged.tolist() == pytest.approx([-1e-11] * 4, rel=0.25)
